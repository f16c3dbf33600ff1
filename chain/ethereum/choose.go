package ethereum

import (
	"noncegate/chain"
)

// claim is a node's word on what the newest block is.
type claim struct {
	n     *node
	head  *block
	stale bool // it has been the same for so long that there should have been others
}

// choose returns the index of the claim whose block is the newest of the chain, -1: none
// of them. kept is the block that was, zero before the first.
//
// Each node votes for the newest block of its own branch, as long as its own is at most
// lag below that. The block with the most votes is it. Between equals a node that moves
// is before one that stands still, then the branch of kept before others, then the
// higher number, then the order of the settings. A block below kept is never chosen.
func choose(claims []claim, kept chain.Block, lag int64, at lookBack) int {
	best, bestVotes := -1, 0
	for i, c := range claims {
		if c.head.Number < kept.Number {
			continue
		}
		votes := 0
		for _, voter := range claims {
			behind := c.head.Number - voter.head.Number
			if behind >= 0 && behind <= lag && at.onChain(c.head.Block, voter.head.Block) {
				votes++
			}
		}
		if best < 0 || better(c, votes, claims[best], bestVotes, kept, at) {
			best, bestVotes = i, votes
		}
	}
	return best
}

func better(a claim, aVotes int, b claim, bVotes int, kept chain.Block, at lookBack) bool {
	aKeeps := at.onChain(a.head.Block, kept)
	switch bKeeps := at.onChain(b.head.Block, kept); {
	case aVotes != bVotes:
		return aVotes > bVotes
	case a.stale != b.stale:
		return b.stale
	case aKeeps != bKeeps:
		return aKeeps
	}
	return a.head.Number > b.head.Number
}
