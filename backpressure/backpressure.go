// Package backpressure decides which requests are admitted and how to treat a client
// that reads too slowly.
//
// It promises decisions that are pure or a few atomic operations: no I/O, no
// goroutine, no clock (the time is passed in), and no import of another package of
// this module. It does not carry out a decision: a Gate counts slots and holds
// nothing; a Level says "pause", and the queue that asked pauses.
//
// A caller that takes slots gives each of them back exactly once.
package backpressure

import (
	"fmt"
	"math"
	"sync/atomic"
)

// Gate is a bounded number of slots, taken without waiting. Safe for
// concurrent use.
type Gate struct {
	capacity int64
	used     atomic.Int64
}

// NewGate returns a gate of capacity slots. A capacity below one is a mistake
// of the programmer and panics; settings are validated before they get here.
func NewGate(capacity int) *Gate {
	if capacity < 1 {
		panic(fmt.Sprintf("backpressure: a gate of %d slots", capacity))
	}
	return &Gate{capacity: int64(capacity)}
}

// TryTake takes n slots, all or nothing, when both the gate and the holder's
// share have them. A nil share bounds nothing.
func (g *Gate) TryTake(s *Share, n int) bool { return g.tryTake(s, n, g.capacity) }

func (g *Gate) tryTake(s *Share, n int, limit int64) bool {
	if s != nil && !take(&s.used, s.limit, int64(n)) {
		return false
	}
	if take(&g.used, limit, int64(n)) {
		return true
	}
	if s != nil {
		give(&s.used, int64(n))
	}
	return false
}

// TryTakeSpare takes n slots like TryTake, but only from the first half of the
// gate: for what can be left out, so that it never takes the place of what cannot.
func (g *Gate) TryTakeSpare(s *Share, n int) bool { return g.tryTake(s, n, (g.capacity+1)/2) }

// Give returns n slots that were taken with the same share. More than were taken is a
// mistake of the programmer and panics: from then on the bound would be a higher one.
func (g *Gate) Give(s *Share, n int) {
	if s != nil {
		give(&s.used, int64(n))
	}
	give(&g.used, int64(n))
}

// Capacity is the number of slots there are.
func (g *Gate) Capacity() int { return int(g.capacity) }

// Used is the number of slots that are taken.
func (g *Gate) Used() int { return int(g.used.Load()) }

// Share is the part of a gate that one holder may have, so that a single queue
// or connection cannot take all of a stage. Safe for concurrent use.
type Share struct {
	limit int64
	used  atomic.Int64
}

// NewShare returns a share of at most limit slots. Below one it panics.
func NewShare(limit int) *Share {
	if limit < 1 {
		panic(fmt.Sprintf("backpressure: a share of %d slots", limit))
	}
	return &Share{limit: int64(limit)}
}

// Used is the number of slots the holder has.
func (s *Share) Used() int {
	if u := s.used.Load(); u < closedShare {
		return int(u)
	}
	return 0
}

// closedShare is what a closed share has used: more than any limit, and far from
// overflowing.
const closedShare = math.MaxInt64 / 2

// Close ends a share that has no slots, for good: its holder gets none any more.
// false: it has some, or was closed before. A caller that is refused a slot because of it
// finds it Closed already.
func (s *Share) Close() bool { return s.used.CompareAndSwap(0, closedShare) }

// Closed reports whether the share was closed.
func (s *Share) Closed() bool { return s.used.Load() >= closedShare }

// give takes n from used, which were added to it before it was closed.
func give(used *atomic.Int64, n int64) {
	if u := used.Add(-n); u < 0 || u < closedShare && u+n >= closedShare {
		panic(fmt.Sprintf("backpressure: %d slots given back, more than were taken", n))
	}
}

// take adds n to used unless that exceeds limit. Compare-and-swap, not add and
// undo: an addition that is taken back would refuse others for no reason.
func take(used *atomic.Int64, limit, n int64) bool {
	for {
		u := used.Load()
		if u+n > limit {
			return false
		}
		if used.CompareAndSwap(u, u+n) {
			return true
		}
	}
}
