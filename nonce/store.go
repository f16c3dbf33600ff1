package nonce

import (
	"context"
	"errors"
	"time"

	"github.com/cespare/xxhash/v2"

	"noncegate/lease"
)

// Store is what a service needs of a store. It keeps each signer's open state in one row; a
// shard of signers has one owner and one fencing token, a node one lease.
//
// A signer is of one shard for ever: ShardOf. Every change of a signer raises its version
// by one, a shipment by several, and compares it; the owner's changes compare the shard's
// owner, token and engine as well. Safety rests on these alone. Times decide which node may take a shard, and when a hold may
// be ended.
//
// A row whose live state cannot be read stops its signer and no other: Load says so of it,
// List of it is an ErrLive, Signers and Totals show it as Unreadable.
//
// Errors are *StoreError, whose Outcome says whether anything happened.
type Store interface {
	Database
	SentStore
	lease.Registry

	// Shards is the number of shards, which is fixed when the database is created.
	Shards() int

	// Renew gives a node a lease from now on for ttl, by the store's clock, however long the
	// one before was, and says which shards are the node's. Another incarnation is
	// lease.ErrSuperseded; a node that is not registered is lease.ErrWentBack. It raises
	// the counter of the node's row by one. A node that has left stays so.
	Renew(ctx context.Context, h lease.Holder, ttl time.Duration) (lease.Renewal, error)
	// Acquire takes those of the shards that it may, and returns all of them as they are
	// then. It takes one that is free, that is of the same node by an equal or lower
	// incarnation, or whose owner's lease, of the incarnation that owns it, is over by the
	// store's clock, or is there no more. The token of what it takes is raised by one,
	// always. A node without a lease that runs takes nothing.
	Acquire(ctx context.Context, h lease.Holder, shards []int) ([]lease.Shard, error)
	// Release gives back those of the shards that are still the holder's under the tokens
	// given: no owner, and the token raised by one. It returns how many.
	Release(ctx context.Context, h lease.Holder, terms []lease.ShardTerm) (int, error)
	// Pin says at which node a shard should be while that node lives, whatever the balance
	// says; "" unpins it. The owner and the token stay as they are.
	Pin(ctx context.Context, shard int, node string) error
	// Owners returns all shards in order, the nodes as Nodes does, and the store's clock,
	// all as they were at one moment.
	Owners(ctx context.Context) (lease.Owners, error)

	// Load reads signers, the shards that they are of, and what else is needed of them,
	// all as they were at one moment. It changes nothing.
	Load(ctx context.Context, needs []SignerNeed) (Loaded, error)
	// Commit applies writes of signers in one transaction and one round trip. Before
	// anything else it locks the rows of their shards, so that none of them changes hands
	// until the commit has ended. A write whose condition does not hold is left out and
	// leaves no trace; the others are applied. What is not as the rules leave it aborts
	// everything: Aborted, with ErrInvariant.
	Commit(ctx context.Context, h lease.Holder, writes []Write) (Committed, error)
	// Locked is for a node that owns nothing: in one transaction it locks the signer's
	// shard and row, has plan decide on what it reads, and commits what plan returns, under
	// token 0 whatever the plan says of it. An error of plan rolls back and is returned. Of a
	// shard with the performance engine it is NotOwner.
	Locked(ctx context.Context, need SignerNeed, plan func(Loaded) (Write, error)) (Committed, error)

	// Due returns signers of the shards that were listed for now or before, at most limit,
	// the earliest first.
	Due(ctx context.Context, shards []int, limit int) ([]DueEntry, error)
	// Watched returns signers of the shards that are watched, at most limit, in order of ID and
	// above after.
	Watched(ctx context.Context, shards []int, after int64, limit int) ([]WatchEntry, error)
	// Prune deletes rows of the history, at most limit, that were written before a time.
	// Nothing of any signer's state changes by it.
	Prune(ctx context.Context, before time.Time, limit int) (int, error)
}

// SignerNeed says what to read of one signer, beyond its row.
type SignerNeed struct {
	Signer   string
	History  []int64  // nonces
	Requests []string // request ids
}

// Loaded is what Load read.
type Loaded struct {
	Now     time.Time // store clock
	Signers []LoadedSigner
}

// LoadedSigner is one signer.
type LoadedSigner struct {
	Signer   Signer
	Err      error // an ErrLive: the row cannot be read; Signer has no Live then
	Token    int64 // under which the row was written last; 0: in mode basic, or there is no row
	Shard    lease.Shard
	History  map[int64]*Past        // of all nonces that were needed; nil: no row is kept
	Requests map[string]*Remembered // of all ids that were needed; nil: not known
}

