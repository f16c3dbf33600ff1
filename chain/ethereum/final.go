package ethereum

import (
	"cmp"
	"context"
	"fmt"
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
	f.noteLack(claims, ok)
	if !ok || final.Hash == (chain.Hash{}) {
		return head.FinalFell
	}
	beside := f.beside(final)
	if f.stands(ctx, claims, final) {
		head.FinalStands = true
		f.c.log.Warn("what was final before is final again", "final", final.Number)
		f.fallen, f.odd, f.lower, f.final = chain.Block{}, 0, 0, final
		return true
	}
	switch was := f.final; {
	case final.Hash == was.Hash:
		f.lower, f.odd = 0, 0
		return head.FinalFell
	case was.Hash != chain.Hash{} && (final.Number == was.Number || beside && final.Number < was.Number):
		if f.odd++; f.odd < fellRounds { // it may be one odd answer
			return head.FinalFell
		}
		head.FinalFell, f.fallen = true, was
	case was.Hash == chain.Hash{}, final.Number > was.Number:
		if beside { // no word on what was final before: the next polls tell
			return head.FinalFell
		}
	case !f.allLower(claims, was):
		f.lower = 0
		return head.FinalFell
	default:
		f.lower++
		if f.lower < fellRounds {
			return head.FinalFell
		}
		head.FinalFell, f.fallen = true, was
	}
	f.lower, f.odd, f.final = 0, 0, final
	return true
}

// beside reports whether another block with this number is canonical, or final.
func (f *follower) beside(b chain.Block) bool {
	if f.final.Hash != (chain.Hash{}) && f.final.Number == b.Number && f.final.Hash != b.Hash && f.fallen.Hash == (chain.Hash{}) {
		return true
	}
	canonical, known := f.canon.at(b.Number)
	return known && canonical.Hash != b.Hash
}

// stands reports whether the block that fell is final again, or below one that is.
func (f *follower) stands(ctx context.Context, claims []claim, final chain.Block) bool {
	was := f.fallen
	if was.Hash == (chain.Hash{}) || final.Number < was.Number {
		return false
	}
	return final.Hash == was.Hash || final.Number > was.Number && !f.beside(final) && f.shown(ctx, claims, was)
}

// shown reports whether the nodes have the block in their chain: two of them, where there are
// several.
func (f *follower) shown(ctx context.Context, claims []claim, b chain.Block) bool {
	if f.canon.has(b.Number, b.Hash) {
		return true
	}
	have := 0
	for _, c := range claims {
		if slices.ContainsFunc(c.n.headers(ctx, []int64{b.Number}), func(h chain.Block) bool { return h.Hash == b.Hash }) {
			have++
		}
	}
	return have >= min(2, len(f.c.nodes))
}

// noteLack says once that no node has a final block.
func (f *follower) noteLack(claims []claim, ok bool) {
	c := f.c
	tag := c.set.finality == finalizedTag
	answered := slices.ContainsFunc(claims, func(c claim) bool { return f.views[c.n] != nil && f.views[c.n].final.Hash != chain.Hash{} })
	switch {
	case ok || answered:
		f.lacks = 0
		c.noFinal.Store(false)
	case tag && len(claims) > 0 && f.lacks >= 0:
		if f.lacks++; f.lacks == fellRounds {
			f.lacks = -1
			c.noFinal.Store(true)
			c.log.Warn("no node of the chain names a final block, so that floors do not follow the chain: "+
				"say with --chain-finality how many blocks below the newest are final",
				"example", "--chain-finality "+c.set.ID+"=64")
		}
	}
}

// allLower reports whether every node has answered, and none calls a block final that is
// as high as one that was. A node that calls none final has no say; what one
// that does not answer would say is not known.
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
	var finals, odd []chain.Block
	for _, c := range claims {
		v := f.views[c.n]
		if v == nil || v.final.Hash == (chain.Hash{}) || !f.believed(c, v.final) || c.n.wrong(aboutCount) {
			continue
		}
		if f.beside(v.final) {
			odd = append(odd, v.final)
		} else {
			finals = append(finals, v.final)
		}
	}
	f.judgeFinals(claims, finals)
	needed := min(2, len(f.c.nodes))
	if len(finals) == 0 && len(odd) >= needed {
		finals = odd
	}
	if len(finals) < needed {
		return chain.Block{}, false
	}
	slices.SortStableFunc(finals, func(a, b chain.Block) int { return cmp.Compare(b.Number, a.Number) })
	return f.namedBy(ctx, claims, finals)
}

// judgeFinals notes which nodes name a final block that contradicts that of the others.
func (f *follower) judgeFinals(claims []claim, right []chain.Block) {
	if !f.c.Several() || len(right) == 0 {
		return
	}
	for _, c := range claims {
		v := f.views[c.n]
		if v == nil || v.final.Hash == (chain.Hash{}) {
			continue
		}
		var why error
		if f.beside(v.final) {
			why = fmt.Errorf("it calls the block %v final, which is not that with the number %d of the others", v.final.Hash, v.final.Number)
		}
		c.n.judged(aboutFinal, why)
	}
}

// namedBy is the newest of the finals, in falling order, that most of the nodes have reached.
// Where nodes name different blocks with its number, most of them decide; one that a single
// node names counts if another one has it in its chain.
func (f *follower) namedBy(ctx context.Context, claims []claim, finals []chain.Block) (chain.Block, bool) {
	number := finals[len(finals)/2].Number
	votes, named := map[chain.Hash]int{}, map[chain.Hash]chain.Block{}
	for _, b := range finals {
		if b.Number == number {
			votes[b.Hash]++
			named[b.Hash] = b
		}
	}
	hash, n := most(votes)
	if n == 0 || n < min(2, len(f.c.nodes)) && !f.shown(ctx, claims, named[hash]) {
		return chain.Block{}, false
	}
	return named[hash], true
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
	if f.agreed.Hash == (chain.Hash{}) {
		return chain.Block{}, false
	}
	number := f.agreed.Number - f.c.set.finality
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
		if c.head.Hash != f.kept.Hash && c.head.Hash != f.agreed.Hash {
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
		head.FinalFell, f.fallen, f.final = true, f.final, chain.Block{}
	default:
		ancestor = max(ancestor, f.final.Number)
	}
	head.Reorg = &chain.Reorg{From: f.kept, To: to, Depth: int(f.kept.Number - ancestor)}
	f.kept, f.below, f.lower = chain.Block{}, 0, 0
	clear(f.canon.blocks)
	f.branch = newBranches()
	return true
}
