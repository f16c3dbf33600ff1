package fairness

import (
	"sync"
	"sync/atomic"

	"noncegate/nonce"
)

// spareSlots is the part of a queue's capacity that is kept beside it for principals
// who come to a queue that others have filled.
const spareSlots = 8

// Slots counts the slots of a queue, and how many of them each principal
// has. While several have any, each may have an equal share, and who has less finds a
// slot beyond the capacity when the others have filled it. What is nobody's has no
// share; it finds a slot as long as there is one.
type Slots struct {
	taken    atomic.Int64
	capacity int64

	mu     sync.Mutex // guards all below
	of     map[nonce.Principal]*share
	active int64  // how many of them have slots; the others are forgotten now and then
	last   *share // of the last call
}

// NewSlots returns so many slots, all free.
func NewSlots(capacity int) *Slots { return &Slots{capacity: int64(capacity)} }

// Taken is the number of slots that are taken. It may be above the capacity by an eighth.
func (s *Slots) Taken() int { return int(s.taken.Load()) }

// share is what one principal has.
type share struct {
	of  nonce.Principal
	has int64
}

// Reserve takes a slot, or reports that there is none for this principal.
func (s *Slots) Reserve(p nonce.Principal) bool {
	if p == 0 {
		return s.add(s.capacity)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	sh, all, room := s.share(p), s.active, s.capacity
	if sh.has == 0 {
		all++
	}
	if all > 1 {
		if sh.has >= max(1, s.capacity/all) {
			return false
		}
		room += max(1, s.capacity/spareSlots)
	}
	if !s.add(room) {
		return false
	}
	sh.has++
	if sh.has == 1 {
		s.active++
	}
	return true
}

func (s *Slots) add(limit int64) bool {
	if s.taken.Add(1) > limit {
		s.taken.Add(-1)
		return false
	}
	return true
}

// Leave gives a slot back.
func (s *Slots) Leave(p nonce.Principal) {
	s.taken.Add(-1)
	if p == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	sh := s.share(p)
	sh.has--
	if sh.has == 0 {
		s.active--
	}
}

// keptShares is how many principals without slots are remembered, beside as many as
// have some.
const keptShares = 64

func (s *Slots) share(p nonce.Principal) *share {
	if s.last != nil && s.last.of == p {
		return s.last
	}
	sh := s.of[p]
	if sh == nil {
		if int64(len(s.of)) > 2*s.active+keptShares {
			for of, sh := range s.of {
				if sh.has == 0 {
					delete(s.of, of)
				}
			}
		}
		sh = (&share{of: p})
		if s.of == nil {
			s.of = make(map[nonce.Principal]*share)
		}
		s.of[p] = sh
	}
	s.last = sh
	return sh
}
