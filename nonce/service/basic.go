package service

import (
	"errors"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"

	"noncegate/nonce"
	"noncegate/nonce/rules"
)

// basicStripes spread the signers of mode basic over locks.
const basicStripes = 1024

// basic is the mode without workers: every request is a transaction of its own
// in the caller's goroutine, decided under the lock of the signer's row. It owns no shard, is
// correct under any routing and beside nodes of the other mode, and
// leaves an unknown outcome unknown until the request id is asked again.
//
// The stripe's lock keeps requests for one signer from holding several database
// connections while they wait for one another's row, and keeps the events of a
// signer in commit order.
type basic struct {
	svc     *Service
	stripes [basicStripes]sync.Mutex
}

func (b *basic) stripe(signer string) *sync.Mutex {
	return &b.stripes[xxhash.Sum64String(signer)%basicStripes]
}

// run executes a task to its end.
func (b *basic) run(t *task) {
	defer b.svc.dropEvents(t) // after a panic
	t.move(inBatch)
	switch {
	case b.svc.haltedBy() != nil && !t.reads():
		t.refuse(&nonce.UnavailableError{Outcome: nonce.NotSent, Err: b.svc.haltedBy()})
	case t.reads():
		ctx, cancel := b.svc.timeout()
		t.endRead(b.svc.read(ctx, t.req, t.res))
		cancel()
	default:
		mu := b.stripe(t.req.Signer)
		mu.Lock()
		b.svc.fig.WorkerQueue(time.Since(t.queuedAt))
		b.write(t)
		mu.Unlock()
	}
	b.svc.sayWhy(t)
	if w := b.svc.tell(t); w != nil {
		w.Wake()
	}
}

// write executes a task that changes something. The caller has the stripe.
func (b *basic) write(t *task) {
	if t.gone() { // perhaps while it waited for the stripe
		t.refuse(nonce.ErrGone)
		return
	}
	err := b.commit(t.req.Signer, []*task{t})
	switch {
	case err == nil:
	case errors.Is(err, nonce.ErrInvariant):
		b.svc.fig.Invariant()
		b.svc.log.Error("a commit was aborted", "signer", t.req.Signer, "op", t.req.Kind.String(), "error", err)
		t.refuse(nonce.ErrInternal)
	case errors.Is(err, nonce.ErrLive):
		t.refuse(&nonce.UnavailableError{Outcome: nonce.Aborted, Err: ErrUnreadable})
	case sentBack(err):
		t.refuse(err)
	default:
		t.refuse(&nonce.UnavailableError{Outcome: nonce.OutcomeOf(err), Err: err})
	}
}

// commit runs tasks, one or none, in one transaction, and again until they are planned whole:
// a plan that ends early is committed as far as it goes, and what it wants is read with the
// next. Locks of others are waited for, for LockWait, without counting as rounds. A result of
// Moved (somebody else began the signer) is tried again.
func (b *basic) commit(signer string, tasks []*task) error {
	giveUp := time.Now().Add(b.svc.cfg.LockWait)
	need := (&group{name: signer, tasks: tasks}).need()
	noExpiry := false
	var last error = &nonce.StoreError{Outcome: nonce.Aborted, Err: errRowLocked}
	for rounds := 0; rounds < maxRounds; rounds++ {
		plan, result, err := b.transaction(need, tasks, noExpiry)
		if err != nil {
			last = err
		}
		switch {
		case passes(err) && time.Now().Before(giveUp):
			rounds = 0
			time.Sleep(b.svc.cfg.LockRetry) // the store bounds how long it waits for the lock
		case err != nil && (noExpiry || !errors.Is(err, nonce.ErrInvariant) || plan == nil || len(plan.Own) == 0):
			return err
		case err != nil, result == nonce.TooEarly: // with the service's own part, or because of it
			noExpiry = true
		case plan.Wants.Any(): // they are all that the op may need
			need.History, need.Requests = plan.Wants.History, plan.Wants.Requests
		case result == nonce.Applied:
			return nil
		}
	}
	return last
}

// passes reports whether an error is of a lock, or of whatever else may pass.
func passes(err error) bool {
	return err != nil && nonce.OutcomeOf(err) == nonce.Aborted && !errors.Is(err, nonce.ErrInvariant) && !errors.Is(err, nonce.ErrLive)
}

