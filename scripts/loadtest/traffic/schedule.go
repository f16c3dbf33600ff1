package traffic

import (
	"math"
	"sync/atomic"
	"time"
)

const (
	// minPause is the shortest time a pacer sleeps: what falls due meanwhile leaves together, late by no more than
	// that. Waking for every request would cost more than the requests.
	minPause = 200 * time.Microsecond
	// maxPause is the longest, after which it hears that the load has ended.
	maxPause = 5 * time.Millisecond
	// catchUp is how long a pacer that is late when the load ends may still send what was due before.
	catchUp = 100 * time.Millisecond
)

// pacer tells of what comes at even times. Its goroutine runs loop.
type pacer struct {
	meter    *meter
	first    time.Duration // when the first is due
	interval float64       // nanoseconds between two
	next     func(k int, due time.Duration)
	left     func(due time.Duration, n int) // so many from then on came too late
	ended    atomic.Int64                   // when the load ended; 0: it has not
	pause    func(time.Duration)            // nil: the system's
}

// end has the loop come to its end.
func (p *pacer) end() { p.ended.CompareAndSwap(0, max(1, int64(p.meter.now()))) }

func (p *pacer) loop() {
	if p.pause == nil {
		sleep, done := newPauser()
		defer done()
		p.pause = sleep
	}
	for k := 0; ; k++ {
		due := p.first + time.Duration(p.interval*float64(k))
		if end := p.sleepUntil(due); end > 0 {
			if due >= end {
				return
			}
			if p.meter.now() > end+catchUp {
				p.left(due, int(math.Ceil(float64(end-due)/p.interval)))
				return
			}
		}
		p.next(k, due)
	}
}

// sleepUntil returns 0 at the time due, or as soon as it can after that, and when the load ended if it has.
func (p *pacer) sleepUntil(due time.Duration) (end time.Duration) {
	for {
		left := due - p.meter.now()
		if end := p.ended.Load(); end > 0 || left <= 0 {
			return time.Duration(end)
		}
		p.pause(min(max(left, minPause), maxPause))
	}
}
