package lease

import (
	"sync/atomic"
	"time"
)

// Term is what this node knows of one shard. Row, Token and Mine may be asked from any goroutine;
// everything else is for the holder of the shard's lock, which is the service's.
type Term struct {
	ID int

	// row is the one with the highest token that was seen. A token names one owner, so the higher one
	// is the newer.
	row atomic.Pointer[Shard]
	// token is that under which the shard is this node's, as far as it knows; 0: it is not.
	token atomic.Int64
	// Stopped is how many of its signers this node has stopped. No other node knows of them, so the
	// balance leaves the shard where it is.
	Stopped atomic.Int32

	Performance bool      // this node serves it with the performance engine
	Unsure      bool      // the row and the hint are doubted: the next request acquires, which asks the store
	AskedAt     time.Time // when it was acquired last, or that was tried
	Took        Shard     // its row when it was acquired
	Stay        uint64    // counts how often it was lost: what was read in an earlier stay is read again

	hint      address // the owner, as another node told it; zero: none did
	hintToken int64   // of the row when the hint came; once the row has another, the hint is old
	leftTo    string  // the node for which this one gave the shard up last
	leftUntil time.Time

	freeSince time.Time // the balance's: since when it has no owner; zero: it has one
	keptUntil time.Time // the balance's: before then it is not given up
}

type address struct{ node, url string }

// Row is its row with the highest token that was seen.
func (m *Term) Row() *Shard { return m.row.Load() }

// Token is that under which it is this node's; 0: it is not.
func (m *Term) Token() int64 { return m.token.Load() }

// Mine reports whether this node owns it, as far as it knows.
func (m *Term) Mine() bool { return m.token.Load() != 0 }

// Believed is what commits and releases of this node name.
func (m *Term) Believed() ShardTerm {
	return ShardTerm{Shard: m.ID, Token: m.token.Load(), Performance: m.Performance}
}

// See takes in a row, from any goroutine.
func (m *Term) See(row Shard) {
	for {
		old := m.row.Load()
		if row.Token < old.Token || m.row.CompareAndSwap(old, &row) {
			return
		}
	}
}

// Learn takes in that another node has the shard, as a third one told; Doubt, that this is not known.
func (m *Term) Learn(node, url string) { m.hint, m.hintToken = address{node, url}, m.Row().Token }

// Doubt has the next request ask the store whose the shard is.
func (m *Term) Doubt() { m.hint, m.Unsure = address{}, true }

// Believe goes by the row alone.
func (m *Term) Believe() { m.hint, m.Unsure = address{}, false }
