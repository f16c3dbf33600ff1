package ws

import (
	"sync"
	"sync/atomic"
	"time"
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
	timer *time.Timer  // guarded by sights.mu
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
	if ready == nil || !r.needsChain() || c.gone.Load() || c.srv.draining.Load() {
		return nil
	}
	w := r.sight
	if w == nil {
		w = &sight{r: r}
		w.heard, r.sight = w.over, w
	}
	if ready(r.op.Signer, w.heard) {
		return nil
	}
	r.sight = nil // it is the waker's now, and used once
	return w
}

func (r *request) needsChain() bool {
	needs := r.kind().needsChain
	return needs != nil && needs(&r.op)
}

// begin waits, the request being in line. It may be over already.
func (w *sight) begin() {
	srv := w.r.conn.srv
	open := srv.sights.add(w, srv.cfg.ChainWait)
	if !w.state.CompareAndSwap(sightAsked, sightWaiting) {
		srv.sights.remove(w)
		w.r.decided()
		return
	}
	if !open {
		w.over()
	}
}

// over ends the wait. It may be called several times, by any goroutine.
func (w *sight) over() {
	if w.state.Swap(sightOver) == sightWaiting {
		w.r.conn.srv.sights.remove(w)
		w.r.decided()
	}
}

// sights are all waits, so that they can be ended. There are never more than requests
// in flight.
type sights struct {
	mu      sync.Mutex // guards what follows
	waiting map[*sight]struct{}
	ended   bool // nobody waits any more
}

// add notes a wait and bounds it. false: nobody waits any more.
func (s *sights) add(w *sight, timeout time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return false
	}
	if s.waiting == nil {
		s.waiting = make(map[*sight]struct{})
	}
	s.waiting[w] = struct{}{}
	w.timer = time.AfterFunc(timeout, w.over)
	return true
}

func (s *sights) remove(w *sight) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.timer != nil {
		w.timer.Stop()
	}
	delete(s.waiting, w)
}

// end ends all waits, also those to come.
func (s *sights) end() {
	s.mu.Lock()
	s.ended = true
	all := make([]*sight, 0, len(s.waiting))
	for w := range s.waiting {
		all = append(all, w)
	}
	s.mu.Unlock()
	for _, w := range all {
		w.over()
	}
}
