package ethereum

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"noncegate/chain"
	"noncegate/chain/ethereum/internal/jsonrpc"
)

const (
	// noCount stands for an account of which a node gave no count.
	noCount = -1
	// maxCount is above the number of transactions that any account can have sent: with a
	// greater one a signer would be at its end.
	maxCount = 1 << 40
)

// Counts implements chain.Chain.
func (c *Client) Counts(ctx context.Context, at chain.Block, accounts []string) ([]chain.Count, error) {
	ctx, done, err := c.begin(ctx, accounts...)
	if err != nil {
		return nil, err
	}
	defer done()
	nodes := c.witnesses()
	replies, errs := make([][]int64, len(nodes)), make([]error, len(nodes))
	inParallel(nodes, func(i int, n *node) { replies[i], errs[i] = n.counts(ctx, at, accounts) })
	return c.merge(at, accounts, nodes, replies, errs)
}

// Several implements chain.Chain.
func (c *Client) Several() bool { return len(c.nodes) > 1 }

// witnesses are the nodes that are asked for counts: also those whose counts were wrong,
// which have no vote until they are right again.
func (c *Client) witnesses() []*node {
	return slices.DeleteFunc(slices.Clone(c.nodes), func(n *node) bool { return !n.current() })
}

// merge finds out on which counts the nodes agree.
func (c *Client) merge(at chain.Block, accounts []string, nodes []*node, replies [][]int64, errs []error) ([]chain.Count, error) {
	counts := make([]chain.Count, len(accounts))
	wrong, answered := make([]error, len(nodes)), make([]bool, len(nodes))
	for i, account := range accounts {
		var firm, loose tally
		for j, of := range replies {
			switch {
			case of == nil || of[i] == noCount:
			case nodes[j].firm():
				firm.add(of[i], !nodes[j].wrong(aboutCount))
			default:
				loose.add(of[i], true)
			}
		}
		if firm.answers+loose.answers == 0 {
			return nil, unreachable(nodes, errs)
		}
		c.tellDifference(firm, account, at)
		count, settled := c.settle(firm, loose)
		if !settled && c.forked() {
			count.Hint = 0
		}
		counts[i] = count
		if !settled || count.Loose {
			continue
		}
		for j, of := range replies {
			if of == nil || of[i] == noCount || !nodes[j].firm() {
				continue
			}
			answered[j] = true
			if of[i] != count.Used {
				wrong[j] = fmt.Errorf("it counts %d transactions of %s at block %d, and %d nodes count %d",
					of[i], account, at.Number, count.Nodes, count.Used)
			}
		}
	}
	for j, n := range nodes {
		if answered[j] && len(c.nodes) > 1 {
			n.judged(aboutCount, wrong[j])
		}
	}
	return counts, nil
}

// settle makes one count of what nodes said. What nodes say whose counts ignore the block
// settles only where there are no others.
func (c *Client) settle(firm, loose tally) (chain.Count, bool) {
	var count chain.Count
	votes := firm
	if count.Loose = !slices.ContainsFunc(c.nodes, (*node).firm); count.Loose {
		votes = loose
	}
	needed := min(2, len(c.nodes))
	used, nodes := most(votes.votes)
	if nodes < needed {
		return chain.Count{Hint: unopposed(firm, loose)}, false
	}
	count.Used, count.Nodes = used, nodes
	return count, true
}

// forked reports whether a node that answers has another branch than the one that counts, so that
// it contradicts the others in all.
func (c *Client) forked() bool {
	return slices.ContainsFunc(c.nodes, func(n *node) bool {
		n.mu.Lock()
		defer n.mu.Unlock()
		return n.upLocked() && !n.onBranch && !n.distrusted && n.lag <= int64(c.set.Lag)
	})
}

