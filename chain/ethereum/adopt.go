package ethereum

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"noncegate/chain"
	"noncegate/chain/ethereum/internal/jsonrpc"
)

const (
	// triesToRead is how many decisions in a row may fail to read the blocks of a new
	// head before they are skipped.
	triesToRead = 3
	// forkSearch is how many blocks back a fork is looked for when blocks are skipped.
	forkSearch = 100
)

// learn asks nodes with different newest blocks how these are related, where that is not
// known: one request to each, and none while all agree.
func (f *follower) learn(ctx context.Context, claims []claim) {
	same := !slices.ContainsFunc(claims, func(c claim) bool { return c.head.Hash != claims[0].head.Hash })
	if same {
		return
	}
	for _, c := range claims {
		wanted := map[int64]bool{}
		want := func(number int64) {
			if _, known := f.branch.at(c.head.Block, number); !known && number < c.head.Number {
				wanted[number] = true
			}
		}
		if f.kept.Hash != (chain.Hash{}) {
			want(f.kept.Number)
		}
		for _, other := range claims {
			if c.head.Number-other.head.Number <= int64(f.c.set.Lag) {
				want(other.head.Number)
			}
		}
		var numbers []int64
		for n := range wanted {
			numbers = append(numbers, n)
		}
		for _, b := range c.n.headers(ctx, numbers) {
			f.branch.say(c.head.Hash, b)
		}
	}
}

// headers asks for blocks by their numbers, without transactions. What the node does not
// have, or what makes no sense, is left out.
func (n *node) headers(ctx context.Context, numbers []int64) []chain.Block {
	if len(numbers) == 0 {
		return nil
	}
	session, err := n.ready(ctx, usePolls, false)
	if err != nil {
		return nil
	}
	calls := make([]*jsonrpc.Call, len(numbers))
	for i, number := range numbers {
		calls[i] = jsonrpc.NewCall(methodBlockByNumber, quantity(number), false)
	}
	n.ask(ctx, session, calls, asking{limit: n.c.set.MaxAnswerBytes, use: usePolls})
	var all []chain.Block
	for i, c := range calls {
		if c.Result == nil {
			continue
		}
		b, err := decodeBlock(c.Result, false, n.c.set.chainID)
		if err == nil && b.Number == numbers[i] {
			all = append(all, b.Block)
		}
	}
	return all
}

// body reads the block with a hash and its transactions, from the node that should have
// it or else from another one.
func (f *follower) body(ctx context.Context, hash chain.Hash, from *node) (*block, error) {
	if b := f.bodies[hash]; b != nil {
		return b, nil
	}
	nodes := []*node{from}
	for _, n := range f.c.nodes {
		if n != from && f.views[n] != nil {
			nodes = append(nodes, n)
		}
	}
	var last error
	for _, n := range nodes {
		b, err := n.blockByHash(ctx, hash)
		if err == nil {
			if len(f.bodies) > 4*f.c.set.MaxBlocksBehind { // of heads that never were adopted
				clear(f.bodies)
			}
			f.bodies[hash] = b
			return b, nil
		}
		n.note(err)
		last = err
	}
	return nil, last
}

func (n *node) blockByHash(ctx context.Context, hash chain.Hash) (*block, error) {
	session, err := n.ready(ctx, usePolls, false)
	if err != nil {
		return nil, err
	}
	call := jsonrpc.NewCall(methodBlockByHash, hash.String(), true)
	n.ask(ctx, session, []*jsonrpc.Call{call}, asking{limit: n.c.set.MaxAnswerBytes, use: usePolls})
	if err := failure(call); err != nil {
		return nil, err
	}
	b, err := decodeBlock(call.Result, true, n.c.set.chainID)
	if err == nil && b.Hash != hash {
		err = fmt.Errorf("asked for the block %v, it shows %v", hash, b.Hash)
	}
	return b, err
}

// adopt makes the claim's block the newest one and fills in what happened on the way to
// it. false: its blocks could not be read; it is tried again with the next decision. last
// says that there is no other claim: then it is not tried for ever.
func (f *follower) adopt(ctx context.Context, c claim, head *chain.Head, last bool, voters int) bool {
	if c.head.full {
		f.bodies[c.head.Hash] = c.head
	} else {
		f.reader = c.n // it was first with this one, and may be so with the next
	}
	switch path, ancestor, err := f.walk(ctx, c); {
	case ctx.Err() != nil:
		return false
	case f.kept.Hash == chain.Hash{}:
		head.Skipped = true // there is nothing before it
		f.canon.add(c.head.Block)
		f.recall(ctx, c)
	case err == nil && !f.believable(ancestor, voters):
		return false
	case err == nil:
		f.replace(ancestor, c.head.Block, head)
		for _, b := range path {
			f.canon.add(b.Block)
			f.branch.add(b.Block)
			head.Uses = append(head.Uses, b.uses...)
		}
	default:
		if !f.mayBeSkipped(err, last) {
			return false
		}
		if ancestor = f.fork(ctx, c); !f.believable(ancestor, voters) {
			return false
		}
		head.Skipped = true
		f.c.m.skipped.Inc()
		f.replace(ancestor, c.head.Block, head)
		f.canon.add(c.head.Block)
		f.recall(ctx, c)
	}
	f.kept, f.failed, f.deep = c.head.Block, 0, 0
	clear(f.bodies)
	f.branch.forget(f.kept.Number - remembered)
	return true
}

