package ws

import (
	"context"
	"sync/atomic"
)

// sight is the wait of one request for the first word of its signer's chain: the nodes
// are asked once a signer, and a client that came first had better wait than be
// refused. It is over when nonce.Chain says so, or when the gateway goes away; what becomes of the
// request then, the service says.
type sight struct {
	r     *request
	state atomic.Int32 // of the states below
	heard func()       // over, as a value that costs nothing to hand over

	// unwatch: the end of the gateway does not concern it any more. It is set before the state is
	// sightWaiting, and used by what ends that.
	unwatch func() bool
}

// The states of a wait, in their order.
const (
	sightAsked   int32 = iota // the request is not in line yet
	sightWaiting              // it is, and must be told
	sightOver
)

// firstSight asks whether the request has to wait for its signer's chain; nil: it has
// not. A request that asks for nothing that depends on the chain never has.
func (c *conn) firstSight(r *request) *sight {
	chain := c.srv.cfg.Chain
	if chain == nil || !r.op.NeedsChain() || c.gone.Load() || c.srv.draining.Load() {
		return nil
	}
	w := r.sight
	if w == nil {
		w = &sight{r: r}
		w.heard, r.sight = w.over, w
	}
	if !chain.Await(&r.op.Request, w.heard) {
		return nil
	}
	r.sight = nil // it is the waker's now, and used once
	return w
}

// begin waits, the request being in line. It may be over already.
func (w *sight) begin() {
	w.unwatch = context.AfterFunc(w.r.conn.srv.sights, w.heard)
	if !w.state.CompareAndSwap(sightAsked, sightWaiting) {
		w.end()
	}
}

// over ends the wait. It may be called several times, by any goroutine.
func (w *sight) over() {
	if w.state.Swap(sightOver) == sightWaiting {
		w.end()
	}
}

func (w *sight) end() {
	w.unwatch()
	w.r.decided()
}
