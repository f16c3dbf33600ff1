package service

import (
	"errors"
	"time"

	"noncegate/nonce"
	"noncegate/nonce/rules"
)

// commit writes what was planned in one statement, and returns the groups that go on: those
// given as next among them.
func (w *worker) commit(groups, next []*group) []*group {
	parts, groups := split(groups)
	if len(parts) > 0 {
		w.engine.Commit(parts)
	}
	for _, p := range parts {
		if g := p.g; g.nextRound {
			if g.nextRound = false; len(g.tasks) > 0 || g.look {
				next = append(next, g)
			}
		}
	}
	if len(groups) == 0 {
		return next
	}
	res, err := w.tryCommit(groups)
	if err != nil {
		return append(next, w.commitFailed(groups, err)...)
	}
	for i, g := range groups {
		if res.Results[i] == nonce.Applied {
			w.applied(g, res.Now)
		} else if !w.notApplied(g, res.Results[i]) {
			continue
		}
		if len(g.tasks) > 0 || g.look {
			next = append(next, g)
		}
	}
	return next
}

func (w *worker) tryCommit(groups []*group) (nonce.Committed, error) {
	ops := 0
	for _, g := range groups {
		w.writes = append(w.writes, g.write)
		ops += len(g.plan.Answers)
	}
	ctx := w.limit.begin(w.svc.calls, w.svc.cfg.StoreTimeout)
	defer w.limit.end()
	started := time.Now()
	res, err := w.svc.store.Commit(ctx, w.svc.holder, w.writes)
	if err != nil {
		w.writes = nil // the call may not have ended
		for _, g := range groups {
			g.inDoubt = true
		}
		return res, err
	}
	ended := time.Now()
	w.svc.fig.Commit(ended.Sub(started), ops)
	w.svc.clock.observe(started, ended, res.Now)
	clear(w.writes)
	w.writes = w.writes[:0]
	return res, nil
}

// applied follows a commit: memory, results, events, in this order.
func (w *worker) applied(g *group, now time.Time) {
	sig, plan := g.sig, g.plan
	sig.unseen = false // of a stopped one, nothing but a safe floor is applied
	if plan.Writes {
		if w.engine != nil {
			w.engine.Committed(Part{g})
		}
		w.set(sig, plan.Signer, g.write.Term.Token)
	} else if sig.stopped { // the floor that is safe is the one that the row has
		w.set(sig, sig.row, sig.token)
	}
	if g.write.DueAt != 0 {
		sig.listed, g.listed = max(0, g.write.DueAt), nonce.DueEntry{}
	}
	if g.write.Watch.Kind != nonce.WatchAsIs {
		sig.watch = g.write.Watch
	}
	w.concluded(g, now)
}

// concluded ends what a commit covered of a group.
func (w *worker) concluded(g *group, now time.Time) {
	w.answer(g, now)
	if g.look && len(g.tasks) == 0 {
		w.lookedAt(g)
	}
	g.tries, g.refuseAt = 0, time.Time{}
	g.unread()
}

// answer ends the tasks that a commit covered.
func (w *worker) answer(g *group, now time.Time) {
	svc, plan, tasks := w.svc, g.plan, g.planned()
	if plan.Expired > 0 {
		w.ended += plan.Expired
		svc.fig.Swept(plan.Expired)
	}
	svc.publishOwn(w.index, g.name, g.sig.chain, plan, now)
	clock := svc.clock.now()
	for i, t := range tasks {
		a := &plan.Answers[i]
		if a.Summary != nil {
			a.Summary.Lease, a.Summary.Now, a.Summary.Performance = svc.table.Fleet().Ownership(g.shard.Row()), now, g.shard.Performance
		}
		svc.open.Settle(t.req, a)
		if g.shard.Performance && w.engine.Keeps(Part{g}, Answer{w, t, a}) {
			t.move(waiting)
			svc.publish(w.index, t, a, g.sig.chain, plan.Signer.Version, now)
			continue
		}
		if w.tooSoon(t, a) {
			svc.publish(w.index, t, a, g.sig.chain, plan.Signer.Version, now)
			continue
		}
		t.answer(a, clock)
		svc.publish(w.index, t, a, g.sig.chain, plan.Signer.Version, now)
		w.finish(t)
	}
	g.pop(len(tasks))
}

const errRowLocked nonce.Told = "the signer's row stayed locked by another session"

