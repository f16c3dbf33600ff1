package ethereum

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"noncegate/chain"
	"noncegate/chain/ethereum/internal/jsonrpc"
)

// callTries is how many nodes a call is given to, if the first do not answer.
const callTries = 2

// Call asks a node on behalf of a client, for a method that only reads: where a node
// does not answer, another one is asked the same. Calls go to one node as long as that may be asked,
// so that one caller does not see the chain go back and forth. The call waits for a
// slot among those of the principal of ctx. The error is ErrBusy, ErrTooLarge, that of ctx, or wraps
// chain.ErrUnreachable.
func (c *Client) Call(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, *RPCError, error) {
	ctx, done, err := c.begin(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer done()
	var last error
	limited := true // every node that there is wants fewer calls
	for _, n := range c.choice(nil, callTries) {
		call := &jsonrpc.Call{Method: method, Params: params}
		session, err := n.ready(ctx, useCalls, false)
		if err == nil {
			n.ask(ctx, session, []*jsonrpc.Call{call}, asking{limit: c.set.MaxAnswerBytes, use: useCalls})
			err = call.Fail
		}
		switch {
		case err == nil:
			return call.Result, call.Err, nil
		case ctx.Err() != nil:
			return nil, nil, context.Cause(ctx)
		case errors.Is(err, ErrTooLarge):
			return nil, nil, err
		}
		last = fmt.Errorf("%s: %w", n.name, err)
		limited = limited && n.paused(useCalls)
	}
	switch {
	case last == nil && !c.othersPaused():
		return nil, nil, chain.ErrUnreachable
	case last == nil, limited && !errors.Is(last, ErrBusy):
		return nil, nil, fmt.Errorf("%w: %w", ErrBusy, errBackingOff)
	case errors.Is(last, ErrBusy):
		return nil, nil, last
	}
	return nil, nil, fmt.Errorf("%w: %w", chain.ErrUnreachable, last)
}

// othersPaused reports whether there is a node that could be asked, and wants fewer calls.
func (c *Client) othersPaused() bool {
	return slices.ContainsFunc(c.eligible(), func(n *node) bool { return n.paused(useCalls) })
}

// choice returns up to max nodes that others may ask and that fit, the one that calls stick
// to first. If that cannot be asked any more, calls stick to the next one.
func (c *Client) choice(fits func(*node) bool, max int) []*node {
	var all []*node
	for _, n := range c.eligible() {
		if !n.paused(useCalls) && (fits == nil || fits(n)) {
			all = append(all, n)
		}
	}
	if len(all) == 0 {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if i := slices.Index(all, c.sticky); i > 0 {
		all = slices.Insert(slices.Delete(all, i, i+1), 0, c.sticky)
	} else if i < 0 && fits == nil {
		c.sticky = all[0]
	}
	return all[:min(len(all), max)]
}
