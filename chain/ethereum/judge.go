package ethereum

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"noncegate/chain"
)

// claims returns what the nodes say the newest block is, without those that are not
// believed.
func (f *follower) claims() []claim {
	var all []claim
	for _, n := range f.c.nodes {
		v := f.views[n]
		if v == nil {
			continue
		}
		if reason := f.absurd(v); reason != "" {
			n.distrust(reason)
			continue
		}
		n.mu.Lock()
		moved := n.movedAt
		n.mu.Unlock()
		all = append(all, claim{n: n, head: v.head, stale: time.Since(moved) > silentBlocks*max(f.blockTime(), f.interval())})
	}
	return all
}

// absurd says why a node's newest block is not believed while others contradict it: it
// is dated into the future, or so high that no chain grows so fast. A single node is
// always believed.
func (f *follower) absurd(v *view) string {
	now := time.Now()
	highest := f.kept.Number + int64(f.c.set.MaxBlocksBehind) + int64(max(now.Sub(f.kept.Time), 0)/f.fastest())
	for n, other := range f.views {
		if n == v.n {
			continue
		}
		if ahead := v.head.Time.Sub(now); ahead > aheadOfTime && other.head.Time.Sub(now) <= aheadOfTime {
			return fmt.Sprintf("its newest block %d is dated %v into the future, and that of %s is not",
				v.head.Number, ahead.Round(time.Second), n.name)
		}
		goesOn := other.head.Number >= f.kept.Number-int64(f.c.set.Lag) && other.head.Number <= highest
		if f.kept.Hash != (chain.Hash{}) && v.head.Number > highest && goesOn {
			return fmt.Sprintf("its newest block %d is above %d, which is the most that the chain can have come to, and %s is at %d",
				v.head.Number, highest, n.name, other.head.Number)
		}
	}
	return ""
}

// fastest is the least time between blocks that is believed.
func (f *follower) fastest() time.Duration {
	if t := f.blockTime() / 2; t > 0 {
		return max(t, 10*time.Millisecond)
	}
	return 100 * time.Millisecond
}

// judge tells each node whether it is on the branch that counts and how far behind.
func (f *follower) judge(claims []claim) {
	for _, c := range claims {
		h := c.head.Block
		on := f.canon.has(h.Number, h.Hash) || lookBack(f.branch.at).onChain(f.kept, h) || lookBack(f.branch.at).onChain(h, f.kept)
		lag := max(f.kept.Number-h.Number, 0)
		if !on && lag > int64(f.c.set.Lag) {
			on = true // not known, so far behind, and not asked for that
		}
		c.n.place(on, lag)
	}
}

// distrust notes that the node's newest block is not believed.
func (n *node) distrust(reason string) {
	n.mu.Lock()
	was := n.distrusted
	n.distrusted, n.onBranch, n.lag = true, false, 0
	n.noteLocked(fmt.Errorf("not believed: %s", reason))
	n.mu.Unlock()
	if !was {
		n.c.m.disagreements.WithLabelValues(disagreeHead).Inc()
		n.log.Warn("node is not believed", "reason", reason)
	}
}

// place notes where the node's newest block is.
func (n *node) place(onBranch bool, lag int64) {
	n.mu.Lock()
	was, wasLag := n.onBranch, n.lag
	n.distrusted, n.onBranch, n.lag = false, onBranch, lag
	number := n.head.Number
	n.mu.Unlock()
	maxLag := int64(n.c.set.Lag)
	switch {
	case was && !onBranch:
		n.c.m.disagreements.WithLabelValues(disagreeHead).Inc()
		n.log.Warn("node is on another branch and is not asked", "head", number)
	case wasLag <= maxLag && lag > maxLag:
		n.log.Warn("node is behind and is not asked", "head", number, "blocks", lag)
	}
}

// noteExample keeps an account that has sent a transaction, for probes.
func (c *Client) noteExample(uses []chain.Use) {
	for _, u := range uses {
		if !u.Unread && !u.Authorization {
			c.mu.Lock()
			c.example = u.Account
			c.mu.Unlock()
			return
		}
	}
}

// voters is how many nodes have the claim's block above or below their own.
func (f *follower) voters(claims []claim, of claim) (n int) {
	at := lookBack(f.branch.at)
	for _, c := range claims {
		if at.onChain(of.head.Block, c.head.Block) || at.onChain(c.head.Block, of.head.Block) {
			n++
		}
	}
	return n
}

// agree finds the newest block that two nodes have, and reports whether it is another one.
func (f *follower) agree(claims []claim) bool {
	was := f.agreed
	if !f.c.Several() {
		f.agreed = f.kept
		return f.agreed != was
	}
	at := lookBack(f.branch.at)
	var have []chain.Block
	for _, c := range claims {
		h := c.head.Block
		switch {
		case c.n.wrong(aboutFinal):
		case h.Number <= f.kept.Number && (f.canon.has(h.Number, h.Hash) || at.onChain(f.kept, h)):
			have = append(have, h)
		case h.Number > f.kept.Number && at.onChain(h, f.kept):
			have = append(have, f.kept)
		}
	}
	stands := f.canon.has(was.Number, was.Hash)
	if !stands {
		f.agreed = chain.Block{}
	}
	if len(have) >= 2 {
		slices.SortFunc(have, func(a, b chain.Block) int { return cmp.Compare(b.Number, a.Number) })
		if !stands || have[1].Number > was.Number {
			f.agreed = have[1]
		}
	}
	return f.agreed != was
}
