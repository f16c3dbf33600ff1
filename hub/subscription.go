package hub

import (
	"sync"
	"sync/atomic"
)

// Subscription is one subscriber's wish for events.
type Subscription struct {
	hub     *Hub
	to      Subscriber
	signers []string // nil: all; each once

	missed atomic.Int64 // apart from mu: Publish counts here and must not wait for an Offer

	mu     sync.Mutex // guards closed; Offer is called under it, so that none comes after Close
	closed bool
}

// Subscribe makes to receive the events of the signers from now on, or of every
// signer when none is named. More than MaxSigners is ErrTooManySigners. Signers
// are as nonce.ParseSigner returned them; naming one twice is naming it once.
// The caller closes the subscription.
func (h *Hub) Subscribe(to Subscriber, signers []string) (*Subscription, error) {
	if len(signers) > MaxSigners {
		return nil, ErrTooManySigners
	}
	s := &Subscription{hub: h, to: to}
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(signers) == 0 {
		h.all[s] = struct{}{}
	}
	for _, signer := range signers {
		wanting := h.bySigner[signer]
		if wanting == nil {
			wanting = make(map[*Subscription]struct{})
			h.bySigner[signer] = wanting
		}
		if _, twice := wanting[s]; !twice {
			wanting[s] = struct{}{}
			s.signers = append(s.signers, signer)
		}
	}
	h.open.Add(1)
	return s, nil
}

// Close ends the subscription: nothing is offered after it returned. It waits for
// an Offer under way and may be called twice.
func (s *Subscription) Close() {
	s.mu.Lock()
	closed := s.closed
	s.closed = true
	s.mu.Unlock()
	if !closed {
		s.hub.forget(s)
	}
}

func (h *Hub) forget(s *Subscription) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.all, s)
	for _, signer := range s.signers {
		delete(h.bySigner[signer], s)
		if len(h.bySigner[signer]) == 0 {
			delete(h.bySigner, signer)
		}
	}
	h.open.Add(-1)
}

// offer hands one event over, or counts it as missed.
func (s *Subscription) offer(event []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	missed := s.missed.Swap(0)
	if !s.to.Offer(event, missed) {
		s.missed.Add(missed + 1)
	}
}
