package ethereum

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"noncegate/chain"
	"noncegate/chain/ethereum/internal/jsonrpc"
	"noncegate/wire"
)

// delegation begins the code of an account that lets another's code act for it
// (EIP-7702).
const delegation = "0xef0100"

// mostAlone is how far above the others' a pending count of one node may be: what geth's pool keeps of an
// account's transactions that wait for others (txpool.accountqueue). What it skips is repaired nonce by nonce.
const mostAlone = 64

// codesPerRequest bounds how many codes one request asks for: the account may be a
// contract, and its code be large.
const codesPerRequest = 16

// Start implements chain.Chain. It asks all nodes that answer, also those that are
// behind: for Latest the greatest count that two of them reach is taken, because one may be
// wrong; for Pending the greatest, because pools differ, in bounds (mostAlone). Nodes that are syncing know too little.
// Nodes on another branch, or that are not believed, are not asked while others are on that of
// the chain.
func (c *Client) Start(ctx context.Context, accounts []string) ([]chain.Start, error) {
	ctx, done, err := c.begin(ctx, accounts...)
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
		var latest []int64
		var others int64 // the greatest pending count but one
		var says *node
		s := &starts[i]
		for j, of := range replies {
			if of == nil || of[i] == nil {
				continue
			}
			latest = append(latest, of[i].Latest)
			if p := of[i].Pending; p >= s.Pending {
				s.Pending, others, says = p, s.Pending, nodes[j]
			} else {
				others = max(others, p)
			}
			s.Delegated = s.Delegated || of[i].Delegated
		}
		if len(latest) == 0 {
			return nil, unreachable(nodes, errs)
		}
		slices.Sort(latest)
		s.Latest = latest[max(0, len(latest)-2)]
		s.Pending = max(s.Pending, s.Latest)
		if others = max(others, s.Latest); len(latest) > 1 && s.Pending > others+mostAlone {
			s.Doubt = fmt.Errorf("the node %s alone gives a pending count of %d, the others give %d at most", says.name, s.Pending, others)
		}
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
	id, syncing := jsonrpc.NewCall(methodChainID), jsonrpc.NewCall(methodSyncing)
	calls := []*jsonrpc.Call{id, syncing}
	var counts, codes []*jsonrpc.Call
	for _, a := range accounts {
		counts = append(counts, countCall(a, "latest"), countCall(a, "pending"))
		codes = append(codes, jsonrpc.NewCall(methodCode, a, "latest"))
	}
	doubts := n.doubts.Load()
	n.ask(ctx, session, append(calls, counts...), asking{use: useCounts, limit: n.c.set.small})
	if err := n.readChainID(session, id, doubts); err != nil {
		return nil, err
	}
	if isSyncing(syncing) {
		n.note(errSyncing)
		return nil, errSyncing
	}
	for part := range slices.Chunk(codes, codesPerRequest) {
		n.ask(ctx, session, part, asking{use: useCounts, limit: n.c.set.MaxAnswerBytes})
	}
	n.withoutPending(counts)
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

// isSyncing reports whether a node said that it is syncing: by an object, or by true. One that
// does not have the method is not.
func isSyncing(c *jsonrpc.Call) bool {
	return len(c.Result) > 0 && string(c.Result) != "false" && string(c.Result) != "null"
}

// withoutPending finds out whether the node knows no pending counts: it gives the latest ones
// and refuses all pending ones, in two questions in a row. Then the latest counts stand for
// them. Calls of counts come in pairs, latest and pending.
func (n *node) withoutPending(counts []*jsonrpc.Call) {
	var refusal *RPCError
	for i := 0; i < len(counts); i += 2 {
		latest, pending := counts[i], counts[i+1]
		if pending.Result != nil || latest.Result == nil || pending.Err == nil {
			refusal = nil
			break
		}
		refusal = pending.Err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if refusal == nil {
		n.noPending = 0
		return
	}
	n.noPending++
	if n.noPending < 2 {
		return
	}
	if !n.pendingSaid {
		n.pendingSaid = true
		n.log.Warn("node has no pending counts: signers that are new here begin at its latest count, as if its pool were empty", "error", refusal)
	}
	for i := 0; i < len(counts); i += 2 {
		counts[i+1].Err, counts[i+1].Result = nil, counts[i].Result
	}
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
