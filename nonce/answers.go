package nonce

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

const (
	// answersPoll is how often the store is asked whether what is waited for is
	// flushed, where the flush is another node's.
	answersPoll = 10 * time.Millisecond
	// answersAsk bounds the signers of one question.
	answersAsk = 1000
)

var errNotFlushed = errors.New("it is in Redis, and the store has not followed yet; ask again")

// answer is an op that has ended and is answered later.
type answer struct {
	op      *Op
	version int64     // when the store has reached it; 0: at once
	notYet  time.Time // store clock; and not before then. zero: at once
	late    time.Time // monotonic; then it is answered unknown
	queued  time.Time
}

// answers hold back what must not be said yet: marks that Redis has and the store
// has not, and marks of nonces in doubt whose old grants still run. Each op keeps its
// place of the shard's queue until it is answered, which bounds them.
type answers struct {
	svc  *Service
	wake chan struct{}

	mu     sync.Mutex // guards what follows
	held   map[string]*heldBack
	count  int
	closed bool          // nothing in doubt is waited for any more
	empty  chan struct{} // closed when count is 0 and closed is set
}

// heldBack is what is held back of one signer.
type heldBack struct {
	id      int64
	flushed int64 // the version that the store is known to have
	list    []answer
}

func newAnswers(s *Service) *answers {
	return &answers{svc: s, wake: make(chan struct{}, 1), held: make(map[string]*heldBack), empty: make(chan struct{})}
}

// waits reports whether the op, which has ended, is to be held back, and for what.
func (sh *shard) waits(st *state, op *Op, now time.Time) (a answer, waits bool) {
	switch {
	case op.Completion == nil || op.Kind == kindSweep || op.late:
		return a, false
	case st.fast():
		return sh.flushes(op, st.version)
	}
	return sh.svc.doubted(&st.standing, op, now)
}

// flushes reports whether what Redis has at a version is answered after its flush.
func (sh *shard) flushes(op *Op, version int64) (a answer, waits bool) {
	if op.Kind == KindAllocate && (op.Err != nil || !sh.svc.cfg.Fast.Control.FlushLate(op.Signer)) {
		return a, false
	}
	a.version, a.late = version, time.Now().Add(sh.svc.cfg.StoreTimeout)
	return a, true
}

// doubted reports whether a mark of use must wait for the end of the old grant: until
// then somebody may hand the nonce out who does not know of the loss.
func (s *Service) doubted(d *Standing, op *Op, now time.Time) (a answer, waits bool) {
	if op.Kind != KindMarkUsed || op.Err != nil || !d.Doubtful(op.Nonce, now) || !now.Before(d.GrantUntil) {
		return a, false
	}
	a.notYet, a.late = d.GrantUntil, time.Now().Add(d.GrantUntil.Sub(now)+s.cfg.StoreTimeout)
	return a, true
}

// popApplied ends the ops that a commit covered: most now, some later.
func (sh *shard) popApplied(g *group, now time.Time) {
	for _, op := range g.ops[:g.count] {
		if op.late {
			op.Err = &UnavailableError{Outcome: Unknown, Err: errGrantOver}
		}
		a, waits := sh.waits(g.st, op, now)
		if a.op = op; !waits || !sh.svc.answers.hold(g.st.id, a) {
			sh.finish(op)
		}
	}
	g.ops = g.ops[g.count:]
}

// hold keeps an answer back, unless there is nothing to wait for.
func (w *answers) hold(id int64, a answer) bool {
	a.queued = time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	h := w.held[a.op.Signer]
	switch {
	case h == nil:
		h = &heldBack{id: id}
		w.held[a.op.Signer] = h
	case a.notYet.IsZero() && h.reached(a.version):
		return false
	}
	if w.closed && !a.notYet.IsZero() {
		a.late = a.queued
	}
	h.list = append(h.list, a)
	w.count++
	select {
	case w.wake <- struct{}{}:
	default:
	}
	return true
}

func (h *heldBack) reached(version int64) bool {
	return version <= h.flushed && EpochOf(version) == EpochOf(h.flushed)
}

// Flushed says that the store has followed Redis to a version of the signer. The
// flush worker calls it after the commit.
func (s *Service) Flushed(signer string, version int64) {
	s.answers.flushed(signer, RowVersion{Version: version, Engine: Performance})
}

