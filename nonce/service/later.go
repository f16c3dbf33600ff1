package service

import (
	"cmp"
	"slices"
	"time"

	"noncegate/nonce"
	"noncegate/nonce/rules"
)

// errTooSoon is told instead of an answer that must wait, where nobody waits.
const errTooSoon nonce.Told = "it is recorded, and somebody else may still have been given the nonce " +
	"before the performance engine was lost; ask again"

// tooSoon keeps an answer that must not be told yet, by the store's clock.
func (w *worker) tooSoon(t *task, a *rules.Answer) bool {
	if a.After <= w.svc.clock.now().Earliest {
		return false
	}
	if t.where != waiting {
		t.move(waiting)
	}
	kept := *a // its plan is used again
	w.later = append(w.later, Answer{w, t, &kept})
	return true
}

// tellLate tells an answer that was kept, unless it is too soon.
func (w *worker) tellLate(a Answer) {
	if w.tooSoon(a.t, a.a) {
		return
	}
	a.t.answer(a.a, w.svc.clock.now())
	w.finish(a.t)
}

// tellDue tells the answers that have waited for a time.
func (w *worker) tellDue() {
	later := w.later
	w.later = nil
	for _, a := range later {
		w.tellLate(a)
	}
}

// wakeLater has the worker woken when the first of the answers that wait may be told, about: the
// store's clock, as it is known, is slower than the timer, which is then set again.
func (w *worker) wakeLater() {
	if len(w.later) == 0 {
		return
	}
	first := slices.MinFunc(w.later, func(a, b Answer) int { return cmp.Compare(a.a.After, b.a.After) }).a.After
	w.laterTimer.Reset(time.Duration(max(1, first-w.svc.clock.now().Earliest)) * time.Millisecond)
}

func (w *worker) laterDue() bool {
	now := w.svc.clock.now().Earliest
	return slices.ContainsFunc(w.later, func(a Answer) bool { return a.a.After <= now })
}
