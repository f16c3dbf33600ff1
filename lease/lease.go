// Package lease defines node leases and shard ownership: which node is live, until when, and
// which node should have which shard.
//
// A node has one lease, which its heartbeat renews (Keeper). A shard of signers has an owner and
// a fencing token in the store; the token grows at every acquire, also by the same node, and at
// release. Safety rests on the token and on the version of the signer's row alone: every write
// names both, and the store refuses a write whose token is old. Times decide only which node may
// try to take a shard. A Keeper has no trust window: a node whose lease has run out continues to
// serve until the store refuses its token. (How long a shard's log may answer alone does depend on
// a time, see Engine.)
//
// It promises a Keeper that renews a lease and notices when the node was superseded or when the
// store went back, and an assignment of shards that all nodes compute alike. It never decides
// whether a write is allowed. A Keeper has one goroutine, which its Stop ends and waits for. The
// Table has a lock, held while the store is asked for the fleet; what it knows of a shard is guarded by
// the lock of whoever serves that shard.
//
// Where to begin reading: shard.go (an owner, its token and its engine), registry.go (what a store
// keeps of nodes), keep.go (a node's heartbeat), assign.go (who should have which shard), fleet.go (what
// a node knows of the nodes), term.go (of one shard), table.go (of all of them, and what is to be done).
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

// Held reports whether somebody held the lease at now, a time of the store's
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