// flushed ends what waited for the version, and what waits for one that can never
// come because the signer was lost.
func (w *answers) flushed(signer string, row RowVersion) {
	w.mu.Lock()
	h := w.held[signer]
	if h == nil {
		w.mu.Unlock()
		return
	}
	if row.Version > h.flushed {
		h.flushed = row.Version
	}
	ready := h.take(func(a *answer) bool {
		switch {
		case a.version == 0:
			return false
		case EpochOf(a.version) < EpochOf(h.flushed):
			a.op.Err = &UnavailableError{Outcome: Unknown, Err: errRedisLost}
			return true
		}
		return h.reached(a.version)
	})
	w.left(len(ready))
	w.mu.Unlock()
	w.svc.answer(ready)
}

// take removes the answers that are ready.
func (h *heldBack) take(is func(*answer) bool) (ready []answer) {
	left := h.list[:0]
	for i := range h.list {
		if is(&h.list[i]) {
			ready = append(ready, h.list[i])
		} else {
			left = append(left, h.list[i])
		}
	}
	clear(h.list[len(left):])
	h.list = left
	return ready
}

// left counts down. mu is held.
func (w *answers) left(n int) {
	w.count -= n
	if w.count == 0 && w.closed && n > 0 {
		close(w.empty)
	}
}

// answer tells the callers.
func (s *Service) answer(ready []answer) {
	var last Waker
	for i := range ready {
		op := ready[i].op
		if op.inShard {
			s.shards[s.Lane(op.Signer)].shares.leave(op.Principal)
		}
		if op.Err != nil {
			op.refused()
		}
		if op.Completion == nil {
			continue
		}
		if w := op.Completion.Done(op); w != nil && w != last {
			if last != nil {
				last.Wake()
			}
			last = w
		}
	}
	if last != nil {
		last.Wake()
	}
}

// run is the goroutine that looks at what is held back, while something is.
func (w *answers) run(stop <-chan struct{}) {
	tick := time.NewTicker(answersPoll)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return
		case <-w.wake:
		}
		for w.look() {
			select {
			case <-stop:
				return
			case <-tick.C:
			}
		}
	}
}

// look answers what has become ready without anybody saying so, and what waited too
// long. It returns false when nothing is left to look at.
func (w *answers) look() bool {
	now := time.Now()
	store, known := w.svc.clock.estimate(now)
	var ready []answer
	var ids []int64
	var signers []string
	w.mu.Lock()
	for signer, h := range w.held {
		ready = append(ready, h.take(func(a *answer) bool {
			if a.version == 0 && known && store.After(a.notYet) {
				return true
			}
			if now.Before(a.late) {
				return false
			}
			a.op.Err = &UnavailableError{Outcome: Unknown, Err: errNotFlushed}
			return true
		})...)
		if len(h.list) == 0 {
			delete(w.held, signer)
			continue
		}
		if len(ids) < answersAsk && h.asks(now) {
			ids, signers = append(ids, h.id), append(signers, signer)
		}
	}
	w.left(len(ready))
	more, count := len(w.held) > 0, w.count
	w.mu.Unlock()
	if w.svc.cfg.Fast != nil {
		w.svc.cfg.Fast.Figures.Waiting(count)
	}
	w.svc.answer(ready)
	w.ask(ids, signers)
	return more
}

// asks reports whether something waits for so long that the flush may be another
// node's, whose flushes nobody tells of here.
func (h *heldBack) asks(now time.Time) bool {
	return slices.ContainsFunc(h.list, func(a answer) bool { return a.version != 0 && now.Sub(a.queued) >= answersPoll })
}

// ask reads how far the store is.
func (w *answers) ask(ids []int64, signers []string) {
	if len(ids) == 0 || w.svc.cfg.Fast == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), w.svc.cfg.StoreTimeout)
	defer cancel()
	rows, err := w.svc.cfg.Fast.Ledger.Versions(ctx, ids)
	if err != nil {
		return // they are asked for again, until they are too late
	}
	for i, signer := range signers {
		w.flushed(signer, rows[i])
	}
}

// close waits until everything is answered. Nothing in doubt is waited for: it is
// answered unknown.
func (w *answers) close() {
	w.mu.Lock()
	w.closed = true
	for _, h := range w.held {
		for i := range h.list {
			if h.list[i].version == 0 {
				h.list[i].late = time.Time{}
			}
		}
	}
	if w.count == 0 {
		close(w.empty)
	}
	w.mu.Unlock()
	<-w.empty
}
