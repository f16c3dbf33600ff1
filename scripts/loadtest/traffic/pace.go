package traffic

import (
	"context"
	"time"

	"noncegate/scripts/loadtest/result"
)

// seconds tells of each second of a measured time. It belongs to one goroutine.
type seconds struct {
	meter *meter
	clock clock
	tell  func(result.Second) // nil: nobody is told
	at    time.Duration       // when the one began that has not ended
}

func (s *seconds) end() {
	now := s.clock.now()
	second := s.meter.endSecond(s.at, now-s.at)
	s.at = now
	if s.tell != nil {
		s.tell(second)
	}
}

// pace calls next for each of the events that come at a rate a second, with its
// number from 0 and the time of the clock when it is due, and second after each
// second, until ctx ends. An event that it comes too late for is called at once,
// with the time when it was due.
func (c clock) pace(ctx context.Context, rate float64, second func(), next func(k int, due time.Duration)) {
	seconds := time.NewTicker(time.Second)
	defer seconds.Stop()
	wake := time.NewTimer(0)
	defer wake.Stop()
	for k := 0; ; {
		due := time.Duration(float64(k) / rate * float64(time.Second))
		wake.Reset(max(0, due-c.now()))
		select {
		case <-ctx.Done():
			return
		case <-seconds.C:
			second()
		case <-wake.C:
			next(k, due)
			k++
		}
	}
}
