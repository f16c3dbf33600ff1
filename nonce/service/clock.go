package service

import (
	"sync"
	"time"

	"noncegate/nonce"
)

const (
	// clockTolerance is how far the store's clock may leave the monotonic one between two
	// looks before sweeps pause.
	clockTolerance = time.Second
	// clockDrift is the assumed maximum drift between two clocks: one part in so many, 0.1 %. A
	// look that took long is worth less than an older one that did not.
	clockDrift = 1000
)

// clock follows the store's clock from the times its answers carry. After a jump of it,
// deadlines that were written before and after cannot be compared, so nothing is swept for
// the longest hold.
type clock struct {
	mu          sync.Mutex // guards all below
	from, at    time.Time  // monotonic times between which the last look was
	store       time.Time  // the store's clock then
	pausedUntil time.Time
	longestHold time.Duration
	jumped      func(by time.Duration)
}

// observe takes a reading of the store's clock made between started and ended.
func (c *clock) observe(started, ended, store time.Time) {
	if store.IsZero() {
		return
	}
	c.mu.Lock()
	var by time.Duration
	if !c.store.IsZero() {
		early, late := c.store.Add(started.Sub(c.at)), c.store.Add(ended.Sub(c.from))
		switch {
		case store.Before(early.Add(-clockTolerance)):
			by = store.Sub(early)
		case store.After(late.Add(clockTolerance)):
			by = store.Sub(late)
		}
	}
	if by != 0 {
		c.pausedUntil = ended.Add(c.longestHold)
	}
	if by != 0 || c.store.IsZero() || ended.Sub(started) <= c.at.Sub(c.from)+ended.Sub(c.at)/clockDrift {
		c.from, c.at, c.store = started, ended, store
	}
	c.mu.Unlock()
	if by != 0 {
		c.jumped(by)
	}
}

// now is what is known of the store's clock.
func (c *clock) now() nonce.Clock {
	t := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	drift := t.Sub(c.at) / clockDrift
	return nonce.Clock{
		Earliest: c.store.Add(t.Sub(c.at) - drift).UnixMilli(),
		// Stores tell whole milliseconds, and so do we.
		Latest: c.store.Add(t.Sub(c.from)+drift).UnixMilli() + 2,
	}
}

// paused reports whether sweeps wait.
func (c *clock) paused() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.pausedUntil.IsZero() && time.Now().Before(c.pausedUntil)
}