// unopposed is the one count that nodes gave which may be believed; 0 where there are two. A pool
// has at least what blocks have, so that only a lower count of one contradicts.
func unopposed(firm, loose tally) int64 {
	switch {
	case firm.answers == 0 && len(loose.votes) == 1:
		return slices.Collect(maps.Keys(loose.votes))[0]
	case firm.answers == 0 || len(firm.votes) != 1:
		return 0
	}
	count := slices.Collect(maps.Keys(firm.votes))[0]
	for pool := range loose.votes {
		if pool < count {
			return 0
		}
	}
	return count
}

// tally are the counts that nodes gave of one account.
type tally struct {
	answers int
	given   map[int64]bool
	votes   map[int64]int // of the nodes that have a vote
}

func (t *tally) add(count int64, votes bool) {
	if t.answers++; t.given == nil {
		t.given, t.votes = map[int64]bool{}, map[int64]int{}
	}
	if t.given[count] = true; votes {
		t.votes[count]++
	}
}

// most is what has more votes than anything else, and how many; none where two have equally many.
func most[K comparable](votes map[K]int) (best K, n int) {
	equal := false
	for k, of := range votes {
		switch {
		case of > n:
			best, n, equal = k, of, false
		case of == n:
			equal = true
		}
	}
	if equal {
		return *new(K), 0
	}
	return best, n
}

// tellDifference logs that nodes disagree, now and then.
func (c *Client) tellDifference(t tally, account string, at chain.Block) {
	if len(t.given) < 2 {
		return
	}
	c.m.disagreements.WithLabelValues(disagreeCount).Inc()
	c.differ.Do(func() {
		c.log.Warn("nodes have different counts at the same block",
			"account", account, "block", at.Number, "counts", slices.Sorted(maps.Keys(t.given)))
	})
}

// counts asks the node for counts at a block. noCount stands where it gave none; the
// error says why one of them is missing.
func (n *node) counts(ctx context.Context, at chain.Block, accounts []string) ([]int64, error) {
	session, err := n.ready(ctx, useCounts, false)
	if err != nil {
		return nil, err
	}
	block := byHash(at.Hash)
	if n.hashSupport() == unsupported {
		if err := n.holds(ctx, at); err != nil {
			return nil, err
		}
		block = quantity(at.Number)
	}
	calls := make([]*jsonrpc.Call, len(accounts))
	for i, a := range accounts {
		calls[i] = countCall(a, block)
	}
	n.ask(ctx, session, calls, asking{use: useCounts, limit: n.c.set.small})
	counts, err := n.readCounts(calls)
	if n.hashSupport() == unsupported { // it may have changed its branch meanwhile
		if moved := n.holds(ctx, at); moved != nil {
			return nil, moved
		}
	}
	return counts, err
}

// holds reports whether the node has the block under its number. nil: it has.
func (n *node) holds(ctx context.Context, at chain.Block) error {
	for _, b := range n.headers(ctx, []int64{at.Number}) {
		if b.Hash == at.Hash {
			return nil
		}
	}
	return errNoBlock
}

func (n *node) readCounts(calls []*jsonrpc.Call) ([]int64, error) {
	counts := make([]int64, len(calls))
	var last error
	for i, c := range calls {
		var err error
		if counts[i], err = n.readCount(c); err != nil {
			counts[i], last = noCount, err
		}
	}
	if last != nil {
		n.note(last)
	}
	return counts, last
}

// readCount reads one count strictly: what is no quantity is the node's failure, and
// never a number.
func (n *node) readCount(c *jsonrpc.Call) (int64, error) {
	if c.Err != nil && n.c.table.noBlock.MatchString(c.Err.Message) {
		return 0, errNoBlock
	}
	if err := failure(c); err != nil {
		return 0, err
	}
	count, err := decodeQuantity(c.Result)
	if err == nil && count > maxCount {
		err = fmt.Errorf("is %d, and no account has sent so many transactions", count)
	}
	if err != nil {
		return 0, fmt.Errorf("%s: result %w", c.Method, err)
	}
	return count, nil
}
