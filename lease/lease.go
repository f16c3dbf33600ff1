// Package lease says who may allocate for a signer, and for how long a node may
// believe it.
//
// A lease is a row of the store: an owner, an expiry by the store's clock, and a
// fencing token. The token grows at every acquire, also by the same node, and at
// release; a renewal leaves it. Safety rests on the token (and the version of the
// signer's row) alone: every write names both, and the store refuses a write
// whose token is old. Times decide only who may try to take over, and when a node
// had better stop trusting its memory; nothing is correct because of a time.
//
// There are two kinds of lease. In a nonce.ShardStore a node has one lease, which a Keeper
// renews, and each shard of signers has an owner and a token (shard.go, keep.go, assign.go).
// In the older stores each signer has a lease of its own (Grant, Term), and nodes are
// registered by a Membership; that part goes with the old heart.
//
// What this package promises: term arithmetic that touches nothing but its
// arguments, a Membership that keeps a node registered and notices when it was
// superseded or when the store went back, and a Watch that knows the nodes there
// are. What it does not: it never decides whether a write is allowed. The store
// does, in the statement that writes. And the list of nodes is news, not truth: who
// acts on it must be right also when it is wrong. A Keeper, a Membership and a Watch
// have one goroutine each, which their Stop ends and waits for. The package has no locks.
package lease

import (
	"errors"
	"time"
)

// Holder identifies one run of one node. The incarnation is a number the store
// gives a node id at each start; a higher one takes over the leases of its node
// id at once.
type Holder struct {
	Node        string
	Incarnation int64
}

// Grant is what a store says of a lease: who holds it, under which token, until
// when by the store's clock.
type Grant struct {
	Holder    Holder
	URL       string // advertised URL of the holder, empty when it is not registered
	Token     int64
	ExpiresAt time.Time
}

// Held reports whether somebody held the lease at now, a time of the store's
// clock.
func (g Grant) Held(now time.Time) bool {
	return g.Holder.Node != "" && g.ExpiresAt.After(now)
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
