package guard

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"
)

// errLate says that a take was not asked for, because it had waited too long.
var errLate = errors.New("too many locks are asked for, or Redis is too slow")

// lane has the steps of its share of the keys, in order.
type lane struct {
	g    *Guard
	wake chan struct{} // capacity 1: the queue is not empty

	mu     sync.Mutex // guards queue and closed; no I/O under it
	queue  []*Lock    // no more than there are places
	closed bool

	// The lane's goroutine's.
	spare []*Lock
	asked []*Lock
	steps []Step
}

// push queues what a lock waits for. False: the lane has ended.
func (ln *lane) push(l *Lock) bool {
	l.at = time.Now()
	ln.mu.Lock()
	if ln.closed {
		ln.mu.Unlock()
		return false
	}
	ln.queue = append(ln.queue, l)
	ln.mu.Unlock()
	select {
	case ln.wake <- struct{}{}:
	default:
	}
	return true
}

// take takes all that is queued. last: the lane ends when there is nothing.
func (ln *lane) take(last bool) []*Lock {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	batch := ln.queue
	ln.queue, ln.spare = ln.spare[:0], batch
	ln.closed = last && len(batch) == 0
	return batch
}

// loop is the lane's goroutine.
func (ln *lane) loop() {
	for {
		last := false
		select {
		case <-ln.wake:
		case <-ln.g.stop:
			last = true
		}
		for batch := ln.take(last); len(batch) > 0; batch = ln.take(last) {
			ln.run(batch)
			clear(batch)
		}
		if last {
			return
		}
	}
}

// run asks for a batch, as one.
func (ln *lane) run(batch []*Lock) {
	g, now := ln.g, time.Now()
	ln.asked, ln.steps = ln.asked[:0], ln.steps[:0]
	for _, l := range batch {
		switch {
		case l.release:
		case l.Caller.Gone():
			l.Verdict = Gone
			g.decide(l)
			continue
		case now.Sub(l.at) > g.cfg.Timeout:
			l.Verdict, l.Err = Unanswered, errLate
			g.figures.Unanswered()
			g.decide(l)
			continue
		}
		ln.asked = append(ln.asked, l)
		ln.steps = append(ln.steps, Step{Key: l.Key, Value: l.value, Release: l.release, TTL: l.Interval})
	}
	if len(ln.steps) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), g.cfg.Timeout)
	g.locks.Run(ctx, ln.steps)
	cancel()
	now = time.Now()
	for i, l := range ln.asked {
		if l.release {
			ln.released(l, &ln.steps[i], now)
		} else {
			ln.taken(l, &ln.steps[i], now)
		}
	}
	clear(ln.asked)
	clear(ln.steps)
}

// taken follows the answer to a take.
func (ln *lane) taken(l *Lock, s *Step, now time.Time) {
	g := ln.g
	switch {
	case s.Err == ErrFull:
		l.Verdict = Full
	case s.Err != nil:
		ln.unanswered(l, s.Err)
		return
	case !s.OK:
		l.Verdict, l.Left = Taken, s.Left
		g.figures.Refused()
	default:
		l.Verdict, l.since = Granted, now
		g.figures.Acquired()
		ln.debug("lock taken", l)
	}
	g.decide(l)
}

// unanswered refuses a call that may have taken its lock, and gives that back, if
// it is there: the place goes with it.
func (ln *lane) unanswered(l *Lock, err error) {
	g := ln.g
	g.figures.Unanswered()
	if g.seldom() {
		g.log.Warn("locks cannot be asked for; guarded calls are refused", "error", err)
	}
	if !ln.push(&Lock{Key: l.Key, value: l.value, release: true, cleanup: true}) {
		g.Cancel()
	}
	l.Verdict, l.Err = Unanswered, err
	l.Caller.Decided(l)
}

// released follows the answer to a release.
func (ln *lane) released(l *Lock, s *Step, now time.Time) {
	g, held := ln.g, now.Sub(l.since)
	if l.cleanup {
		g.Cancel()
		return
	}
	switch {
	case s.OK:
		g.figures.Released(held)
		ln.debug("lock released", l)
	case s.Err != nil:
		g.figures.ReleaseFailed(Away, held)
		if g.seldom() {
			g.log.Warn("a lock was not given back; it ends by itself", "reason", string(Away), "key", l.Key, "value", l.value, "held", held, "error", s.Err)
		}
	default:
		g.figures.ReleaseFailed(ValueMismatch, held)
		g.log.Warn("a lock was not its caller's any more", "reason", string(ValueMismatch), "key", l.Key, "value", l.value,
			"interval", l.Interval, "held", held, "others", s.Others)
	}
	g.Cancel()
	l.Caller.Ended(l)
}

func (ln *lane) debug(what string, l *Lock) {
	if ln.g.log.Enabled(context.Background(), slog.LevelDebug) {
		ln.g.log.Debug(what, "key", l.Key, "value", l.value, "interval", l.Interval)
	}
}
