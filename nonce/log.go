package nonce

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"noncegate/lease"
)

// ShardLog is the log in front of the rows: of each shard that has the performance engine a
// fence and the records that were not shipped to the rows yet.
//
// A fence is a token, a try and a head, the number of the last record. Whatever changes a log
// compares the fence, and the identity of the server, which shows one that was set back.
//
// Errors are ErrLogFenced, ErrLogLost or *StoreError. The Outcome of a *StoreError says whether
// anything happened, and it wraps ErrLogFull if the server refused a record for want of memory.
// An unknown append is settled by Raise: what comes late meets a higher try.
type ShardLog interface {
	// Begin makes the log of a shard empty, under a token that is above the one found, and
	// returns the fence. It is for a shard that has the reliable engine.
	Begin(ctx context.Context, shard int, token int64) (LogFence, error)
	// Enter puts the token of a new owner into the log, and a higher try, and then reads what
	// is there. of has the token, the identity that was accepted, and as Head what is known
	// as shipped. The token found must be lower, the head not below Head, no record missing.
	Enter(ctx context.Context, of LogFence) (LogFence, []LogRecord, error)
	// Raise puts the try after of.Try into the log, under the same token, unless it has that or a
	// higher one, and returns the fence with the head that it has. One that comes late changes
	// nothing.
	Raise(ctx context.Context, of LogFence) (LogFence, error)
	// Append adds records, each at the head of its log, and returns an error of each, nil:
	// it is in the log, or, without a record, the fence is as it is believed. What it
	// returns was compared with the identity after the records were added.
	Append(ctx context.Context, items []LogAppend) []error
	// Read returns the fence of a shard's log and what it has, and changes nothing.
	Read(ctx context.Context, shard int) (LogFence, []LogRecord, error)
	// Trim takes out the records up to each Head.
	Trim(ctx context.Context, logs []LogFence) error
	// Identity is that of the server which answers.
	Identity(ctx context.Context) (string, error)
}

// Rehearsal names the log in which a shard's is rehearsed, at the same server. It is never entered.
func Rehearsal(shard int) int { return -1 - shard }

// LogFence is the log of a shard as its owner believes it to be.
type LogFence struct {
	Shard            int
	Token, Try, Head int64
	Identity         string // of the server
}

// LogAppend is a record to be added to a log. Its number is the fence's head and 1.
type LogAppend struct {
	Fence  LogFence
	Record *LogRecord // nil: only compare the fence
}

// ErrLogLost is in the error of a log that is not what was accepted: its server is another,
// its keys are gone, or it shows less than it did.
var ErrLogLost = errors.New("the log of the shard is lost")

// ErrLogFenced is in the error of a log that has the token of another owner.
var ErrLogFenced = errors.New("the log of the shard has another owner")

// ErrLogFull is in the *StoreError of a record that the server refused for want of memory.
var ErrLogFull = errors.New("the server of the log has no memory left")

// LogRecord is what one batch changes of one shard.
type LogRecord struct {
	Shard      int
	Token, Seq int64
	Changes    []LogChange
}

// LogChange is what a record changes of one signer: it makes the version before it Version.
type LogChange struct {
	Name                 string
	Version, Next, Floor int64
	Put                  []Entry // as they are from now on, ascending
	Gone                 []int64 // live no more, ascending
	History              []Past
	Requests             []Remembered
}

// ErrLogGap is in the error of records that do not follow one another.
var ErrLogGap = fmt.Errorf("%w: a version is missing", ErrLogLost)

// ChangeOf is what takes a signer from one version to the next.
func ChangeOf(name string, from, to *Signer) LogChange {
	c := LogChange{Name: name, Version: to.Version, Next: to.Next, Floor: to.Floor}
	a, b := from.Live, to.Live
	for len(a) > 0 || len(b) > 0 {
		switch {
		case len(b) == 0 || len(a) > 0 && a[0].Nonce < b[0].Nonce:
			c.Gone, a = append(c.Gone, a[0].Nonce), a[1:]
		case len(a) == 0 || b[0].Nonce < a[0].Nonce:
			c.Put, b = append(c.Put, b[0]), b[1:]
		default:
			if a[0] != b[0] {
				c.Put = append(c.Put, b[0])
			}
			a, b = a[1:], b[1:]
		}
	}
	return c
}

