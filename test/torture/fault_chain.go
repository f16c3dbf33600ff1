//go:build unix

package torture

import (
	"context"
	"time"
)

// nodesAway has one node of the chain refuse everything, then the other too, then none.
func nodesAway(ctx context.Context, b *breaker) error {
	defer b.chain.blindly()()
	first := b.rnd.IntN(2)
	for _, i := range []int{first, 1 - first} {
		b.note("node %d of the chain is away", i)
		b.chain.nodes[i].away.Store(true)
		lasts(ctx, b.between(200*time.Millisecond, 2*chainUnknown))
	}
	for i, n := range b.chain.nodes {
		b.note("node %d of the chain is back", i)
		n.away.Store(false)
		lasts(ctx, b.between(0, chainUnknown))
	}
	return nil
}

// nodeBehind has one node tell of old blocks only, and the other be away for a part of that time.
func nodeBehind(ctx context.Context, b *breaker) error {
	defer b.chain.blindly()()
	i := b.rnd.IntN(2)
	late, other := b.chain.nodes[i], b.chain.nodes[1-i]
	late.behind.Store(1 + b.rnd.Int64N(20))
	b.note("node %d of the chain is %d blocks behind", i, late.behind.Load())
	lasts(ctx, b.between(200*time.Millisecond, chainUnknown))
	other.away.Store(true)
	b.note("node %d of the chain is away", 1-i)
	lasts(ctx, b.between(200*time.Millisecond, 2*chainUnknown))
	other.away.Store(false)
	late.behind.Store(0)
	b.note("both nodes of the chain are well")
	return nil
}
