package guard

import (
	"context"
	"errors"
	"log/slog"
	"time"
)

// errLate says that a take was not asked for, because it had waited too long.
var errLate = errors.New("too many locks are asked for, or Redis is too slow")

// worker has the steps of its share of the keys, in order.
type worker struct {
	g     *Guard
	queue chan *Lock // as many as there are slots: a lock waits in it once at most

	// The worker's goroutine's.
	batch, asked []*Lock
	steps        []Step
}

// push queues what a lock waits for. False: the worker takes nothing any more.
func (w *worker) push(l *Lock) bool {
	l.at = time.Now()
	w.g.mu.Lock()
	defer w.g.mu.Unlock()
	if !w.g.stopped {
		w.queue <- l
	}
	return !w.g.stopped
}

// loop is the worker's goroutine. It takes all that has gathered at a time.
func (w *worker) loop() {
	for l := range w.queue {
		w.batch = append(w.batch[:0], l)
		for range len(w.queue) {
			w.batch = append(w.batch, <-w.queue)
		}
		w.run(w.batch)
		clear(w.batch)
	}
}

// run asks for a batch, as one.
func (w *worker) run(batch []*Lock) {
	g, now := w.g, time.Now()
	w.asked, w.steps = w.asked[:0], w.steps[:0]
	for _, l := range batch {
		switch {
		case l.release:
		case l.Caller.Gone():
			l.Verdict = Gone
			g.decide(l)
			continue
		case now.Sub(l.at) > g.cfg.Timeout:
			l.Verdict, l.Err = Unanswered, errLate
			g.counters.unanswered.Inc()
			g.decide(l)
			continue
		}
		w.asked = append(w.asked, l)
		w.steps = append(w.steps, Step{Key: l.Key, Value: l.value, Release: l.release, TTL: l.Interval})
	}
	if len(w.steps) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), g.cfg.Timeout)
	g.locks.Run(ctx, w.steps)
	cancel()
	now = time.Now()
	for i, l := range w.asked {
		if l.release {
			w.released(l, &w.steps[i], now)
		} else {
			w.taken(l, &w.steps[i], now)
		}
	}
	clear(w.asked)
	clear(w.steps)
}

// taken follows the answer to a take.
func (w *worker) taken(l *Lock, s *Step, now time.Time) {
	g := w.g
	switch {
	case s.Err == errFull:
		l.Verdict = Full
	case s.Err != nil:
		w.unanswered(l, s.Err)
		return
	case !s.OK:
		l.Verdict, l.Left = Taken, s.Left
		g.counters.refused.Inc()
	default:
		l.Verdict, l.since = Granted, now
		g.counters.acquired.Inc()
		w.debug("lock taken", l)
	}
	g.decide(l)
}

// unanswered refuses a call that may have taken its lock, and gives that back, if
// it is there: the slot goes with it.
func (w *worker) unanswered(l *Lock, err error) {
	g := w.g
	g.counters.unanswered.Inc()
	g.away.Do(func() { g.log.Warn("locks cannot be asked for; guarded calls are refused", "error", err) })
	if !w.push(&Lock{Key: l.Key, value: l.value, release: true, cleanup: true}) {
		g.Cancel()
	}
	l.Verdict, l.Err = Unanswered, err
	l.Caller.Decided(l)
}

// released follows the answer to a release.
func (w *worker) released(l *Lock, s *Step, now time.Time) {
	g, held := w.g, now.Sub(l.since)
	if l.cleanup {
		g.Cancel()
		return
	}
	g.counters.hold.Observe(held.Seconds())
	switch {
	case s.OK:
		g.counters.released.Inc()
		w.debug("lock released", l)
	case s.Err != nil:
		g.counters.releaseFailed.Inc(Away)
		g.away.Do(func() {
			g.log.Warn("a lock was not given back; it ends by itself", "reason", string(Away), "key", l.Key, "value", l.value, "held", held, "error", s.Err)
		})
	default:
		g.counters.releaseFailed.Inc(ValueMismatch)
		g.late.Do(func() {
			g.log.Warn("a lock was not its caller's any more", "reason", string(ValueMismatch), "key", l.Key, "value", l.value,
				"interval", l.Interval, "held", held, "others", s.Others)
		})
	}
	g.Cancel()
	l.Caller.Ended(l)
}

func (w *worker) debug(what string, l *Lock) {
	if w.g.log.Enabled(context.Background(), slog.LevelDebug) {
		w.g.log.Debug(what, "key", l.Key, "value", l.value, "interval", l.Interval)
	}
}