// believable reports whether a new head may be adopted that leaves the blocks up to an ancestor
// in place. One that replaces a final block must be that of two nodes, where there are several,
// and stay it for some decisions.
func (f *follower) believable(ancestor int64, voters int) bool {
	if f.final.Hash == (chain.Hash{}) || ancestor >= f.final.Number {
		return true
	}
	if voters < min(2, len(f.c.nodes)) {
		return false
	}
	f.deep++
	return f.deep >= fellRounds
}

// mayBeSkipped decides whether blocks that could not be read are skipped: at once if they
// are too many or too large, and after a few tries if no node has anything better.
func (f *follower) mayBeSkipped(err error, last bool) bool {
	if err == errTooFar || errors.Is(err, ErrTooLarge) {
		return true
	}
	if last {
		f.failed++
	}
	return f.failed >= triesToRead
}

var errTooFar = errors.New("more blocks than MaxBlocksBehind")

// walk reads the blocks from the claim's down to the first that is canonical, its
// ancestor. The path has them in order, without the ancestor.
func (f *follower) walk(ctx context.Context, c claim) (path []*block, ancestor int64, err error) {
	if f.kept.Hash == (chain.Hash{}) {
		return nil, 0, nil
	}
	maxBehind := f.c.set.MaxBlocksBehind
	if c.head.Number-f.kept.Number > int64(maxBehind) {
		return nil, 0, errTooFar
	}
	hash, number := c.head.Hash, c.head.Number
	for !f.canon.has(number, hash) {
		if len(path) >= 2*maxBehind || !f.canon.reaches(number) { // new ones, and as many that are replaced
			return nil, 0, errTooFar
		}
		b, err := f.body(ctx, hash, c.n)
		if err == nil && b.Number != number {
			err = fmt.Errorf("the parent of block %d has the number %d", number+1, b.Number)
		}
		if err != nil {
			c.n.note(err)
			return nil, 0, err
		}
		path = append(path, b)
		hash, number = b.Parent, number-1
	}
	slices.Reverse(path)
	return path, number, nil
}

// replace notes that what is canonical above the ancestor is not any more.
func (f *follower) replace(ancestor int64, to chain.Block, head *chain.Head) {
	if ancestor >= f.kept.Number {
		return
	}
	head.Reorg = &chain.Reorg{From: f.kept, To: to, Depth: int(f.kept.Number - ancestor)}
	f.canon.cut(ancestor)
	if f.final.Hash != (chain.Hash{}) && ancestor < f.final.Number {
		head.FinalFell = true
		f.fallen, f.final = f.final, chain.Block{}
	}
}

// fork is the newest block that stays in place where the claim's block is adopted without reading what is below
// it: it is found by the hashes of the last blocks.
func (f *follower) fork(ctx context.Context, c claim) (ancestor int64) {
	last := f.canon.newest(f.kept.Number, forkSearch)
	numbers := make([]int64, len(last))
	for i, b := range last {
		numbers[i] = b.Number
	}
	theirs := c.n.headers(ctx, numbers)
	ancestor = f.kept.Number
	if len(theirs) > 0 { // otherwise nothing is known, and the counts tell
		ancestor = last[len(last)-1].Number - 1
		finalStands := true // a block that was not shown counts as in place
		for _, b := range theirs {
			if f.canon.has(b.Number, b.Hash) {
				ancestor = max(ancestor, b.Number)
			} else if b.Number <= f.final.Number {
				finalStands = false
			}
		}
		if f.final.Hash != (chain.Hash{}) && finalStands {
			ancestor = max(ancestor, min(f.final.Number, f.kept.Number))
		}
	}
	return ancestor
}

// recall fills in the blocks below the claim's, as far as they are not known, so that the
// depth of a reorganization can be told, and the time between blocks. What the node does
// not show, or what does not fit, is not known then.
func (f *follower) recall(ctx context.Context, c claim) {
	var numbers []int64
	for n := c.head.Number - 1; n >= 0 && len(numbers) < min(f.c.set.MaxBlocksBehind, remembered); n-- {
		if _, known := f.canon.at(n); known {
			break
		}
		numbers = append(numbers, n)
	}
	shown := map[int64]chain.Block{}
	for _, b := range c.n.headers(ctx, numbers) {
		shown[b.Number] = b
	}
	above := c.head.Block
	for _, n := range numbers {
		b, ok := shown[n]
		if !ok || b.Hash != above.Parent {
			return
		}
		f.canon.blocks[n] = b
		above = b
	}
}
