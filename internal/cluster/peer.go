package cluster

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"

	"noncegate/lease"
	"noncegate/nonce"
)

var (
	errStopped   = errors.New("this node stops")
	errForgotten = errors.New("the node is not in the registry any more")
	errMoved     = errors.New("the node has another address now")
)

const (
	modeWorkerQueue = "worker-queue" // of nodes that take leases
	// askedTime is how long a node that the registry does not hold for live is
	// tried to be reached after somebody wanted to forward to it.
	askedTime = 2 * time.Second
	// maxPause bounds the pause between two attempts to reach a node, which is spread by half of itself.
	maxPause = 700 * time.Millisecond
)

// peer is one other node. Its goroutine, keep, alone dials and gives back what a
// lost link leaves.
type peer struct {
	r      *Router
	id     string
	met    time.Time
	ctx    context.Context
	cancel context.CancelCauseFunc
	wake   chan struct{} // there is something to send, or to look at again

	complaints map[string]bool // keep's: why the node could not be reached, as it was logged

	mu       sync.Mutex // guards what follows; no I/O and no calls of others beneath it
	node     lease.Node
	listed   bool      // the registry has named it; set with Router.mu, too
	up       bool      // there is a link
	suspect  bool      // the last link was lost, or could not be opened
	leaving  bool      // the node drains or has left
	leftAs   int64     // the highest incarnation of which that was heard
	asked    time.Time // when Forward last refused for want of a link
	closed   bool      // keep has ended, or is about to
	foreign  bool      // its links have another version
	inflight inflight
	subs     subscribed
}

func newPeer(r *Router, n lease.Node) *peer {
	p := &peer{
		r: r, id: n.Node, node: n, met: time.Now(), wake: make(chan struct{}, 1), complaints: make(map[string]bool),
		inflight: newInflight(r.cfg.Queue), subs: subscribed{asked: noInterest},
	}
	p.ctx, p.cancel = context.WithCancelCause(r.ctx)
	return p
}

// update follows the registry.
func (p *peer) update(n lease.Node) {
	p.mu.Lock()
	p.node, p.listed = n, true
	switch {
	case n.Left:
		p.leaving, p.leftAs = true, n.Incarnation
	case n.Incarnation > p.leftAs:
		p.leaving = false
	}
	p.mu.Unlock()
	p.nudge()
}

// nudge makes keep, or the writer of the link, look again.
func (p *peer) nudge() { poke(p.wake) }

// reachable reports whether ops can be sent to the node now, as far as is known.
func (p *peer) reachable() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.node.Live && p.node.Mode == modeWorkerQueue && !p.suspect && !p.leaving
}

// send takes op over, or says why not.
func (p *peer) send(o op) error {
	defer p.nudge()
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.closed:
		return nonce.ErrPeerAway
	case !p.up && (p.suspect || p.leaving || !p.node.Live):
		p.asked = now
		if p.foreign {
			return nonce.ErrOtherVersion
		}
		return nonce.ErrPeerAway
	case o.q.Kind.Reads() && p.inflight.order.Len() >= p.r.cfg.Queue/2, !p.inflight.add(o, now): // the rest is for what writes
		return nonce.ErrForwardBusy
	}
	return nil
}

// wanted reports whether there should be a link.
func (p *peer) wanted() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.inflight.order.Len() > 0, time.Since(p.asked) < askedTime:
		return true
	case !p.node.Live || p.leaving:
		return false
	}
	return p.r.cfg.Forward && p.node.Mode == modeWorkerQueue || !p.r.interest.Load().empty()
}

// keep is the peer's goroutine: it opens a link while one is wanted, and again when
// it was lost.
func (p *peer) keep() {
	defer p.end()
	select {
	case <-p.r.served:
	case <-p.ctx.Done():
		return
	}
	pace := backoff.ExponentialBackOff{InitialInterval: 50 * time.Millisecond, MaxInterval: maxPause, RandomizationFactor: 0.5, Multiplier: 2}
	for p.await() {
		began := time.Now()
		l, err := p.dial()
		if err == nil {
			p.linked(l)
			began = time.Now()
			err = l.run(p.ctx, l)
			l.wakers.wake()
		}
		if p.lost(l, err); p.ctx.Err() != nil {
			return
		}
		if l != nil && time.Since(began) > maxPause {
			pace.Reset() // a link that dies at once is no better than none
		}
		p.pause(pace.NextBackOff())
	}
}

// await waits until a link is wanted; false: the peer ends.
func (p *peer) await() bool {
	for !p.wanted() {
		select {
		case <-p.wake:
		case <-p.ctx.Done():
			return false
		}
	}
	return p.ctx.Err() == nil
}

func (p *peer) pause(d time.Duration) {
	select {
	case <-time.After(d):
	case <-p.ctx.Done():
	}
}

// linked follows a dial that succeeded. A node that drains refuses new
// connections, so one that accepted is not leaving, whatever was heard before.
func (p *peer) linked(l *link) {
	p.mu.Lock()
	p.up, p.suspect, p.leaving = true, false, p.node.Left
	p.mu.Unlock()
	p.r.log.Info("linked to node", "node", p.id, "url", l.url)
}

// lost follows the end of a link, or a dial that failed with l == nil, and gives back
// what was under way. The link's goroutines have ended.
func (p *peer) lost(l *link, err error) {
	wasUp := l != nil
	restart := wasUp && isRestart(err)
	p.mu.Lock()
	p.up, p.suspect = false, true
	if restart {
		p.leftLocked(l.incarnation)
	}
	leaving := p.leaving
	missed := p.subs.lostLink(restart, p.node.Live && !p.r.interest.Load().empty())
	back := p.drainLocked(err, restart)
	p.mu.Unlock()
	switch {
	case p.ctx.Err() != nil: // asked for
	case wasUp && leaving:
		p.r.log.Info("node is leaving", "node", p.id, "error", err)
	case wasUp:
		p.r.log.Warn("link to node lost", "node", p.id, "under_way", len(back), "error", err)
	}
	p.r.progress()
	if missed {
		p.r.local.Events.Lost()
	}
	p.r.returnAll(back)
}

// drainLocked takes out everything under way, in the order of Forward. restart: the
// node closed the link in an orderly way, which it does when it has answered all it
// took; what is not answered then was not taken.
func (p *peer) drainLocked(err error, restart bool) (back []*slot) {
	for s := p.inflight.first(); s != nil; s = p.inflight.first() {
		if s.stage == sent && !restart {
			p.inflight.end(s, nonce.Doubtful, err)
		} else {
			p.inflight.end(s, nonce.Bounced, nonce.ErrPeerAway)
		}
		back = append(back, s)
	}
	clear(p.inflight.byID)
	return back
}

// end refuses what comes from now on, and gives back what came since the last link.
func (p *peer) end() {
	p.mu.Lock()
	p.closed, p.up = true, false
	back := p.drainLocked(errStopped, false)
	p.mu.Unlock()
	p.r.returnAll(back)
}

// leftLocked notes that an incarnation goes away. The registry may have named a later one
// by then: that one stays.
func (p *peer) leftLocked(incarnation int64) {
	p.leftAs = max(p.leftAs, incarnation)
	p.leaving = p.node.Left || p.node.Incarnation <= p.leftAs
}