// Write is the change of one signer.
type Write struct {
	Name  string
	Term  lease.ShardTerm // as its shard is believed to be; the token becomes the row's
	Check bool            // the write only compares the version, and sets DueAt and Watch; the row stays as it is
	// Generation is the store's Generation that the belief is of. Where one of a commit is another
	// than the store's, nothing is sent: NotSent. Locked does not look at it.
	Generation uint64
	// Signer is the new row. Its Version is the believed one plus 1 and Rise, or, with Check,
	// the believed one. A signer of version 0 has no row, or one with nothing but a ceiling.
	// The row's ceiling is raised to Signer.Ceiling, if it is lower.
	Signer   Signer
	Rise     int64        // how many versions more than one a shipment takes in; see LogStore
	History  []Past       // inserted; those that are Again also in the place of rows of no higher attempt
	Requests []Remembered // inserted; where one is known, the write is left out
	// NotBefore is the time, in Unix milliseconds by the store's clock, before which the
	// write is left out; 0: none.
	NotBefore int64
	// DueAt lists the signer for a time, in Unix milliseconds, unless it is listed for an
	// earlier one that has not come yet; 0: it stays as it is listed; Unlisted: it is listed
	// no more, if that time has come. Of a signer without a row nothing is listed.
	DueAt int64
	// Watch lists the signer as one whose chain is watched, or no more. Of a signer without a row
	// nothing is listed.
	Watch Watch
}

// Believed is the version that the row must have.
func (w *Write) Believed() int64 {
	if w.Check {
		return w.Signer.Version
	}
	return w.Signer.Version - 1 - w.Rise
}

// Unlisted is the DueAt of a signer that has no hold to be ended.
const Unlisted = -1

// WriteResult says what became of a write. Only of Applied is there a trace.
type WriteResult uint8

// The results of a write.
const (
	Applied  WriteResult = iota + 1
	NotOwner             // the shard's owner or token is another
	Moved                // the signer's version is another, or another session has its row locked
	IDKnown              // one of the request ids is known
	TooEarly             // NotBefore has not come
)

// String names the result for logs.
func (v WriteResult) String() string {
	return [...]string{"nothing", "applied", "not the owner", "moved", "request id known", "too early"}[v]
}

// Committed is what became of writes.
type Committed struct {
	Now     time.Time     // store clock
	Results []WriteResult // of each write
}

// DueEntry is a signer that may have a hold to be ended.
type DueEntry struct {
	Shard  int
	Signer string
	At     int64 // for when it was listed, Unix milliseconds
}

// ShardOf is the shard of a signer, of so many. It is the same in every process and for
// ever: stores keep what it says.
func ShardOf(signer string, shards int) int {
	return int(xxhash.Sum64String(signer) % uint64(shards))
}

// Outcome says whether a write happened.
type Outcome uint8

// The outcomes of a write that ended in an error. They are never merged.
const (
	// Unknown: the connection broke, or time ran out, while the store may have
	// been committing. It is the zero value, so that a forgotten outcome never says that nothing happened.
	Unknown Outcome = iota
	// NotSent: the store was out of reach before anything was sent. Nothing
	// happened.
	NotSent
	// Aborted: the store refused the transaction as a whole (a violated key, a
	// deadlock, a lock timeout). Nothing happened; smaller pieces may succeed.
	Aborted
)

// String names the outcome for logs.
func (o Outcome) String() string { return [...]string{"unknown", "not sent", "aborted"}[o] }

// StoreError is an error of a store with its outcome.
type StoreError struct {
	Outcome Outcome
	Err     error
}

// Error implements error.
func (e *StoreError) Error() string { return "store (" + e.Outcome.String() + "): " + e.Err.Error() }

// Unwrap returns the cause.
func (e *StoreError) Unwrap() error { return e.Err }

// OutcomeOf returns the outcome of a store's error. An error that does not say
// is Unknown: it must not be taken for a refusal.
func OutcomeOf(err error) Outcome {
	if se, ok := errors.AsType[*StoreError](err); ok {
		return se.Outcome
	}
	return Unknown
}

// ErrInvariant is the cause of an Aborted StoreError when a row was not as the
// rules left it. It is an alarm: another program wrote, or this one is wrong.
var ErrInvariant = errors.New("a row is not as the rules left it")
