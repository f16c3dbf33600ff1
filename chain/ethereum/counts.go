package ethereum

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"noncegate/chain"
	"noncegate/chain/ethereum/address"
	"noncegate/chain/ethereum/internal/jsonrpc"
	"noncegate/wire"
)

// noCount stands for an account of which a node gave no count.
const noCount = -1

// Counts implements chain.Chain. accounts are addresses, 0x and 40 lower-case digits.
func (c *Client) Counts(ctx context.Context, at chain.Block, accounts []string) ([]chain.Count, error) {
	if err := checkAccounts(accounts); err != nil {
		return nil, err
	}
	ctx, done, err := c.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	nodes := c.eligible()
	replies, errs := make([][]int64, len(nodes)), make([]error, len(nodes))
	inParallel(nodes, func(i int, n *node) { replies[i], errs[i] = n.counts(ctx, at, accounts) })
	return c.merge(at, accounts, replies, errs)
}

func checkAccounts(accounts []string) error {
	for i, a := range accounts {
		if parsed, err := address.Parse(a); err != nil || parsed.String() != a {
			return fmt.Errorf("accounts[%d] must be 0x and 40 lower-case hexadecimal digits, is %q", i, a)
		}
	}
	return nil
}

// merge takes the greatest count of each account.
func (c *Client) merge(at chain.Block, accounts []string, replies [][]int64, errs []error) ([]chain.Count, error) {
	counts := make([]chain.Count, len(accounts))
	for i, account := range accounts {
		best, agreed := int64(noCount), true
		for _, of := range replies {
			if of == nil || of[i] == noCount {
				continue
			}
			agreed = agreed && (best == noCount || best == of[i])
			best = max(best, of[i])
		}
		if best == noCount {
			return nil, unreachable(errs)
		}
		if !agreed {
			c.m.disagreements.WithLabelValues(disagreeCount).Inc()
			c.differ.Do(func() {
				c.log.Warn("nodes have different counts at the same block", "account", account, "block", at.Number, "greatest", best)
			})
		}
		counts[i] = chain.Count{Used: best, Agreed: agreed}
	}
	return counts, nil
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
	if err != nil {
		return 0, fmt.Errorf("%s: result %w", c.Method, err)
	}
	return count, nil
}

// delegation begins the code of an account that lets another's code act for it
// (EIP-7702).
const delegation = "0xef0100"

// codesPerRequest bounds how many codes one request asks for: the account may be a
// contract, and its code be large.
const codesPerRequest = 16

// Start implements chain.Chain. It asks all nodes that answer, also those that are
// behind: the greatest counts are taken. Nodes on another branch, or that are not believed,
// are not asked while others are on that of the chain.
func (c *Client) Start(ctx context.Context, accounts []string) ([]chain.Start, error) {
	if err := checkAccounts(accounts); err != nil {
		return nil, err
	}
	ctx, done, err := c.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	nodes := c.nodes
	if len(c.eligible()) > 0 {
		nodes = slices.DeleteFunc(slices.Clone(nodes), (*node).beside)
	}
	replies, errs := make([][]*chain.Start, len(nodes)), make([]error, len(nodes))
	inParallel(nodes, func(i int, n *node) { replies[i], errs[i] = n.start(ctx, accounts) })
	starts := make([]chain.Start, len(accounts))
	for i := range accounts {
		known := false
		for _, of := range replies {
			if of == nil || of[i] == nil {
				continue
			}
			known = true
			s := &starts[i]
			s.Latest, s.Pending = max(s.Latest, of[i].Latest), max(s.Pending, of[i].Pending)
			s.Delegated = s.Delegated || of[i].Delegated
		}
		if !known {
			return nil, unreachable(errs)
		}
		starts[i].Pending = max(starts[i].Pending, starts[i].Latest)
	}
	return starts, nil
}

// start asks the node where accounts stand. nil stands for an account of which it did
// not say all.
func (n *node) start(ctx context.Context, accounts []string) ([]*chain.Start, error) {
	session, err := n.ready(ctx, useCounts, false)
	if err != nil {
		return nil, err
	}
	var counts, codes []*jsonrpc.Call
	for _, a := range accounts {
		counts = append(counts, countCall(a, "latest"), countCall(a, "pending"))
		codes = append(codes, jsonrpc.NewCall(methodCode, a, "latest"))
	}
	n.ask(ctx, session, counts, asking{use: useCounts, limit: n.c.set.small})
	for part := range slices.Chunk(codes, codesPerRequest) {
		n.ask(ctx, session, part, asking{use: useCounts, limit: n.c.set.MaxAnswerBytes})
	}
	starts := make([]*chain.Start, len(accounts))
	for i := range accounts {
		s, failed := n.readStart(counts[2*i], counts[2*i+1], codes[i])
		if failed != nil {
			n.note(failed)
			err = failed
			continue
		}
		starts[i] = s
	}
	return starts, err
}

func (n *node) readStart(latest, pending, code *jsonrpc.Call) (*chain.Start, error) {
	var s chain.Start
	var err error
	if s.Latest, err = n.readCount(latest); err != nil {
		return nil, err
	}
	if s.Pending, err = n.readCount(pending); err != nil {
		return nil, err
	}
	if err := failure(code); err != nil {
		return nil, err
	}
	var text string
	if wire.Unmarshal(code.Result, &text) != nil || !strings.HasPrefix(text, "0x") {
		return nil, fmt.Errorf("%s: result must be 0x and hexadecimal digits", methodCode)
	}
	s.Delegated = strings.HasPrefix(strings.ToLower(text), delegation)
	return &s, nil
}
