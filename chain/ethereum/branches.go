package ethereum

import (
	"maps"

	"noncegate/chain"
)

// lookBack tells the hash of the block with a number on the chain below head; false: not
// known.
type lookBack func(head chain.Block, number int64) (chain.Hash, bool)

// onChain reports whether b is head or below it.
func (l lookBack) onChain(head, b chain.Block) bool {
	if head.Hash == b.Hash {
		return true
	}
	h, ok := l(head, b.Number)
	return ok && h == b.Hash
}

// branches is what is known of blocks that may or may not be on the chain.
type branches struct {
	known map[chain.Hash]chain.Block          // headers that a node has shown
	below map[chain.Hash]map[int64]chain.Hash // by a head: what its node says is below it
}

// maxBranches bounds what is remembered of blocks; beyond that it is all forgotten, and
// asked again.
const maxBranches = 4096

func newBranches() *branches {
	return &branches{known: map[chain.Hash]chain.Block{}, below: map[chain.Hash]map[int64]chain.Hash{}}
}

func (b *branches) add(block chain.Block) {
	if len(b.known) >= maxBranches {
		clear(b.known)
	}
	b.known[block.Hash] = block
}

// say notes which block a node has below its head.
func (b *branches) say(head chain.Hash, below chain.Block) {
	if len(b.below) >= maxBranches {
		clear(b.below)
	}
	if b.below[head] == nil {
		b.below[head] = map[int64]chain.Hash{}
	}
	b.below[head][below.Number] = below.Hash
	b.add(below)
}

// at is a lookBack.
func (b *branches) at(head chain.Block, number int64) (chain.Hash, bool) {
	for cur := head; ; {
		switch {
		case cur.Number == number:
			return cur.Hash, true
		case cur.Number < number:
			return chain.Hash{}, false
		case cur.Number-1 == number:
			return cur.Parent, true
		}
		if h, ok := b.below[cur.Hash][number]; ok {
			return h, true
		}
		parent, ok := b.known[cur.Parent]
		if !ok || parent.Number != cur.Number-1 {
			return chain.Hash{}, false
		}
		cur = parent
	}
}

// forget drops what is below a number.
func (b *branches) forget(number int64) {
	for h, block := range b.known {
		if block.Number < number {
			delete(b.known, h)
			delete(b.below, h)
		}
	}
}

// canon is the canonical chain as far back as it is remembered. There are holes where
// blocks were skipped.
type canon struct {
	blocks map[int64]chain.Block
	room   int64 // how far back
}

func newCanon(room int64) *canon { return &canon{blocks: map[int64]chain.Block{}, room: room} }

func (c *canon) at(number int64) (chain.Block, bool) {
	b, ok := c.blocks[number]
	return b, ok
}

// has reports whether a block is canonical. false: it is not, or is too old.
func (c *canon) has(number int64, hash chain.Hash) bool {
	b, ok := c.blocks[number]
	return ok && b.Hash == hash
}

// reaches reports whether a block with a number up to this is known.
func (c *canon) reaches(number int64) bool {
	for n := range c.blocks {
		if n <= number {
			return true
		}
	}
	return false
}

// add makes b the newest block; those at and above its number are not canonical any more.
func (c *canon) add(b chain.Block) {
	c.cut(b.Number - 1)
	c.blocks[b.Number] = b
	maps.DeleteFunc(c.blocks, func(n int64, _ chain.Block) bool { return n < b.Number-c.room })
}

// cut drops what is above a number.
func (c *canon) cut(top int64) {
	maps.DeleteFunc(c.blocks, func(n int64, _ chain.Block) bool { return n > top })
}

// newest returns up to max blocks at and below a number, the newest first.
func (c *canon) newest(number int64, max int) []chain.Block {
	var all []chain.Block
	for n := number; n >= number-c.room && len(all) < max; n-- {
		if b, ok := c.blocks[n]; ok {
			all = append(all, b)
		}
	}
	return all
}
