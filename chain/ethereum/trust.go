package ethereum

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"noncegate/chain"
	"noncegate/chain/ethereum/internal/jsonrpc"
)

// about is in what a node can contradict the others.
type about uint8

const (
	aboutCount about = iota // of an account at a block
	aboutFinal              // the final block
	abouts
)

// fault is how a node contradicts the others in one thing.
type fault struct {
	why   error // nil: it does not
	right int   // times in a row in which it agreed with them since
}

// rightAgain is how often in a row a node that was wrong must agree with the others before
// it is believed again.
const rightAgain = 3

// judged notes whether the node contradicts the others in something: why, or nil. One that
// does is left out until it agrees with them again.
func (n *node) judged(a about, why error) {
	n.mu.Lock()
	f := &n.faults[a]
	was := f.why
	switch {
	case why != nil:
		f.why, f.right = why, 0
		n.noteLocked(why)
	case was != nil:
		if f.right++; f.right >= rightAgain {
			*f = fault{}
		}
	}
	now := f.why
	n.mu.Unlock()
	switch {
	case was == nil && now != nil:
		n.log.Error("node is wrong and is left out until it agrees with the others again", "reason", now)
	case was != nil && now == nil:
		n.log.Info("node agrees with the others again", "was", was)
	}
}

// wrong reports whether the node contradicts the others in something.
func (n *node) wrong(a about) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.faults[a].why != nil
}

func (n *node) wrongLocked() bool {
	for _, f := range n.faults {
		if f.why != nil {
			return true
		}
	}
	return false
}

// firm reports whether the node's counts are those of the block that was asked for, as far as
// is known.
func (n *node) firm() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.byHash == supported || n.byNumber == supported
}

// probe asks whether the node's counts depend on the block, once in a session, where it does
// not know block hashes: an account that has sent transactions had sent none at block 0.
func (n *node) probe(ctx context.Context, session uint64) {
	account := n.c.exampleAccount()
	n.mu.Lock()
	known := n.byHash != unsupported || n.byNumber != supportUnknown
	n.mu.Unlock()
	if known || account == "" {
		return
	}
	now, first := countCall(account, "latest"), countCall(account, quantity(0))
	n.ask(ctx, session, []*jsonrpc.Call{now, first}, asking{use: usePolls, limit: n.c.set.small})
	count, err := n.readCount(now)
	if err != nil || count == 0 || first.Fail != nil {
		return
	}
	can := supported // also where it refuses, as nodes do that keep no old state
	if at0, err := n.readCount(first); err == nil && at0 != 0 {
		can = unsupported
	}
	n.mu.Lock()
	n.byNumber = can
	n.mu.Unlock()
	if can == unsupported {
		n.log.Warn("node gives the same count for every block: its counts are hints, and none is final")
	}
}

// exampleAccount is one that has sent a transaction; "": none was seen yet.
func (c *Client) exampleAccount() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.example
}

// readChainID reads which chain the node is of, which settles the doubts before the question. An
// error says that it is not to be asked.
func (n *node) readChainID(session uint64, call *jsonrpc.Call, doubts uint64) error {
	if err := failure(call); err != nil {
		return err
	}
	id, err := decodeQuantity(call.Result)
	if err != nil {
		return fmt.Errorf("%s: result %w", methodChainID, err)
	}
	n.mu.Lock()
	was := n.otherChain
	if uint64(id) == n.c.set.chainID {
		n.verified, n.otherChain, n.cleared = session, "", max(n.cleared, doubts)
	} else {
		n.verified, n.otherChain = 0, fmt.Sprintf("eip155:%d", id)
		n.onBranch, n.head = false, chain.Block{}
	}
	other := n.otherChain
	n.mu.Unlock()
	if other == "" {
		return nil
	}
	if was != other {
		n.log.Error("node is of another chain and is not asked", "its_chain", other)
	}
	return fmt.Errorf("%w: it is of %s, not of %s", errOtherChain, other, n.c.set.ID)
}

// verify asks the node which chain it is of.
func (n *node) verify(ctx context.Context, session uint64) error {
	dials, doubts := n.link.Dials(), n.doubts.Load()
	call := jsonrpc.NewCall(methodChainID)
	n.ask(ctx, session, []*jsonrpc.Call{call}, asking{limit: n.c.set.small, use: usePolls})
	err := n.readChainID(session, call, doubts)
	if err == nil {
		n.mu.Lock()
		n.verifiedDials = max(n.verifiedDials, dials)
		n.mu.Unlock()
	}
	return err
}

// check is verify, shared by all that want to know: it goes on when the one that asked first has left.
func (n *node) check(ctx context.Context, session uint64) error {
	_, err, _ := n.checks.Do("", func() (any, error) {
		ctx, done, err := n.c.begin(context.WithoutCancel(ctx))
		if err != nil {
			return nil, err
		}
		defer done()
		return nil, n.verify(ctx, session)
	})
	return err
}

// recheck takes the answers back that came after a new connection of no session, if the node behind
// it is of another chain, or does not say of which.
func (n *node) recheck(ctx context.Context, session uint64, calls []*jsonrpc.Call, how asking) {
	answered := slices.ContainsFunc(calls, func(c *jsonrpc.Call) bool { return c.Fail == nil })
	if how.use != useCalls && how.use != useCounts || !answered {
		return
	}
	for range 2 { // the first check may be one that began before the connection
		n.mu.Lock()
		checked := n.verifiedDials
		n.mu.Unlock()
		if n.link.Dials() <= checked {
			return
		}
		err := n.check(jsonrpc.ForOthers(ctx), session)
		if err == nil {
			continue
		}
		if errors.Is(err, errOtherChain) {
			n.failed(err)
		}
		for _, c := range calls {
			c.Result, c.Err, c.Fail = nil, nil, err
		}
		return
	}
}
