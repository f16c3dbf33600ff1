package cluster

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"noncegate/internal/events"
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

// maxSigners bounds what a link asks for by name. Who wants more gets everything and leaves the
// choice to the hub of this node.
const maxSigners = events.MaxSigners

// interests is the present interest, and who waits for it to be known elsewhere.
type interests struct {
	present atomic.Pointer[interest]

	changing sync.Mutex // held while the interest is read and set

	mu    sync.Mutex // guards moved
	moved chan struct{}
}

func (in *interests) init() {
	in.present.Store(new(interest))
	in.moved = make(chan struct{})
}

func (in *interests) now() *interest { return in.present.Load() }

// progress wakes those who wait.
func (in *interests) progress() {
	in.mu.Lock()
	defer in.mu.Unlock()
	close(in.moved)
	in.moved = make(chan struct{})
}

// wait returns a channel that is closed at the next progress.
func (in *interests) wait() <-chan struct{} {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.moved
}

// InterestChanged makes the links follow what clients of this node want: every
// event, or those of some signers, or none. It is called after each change; read
// says what is wanted now. Calls from several goroutines end with the latest.
func (r *Router) InterestChanged(read func() (all bool, signers []string)) {
	r.interests.changing.Lock()
	all, signers := read()
	next := &interest{all: all || len(signers) > maxSigners}
	if !next.all {
		next.signers = slices.Compact(slices.Sorted(slices.Values(signers)))
	}
	old := r.interests.now()
	same := old.all == next.all && slices.Equal(old.signers, next.signers)
	if !same {
		next.seq = old.seq + 1
		r.interests.present.Store(next)
	}
	r.interests.changing.Unlock()
	if same {
		return
	}
	for _, p := range r.known() {
		p.nudge()
	}
}

// Await waits until every node that can be reached has taken up the present
// interest, so that no event of a subscription is missed that a client was told is
// there. When ctx ends before, or a node cannot be reached, the EventSink is told
// Lost as soon as the node has taken it up.
func (r *Router) Await(ctx context.Context) {
	seq := r.interests.now().seq
	for {
		moved := r.interests.wait()
		if r.interests.now().empty() || r.awaited(seq) {
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
	p.r.interests.progress()
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
