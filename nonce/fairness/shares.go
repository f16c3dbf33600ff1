package fairness

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"noncegate/nonce"
)

// ErrCrowded: as many claims wait for Shares as may.
var ErrCrowded = errors.New("as many wait as may")

// spareShares is the part of Shares that principals leave to the next one who comes.
const spareShares = 4

// Shares divide a capacity, of slots or of bytes, between principals. Those who have or want
// some, or had some lately (Linger), may have equal parts of three quarters of it, so that one
// who comes finds room at once whatever the others hold; a single claim is granted to one who has nothing even if it is
// larger than that. Who waits is served by how little it has, the claims of one principal in
// the order in which they came. The zero Principal has no share: it may have all there is.
type Shares struct {
	capacity int64
	least    int64 // what each may have at any time, as far as there is room
	maxWaits int   // claims that may wait
	linger   time.Duration

	mu    sync.Mutex // guards what follows
	taken int64
	waits int
	turn  uint64 // of the last claim that had to wait
	of    map[nonce.Principal]*sharer
	left  time.Time // when the sharers that linger were looked at last
}

// sharer is one principal that has something or waits for it, or lingers.
type sharer struct {
	principal nonce.Principal
	has       int64
	last      time.Time // when it had something last
	queue     []*claim
}

// claim is what one caller waits for.
type claim struct {
	n       int64
	turn    uint64
	granted chan struct{}
}

// NewShares returns a capacity of which nothing is taken. Each principal may have least at
// any time, as far as there is room; maxWaits bounds the claims that wait. A capacity below
// one is a mistake of the programmer and panics.
func NewShares(capacity, least int64, maxWaits int) *Shares {
	if capacity < 1 {
		panic(fmt.Sprintf("fairness: a capacity of %d", capacity))
	}
	return &Shares{capacity: capacity, least: least, maxWaits: maxWaits, of: make(map[nonce.Principal]*sharer)}
}

// Linger has a principal count as a sharer for some time after it had something, so that one
// who comes again and again finds no more of the others' claims before its own than if it had
// stayed. It is to be called before anything else.
func (s *Shares) Linger(d time.Duration) *Shares {
	s.linger = d
	return s
}

// Capacity is how much there is.
func (s *Shares) Capacity() int64 { return s.capacity }

// Taken is how much of it is taken.
func (s *Shares) Taken() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.taken
}

// Waits is how many claims wait.
func (s *Shares) Waits() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.waits
}

// Try takes n without waiting. crowded, where it is not taken, says that the principal has
// its share; otherwise there is no room.
func (s *Shares) Try(p nonce.Principal, n int64) (ok, crowded bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.sharerLocked(p)
	defer s.forgetLocked(h)
	if !s.mayLocked(h, n) {
		return false, true
	}
	if s.waits > 0 || s.taken+n > s.capacity {
		return false, false
	}
	h.has += n
	s.taken += n
	return true, false
}

// Acquire takes n, which must not be above the capacity, when it is the turn of the
// principal. The error is ErrCrowded, or that of ctx; then nothing was taken.
func (s *Shares) Acquire(ctx context.Context, p nonce.Principal, n int64) error {
	c, err := s.enter(p, n)
	if c == nil {
		return err
	}
	select {
	case <-c.granted:
		return nil
	case <-ctx.Done():
	}
	if s.withdraw(p, c) {
		return context.Cause(ctx)
	}
	return nil // it was granted just now
}

// Claim is Acquire for who waits for more than its turn: granted is nil if n was taken at
// once, and otherwise closed when it is. withdraw ends the wait; it is false if it was granted.
func (s *Shares) Claim(p nonce.Principal, n int64) (granted <-chan struct{}, withdraw func() bool, err error) {
	c, err := s.enter(p, n)
	if c == nil {
		return nil, nil, err
	}
	return c.granted, func() bool { return s.withdraw(p, c) }, nil
}

// enter takes n, or returns the claim that waits for it.
func (s *Shares) enter(p nonce.Principal, n int64) (*claim, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.sharerLocked(p)
	defer s.forgetLocked(h)
	if s.waits == 0 && s.mayLocked(h, n) && s.taken+n <= s.capacity {
		h.has += n
		s.taken += n
		return nil, nil
	}
	s.turn++
	c := &claim{n: n, turn: s.turn, granted: make(chan struct{})}
	h.queue = append(h.queue, c)
	s.waits++
	s.grantLocked()
	select {
	case <-c.granted:
		return nil, nil
	default:
	}
	if s.waits > s.maxWaits {
		s.dropLocked(h, c)
		return nil, ErrCrowded
	}
	return c, nil
}

// withdraw takes a claim back. false: it was granted.
func (s *Shares) withdraw(p nonce.Principal, c *claim) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-c.granted:
		return false
	default:
	}
	h := s.of[p]
	s.dropLocked(h, c)
	s.forgetLocked(h)
	s.grantLocked() // it may have been the one that others waited behind
	return true
}

func (s *Shares) dropLocked(h *sharer, c *claim) {
	h.queue = slices.DeleteFunc(h.queue, func(other *claim) bool { return other == c })
	s.waits--
}

// Release gives n back that was taken for the principal.
func (s *Shares) Release(p nonce.Principal, n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.of[p]
	if h == nil || h.has < n {
		panic(fmt.Sprintf("fairness: %d given back, more than were taken", n))
	}
	h.has -= n
	s.taken -= n
	s.forgetLocked(h)
	s.grantLocked()
}

func (s *Shares) sharerLocked(p nonce.Principal) *sharer {
	s.endLingeringLocked()
	h := s.of[p]
	if h == nil {
		h = &sharer{principal: p}
		s.of[p] = h
	}
	return h
}

func (s *Shares) forgetLocked(h *sharer) {
	switch {
	case h.has != 0 || len(h.queue) != 0:
	case s.linger == 0 || h.principal == 0:
		delete(s.of, h.principal)
	default:
		h.last = time.Now()
	}
}

// endLingeringLocked forgets those who had nothing for long. It looks now and then.
func (s *Shares) endLingeringLocked() {
	if s.linger == 0 || time.Since(s.left) < s.linger/8 {
		return
	}
	s.left = time.Now()
	for p, h := range s.of {
		if h.has == 0 && len(h.queue) == 0 && s.left.Sub(h.last) >= s.linger {
			delete(s.of, p)
		}
	}
}

// mayLocked reports whether a principal may have n more, if there is room.
func (s *Shares) mayLocked(h *sharer, n int64) bool {
	if h.principal == 0 || h.has == 0 {
		return true
	}
	share := (s.capacity - s.capacity/spareShares) / int64(len(s.of))
	return h.has+n <= max(share, s.least, 1)
}

// grantLocked gives what there is to those who wait: whoever has least first, and where that
// is the same, whoever came first. A claim that there is no room for yet keeps those behind
// it waiting, so that a large one is not passed over for ever.
func (s *Shares) grantLocked() {
	s.endLingeringLocked()
	for s.waits > 0 {
		var next *sharer
		for _, h := range s.of {
			if len(h.queue) > 0 && s.mayLocked(h, h.queue[0].n) && (next == nil || h.before(next)) {
				next = h
			}
		}
		if next == nil || s.taken+next.queue[0].n > s.capacity {
			return
		}
		c := next.queue[0]
		next.queue = next.queue[1:]
		next.has += c.n
		s.taken += c.n
		s.waits--
		close(c.granted)
	}
}

func (h *sharer) before(other *sharer) bool {
	if h.has != other.has {
		return h.has < other.has
	}
	return h.queue[0].turn < other.queue[0].turn
}
