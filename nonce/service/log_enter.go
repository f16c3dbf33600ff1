package service

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"noncegate/lease"
	"noncegate/nonce"
	"noncegate/nonce/rules"
)

// logRetry is between two tries at a log that does not do what it should.
const logRetry = 100 * time.Millisecond

// beginLog follows an acquire of a shard that has the performance engine. Since when its log
// has not been usable is kept over acquires.
func (w *worker) beginLog(sh *shard, row *lease.Shard) {
	sh.log = &shardLog{
		fence:  nonce.LogFence{Shard: sh.id, Token: row.Token, Identity: row.Identity, Head: row.Shipped},
		engine: row.Engine, dirty: make(map[*signer]struct{}), failing: sh.logFailed.since, why: sh.logFailed.why,
	}
}

// fails notes that a log does not do what it should. After a call that was not answered, which
// took its time, no other shard makes one to that server for a while. tried reports whether it
// was a take-over that had its time.
func (w *worker) fails(sh *shard, tried bool, err error) {
	lg, now := sh.log, time.Now()
	if tried {
		sh.logFailed.tried = now
	}
	lg.full = lg.full && errors.Is(err, nonce.ErrLogFull)
	if _, is := errors.AsType[*nonce.StoreError](err); is && !errors.Is(err, nonce.ErrLogFull) {
		w.svc.engine.reach.failed(lg.fence.Identity, tried, err)
	}
	if lg.failing.IsZero() {
		lg.failing = now
		w.svc.log.Warn("the log of a shard does not do what it should", "shard", sh.id, "serves", lg.serves, "error", err)
	}
	sh.logFailed.since, sh.logFailed.why, lg.why = lg.failing, err, err
	w.retryLog(lg)
}

// retryLog sets the time of the next try, but not later than it was: a log of which record after
// record is refused is tried, too.
func (w *worker) retryLog(lg *shardLog) {
	if now := time.Now(); !lg.retryAt.After(now) {
		lg.retryAt = now.Add(logRetry)
		time.AfterFunc(logRetry, w.signal)
	}
}

// works notes that a log does what it should. After a record was refused for want of memory that
// takes a record, or LostAfter without another refusal.
func (w *worker) works(sh *shard) {
	lg := sh.log
	w.svc.engine.reach.answered(lg.fence.Identity)
	lg.seen = time.Now()
	if lg.full = lg.full && lg.seen.Sub(lg.fullAt) < w.svc.cfg.Log.LostAfter; !lg.full {
		lg.failing, sh.logFailed.since = time.Time{}, time.Time{}
	}
}

// tendLogs tries again what has failed, of all shards of the worker.
func (w *worker) tendLogs() {
	if w.svc.cfg.Log == nil {
		return
	}
	now, owned := time.Now(), w.owned()
	// It starts behind the shard that was tried last, so that no shard always follows one that
	// the server does not answer, after which none is tried for a while.
	at := max(0, slices.IndexFunc(owned, func(sh *shard) bool { return sh.id > w.logs.lastTried }))
	for _, sh := range slices.Concat(owned[at:], owned[:at]) {
		if lg := sh.log; lg != nil && lg.due(now) {
			w.tryLog(sh)
		}
	}
	w.checkIdle(now)
}

// due reports whether it is time to try again what has failed.
func (lg *shardLog) due(now time.Time) bool {
	return (!lg.serves || len(lg.unanswered) > 0 || lg.leaving || !lg.failing.IsZero()) && !now.Before(lg.retryAt)
}

// checkIdle looks whether the logs that nobody has used for a while are as this node left them.
// Their keys may be gone, and while the owner lives nothing is lost by that.
func (w *worker) checkIdle(now time.Time) {
	var idle []*shard
	var items []nonce.LogAppend
	for _, sh := range w.owned() {
		if lg := sh.log; lg != nil && lg.settled() && lg.failing.IsZero() && now.Sub(lg.seen) >= w.svc.cfg.Log.LostAfter/4 {
			lg.seen = now
			idle, items = append(idle, sh), append(items, nonce.LogAppend{Fence: lg.fence})
		}
	}
	if len(items) == 0 {
		return
	}
	ctx, cancel := w.svc.logTime()
	defer cancel()
	for i, err := range w.svc.cfg.Log.Log.Append(ctx, items) {
		if err != nil && idle[i].log != nil {
			w.notAccepted(idle[i], nil, false, err)
		}
	}
}