// notApplied deals with a group whose write the store left out: nothing of it happened. It
// reports whether the group goes on.
func (w *worker) notApplied(g *group, why nonce.WriteResult) bool {
	w.releaseHolds(g)
	requests := g.write.Requests
	version := g.sig.row.Version
	g.unread()
	g.wants = rules.Wants{}
	switch why {
	case nonce.TooEarly: // the store's clock is behind what was believed of it
		g.noExpiry = true
		return true
	case nonce.IDKnown:
		for i := range requests {
			g.wants.Requests = append(g.wants.Requests, requests[i].ID)
		}
		return true
	}
	return w.reload(g, version)
}

// reload reads a signer whose shard, or version, is not what was believed. A row that is as
// it was believed is locked by somebody else. It reports whether the group goes on.
func (w *worker) reload(g *group, version int64) bool {
	loaded, err := w.svc.load([]nonce.SignerNeed{{Signer: g.name}})
	if err != nil {
		w.failGroup(g, &nonce.UnavailableError{Outcome: nonce.NotSent, Err: err})
		return false
	}
	w.follow(g, &loaded.Signers[0])
	g.unread()
	switch {
	case g.sig == nil: // it is lost, or stopped
		return false
	case g.sig.row.Version == version:
		w.park(g, errRowLocked)
		return false
	}
	w.svc.tally.moved.Add(1)
	return true
}

// commitFailed deals with a commit that ended in an error.
func (w *worker) commitFailed(groups []*group, err error) []*group {
	outcome := nonce.OutcomeOf(err)
	if outcome == nonce.Unknown {
		w.svc.tally.unknown.Add(1)
		w.svc.log.Warn("a commit's outcome is unknown; its shards are acquired again", "signers", len(groups), "error", err)
		return w.settle(groups, err)
	}
	for _, g := range groups {
		w.releaseHolds(g)
	}
	switch {
	case outcome == nonce.NotSent:
		for _, g := range groups {
			w.failGroup(g, &nonce.UnavailableError{Outcome: nonce.NotSent, Err: err})
		}
	case len(groups) > 1: // in halves, until the one at fault is alone
		half := len(groups) / 2
		return append(w.again(groups[:half]), w.again(groups[half:])...)
	default:
		w.alone(groups[0], err)
	}
	return nil
}

// again plans and commits groups that were aborted together with others. It skips front and
// ensureOwned, which they went through in this round; a shard that was lost since is refused
// by the commit.
func (w *worker) again(groups []*group) []*group {
	for _, g := range groups {
		g.unread()
	}
	return w.commit(w.planAll(w.load(groups)))
}

// alone deals with a group whose write was aborted although no other was in the commit. An
// abort that may pass, such as that of a lock, is waited for. With ErrInvariant it tries
// again without ending overdue holds (the part of the plan that no op asked for), then task
// by task, so that only the task at fault is refused.
func (w *worker) alone(g *group, cause error) {
	svc, own, tasks := w.svc, len(g.plan.Own) > 0, g.tasks
	if g.refuseAt.IsZero() {
		svc.log.Error("a commit was aborted", "signer", g.name, "ops", len(g.plan.Answers), "error", cause)
	}
	// What is remembered has proved wrong, or may have. Where the store went back, what is forgotten would be stopped until it gets a floor:
	// a lock proves nothing, and the next commit compares the version.
	if !g.sig.stopped && (w.behind == 0 || errors.Is(cause, nonce.ErrInvariant)) {
		w.memory.forget(g.sig)
	}
	g.unread()
	switch {
	case !errors.Is(cause, nonce.ErrInvariant):
		w.park(g, cause)
		return
	case own && !g.noExpiry:
		g.noExpiry = true
		w.rerun(g, tasks)
	case len(tasks) > 1:
		for i := range tasks {
			if w.rerun(g, tasks[i:i+1:i+1]); len(g.tasks) > 0 { // it is parked, or waits
				for _, t := range tasks[i+1:] {
					g.add(t)
				}
				return
			}
		}
	default:
		svc.fig.Invariant()
		g.tasks = nil
		if len(tasks) == 1 {
			w.refuse(tasks[0], nonce.ErrInternal)
		}
	}
}

// rerun runs some tasks of a group by themselves, to their end or until they wait.
func (w *worker) rerun(g *group, tasks []*task) {
	g.tasks, g.look = tasks, false
	for left := []*group{g}; len(left) > 0; {
		left = w.round(left)
	}
}
