package nonce

import (
	"context"
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
	if op.Kind.reads() {
		b.svc.read(op)
	} else {
		b.write(op)
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

func (b *basic) write(op *Op) {
	mu := &b.stripes[b.svc.hash(op.Signer)%basicStripes]
	mu.Lock()
	defer mu.Unlock()
	b.svc.fig.WorkerQueue(time.Since(op.queuedAt))
	giveUp := time.Now().Add(b.svc.cfg.LockWait)
	for {
		again, err := b.step(op)
		if err != nil && OutcomeOf(err) == Aborted && time.Now().Before(giveUp) {
			continue // the store bounds how long it waits for the lock
		}
		if err != nil {
			op.Err = &UnavailableError{Outcome: OutcomeOf(err), Err: err}
		}
		if err != nil || !again {
			return
		}
	}
}

// step runs one transaction: the overdue holds of the signer when there are any,
// and then the op is to be run again; else the op.
func (b *basic) step(op *Op) (again bool, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), b.svc.cfg.StoreTimeout)
	defer cancel()
	sweep := Op{Kind: kindSweep, Signer: op.Signer}
	ran, version := op, int64(0)
	started := time.Now()
	now, err := b.svc.store.Locked(ctx, b.need(op), func(s Snapshot) (Change, error) {
		st := &state{signer: op.Signer}
		st.fill(&s)
		version = s.Version + 1
		d := newDraft(st, &b.svc.cfg.Rules)
		ran = op
		if len(s.Due) > 0 {
			ran = &sweep
		}
		if d.apply(ran) != nil {
			return Change{}, &StoreError{Outcome: Aborted, Err: ErrInternal}
		}
		return d.finish(), nil
	})
	if err != nil {
		return false, err
	}
	ended := time.Now()
	b.svc.fig.Commit(ended.Sub(started), 1)
	b.svc.clock.observe(started, ended, now)
	ran.settleAt(now)
	b.svc.publish(b.svc.Lane(op.Signer), ran, version, now)
	return ran == &sweep && op.Kind != kindSweep, nil
}

func (b *basic) need(op *Op) Need {
	n := Need{Signer: op.Signer, Due: loadDue}
	switch op.Kind {
	case KindAllocate:
		n.Released = op.Count
		if op.RequestID != "" {
			n.RequestIDs = []string{op.RequestID}
		}
	case KindMarkUsed, KindMarkRecyclable:
		n.Nonces = []int64{op.Nonce}
	}
	if b.svc.clock.paused() {
		n.Due = 0
	}
	return n
}