// tryLog takes a log up, or settles what has an unknown outcome, or, once it has failed for
// long enough, ends it.
func (w *worker) tryLog(sh *shard) {
	lg, server := sh.log, w.svc.engine.reach.silence(sh.log.fence.Identity)
	switch {
	case !lg.serves && !w.logs.storeAway && w.takeoverFailed(sh, server):
		w.declare(sh)
	case lg.leaving && w.logs.storeAway: // it could take StoreTimeout, and there are other shards
		w.retryLog(lg)
	case lg.leaving:
		w.turnOff(sh, lg.leavingFor)
	case lg.serves && !w.logs.storeAway && w.mustLeave(lg):
		w.turnOff(sh, fmt.Sprintf("shard %d: %v", sh.id, lg.why))
	case time.Now().Before(server.rests):
		w.fails(sh, false, errors.New(server.why.Error())) // it was not tried
	case !lg.serves:
		w.logs.lastTried = sh.id
		w.enter(sh)
	default:
		w.settleLog(sh)
	}
}

// broken follows an error of a log that serves, which says that nothing happened.
func (w *worker) broken(sh *shard, err error) {
	if errors.Is(err, nonce.ErrLogFenced) {
		w.svc.log.Warn("the log has another owner", "shard", sh.id, "error", err)
		w.lose(sh)
		sh.unsure = true
		return
	}
	if w.fails(sh, false, err); errors.Is(err, nonce.ErrLogLost) && !w.logs.storeAway { // else it is tried again
		w.turnOff(sh, fmt.Sprintf("shard %d: %v", sh.id, err))
	}
}

// settleLog finds out whether the log has what was appended last: the higher try refuses
// whatever comes late.
func (w *worker) settleLog(sh *shard) {
	lg := sh.log
	ctx, cancel := w.svc.logTime()
	defer cancel()
	after, err := w.svc.cfg.Log.Log.Raise(ctx, lg.fence)
	happened := len(lg.unanswered) > 0 && after.Head == lg.fence.Head+1
	if err == nil && !happened && after.Head != lg.fence.Head {
		err = fmt.Errorf("%w: its head is %d, and %d was believed", nonce.ErrLogLost, after.Head, lg.fence.Head)
	}
	if err != nil {
		lg.raising = lg.raising || nonce.OutcomeOf(err) == nonce.Unknown
		w.broken(sh, err)
		return
	}
	lg.fence, lg.raising = after, false
	lg.full = lg.full && !happened
	if w.works(sh); !lg.failing.IsZero() { // it has no room still
		w.retryLog(lg)
	}
	w.unstick(sh, func(g *group) {
		switch {
		case !happened:
			w.releaseHolds(g)
			g.unread()
		case !g.follows(): // the store refused what it was planned on
			lg.refuse(g.name)
			w.leaveUnknown(g, errStopped)
		default:
			w.accepted(g)
		}
	})
}

// follows reports whether the group's plan is of the row that is remembered.
func (g *group) follows() bool {
	if g.plan.Writes {
		return g.plan.Signer.Version == g.sig.row.Version+1
	}
	return g.plan.Signer.Version == g.sig.row.Version
}

// unstick lets the groups go on whose append had an unknown outcome, once each has been told
// what became of it.
func (w *worker) unstick(sh *shard, each func(*group)) {
	stuck := sh.log.unanswered
	sh.log.unanswered = nil
	for _, g := range stuck {
		delete(w.parked, g.name)
		g.sig.pinned = false
		tasks := len(g.tasks)
		each(g)
		if len(g.tasks) == 0 && !g.look {
			continue
		}
		for _, t := range g.tasks[:min(tasks, len(g.tasks))] {
			t.move(waiting)
		}
		g.retryAt = time.Now()
		w.parked[g.name] = g
	}
	w.signal()
}

// inTime reports whether a call has ended about when its time was over, or before. If not, this
// process has stood still meanwhile, and the server may have answered.
func inTime(began time.Time, most time.Duration) bool { return time.Since(began) <= most+logRetry }

// enterTime bounds the take-over of a log, which reads all that was not shipped.
func (w *worker) enterTime() time.Duration { return 5 * w.svc.cfg.Log.Timeout }

