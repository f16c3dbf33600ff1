package ws

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"noncegate/internal/guard"
)

// lines are the requests of one connection that wait for a lock or for the first word
// of a chain, and those for the same signers that came after them and must not
// overtake them.
type lines struct {
	mu       sync.Mutex // guards what follows
	bySigner map[string]*line
}

// line is that of one signer. It is there as long as a request waits in it or is
// being submitted. Its length is bounded by the requests in flight.
type line struct {
	signer  string
	waiting []*request // in the order in which they came
	moving  bool       // a goroutine submits from it
}

// lineUp puts an admitted request into the line of its signer: one that is to take
// a lock, or whose chain has not answered yet, and whatever comes behind it. Then it
// is submitted from there. false: it need not wait.
func (c *conn) lineUp(r *request) bool {
	lock, sight := r.lock, c.firstSight(r) // once r is in line and waits for neither, it may be done and gone at any time
	waits := 0
	if lock != nil {
		waits++
		r.took.lock = false // it is the guard's from here on
	}
	if sight != nil {
		waits++
	}
	if c.lines == nil {
		if waits == 0 {
			return false
		}
		c.lines = &lines{bySigner: make(map[string]*line)}
	}
	if !c.lines.join(r, waits, &c.srv.lined) {
		return false
	}
	if lock != nil {
		c.srv.cfg.Guard.Take(lock)
	}
	if sight != nil {
		sight.begin()
	}
	return true
}

func (ls *lines) join(r *request, waits int, alive *sync.WaitGroup) bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l := ls.bySigner[r.op.Signer]
	if l == nil {
		if waits == 0 {
			return false
		}
		l = &line{signer: r.op.Signer}
		ls.bySigner[l.signer] = l
		alive.Add(1)
	}
	r.undecided = waits
	l.waiting = append(l.waiting, r)
	return true
}

// Decided implements guard.Caller.
func (r *request) Decided(*guard.Lock) { r.decided() }

// decided says that the request waits for one thing less. If it is first in line now,
// a new goroutine submits it, because in mode basic submitting runs the transaction.
func (r *request) decided() {
	ls := r.conn.lines
	ls.mu.Lock()
	defer ls.mu.Unlock()
	r.undecided--
	if r.undecided > 0 {
		return
	}
	if l := ls.bySigner[r.op.Signer]; !l.moving && l.waiting[0] == r {
		l.moving = true
		go r.conn.move(l)
	}
}

// move submits those at the head of a line that need not wait any more.
func (c *conn) move(l *line) {
	for {
		r, empty := c.lines.next(l)
		if r == nil {
			if empty {
				c.srv.lined.Done()
			}
			return
		}
		c.proceedOne(r)
	}
}

// proceedOne submits one of a line. A mistake there ends the connection, and the line moves
// on: those behind hold their slots until they have ended.
func (c *conn) proceedOne(r *request) {
	defer c.recovered("a submission from a line")
	r.proceed()
}

// next takes out the first of a line unless it has to wait. empty: no request waited,
// and the line has ended.
func (ls *lines) next(l *line) (first *request, empty bool) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	switch {
	case len(l.waiting) == 0:
		delete(ls.bySigner, l.signer)
		return nil, true
	case l.waiting[0].undecided > 0:
		l.moving = false
		return nil, false
	}
	first, l.waiting = l.waiting[0], l.waiting[1:]
	return first, false
}

// awaitLines returns when no request waits in a line any more, and no call of a Room is
// under way. No connection is left, so none is begun.
func (s *Server) awaitLines(ctx context.Context) error {
	gone := make(chan struct{})
	go func() {
		s.lined.Wait()
		close(gone)
	}()
	select {
	case <-gone:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("stop: requests still wait in line, or for somebody else: %w", context.Cause(ctx))
	}
}

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

// begin waits, with the request in line. It may be over already.
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
