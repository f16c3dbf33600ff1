package cluster

import (
	"context"
	"slices"

	"noncegate/nonce"
)

// EventSink takes the events that other nodes committed. Its methods are called
// from the readers of the links, and must not block.
type EventSink interface {
	// Remote hands over one event of a worker's signer, and how many were missed before it.
	Remote(worker int, e nonce.Event, missed int64)
	// Lost says that events of some node may have been missed: its link broke,
	// could not be opened, or was opened after the node began to commit.
	Lost()
}

// progress wakes those who wait for an interest to be known elsewhere.
func (r *Router) progress() {
	r.mu.Lock()
	defer r.mu.Unlock()
	close(r.moved)
	r.moved = make(chan struct{})
}

// wait returns a channel that is closed at the next progress.
func (r *Router) wait() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.moved
}

// InterestChanged makes the links follow what clients of this node want. It is called after each
// change; calls from several goroutines end with the latest.
func (r *Router) InterestChanged() {
	r.mu.Lock()
	defer r.mu.Unlock()
	old := r.interest.Load()
	next := &interest{seq: old.seq + 1, Interest: r.local.Interest()}
	if old.All == next.All && slices.Equal(old.Signers, next.Signers) {
		return
	}
	r.interest.Store(next)
	for _, p := range r.known() {
		p.nudge()
	}
}

// Await waits until every node that can be reached has taken up the present
// interest, so that no event of a subscription is missed that a client was told is
// there. When ctx ends before, or a node cannot be reached, the EventSink is told
// Lost as soon as the node has taken it up.
func (r *Router) Await(ctx context.Context) {
	seq := r.interest.Load().seq
	for {
		moved := r.wait()
		if r.interest.Load().empty() || r.awaited(seq) {
			break
		}
		select {
		case <-moved:
			continue
		case <-ctx.Done():
		case <-r.ctx.Done():
		}
		break
	}
	for _, p := range r.known() {
		p.mu.Lock()
		if p.subs.have < seq && p.node.Live {
			p.subs.gap = max(p.subs.gap, gapOpen)
		}
		p.mu.Unlock()
	}
}

// awaited reports whether all who can be reached know the interest.
func (r *Router) awaited(seq uint64) bool {
	for _, p := range r.known() {
		p.mu.Lock()
		waits := p.subs.have < seq && p.node.Live && !p.suspect && !p.leaving && !p.closed
		p.mu.Unlock()
		if waits {
			return false
		}
	}
	return true
}

// gap says whether events of a node may be missing, and what the sink was told of that.
type gap uint8

const (
	noGap   gap = iota
	gapOpen     // the sink is told once the node serves the interest
	gapTold     // and was told already that events may be missing from then on
)

// noInterest is what a node serves before it is told.
var noInterest = new(interest)

// subscribed is what a link has asked its node for. Guarded by peer.mu.
type subscribed struct {
	gap   gap
	asked *interest // what it was told last
	have  uint64    // which one it serves
	live  bool      // and that is not empty
}

// have follows the word of a node that it serves an interest from here on.
func (p *peer) have(seq uint64) error {
	p.mu.Lock()
	s := &p.subs
	if seq <= s.have || seq > s.asked.seq {
		p.mu.Unlock()
		return nonsense("it serves the interest number %d", seq)
	}
	s.have = seq
	lost := false
	if seq == s.asked.seq {
		s.live = !s.asked.empty()
		lost = s.live && s.gap != noGap
		s.gap = noGap
	}
	p.mu.Unlock()
	if lost {
		p.r.local.Events.Lost()
	}
	p.r.progress()
	return nil
}

// lostLink forgets what ended with the link, or follows a dial that failed. missed:
// events may be lost from now on. clean: the node closed it after it had sent
// everything. wanted: somebody wants events, and the node may commit some.
func (s *subscribed) lostLink(clean, wanted bool) (missed bool) {
	missed = (s.gap == gapOpen || s.gap == noGap && s.live && !clean) && wanted
	next := s.gap
	switch {
	case missed:
		next = gapTold
	case s.live: // also a node that left cleanly may start again and commit before it is heard
		next = max(next, gapOpen)
	}
	*s = subscribed{gap: next, asked: noInterest}
	return missed
}