// enter takes over the log of a shard that was just acquired: (b) and (c) of the design.
func (w *worker) enter(sh *shard) {
	lg := sh.log
	if !lg.retryAt.IsZero() { // a try before this one may come late, or have put the token in
		was := *sh.view.Load()
		rows, err := w.tryAcquire([]int{sh.id})
		if err != nil {
			if nonce.OutcomeOf(err) != nonce.Aborted { // the store is away, and not the log, of which nothing is known meanwhile
				lg.failing, sh.logFailed.since = time.Time{}, time.Time{}
			}
			w.retryLog(lg)
			return
		}
		_ = w.acquired(sh, &rows[0], &was) // an error leaves it without a log, too
		if sh.log == nil {
			return
		}
		lg = sh.log
	}
	log, began := w.svc.cfg.Log.Log, time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), w.enterTime())
	fence, records, err := log.Enter(ctx, lg.fence)
	cancel()
	if err != nil {
		w.fails(sh, inTime(began, w.enterTime()), fmt.Errorf("take over the log: %w", err))
		return
	}
	folded, unreadable, err := w.fold(sh, lg.fence.Head, records)
	switch _, silent := errors.AsType[*nonce.StoreError](err); {
	case sh.log != lg:
		return
	case silent: // the store is away, and not the log
		w.works(sh)
		w.retryLog(lg)
		return
	case err != nil:
		w.fails(sh, true, fmt.Errorf("fold the log: %w", err))
		return
	}
	again, cancel := w.svc.logTime()
	defer cancel()
	began = time.Now()
	if err := log.Append(again, []nonce.LogAppend{{Fence: fence}})[0]; err != nil {
		w.fails(sh, inTime(began, w.svc.cfg.Log.Timeout), fmt.Errorf("compare the log: %w", err))
		return
	}
	for _, sig := range folded {
		if was := w.memory.signers[sig.name]; was != nil {
			w.stayStopped(was, sig)
			w.memory.forget(was)
		}
		w.followChain(sig)
		w.memory.add(sig)
		lg.dirty[sig] = struct{}{}
		w.logs.unshipped += int(sig.row.Version - sig.unshipped.base.Version)
	}
	lg.fence, lg.serves, lg.shipped, lg.trimmed = fence, true, lg.fence.Head, 0
	for _, sig := range unreadable {
		w.stopUnreadable(sig)
	}
	w.works(sh)
	w.logs.shipper.began = time.Time{}
	w.svc.log.Info("took over a log", "shard", sh.id, "records", len(records), "signers", len(folded), "fencing_token", fence.Token, "head", fence.Head)
}

// stopUnreadable stops a signer whose row cannot be read, for when it was mended: it does not show what
// the log had of it, which is left out.
func (w *worker) stopUnreadable(sig *signer) {
	if was := w.memory.signers[sig.name]; was != nil {
		was.safe = max(was.safe, sig.safe)
		sig = was
	} else {
		w.memory.add(sig)
	}
	sig.disown()
	sig.stop()
	sig.stay = noStay
	sig.shard.log.refuse(sig.name)
	w.svc.log.Error("what the log has of a signer whose row cannot be read is left out: once the row is mended, the signer is stopped until nonce_setFloor gives it a safe floor",
		"signer", sig.name, "seen_next", sig.safe)
}

// stayStopped has a signer that is read again be stopped as it was, unless its floor is safe by now.
func (w *worker) stayStopped(was, sig *signer) {
	switch {
	case !was.stopped:
	case sig.row.Floor >= was.safe:
		sig.shard.stopped.Add(-1)
	default:
		sig.stopped, sig.safe = true, was.safe
	}
}

// fold lays the records of a log over the rows of their signers, but those up to a head that was
// shipped: the rows have them, or the store refused them. It returns the signers that are to be
// shipped, and those whose row cannot be read, with a floor that is above all that the log handed out.
func (w *worker) fold(sh *shard, shipped int64, records []nonce.LogRecord) (dirty, unreadable []*signer, err error) {
	records = slices.DeleteFunc(records, func(r nonce.LogRecord) bool { return r.Seq <= shipped })
	var needs []nonce.SignerNeed
	at := make(map[string]*signer)
	for i := range records {
		for j := range records[i].Changes {
			if name := records[i].Changes[j].Name; at[name] == nil {
				at[name] = &signer{name: name, shard: sh, stay: sh.stay}
				needs = append(needs, nonce.SignerNeed{Signer: name})
			}
		}
	}
	for chunk := range slices.Chunk(needs, compareChunk) {
		loaded, err := w.svc.load(chunk)
		if err != nil {
			return nil, nil, err
		}
		for i := range chunk {
			l := &loaded.Signers[i]
			if l.Shard.Token != sh.term.Load() || l.Shard.Owner != w.svc.holder {
				w.lose(sh)
				return nil, nil, nonce.ErrFenced
			}
			sig := at[chunk[i].Signer]
			sig.row, sig.token = l.Signer, l.Token
			if l.Err != nil { // it is refused to all who ask for it
				w.svc.log.Error("the row of a signer cannot be read", "signer", sig.name, "error", l.Err)
				unreadable = append(unreadable, sig)
				continue
			}
			sig.unshipped = &unshipped{base: l.Signer, token: l.Token, since: time.Now()}
		}
	}
	for i := range records {
		for j := range records[i].Changes {
			c := &records[i].Changes[j]
			sig := at[c.Name]
			if sig.unshipped == nil {
				if c.Version > sig.row.Version {
					sig.safe = max(sig.safe, c.Next)
				}
				continue
			}
			applied, err := c.Apply(&sig.row)
			if err != nil {
				return nil, nil, err
			}
			if !applied {
				continue
			}
			for _, p := range c.History {
				sig.unshipped.history = append(sig.unshipped.history, versioned[nonce.Past]{c.Version, p})
			}
			for _, q := range c.Requests {
				sig.unshipped.requests = append(sig.unshipped.requests, versioned[nonce.Remembered]{c.Version, q})
			}
		}
	}
	for _, n := range needs {
		if sig := at[n.Signer]; sig.unshipped != nil && sig.row.Version > sig.unshipped.base.Version {
			sig.token = sh.term.Load()
			dirty = append(dirty, sig)
		}
	}
	unreadable = slices.DeleteFunc(unreadable, func(sig *signer) bool { return sig.safe == 0 }) // the rows have all of it
	return dirty, unreadable, nil
}

