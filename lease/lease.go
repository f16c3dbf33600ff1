// Package lease is ownership: the lease of a node, and the shards that this node and others own.
//
// The life of a shard, for one node. A shard of signers has a row in the store with its owner and a
// fencing token. The node learns of it by looks at all rows (Table.Look), by its heartbeat (Renewed), and
// by each row that it reads (Term.See); the highest token is the newest. When the shard is free, or its
// owner's lease is over, the node takes it: a request for it does (Acquire), or an order of the balance
// (Balance, Follow). That raises the token, also where the shard was this node's before, and begins a
// term: from then on every commit names that token. The term goes on while the node acquires the shard
// again and the token is the next one each time, as after a commit of unknown outcome (Again). It ends
// when the store shows another token or owner (Lose), when another node should have the shard or this one
// retires (GiveUp: the token rises, and the row has no owner), or when a row with a lower token shows that
// the store went back (WentBack). The Server that serves the shard is told of each change.
//
// Safety rests on the token and on the version of the signer's row alone: every write names both, and the
// store refuses a write whose token is old. Times decide only which node may try to take a shard. A node
// whose lease has run out continues to serve until the store refuses its token. (How long a shard's log
// may answer alone does depend on a time, see Engine.)
//
// It promises a Keeper that renews the one lease of a node and notices when the node was superseded or
// when the store went back, an assignment of shards that all nodes compute alike, and that what is
// remembered of a shard is told to be void before anything is planned under a term that does not continue
// the one before. It never decides whether a write is allowed. A Keeper has one goroutine, which its Stop
// ends and waits for. The Table has a lock, held while the store is asked for the fleet; what it knows of a
// shard is guarded by a lock of the Server, but for the row and the token.
//
// Where to begin reading: shard.go (an owner, its token and its engine), registry.go (what a store
// keeps of nodes), keep.go (a node's heartbeat), assign.go (who should have which shard), fleet.go (what
// a node knows of the nodes), term.go (of one shard), table.go (of all of them, and what is to be done),
// acquire.go (taking and giving back).
package lease

import (
	"errors"
	"time"
)

// Holder identifies one run of one node. The incarnation is a number the store
// gives a node id at each start; a higher one takes over the shards of its node
// id at once.
type Holder struct {
	Node        string
	Incarnation int64
}

// Ownership is what a store says of a lease: who holds it, under which token, until
// when by the store's clock.
type Ownership struct {
	Holder    Holder
	URL       string // advertised URL of the holder, empty when it is not registered
	Token     int64
	ExpiresAt time.Time
}

// Held reports whether a node held the lease at now, a time of the store's
// clock.
func (o Ownership) Held(now time.Time) bool {
	return o.Holder.Node != "" && o.ExpiresAt.After(now)
}

// Errors of ownership.
var (
	// ErrSuperseded: a later start of the same node id exists. The process must
	// stop.
	ErrSuperseded = errors.New("superseded by a later start of the same node id")
	// ErrWentBack: the store shows less than was seen before. It failed over to
	// a copy that lacks commits, or was restored.
	ErrWentBack = errors.New("the store went back")
)
