package cluster

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"noncegate/nonce"
)

// call is a request of another node on its way: from the reader of its link, through the service as
// a nonce.Completion, to the writer. It is used again once its answer was written.
type call struct {
	in     *inbound
	req    nonce.Request
	res    nonce.Result
	id     uint64 // as the other node numbers it
	sum    uint64 // of the bytes of the request, which go back with the answer
	number uint64 // of its path
	way    *way   // while it is under way; nil: it changes nothing
	slot   nonce.Slot
	placed bool          // it counts as in flight
	heard  chan struct{} // closed when its chain has spoken; nil: it does not wait for that

	ended *atomic.Uint32 // how often Done was called, in all uses; kept from use to use
}

var _ nonce.Completion = (*call)(nil)

var calls = sync.Pool{New: func() any { return &call{ended: new(atomic.Uint32)} }}

func (in *inbound) newCall() *call {
	c := calls.Get().(*call)
	c.in = in
	return c
}

// release ends the use of a call.
func (c *call) release() {
	if c.placed {
		c.in.r.door.inflight.Give(c.in.share, 1)
	}
	*c = call{ended: c.ended}
	calls.Put(c)
}

// begin takes all that the request will need and starts it, or answers why not.
func (c *call) begin() {
	in := c.in
	switch waits, err := c.prepare(); {
	case err != nil:
		c.res.Err = err
		c.answer()
		in.Wake()
	case !waits:
		c.submit()
	}
}

// prepare admits the request and puts it into a line, if it must wait in one. What it took goes back if
// anything that it calls panics.
func (c *call) prepare() (waits bool, err error) {
	prepared := false
	defer func() {
		if prepared {
			return
		}
		if c.slot.Events {
			local := &c.in.r.local
			local.Hub.Unreserve(local.Service.WorkerIndex(c.req.Signer))
		}
		c.slot.Cancel()
		c.release()
	}()
	if err = c.admit(); err == nil {
		waits = c.lineUp()
	}
	prepared = true
	return waits, err
}

// admit takes, without waiting, a place in flight, one in the queue of the signer's worker, and one for
// the events of what somebody watches. With an error nothing is kept, and nothing happened. Whether the
// node drains is looked at once the place is taken: closeIdle looks at the place after it said so.
func (c *call) admit() error {
	in, r := c.in, c.in.r
	if !r.door.inflight.TryTake(in.share, 1) {
		if in.share.Closed() {
			return nonce.ErrDraining
		}
		return nonce.ErrForwardBusy
	}
	c.placed = true
	if r.door.closing.Load() {
		return nonce.ErrDraining
	}
	if err := r.local.check(&c.req); err != nil {
		return err
	}
	var ok bool
	if c.slot, ok = r.local.Service.Reserve(c.req.Signer, c.req.Principal); !ok {
		return nonce.ErrBusy
	}
	if c.req.Kind.Reads() || !r.local.Hub.Watched(c.req.Signer) {
		return nil
	}
	if c.slot.Events = r.local.Hub.Reserve(r.local.Service.WorkerIndex(c.req.Signer)); !c.slot.Events {
		c.slot.Cancel()
		return nonce.ErrEventsBusy
	}
	return nil
}

// check holds a request of another node to the settings of this one, where those may differ.
func (l *Local) check(q *nonce.Request) error {
	if q.Hold != 0 && (q.Hold < l.MinHold || q.Hold > l.MaxHold) {
		return &nonce.InvalidError{Field: "holdMs", Rule: fmt.Sprintf("must be %d to %d", l.MinHold.Milliseconds(), l.MaxHold.Milliseconds())}
	}
	if l.Chain != nil && q.Kind == nonce.KindAllocate {
		if why := l.Chain.Refuses(q.Signer); why != "" {
			return &nonce.InvalidError{Field: "signer", Rule: why}
		}
	}
	return nil
}

// submit hands an admitted request to the service.
func (c *call) submit() {
	var path *nonce.Path
	if !c.req.Kind.Reads() {
		c.way = c.in.paths.enter(c.number)
		path = &c.way.Path
	}
	ended, before, submitted := c.ended, c.ended.Load(), false
	defer func() { // what has ended may be of another request by now
		if !submitted && ended.Load() == before {
			c.abandon()
		}
	}()
	c.in.r.local.Service.SubmitOf(path, &c.slot, &c.req, &c.res, c)
	submitted = true
}