// Apply makes the change of a row, whose Live is replaced and not changed in place. A row
// that has it already stays as it is.
func (c *LogChange) Apply(row *Signer) (applied bool, err error) {
	if c.Version <= row.Version {
		return false, nil
	}
	if c.Version != row.Version+1 || c.Next < row.Next || c.Floor < row.Floor {
		return false, fmt.Errorf("%w: %s goes from version %d to %d", ErrLogGap, c.Name, row.Version, c.Version)
	}
	live := make([]Entry, 0, len(row.Live)+len(c.Put))
	put := c.Put
	for _, e := range row.Live {
		for len(put) > 0 && put[0].Nonce < e.Nonce {
			live, put = append(live, put[0]), put[1:]
		}
		_, gone := slices.BinarySearch(c.Gone, e.Nonce)
		switch {
		case len(put) > 0 && put[0].Nonce == e.Nonce:
			live, put = append(live, put[0]), put[1:]
		case !gone:
			live = append(live, e)
		}
	}
	row.Version, row.Next, row.Floor, row.Live = c.Version, c.Next, c.Floor, append(live, put...)
	return true, nil
}

// LogStore is what a service needs of a store beside a Store for the performance engine.
// In all that changes a shard, the shard's owner, token and engine are compared.
type LogStore interface {
	// Reserve raises the ceilings of signers, of those whose epoch is the shard's or that
	// never had one, in one statement. It says of each whether it has the ceiling now.
	Reserve(ctx context.Context, h lease.Holder, ceilings []Ceiling) ([]bool, error)
	// Ship commits what logs have, as Commit does, and in the same statement notes of each
	// shard that it was shipped up to its head, and does with its engine what is asked; both
	// only if every write of the shard was applied. The grant is prolonged in any case.
	Ship(ctx context.Context, h lease.Holder, s Shipment) (Shipped, error)
	// TurnOn gives a shard that has the reliable engine the performance engine, with an
	// empty log of that identity, a grant and the longest hold. False: it is not so any more.
	TurnOn(ctx context.Context, h lease.Holder, t lease.ShardTerm, identity string, g Grant) (bool, error)
	// Declare says that the log of a shard is lost, and with it what was not shipped: the
	// engine is reliable, the epoch one higher, and until the end of the grant, the longest
	// hold and a margin what may have been handed out is in doubt. False: it is not so any
	// more.
	Declare(ctx context.Context, h lease.Holder, t lease.ShardTerm, margin time.Duration) (bool, error)
	// Engine returns what is wanted of all shards.
	Engine(ctx context.Context) (EngineGoal, error)
	// SetEngine says what is wanted, if it was last changed by the change of that number. It
	// returns what is wanted then, by this change or another.
	SetEngine(ctx context.Context, from int64, goal EngineGoal) (EngineGoal, error)
	// Rehearsed notes of shards that they have kept up with a rehearsal for as long as is
	// wanted, in the change of goal of that number.
	Rehearsed(ctx context.Context, h lease.Holder, terms []lease.ShardTerm, change int64) error
}

// Ceiling is a bound below which the log may hand out nonces of a signer.
type Ceiling struct {
	Name string
	Term lease.ShardTerm
	Next int64 // nonces below it
}

// Grant is for how long a log may hand out without the store, and the longest hold that
// it may hand out.
type Grant struct{ For, LongestHold time.Duration }

// Shipment is what goes from logs to the rows in one statement.
type Shipment struct {
	Writes []Write
	Shards []ShippedShard // each once, those of the writes among them
	Grant  Grant
	// Generation is that of a Write, for the shards.
	Generation uint64
}

// ShippedShard is a shard of a shipment.
type ShippedShard struct {
	Term lease.ShardTerm
	Head int64 // of the last record that is in the shipment
	Off  bool  // the shard gets the reliable engine
}

// Shipped is what became of a shipment.
type Shipped struct {
	Committed
	Granted []bool // of each shard: it is as its owner believes, and its grant was prolonged
	Whole   []bool // of each shard: every write of it was applied
}

// EngineGoal is what is wanted of all shards.
type EngineGoal struct {
	Change      int64 // grows with every change of the goal
	Performance bool
	Degraded    bool // a node went back to reliable by itself, for a reason
	Reason      string
	Rehearse    time.Duration // how long each shard is to keep up before it is switched on
	At          time.Time     // of the change
}
