package ethereum

import (
	"context"
	"errors"
	"fmt"
	"time"

	"noncegate/chain/ethereum/internal/jsonrpc"
	"noncegate/nonce"
	"noncegate/nonce/fairness"
)

// principalKey is the key of the principal in a context.
type principalKey struct{}

// ForPrincipal returns a context for what a principal asks for. The nodes' slots are shared
// by principal; what is asked without one is the gateway's own.
func ForPrincipal(ctx context.Context, p nonce.Principal) context.Context {
	return context.WithValue(ctx, principalKey{}, p)
}

func principalOf(ctx context.Context) nonce.Principal {
	p, _ := ctx.Value(principalKey{}).(nonce.Principal)
	return p
}

// slots are those of the requests under way at a node, in three parts, so that none of them
// takes those of another: calls of others, transactions, and the gateway's own questions.
// Polls need none.
type slots struct{ foreign, sends, own *fairness.Shares }

// ownPart is which part of the slots of a node transactions have, and the gateway's own
// questions: an eighth each.
const ownPart = 8

// sharesFor is how long a principal that called counts among those that share the slots of others' calls.
const sharesFor = 2 * time.Second

func newSlots(inflight, waiting int) *slots {
	own := max(1, inflight/ownPart)
	return &slots{
		foreign: fairness.NewShares(int64(max(1, inflight-2*own)), 1, waiting).Linger(sharesFor),
		sends:   fairness.NewShares(int64(own), 1, waiting),
		own:     fairness.NewShares(int64(own), 1, waiting),
	}
}

// of returns the slots for calls.
func (s *slots) of(calls []*jsonrpc.Call, how asking) *fairness.Shares {
	switch {
	case how.use == useCalls:
		return s.foreign
	case calls[0].Method == methodSend:
		return s.sends
	}
	return s.own
}

// slotWait is how long calls of others wait for a slot.
const slotWait = 15 * time.Second

var errNoSlot = errors.New("no slot became free in time")

// enter waits for a slot among the requests under way. leave, where there is no error, gives
// it back. Calls of others wait for slotWait, the gateway's own as long as ctx lasts.
func (n *node) enter(ctx context.Context, calls []*jsonrpc.Call, how asking) (leave func(), err error) {
	if how.use == usePolls {
		return func() {}, nil
	}
	if how.use == useCalls {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, slotWait, errNoSlot)
		defer cancel()
	}
	slots, p := n.slots.of(calls, how), principalOf(ctx)
	if err := slots.Acquire(ctx, p, 1); err != nil {
		return nil, fmt.Errorf("%w: %w: %w", jsonrpc.ErrNotSent, ErrBusy, err)
	}
	return func() { slots.Release(p, 1) }, nil
}
