package cluster

import (
	"slices"
	"time"

	"noncegate/nonce"
)

// returned is an op on its way back to the service.
type returned struct {
	op      *op
	at      time.Time // of Forward
	verdict nonce.Verdict
}

// returnOp ends the op's time with the router. The caller holds no lock, and wakes
// w after the last of its batch.
func (r *Router) returnOp(b returned, now time.Time, w *wakers) {
	r.metrics.returned(resultOf(b.verdict), now.Sub(b.at))
	w.add(b.op.of.Return(&b.op.Result, b.verdict))
}

// returnAll gives back ops that end together, in this order.
func (r *Router) returnAll(all []returned) {
	if len(all) == 0 {
		return
	}
	var w wakers
	now := time.Now()
	for _, b := range all {
		r.returnOp(b, now, &w)
	}
	w.wake()
}

// wakers collects whom to wake after a batch, each once.
type wakers struct{ list []nonce.Waker }

// maxWakers bounds the search for what is there already.
const maxWakers = 128

func (w *wakers) add(one nonce.Waker) {
	if one == nil || slices.Contains(w.list, one) {
		return
	}
	if len(w.list) == maxWakers {
		w.wake()
	}
	w.list = append(w.list, one)
}

func (w *wakers) wake() {
	for i, one := range w.list {
		one.Wake()
		w.list[i] = nil
	}
	w.list = w.list[:0]
}