var errAbandoned = errors.New("the node that owns the signer met an error of its own")

// abandon ends a call whose submission panicked.
func (c *call) abandon() {
	c.res = nonce.Result{Err: nonce.ErrInternal}
	if !c.req.Kind.Reads() {
		c.res.Err = &nonce.UnavailableError{Outcome: nonce.Unknown, Err: errAbandoned}
	}
	if w := c.Done(&c.res); w != nil {
		w.Wake()
	}
}

// Gone implements nonce.Completion.
func (c *call) Gone() bool { return c.in.gone.Load() }

// Done implements nonce.Completion.
func (c *call) Done(res *nonce.Result) nonce.Waker {
	in, chain := c.in, c.in.r.local.Chain
	c.ended.Add(1)
	if c.way != nil {
		in.paths.leave(c.way)
	}
	switch {
	case res.Err != nil:
	case chain == nil && c.req.ChainOnly:
		res.Said = new(nonce.ChainSaid)
	case chain == nil:
	case c.req.Kind == nonce.KindRepair:
		chain.Tell(&c.req, res)
	case c.req.Kind.Reads():
		tell := func() { // at most as many as requests in flight
			if err := safely(func() error { chain.Tell(&c.req, res); return nil }); err != nil {
				in.r.log.Error("a read of another node could not be answered", "error", err)
				*res = nonce.Result{Err: nonce.ErrInternal}
			}
			c.answer()
			in.Wake()
		}
		if !c.Gone() && in.r.door.begin(tell) {
			return nil
		}
		*res = nonce.Result{Err: nonce.ErrDraining}
	}
	c.answer()
	return in
}

// answer queues the answer. The call is not touched afterwards.
func (c *call) answer() {
	if c.res.Err != nil {
		c.in.r.metrics.refused.Inc(c.in.r.local.Reason(c.res.Err))
	}
	if c.req.ChainOnly {
		c.res = nonce.Result{Err: c.res.Err, Said: c.res.Said}
	}
	if !c.in.push(reply{call: c}) {
		c.release()
	}
}

// lines are the requests of one link that wait for the first word of a chain, and those for the same
// signers that came after them and must not overtake them.
type lines struct {
	mu       sync.Mutex // guards what follows
	bySigner map[string]*line
}

// line is that of one signer, as long as its goroutine runs. Its length is bounded by the requests in
// flight.
type line struct{ waiting []*call }

// lineUp puts a request whose chain has not spoken yet into the line of its signer, and what comes
// behind it. false: it need not wait.
func (c *call) lineUp() bool {
	in := c.in
	if chain := in.r.local.Chain; chain != nil && c.req.NeedsChain() {
		heard := make(chan struct{})
		if chain.Await(&c.req, sync.OnceFunc(func() { close(heard) })) {
			c.heard = heard
		}
	}
	in.lines.mu.Lock()
	defer in.lines.mu.Unlock()
	l := in.lines.bySigner[c.req.Signer]
	if l == nil && c.heard == nil {
		return false
	}
	if l == nil {
		l = new(line)
		signer := c.req.Signer
		in.lines.bySigner[signer] = l
		in.r.door.serving.Go(func() { in.moveUp(signer, l) })
	}
	l.waiting = append(l.waiting, c)
	return true
}

// moveUp submits those in a line, each when its chain has spoken or was waited for long enough, or when
// the link has ended.
func (in *inbound) moveUp(signer string, l *line) {
	for {
		in.lines.mu.Lock()
		if len(l.waiting) == 0 {
			delete(in.lines.bySigner, signer)
			in.lines.mu.Unlock()
			return
		}
		c := l.waiting[0]
		l.waiting = l.waiting[1:]
		in.lines.mu.Unlock()
		if c.heard != nil {
			select {
			case <-c.heard:
			case <-in.ctx.Done():
			}
		}
		if err := safely(func() error { c.submit(); return nil }); err != nil {
			in.cancel(err)
		}
	}
}