// transaction plans under the lock of the row, commits the plan, and answers the tasks if it
// was planned whole.
func (b *basic) transaction(need nonce.SignerNeed, tasks []*task, noExpiry bool) (*rules.Plan, nonce.WriteResult, error) {
	svc := b.svc
	ctx, cancel := svc.timeout()
	defer cancel()
	chain := svc.chainOf(need.Signer)
	if chain != nil {
		chain.Owned(true) // nobody owns it, so everybody who uses it looks after it
	}
	requests := make([]*nonce.Request, len(tasks))
	for i, t := range tasks {
		requests[i] = t.req
	}
	var plan *rules.Plan
	started := time.Now()
	res, err := svc.store.Locked(ctx, need, func(loaded nonce.Loaded) (nonce.Write, error) {
		svc.clock.observe(started, time.Now(), loaded.Now)
		l := &loaded.Signers[0]
		if l.Err != nil {
			svc.alarmUnreadable(need.Signer, l.Signer.Version, l.Err)
			return nonce.Write{}, &nonce.StoreError{Outcome: nonce.Aborted, Err: l.Err}
		}
		if l.Shard.Performance { // its owner serves it
			return nonce.Write{}, svc.atNode(l.Shard.Owner.Node)
		}
		row, mended := rules.Mend(l.Signer, &l.Shard)
		plan = svc.cfg.Rules.Make(&rules.Input{
			Signer: row, LostUntil: l.Shard.LostUntil(loaded.Now.UnixMilli()), Now: exactly(loaded.Now),
			History: l.History, Requests: l.Requests, Chain: chain,
			Claim: svc.open.Reserve, NoExpiry: noExpiry || svc.clock.paused(),
		}, requests)
		w := nonce.Write{
			Name: need.Signer, Term: l.Shard.Term(), Check: !plan.Writes && !mended, Signer: plan.Signer,
			History: plan.History, Requests: plan.Requests, NotBefore: plan.NotBefore,
		}
		if mended && plan.Writes {
			w.Rise = 1
		}
		// With the version as it is an owner does not notice that the signer is not listed any
		// more. Only a sweep does that, of shards without an owner.
		if w.DueAt = plan.Signer.FirstDeadline(); w.DueAt == 0 && (!w.Check || len(requests) == 0) {
			w.DueAt = nonce.Unlisted // if what it was listed for has passed
		}
		w.Watch = plan.Watch
		if len(svc.table.Fleet().Live) > 0 { // an owner knows more, and does not notice a comparison
			switch {
			case w.Check:
				w.Watch = nonce.Watch{}
			case w.Watch.Kind > nonce.WatchOn:
				w.Watch = nonce.Watch{Kind: nonce.WatchOn}
			}
		}
		return w, nil
	})
	if err == nil && res.Results[0] == nonce.Applied {
		svc.fig.Commit(time.Since(started), 1)
		b.committed(need.Signer, tasks, plan, chain, res.Now)
		return plan, nonce.Applied, nil
	}
	if plan != nil {
		for i := range plan.Answers {
			svc.open.Release(tasks[i].req.Principal, plan.Answers[i].Claimed)
		}
	}
	if err != nil {
		if !sentBack(err) && nonce.OutcomeOf(err) == nonce.Unknown {
			svc.tally.unknown.Add(1)
			if plan == nil || len(plan.Answers) == 0 || !plan.Answers[0].Wrote {
				err = &nonce.StoreError{Outcome: nonce.NotSent, Err: err} // nothing of the op was in it
			}
		}
		return plan, 0, err
	}
	return plan, res.Results[0], nil
}

// committed follows a transaction.
func (b *basic) committed(signer string, tasks []*task, plan *rules.Plan, chain nonce.ChainSigner, now time.Time) {
	svc := b.svc
	worker := svc.WorkerIndex(signer)
	if plan.Expired > 0 {
		svc.fig.Swept(plan.Expired)
	}
	svc.publishOwn(worker, signer, chain, plan, now)
	for i := range plan.Answers {
		t, a := tasks[i], &plan.Answers[i]
		svc.open.Settle(t.req, a)
		if a.After > svc.clock.now().Earliest {
			t.refuse(&nonce.UnavailableError{Outcome: nonce.Unknown, Err: errTooSoon})
		} else {
			t.answer(a, svc.clock.now())
		}
		svc.publish(worker, t, a, chain, plan.Signer.Version, now)
	}
}

// sweep ends overdue holds where no node of the other mode lives that would.
func (b *basic) sweep(paused bool) {
	if paused || len(b.svc.table.Fleet().Live) > 0 {
		return
	}
	due, err := b.svc.due(b.svc.OwnedShards())
	if err != nil {
		b.svc.log.Debug("looking for overdue holds", "error", err)
		return
	}
	for _, e := range due {
		if b.svc.stopping() {
			return
		}
		b.sweepSigner(e)
	}
}

func (b *basic) sweepSigner(e nonce.DueEntry) {
	mu := b.stripe(e.Signer)
	mu.Lock()
	defer mu.Unlock()
	switch err := b.commit(e.Signer, nil); {
	case errors.Is(err, nonce.ErrLive):
		b.postpone(e)
	case err != nil:
		b.svc.log.Debug("ending overdue holds", "signer", e.Signer, "error", err)
	}
}

// postpone is worker.postpone.
func (b *basic) postpone(e nonce.DueEntry) {
	ctx, cancel := b.svc.timeout()
	defer cancel()
	_, err := b.svc.store.Locked(ctx, nonce.SignerNeed{Signer: e.Signer}, func(l nonce.Loaded) (nonce.Write, error) {
		row := &l.Signers[0]
		return relisted(e.Signer, row.Shard.Term(), row.Signer.Version, l.Now.UnixMilli()), nil
	})
	if err != nil {
		b.svc.log.Debug("a signer that cannot be read stays listed", "signer", e.Signer, "error", err)
	}
}
