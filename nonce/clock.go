package nonce

import (
	"sync"
	"time"
)

// clockTolerance is how far the store's clock may leave the monotonic one
// between two looks before sweeps pause.
const clockTolerance = time.Second

// clockDrift: two clocks part by less than one in so many. A look that took long is
// worth less than an older one that did not.
const clockDrift = 1000

// storeClock follows the store's clock from the times its answers carry. It only
// chooses when to ask the store for overdue holds, which the store judges by its
// own clock, and notices jumps: after one, deadlines that were written before and
// after it cannot be compared, so nothing is swept for the longest hold.
type storeClock struct {
	mu          sync.Mutex // guards all below
	from, at    time.Time  // monotonic times between which the last look was
	store       time.Time  // the store's clock then
	pausedUntil time.Time
	longestHold time.Duration
	jumped      func(by time.Duration)
}

// observe takes a reading of the store's clock made between started and ended.
func (c *storeClock) observe(started, ended, store time.Time) {
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

// estimate is the store's clock at now, a little behind it rather than ahead.
func (c *storeClock) estimate(now time.Time) (time.Time, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.store.Add(now.Sub(c.at)), !c.store.IsZero()
}

// ahead is the store's clock at now, a little ahead of it rather than behind. Redis
// counts holds from it: nobody may take one for ended before its holder does.
func (c *storeClock) ahead(now time.Time) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.store.Add(now.Sub(c.from))
}

// paused reports whether sweeps wait.
func (c *storeClock) paused() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.pausedUntil.IsZero() && time.Now().Before(c.pausedUntil)
}
