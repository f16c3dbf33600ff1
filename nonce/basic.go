package nonce

import (
	"context"
	"errors"
	"sync"
	"time"
)

// basicStripes spread the signers of mode basic over locks.
const basicStripes = 1024

// basic is the mode without workers: every request is a transaction of its own
// in the caller's goroutine, decided under the lock of the signer's row. It takes
// no lease, is correct under any routing and beside nodes of the other mode, and
// leaves an unknown outcome unknown until the request id is asked again.
//
// The stripe's lock keeps requests for one signer from holding several database
// connections while they wait for one another's row, and keeps the events of a
// signer in commit order.
type basic struct {
	svc     *Service
	stripes [basicStripes]sync.Mutex
}

// run executes op to its end.
func (b *basic) run(op *Op) {
	switch {
	case op.Completion != nil && op.Completion.Gone():
		op.Err = ErrGone
	case op.Kind.reads():
		b.svc.read(op, 0)
	default:
		if b.write(op) {
			return // it is answered later
		}
	}
	if op.Err != nil {
		op.refused()
	}
	if op.Completion != nil {
		if w := op.Completion.Done(op); w != nil {
			w.Wake()
		}
	}
}

// write executes an op that changes something. later: its answer is held back.
func (b *basic) write(op *Op) (later bool) {
	mu := &b.stripes[b.svc.hash(op.Signer)%basicStripes]
	mu.Lock()
	defer mu.Unlock()
	b.svc.fig.WorkerQueue(time.Since(op.queuedAt))
	giveUp := time.Now().Add(b.svc.cfg.LockWait)
	for {
		again, later, err := b.step(op)
		switch {
		case err == nil && again:
		case err == nil:
			return later
		case errors.Is(err, ErrInvariant):
			b.svc.fig.Invariant()
			b.svc.log.Error("a commit was aborted", "signer", op.Signer, "op", op.Kind.String(), "error", err)
			op.Err = ErrInternal
			return false
		case OutcomeOf(err) != Aborted || errors.Is(err, ErrOtherEngine) || time.Now().After(giveUp):
			op.Err = &UnavailableError{Outcome: OutcomeOf(err), Err: err}
			b.svc.sayWhy(op)
			return false
		default: // the store bounds how long it waits for the lock
			time.Sleep(b.svc.cfg.LockRetry)
		}
	}
}

// step runs one transaction: the overdue holds of the signer when there are any,
// and then the op is to be run again; else the op.
func (b *basic) step(op *Op) (again, later bool, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), b.svc.cfg.StoreTimeout)
	defer cancel()
	sweep, align := Op{Kind: kindSweep, Signer: op.Signer}, Op{Kind: kindAlign, Signer: op.Signer}
	ran, st := op, &state{signer: op.Signer}
	op.wrote = false
	started := time.Now()
	now, err := b.svc.store.Locked(ctx, b.need(op), func(s Snapshot) (Change, error) {
		if b.svc.clock.observe(started, time.Now(), s.Now); b.svc.clock.paused() {
			s.Due = nil
		}
		st.fill(&s)
		d := newDraft(st, &b.svc.cfg.Rules)
		d.now = s.Now
		if d.idsRead = true; d.chain != nil {
			d.chain.Owned(true) // nobody owns it, so everybody who uses it looks after it
		}
		switch ran = op; {
		case d.behind() && d.begins(op):
			ran = &align
		case len(s.Due) > 0:
			ran = &sweep
		}
		switch err := d.apply(ran); {
		case err != nil && op.Kind == KindRepair && ran == op:
			return Change{}, &StoreError{Outcome: Aborted, Err: err} // another nonce blocks now: its row is to be read
		case err != nil:
			return Change{}, &StoreError{Outcome: Aborted, Err: ErrInvariant}
		}
		return d.finish(0), nil
	})
	if err != nil && OutcomeOf(err) == Unknown && (ran != op || !op.wrote) {
		err = &StoreError{Outcome: NotSent, Err: err} // nothing of the op was in it
	}
	if err != nil {
		b.svc.cfg.open.unclaim(op)
		if OutcomeOf(err) == Unknown {
			b.svc.tally.unknown.Add(1)
		}
		return false, false, err
	}
	b.svc.fig.Commit(time.Since(started), 1)
	ran.settleAt(now)
	b.svc.cfg.open.settle(ran)
	b.svc.publish(b.svc.Lane(op.Signer), ran, st.chain, st.version+1, now)
	if ran != op && (ran == &align || op.Kind != kindSweep) {
		return true, false, nil
	}
	a, waits := b.svc.doubted(&st.standing, op, now)
	a.op = op
	return false, waits && b.svc.answers.hold(st.id, a), nil
}

func (b *basic) need(op *Op) Need {
	n := Need{Signer: op.Signer, Due: loadDue}
	if op.RequestID != "" {
		n.RequestIDs = []string{op.RequestID}
	}
	switch op.Kind {
	case KindAllocate:
		n.Released = op.takes()
	case KindMarkUsed, KindMarkRecyclable, KindExtend, KindMarkSigned, KindRepair:
		n.Nonces = []int64{op.wanted(&state{signer: op.Signer}, &b.svc.cfg.Rules)}
		n.Released = op.takes()
	}
	if b.svc.clock.paused() {
		n.Due = 0
	}
	return n
}
