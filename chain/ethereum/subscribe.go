package ethereum

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"

	"noncegate/chain"
	"noncegate/chain/ethereum/internal/jsonrpc"
	"noncegate/nonce"
	"noncegate/wire"
)

const (
	// lookAfter is how often the node of a subscription is looked at.
	lookAfter = 10 * time.Second
	// maxAway is how long a subscription may be without a node before it ends.
	maxAway = time.Minute
)

// Subscribe opens a subscription (eth_subscribe) with params, which it keeps, at a node over WebSocket, on
// behalf of a client. on gets each event, one at a time, in the goroutine that reads the connection:
// it must not block, and may be called before Subscribe has returned. ended is called once with
// the reason if the subscription ends by itself: ErrSubscriptionLost, ErrClosed, or an error
// that wraps chain.ErrUnreachable. Neither is called after unsubscribe, but for a call of on that is under way.
//
// When the connection to the node is lost, or the node falls behind, subscriptions to
// newHeads, newPendingTransactions and syncing go on at another node; those to logs end. The error is
// ErrBusy, when there are too many subscriptions, or as of Call.
func (c *Client) Subscribe(ctx context.Context, params json.RawMessage, on func(json.RawMessage), ended func(error)) (
	unsubscribe func(), refusal *RPCError, err error,
) {
	select {
	case c.subs <- struct{}{}:
	default:
		return nil, nil, fmt.Errorf("%w: %d subscriptions are open", ErrBusy, MaxSubscriptions)
	}
	s := &subscription{
		c: c, params: params, on: on, ended: ended, principal: principalOf(ctx),
		lost: make(chan error, 1),
		left: make(chan struct{}),
	}
	opened, leave := false, func() { <-c.subs }
	defer func() {
		if !opened {
			leave()
		}
	}()
	running, done, err := c.begin(context.WithoutCancel(ctx))
	if err != nil {
		return nil, nil, err
	}
	leave = func() { <-c.subs; done() }
	if refusal, err = s.open(ctx); err != nil || refusal != nil {
		return nil, refusal, err
	}
	opened = true
	go func() { // owned by Run, which waits for done
		defer leave()
		s.run(running)
	}()
	return s.unsubscribe, nil, nil
}

// subscription is one of a client. Its goroutine keeps it open.
type subscription struct {
	c      *Client
	params json.RawMessage
	on     func(json.RawMessage)
	ended  func(error)

	principal nonce.Principal

	lost chan error    // why the subscription at the node ended; holds the first reason
	left chan struct{} // closed by unsubscribe

	mu      sync.Mutex // guards what follows
	gone    bool       // unsubscribe was called
	current *jsonrpc.Subscription
	at      *node
}

// open subscribes at the first node that takes it.
func (s *subscription) open(ctx context.Context) (*RPCError, error) {
	err := chain.ErrUnreachable
	for _, n := range s.c.choice(func(n *node) bool { return n.socket }, len(s.c.nodes)) {
		refusal, failed := s.openAt(ctx, n)
		if failed == nil {
			return refusal, nil
		}
		err = fmt.Errorf("%w: %s: %w", chain.ErrUnreachable, n.name, failed)
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return nil, err
}

func (s *subscription) openAt(ctx context.Context, n *node) (*RPCError, error) {
	session, err := n.ready(ctx, useCalls, false)
	if err != nil {
		return nil, err
	}
	leave, err := n.enter(ForPrincipal(ctx, s.principal), nil, asking{use: useCalls})
	if err != nil {
		return nil, err
	}
	defer leave()
	ctx, cancel := context.WithTimeoutCause(jsonrpc.ForOthers(ctx), s.c.set.Timeout, errTimeout)
	defer cancel()
	sub, refusal, err := n.link.Subscribe(ctx, session, s.params, s.push, s.drop)
	if err != nil || refusal != nil {
		return refusal, err
	}
	opened := &jsonrpc.Call{}
	if n.recheck(ctx, session, []*jsonrpc.Call{opened}, asking{use: useCalls}); opened.Fail != nil {
		sub.Close()
		return nil, opened.Fail
	}
	s.mu.Lock()
	s.current, s.at = sub, n
	s.mu.Unlock()
	return nil, nil
}

// push hands an event to the consumer, unless that has left. The goroutine that reads the connection
// calls it.
func (s *subscription) push(event json.RawMessage) {
	s.mu.Lock()
	gone := s.gone
	s.mu.Unlock()
	if !gone {
		s.on(event)
	}
}

// drop notes that the subscription at the node has ended.
func (s *subscription) drop(reason error) {
	select {
	case s.lost <- reason:
	default: // there is a reason already
	}
}

// unsubscribe ends the subscription.
func (s *subscription) unsubscribe() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.gone {
		s.gone = true
		close(s.left)
	}
}

// run keeps the subscription open until it ends.
func (s *subscription) run(ctx context.Context) {
	look := time.NewTicker(lookAfter)
	defer look.Stop()
	for {
		var reason error
		select {
		case <-s.left:
			s.close()
			return
		case <-ctx.Done():
			reason = ErrClosed
		case <-look.C:
			if !s.behind() {
				continue
			}
			reason = s.again(ctx, errBehind)
		case reason = <-s.lost:
			reason = s.again(ctx, reason)
		}
		if reason != nil {
			s.close()
			s.end(reason)
			return
		}
	}
}

// end tells the consumer why there will be no more events.
func (s *subscription) end(reason error) {
	s.mu.Lock()
	gone := s.gone
	s.mu.Unlock()
	if !gone {
		s.ended(reason)
	}
}

func (s *subscription) close() {
	s.mu.Lock()
	sub := s.current
	s.current = nil
	s.mu.Unlock()
	if sub != nil {
		sub.Close()
	}
}

// behind reports whether the node of the subscription is not to be asked any more, and
// another one could be.
func (s *subscription) behind() bool {
	s.mu.Lock()
	at := s.at
	s.mu.Unlock()
	return !at.eligible() && len(s.c.choice(func(n *node) bool { return n.socket }, 1)) > 0
}

// again opens the subscription anew for a reason, which may be a late one: what is open ends. nil: it goes on.
func (s *subscription) again(ctx context.Context, reason error) error {
	s.close()
	switch {
	case ctx.Err() != nil:
		return ErrClosed
	case !s.resumable():
		return fmt.Errorf("%w: %w", ErrSubscriptionLost, reason)
	}
	pace := &backoff.ExponentialBackOff{
		InitialInterval: 100 * time.Millisecond, RandomizationFactor: 0.5, Multiplier: 2, MaxInterval: 5 * time.Second,
	}
	pace.Reset()
	for until := time.Now().Add(maxAway); ; {
		refusal, err := s.open(ctx)
		switch {
		case refusal == nil && err == nil:
			return nil
		case refusal != nil:
			return fmt.Errorf("%w: subscribing again: %w", ErrSubscriptionLost, refusal)
		case time.Now().After(until):
			return err
		}
		select {
		case <-time.After(pace.NextBackOff()):
		case <-s.left:
			return nil // which run then sees
		case <-ctx.Done():
			return ErrClosed
		}
	}
}

// resumable reports whether a client can notice events that it missed, or was promised none.
func (s *subscription) resumable() bool {
	var params []wire.Raw
	var kind string
	if wire.Unmarshal(s.params, &params) != nil || len(params) == 0 || wire.Unmarshal(params[0], &kind) != nil {
		return false
	}
	return kind == "newHeads" || kind == "newPendingTransactions" || kind == "syncing"
}
