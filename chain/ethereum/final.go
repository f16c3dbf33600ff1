package ethereum

import (
	"cmp"
	"context"
	"slices"
	"time"

	"noncegate/chain"
)

// fellRounds is for how many decisions in a row the final block must be below what it
// was before that is believed: behind one address there may be nodes that are not equally
// far.
const fellRounds = 5

// settleFinal finds out which block is final now. It reports whether that has changed.
func (f *follower) settleFinal(ctx context.Context, claims []claim, head *chain.Head) bool {
	final, ok := f.finalOf(ctx, claims)
	if !ok || final.Hash == (chain.Hash{}) {
		return head.FinalFell
	}
	canonical, known := f.canon.at(final.Number)
	beside := known && canonical.Hash != final.Hash
	switch was := f.final; {
	case was.Hash == chain.Hash{}, final.Number > was.Number:
		if beside { // no word on what was final before: the next polls tell
			return head.FinalFell
		}
	case final.Hash == was.Hash:
		f.lower = 0
		return head.FinalFell
	case final.Number == was.Number, beside:
		head.FinalFell = true
	case !f.allLower(claims, was):
		f.lower = 0
		return head.FinalFell
	default:
		f.lower++
		if f.lower < fellRounds {
			return head.FinalFell
		}
		head.FinalFell = true
	}
	f.lower, f.final = 0, final
	return true
}

// allLower reports whether every node has answered, and none calls a block final that is
// as high as one that was. A node that calls none final has no say; of one that does not
// answer nobody knows what it would say.
func (f *follower) allLower(claims []claim, was chain.Block) bool {
	return len(claims) == len(f.c.nodes) &&
		!slices.ContainsFunc(claims, func(c claim) bool { return f.views[c.n].final.Number >= was.Number })
}

// finalOf returns the final block by the rule of the settings: the newest block that most
// of the nodes on the branch call final, or the one so many blocks below the newest.
func (f *follower) finalOf(ctx context.Context, claims []claim) (chain.Block, bool) {
	if f.kept.Hash == (chain.Hash{}) {
		return chain.Block{}, false
	}
	if f.c.set.finality != finalizedTag {
		return f.finalByDepth(ctx, claims)
	}
	var finals []chain.Block
	for _, c := range claims {
		v := f.views[c.n]
		if v == nil || v.final.Hash == (chain.Hash{}) || !f.believed(c, v.final) {
			continue
		}
		finals = append(finals, v.final)
	}
	if len(finals) == 0 {
		return chain.Block{}, false
	}
	slices.SortStableFunc(finals, func(a, b chain.Block) int { return cmp.Compare(b.Number, a.Number) })
	return finals[len(finals)/2], true
}

// believed reports whether a node's final block counts: the node is on the branch and not
// far behind, and the block is no newer than the newest.
func (f *follower) believed(c claim, final chain.Block) bool {
	c.n.mu.Lock()
	defer c.n.mu.Unlock()
	return c.n.onBranch && c.n.lag <= int64(f.c.set.Lag) && final.Number <= f.kept.Number
}

// finalByDepth returns the block that is so many below the newest.
func (f *follower) finalByDepth(ctx context.Context, claims []claim) (chain.Block, bool) {
	number := f.kept.Number - f.c.set.finality
	if number < 0 {
		return chain.Block{}, false
	}
	if b, ok := f.canon.at(number); ok {
		return b, true
	}
	if f.final.Hash != (chain.Hash{}) && f.final.Number >= number {
		return f.final, true
	}
	for _, c := range claims { // after a start, or after blocks were skipped
		if c.head.Hash != f.kept.Hash {
			continue
		}
		for _, b := range c.n.headers(ctx, []int64{number}) {
			f.canon.blocks[b.Number] = b
			return b, true
		}
	}
	return chain.Block{}, false
}

// standstill is for how long all nodes must be far below the newest block, and not below
// what is final, before that block is given up.
const standstill = 10 * time.Minute

// reset notices that all nodes are below what was final, or far below what was the newest
// block where nothing is final: the chain was begun anew. Then everything is forgotten. If
// they are far below the newest block for long, they do not come to it again: then all is
// forgotten that is not final.
func (f *follower) reset(claims []claim, head *chain.Head) bool {
	far := f.kept.Number - int64(f.c.set.MaxBlocksBehind)
	bottom := far
	if f.final.Hash != (chain.Hash{}) {
		bottom = f.final.Number
	}
	allBelow := func(number int64) bool {
		return f.kept.Hash != (chain.Hash{}) && len(claims) == len(f.c.nodes) &&
			!slices.ContainsFunc(claims, func(c claim) bool { return c.head.Number >= number })
	}
	f.below++
	if !allBelow(bottom) {
		f.below = 0
	}
	if !allBelow(far) {
		f.farAt = time.Now()
	}
	if f.below < fellRounds && time.Since(f.farAt) < standstill {
		return false
	}
	to := slices.MaxFunc(claims, func(a, b claim) int { return cmp.Compare(a.head.Number, b.head.Number) }).head.Block
	ancestor := int64(-1) // of a chain that was begun anew no block need be what it was
	if f.canon.has(to.Number, to.Hash) {
		ancestor = to.Number
	}
	switch {
	case f.final.Hash == chain.Hash{}:
	case to.Number < f.final.Number:
		head.FinalFell, f.final = true, chain.Block{}
	default:
		ancestor = max(ancestor, f.final.Number)
	}
	head.Reorg = &chain.Reorg{From: f.kept, To: to, Depth: int(f.kept.Number - ancestor)}
	f.kept, f.below, f.lower = chain.Block{}, 0, 0
	clear(f.canon.blocks)
	f.branch = newBranches()
	return true
}
