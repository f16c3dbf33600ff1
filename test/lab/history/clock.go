package history

import (
	"math"
	"time"
)

// Shift says that the store's clock was set.
type Shift struct {
	// From and To are the moments between which it took effect.
	From time.Duration `json:"from"`
	To   time.Duration `json:"to"`
	// By is what the store's clock is ahead of the wall clock from then on.
	By time.Duration `json:"by"`
}

// endedBy is the latest that the store's clock can have been, in Unix milliseconds, when a hold was ended whose nonce c handed out
// again; given is when that hold can have begun. Where nobody sets that clock, what c was told says it. Else it may have been later
// before c than at c, and the gateway may not have known how late it was.
func (s *signer) endedBy(given time.Duration, c *Call) int64 {
	if len(s.shifts) == 0 {
		return c.committedAt()
	}
	return s.latest(given, c.End)
}

// latest is the highest that the store's clock can have shown between two moments. Each
// setting may have been in force from when it was begun until the next was done.
func (s *signer) latest(from, to time.Duration) int64 {
	latest := int64(math.MinInt64)
	begin, by := time.Duration(math.MinInt64), time.Duration(0)
	in := func(end time.Duration) {
		if begin <= to && end >= from {
			latest = max(latest, s.began+(min(to, end)+by).Milliseconds()+1)
		}
	}
	for _, next := range s.shifts {
		in(next.To)
		begin, by = next.From, next.By
	}
	in(to)
	return latest
}
