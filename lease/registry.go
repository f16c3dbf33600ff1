package lease

import (
	"context"
	"time"
)

// Presence is what a node says of itself when it starts.
type Presence struct {
	Node string // its id, the same at each start
	URL  string // under which clients and other nodes reach it
	Mode string // how it serves; the registry only repeats it
}

// Node is a node as the registry shows it. Times are of the store's clock.
type Node struct {
	Holder
	URL  string
	Mode string // "" from a version that did not say
	// Shards is how many shards it owns in this incarnation.
	Shards int
	// LeaseUntil is the end of its lease; zero: it has none yet.
	LeaseUntil time.Time
	// Live: it has not left, and its lease runs, by the store's clock when the row was read.
	Live      bool
	Left      bool      // it went away in an orderly way, or is about to
	StartedAt time.Time // when it registered
	SeenAt    time.Time // when it last registered, renewed its lease, or left
}

// Remembered is how long the registry shows a node after it was last seen. Its row
// stays for ever, because it carries the incarnation.
const Remembered = 24 * time.Hour

// Registry is the part of a store that remembers nodes.
type Registry interface {
	// Register starts a new incarnation of the node id, with counter 0, that owns
	// nothing, has no lease and has not left.
	Register(ctx context.Context, p Presence) (Holder, error)
	// Leave marks the node as left, if h is its incarnation. Its shards and its lease stay;
	// later renewals do not bring it back. It may be called again.
	Leave(ctx context.Context, h Holder) error
	// Nodes returns the nodes that are live or were seen within Remembered, in
	// order of the bytes of their ids, and the store's clock by which that was
	// judged.
	Nodes(ctx context.Context) ([]Node, time.Time, error)
}
