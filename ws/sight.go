package ws

import (
	"context"
	"sync/atomic"
	"time"

	"noncegate/nonce"
)

// defaultChainWait is how long a request waits for the first word of a chain.
const defaultChainWait = 2 * time.Second

// sight is the wait of one request for the first word of its signer's chain: the nodes
// are asked once a signer, and a client that came first had better wait than be
// refused. It is over when the chain has answered, after Config.ChainWait, or when the
// gateway goes away; what becomes of the request then, the service says.
type sight struct {
	r     *request
	state atomic.Int32 // of the states below
	heard func()       // over, as a value that costs nothing to hand over

	// Set before the state is sightWaiting, and used by whoever ends that.
	timer   *time.Timer
	unwatch func() bool // the end of the gateway does not concern it any more
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
	ready := c.srv.cfg.ChainReady
	if ready == nil || !r.op.NeedsChain() || c.gone.Load() || c.srv.draining.Load() {
		return nil
	}
	w := r.sight
	if w == nil {
		w = &sight{r: r}
		w.heard, r.sight = w.over, w
	}
	if ready(r.op.Signer, r.op.Kind == nonce.KindRepair, w.heard) {
		return nil
	}
	r.sight = nil // it is the waker's now, and used once
	return w
}

// begin waits, the request being in line. It may be over already.
func (w *sight) begin() {
	srv := w.r.conn.srv
	w.timer = time.AfterFunc(srv.cfg.ChainWait, w.heard)
	w.unwatch = context.AfterFunc(srv.sights, w.heard)
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
	w.timer.Stop()
	w.unwatch()
	w.r.decided()
}
