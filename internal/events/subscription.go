package events

import (
	"sync"
	"sync/atomic"
)

// Subscription is what one subscriber wants.
type Subscription struct {
	hub     *Hub
	to      Subscriber
	of      int      // ofClients or ofNodes
	signers []string // nil: all; each once

	missed atomic.Int64 // apart from mu: Publish counts here and must not wait for a Take

	mu        sync.Mutex // guards what follows; Take is called under it, so that none comes after Close
	announced bool
	live      bool
	closed    bool
}

// Subscribe notes that to is to receive the events of the signers, at most MaxSigners, or
// of every signer when none is named, from Start on. Signers are as nonce.ParseSigner
// returned them; naming one twice is naming it once. The caller closes the subscription.
func (h *Hub) Subscribe(to Subscriber, signers []string) *Subscription {
	return h.add(&Subscription{hub: h, to: to, of: ofClients}, signers)
}

// Watch is Subscribe for another node, which is told of what this one commits, from now on.
func (h *Hub) Watch(to Subscriber, signers []string) *Subscription {
	return h.add(&Subscription{hub: h, to: to, of: ofNodes, live: true}, signers)
}

func (h *Hub) add(s *Subscription, signers []string) *Subscription {
	h.change(s, 1, func(w *subscriptionIndex) { w.add(s, signers) })
	return s
}

// Change makes a subscription one to other signers, or to all when none is named. No event is
// delivered twice or left out for it.
func (s *Subscription) Change(signers []string) {
	s.hub.change(s, 0, func(w *subscriptionIndex) {
		w.remove(s)
		s.signers = nil
		w.add(s, signers)
	})
}

// Announce says that the subscriber may hear of its subscription from now on: what
// cannot be delivered before Start counts as missed.
func (s *Subscription) Announce() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.announced = true
}

// Start begins the delivery. Of what came before, nothing is delivered; but what
// was dropped or lost since Subscribe counts as missed, because the answer that
// the subscriber got may promise it. After Close it does nothing.
func (s *Subscription) Start() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.live = true
}

// Close ends the subscription: nothing is offered after it returned. It waits for
// a Take under way and may be called twice. missed is how many events were missed
// of which the subscriber was not told.
func (s *Subscription) Close() (missed int64) {
	s.mu.Lock()
	closed := s.closed
	s.closed = true
	s.mu.Unlock()
	if !closed {
		s.hub.change(s, -1, func(w *subscriptionIndex) { w.remove(s) })
	}
	return s.missed.Swap(0)
}

// change adds a subscription or takes it away, and tells when what the clients
// want is another thing afterwards.
func (h *Hub) change(s *Subscription, by int64, edit func(*subscriptionIndex)) {
	clients := &h.wants[ofClients]
	h.mu.Lock()
	allBefore, before := clients.sum()
	edit(&h.wants[s.of])
	allNow, now := clients.sum()
	h.open.Add(by)
	h.mu.Unlock()
	if h.changed != nil && (allNow != allBefore || now != before) {
		h.changed()
	}
}

// offer hands one event over, or counts it as missed.
func (s *Subscription) offer(e *Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || !s.live {
		if s.announced && !s.live {
			s.missed.Add(1)
		}
		return
	}
	if missed := s.missed.Swap(0); !s.to.Take(e, missed) {
		s.missed.Add(missed + 1)
	}
}