// declare says that a log is lost that this node could not take over.
func (w *worker) declare(sh *shard) {
	ctx, cancel := w.svc.timeout()
	defer cancel()
	reason := fmt.Sprintf("shard %d: %v", sh.id, sh.log.why)
	done, err := w.svc.cfg.Log.Store.Declare(ctx, w.svc.holder, sh.shardTerm(), w.svc.cfg.Log.Margin)
	if done || err != nil && nonce.OutcomeOf(err) == nonce.Unknown {
		w.svc.degrade(reason)
	}
	if err == nil && done {
		w.svc.log.Error("the log of a shard was lost with what was not shipped; what it may have handed out is in doubt", "shard", sh.id, "error", sh.log.why)
		w.svc.tally.lost.Add(1)
	} else {
		w.svc.log.Warn("a loss was not declared", "shard", sh.id, "done", done, "error", err)
	}
	// Whatever became of it, to acquire the shard again shows the engine, and the log is tried again
	// before the next declaration.
	w.lose(sh)
	sh.unsure = true
	w.command(command{shard: sh, take: true})
}

// dropLog forgets the log of a shard that is lost. What nobody was told yet is unknown: the log
// has it, and the next owner ships it.
func (w *worker) dropLog(sh *shard) {
	lg := sh.log
	if lg == nil {
		return
	}
	lost := &nonce.UnavailableError{Outcome: nonce.Unknown, Err: errLogDoubt}
	w.unstick(sh, func(g *group) {
		w.releaseHolds(g)
		w.endUnknown(g, errLogDoubt, func(*task) bool { return false })
		g.unread()
	})
	for sig := range lg.dirty {
		for _, v := range sig.unshipped.waiting {
			w.refuse(v.task, lost)
		}
		w.drop(sig)
	}
	sh.log = nil
}

// mendAll writes signers that are in doubt after a loss as they are from then on, before
// anything else is done with them. It returns the groups that go on.
func (w *worker) mendAll(groups []*group) []*group {
	var ill []*group
	var writes []nonce.Write
	for _, g := range groups {
		if g.sig == nil || g.sig.unshipped != nil {
			continue
		}
		mended, is := rules.Mend(g.sig.row, &g.shard.doubt)
		if !is {
			continue
		}
		ill = append(ill, g)
		writes = append(writes, nonce.Write{Name: g.name, Term: g.shard.shardTerm(), Generation: w.generation, Signer: mended, DueAt: firstDeadline(&mended)})
	}
	if len(ill) == 0 {
		return groups
	}
	ctx, cancel := w.svc.timeout()
	defer cancel()
	res, err := w.svc.store.Commit(ctx, w.svc.holder, writes)
	for i, g := range ill {
		if err == nil && res.Results[i] == nonce.Applied {
			w.svc.log.Warn("a signer is in doubt after the loss of its log", "signer", g.name, "next", writes[i].Signer.Next, "until", time.UnixMilli(g.shard.doubt.DoubtUntil))
			w.set(g.sig, writes[i].Signer, writes[i].Term.Token)
			g.sig.listed = max(0, writes[i].DueAt)
			continue
		}
		groups = slices.DeleteFunc(groups, func(x *group) bool { return x == g })
		if !g.sig.stopped {
			w.memory.forget(g.sig)
		}
		g.unread()
		if err != nil && nonce.OutcomeOf(err) == nonce.Unknown {
			w.lose(g.shard) // the next acquire raises the token, and what comes late is refused
		}
		g.sig = nil
		if len(g.tasks) > 0 {
			w.park(g, errRowLocked)
		}
	}
	return groups
}
