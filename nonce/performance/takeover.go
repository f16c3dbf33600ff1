package performance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"noncegate/lease"
	"noncegate/nonce"
	"noncegate/nonce/service"
)

// logRetry is between two tries at a log that does not do what it should.
const logRetry = 100 * time.Millisecond

// Acquired implements service.Committer. What failed before this node had the shard anew does not count, but
// if no other node took the shard meanwhile, although any could: then the log fails since the server was missed.
func (c *committer) Acquired(of service.Shard, row *lease.Shard, anew bool) {
	sh := c.of(of)
	if anew {
		sh.failing, sh.declined = time.Time{}, row.Token == sh.offered.Load()+1
		if missed := c.reach.missed(); sh.declined && missed > 0 {
			sh.failing, sh.why = time.Now().Add(-missed), errNotFound
		}
	}
	if row.Performance {
		sh.log = newLog(of, row)
	}
}

var errNotFound = errors.New("the server that was accepted is not found")

// fails notes that a log does not do what it should. After a call that was not answered, which
// took its time, no other shard makes one to that server for a while. tried reports whether it
// was a take-over that had its time.
func (c *committer) fails(sh *shard, tried bool, err error) {
	lg, now := sh.log, time.Now()
	if tried {
		sh.tried = now
	}
	lg.full = lg.full && errors.Is(err, nonce.ErrLogFull)
	if _, is := errors.AsType[*nonce.StoreError](err); is && !errors.Is(err, nonce.ErrLogFull) {
		c.reach.failed(tried, err)
	}
	if sh.failing.IsZero() {
		sh.failing = now
		c.log.Warn("the log of a shard does not do what it should", "shard", sh.ID(), "serves", lg.serves, "error", err)
	}
	sh.why = err
	c.retry(lg)
}

// retry sets the time of the next try, but not later than it was: a log of which record after
// record is refused is tried, too.
func (c *committer) retry(lg *shardLog) {
	if now := time.Now(); !lg.retryAt.After(now) {
		lg.retryAt = now.Add(logRetry)
		time.AfterFunc(logRetry, c.worker.Wake)
	}
}

// works notes that a log does what it should. After a record was refused for want of memory that
// takes a record, or LostAfter without another refusal.
func (c *committer) works(sh *shard) {
	lg := sh.log
	c.reach.answered()
	lg.seen = time.Now()
	if lg.full = lg.full && lg.seen.Sub(lg.fullAt) < c.cfg.LostAfter; !lg.full {
		sh.failing = time.Time{}
	}
}

// tendLogs tries again what has failed, of all shards of the worker.
func (c *committer) tendLogs() {
	now, owned := time.Now(), c.owned()
	// It starts behind the shard that was tried last, so that no shard always follows one that
	// the server does not answer, after which none is tried for a while.
	at := max(0, slices.IndexFunc(owned, func(sh *shard) bool { return sh.ID() > c.lastTried }))
	for _, sh := range slices.Concat(owned[at:], owned[:at]) {
		if sh.log != nil && sh.due(now) {
			c.tryLog(sh)
		}
	}
	c.checkIdle(now)
}

// due reports whether it is time to try again what has failed.
func (sh *shard) due(now time.Time) bool {
	lg := sh.log
	return (!lg.serves || len(lg.unanswered) > 0 || lg.leaving || !sh.failing.IsZero()) && !now.Before(lg.retryAt)
}

// checkIdle looks whether the logs that were not used for a while are as this node left them.
// Their keys may be gone, and while the owner lives nothing is lost by that.
func (c *committer) checkIdle(now time.Time) {
	var idle []*shard
	var items []nonce.LogAppend
	for _, sh := range c.owned() {
		if lg := sh.log; lg.settled() && sh.failing.IsZero() && now.Sub(lg.seen) >= c.cfg.LostAfter/4 {
			lg.seen = now
			idle, items = append(idle, sh), append(items, nonce.LogAppend{Fence: lg.fence})
		}
	}
	if len(items) == 0 {
		return
	}
	ctx, cancel := c.logTime()
	defer cancel()
	for i, err := range c.cfg.Log.Append(ctx, items) {
		if err != nil && idle[i].log != nil {
			c.notAccepted(idle[i], nil, false, err)
		}
	}
}

// tryLog takes a log up, or settles what has an unknown outcome, or, once it has failed for
// long enough, ends it.
func (c *committer) tryLog(sh *shard) {
	lg, server := sh.log, c.reach.silence()
	switch {
	case !lg.serves && !c.storeAway && c.isForOthers(sh):
		c.log.Warn("a shard is left to other nodes, because this one does not reach its log", "shard", sh.ID(), "error", sh.why)
		sh.Release()
	case !lg.serves && !c.storeAway && c.takeoverFailed(sh, server):
		c.declare(sh)
	case lg.leaving && c.storeAway: // it could take StoreTimeout, and there are other shards
		c.retry(lg)
	case lg.leaving:
		c.turnOff(sh, lg.leavingFor)
	case lg.serves && !c.storeAway && c.mustLeave(sh):
		c.turnOff(sh, fmt.Sprintf("shard %d: %v", sh.ID(), sh.why))
	case time.Now().Before(server.rests):
		c.fails(sh, false, errors.New(server.why.Error())) // it was not tried
	case !lg.serves:
		c.lastTried = sh.ID()
		c.enter(sh)
	default:
		c.settle(sh)
	}
}

// mustLeave reports whether the shard of a log that serves gets the reliable engine: the log has
// failed for LostAfter. A server without memory counts only if it refused records at both ends of
// that time; while records can be shipped that frees memory.
func (c *committer) mustLeave(sh *shard) bool {
	if sh.log.full {
		return c.failedUntil(sh, sh.log.fullAt)
	}
	return c.failedUntil(sh, time.Now())
}

// isForOthers reports whether a log that this node could not take over is for other nodes to try, which may
// reach the server: before it counts as lost, and once only.
func (c *committer) isForOthers(sh *shard) bool {
	half := !sh.failing.IsZero() && time.Since(sh.failing) >= c.cfg.LostAfter/2
	return half && !sh.declined && c.reach.missed() > 0 && c.svc.Others()
}

// takeoverFailed reports whether the take-over of a log may be given up: when it had failed for so
// long, it was tried once more, for this shard or for another at a server that did not answer.
// Time alone proves nothing: this process may have stood still, or have waited for another server.
func (c *committer) takeoverFailed(sh *shard, of silence) bool {
	last := sh.tried
	if of.tried.After(last) {
		last = of.tried
	}
	return c.failedUntil(sh, last)
}

// failedUntil reports whether a log had failed for LostAfter then.
func (c *committer) failedUntil(sh *shard, at time.Time) bool {
	return !sh.failing.IsZero() && at.Sub(sh.failing) >= c.cfg.LostAfter
}

// broken follows an error of a log that serves, which says that nothing happened.
func (c *committer) broken(sh *shard, err error) {
	if errors.Is(err, nonce.ErrLogFenced) {
		c.log.Warn("the log has another owner", "shard", sh.ID(), "error", err)
		sh.Lose()
		return
	}
	if c.fails(sh, false, err); errors.Is(err, nonce.ErrLogLost) && !c.storeAway { // else it is tried again
		c.turnOff(sh, fmt.Sprintf("shard %d: %v", sh.ID(), err))
	}
}

// settle finds out whether the log has what was appended last: the higher try refuses
// whatever comes late.
func (c *committer) settle(sh *shard) {
	lg := sh.log
	ctx, cancel := c.logTime()
	defer cancel()
	after, err := c.cfg.Log.Raise(ctx, lg.fence)
	happened := len(lg.unanswered) > 0 && after.Head == lg.fence.Head+1
	if err == nil && !happened && after.Head != lg.fence.Head {
		err = fmt.Errorf("%w: its head is %d, and %d was believed", nonce.ErrLogLost, after.Head, lg.fence.Head)
	}
	if err != nil {
		lg.raising = lg.raising || nonce.OutcomeOf(err) == nonce.Unknown
		c.broken(sh, err)
		return
	}
	lg.fence, lg.raising = after, false
	lg.full = lg.full && !happened
	if c.works(sh); !sh.failing.IsZero() { // it has no room still
		c.retry(lg)
	}
	lg.resume(func(p service.Part) {
		switch {
		case !happened:
			p.Undone()
		case !p.Follows(): // the store refused what it was planned on
			lg.refuse(p.Signer().Name())
			p.Unknown(errStopped)
		default:
			c.accepted(p)
		}
	})
}

// resume lets the parts go on whose append had an unknown outcome, once say has told each what became of it.
func (lg *shardLog) resume(say func(service.Part)) {
	stuck := lg.unanswered
	lg.unanswered = nil
	for _, p := range stuck {
		p.Resume(say)
	}
}

// inTime reports whether a call has ended about when its time was over, or before. If not, this
// process has stood still meanwhile, and the server may have answered.
func inTime(began time.Time, most time.Duration) bool { return time.Since(began) <= most+logRetry }

// enterTime bounds the take-over of a log, which reads all that was not shipped.
func (c *committer) enterTime() time.Duration { return 5 * c.cfg.Timeout }

// enter takes over the log of a shard that was just acquired: the token goes into the log, what the log has
// is folded over the rows, and the fence is compared once more.
func (c *committer) enter(sh *shard) {
	lg := sh.log
	if !lg.retryAt.IsZero() { // a try before this one may come late, or have put the token in
		if _, err := sh.Acquire(false); err != nil {
			if nonce.OutcomeOf(err) != nonce.Aborted { // the store is away, and not the log, of which nothing is known meanwhile
				sh.failing = time.Time{}
			}
			c.retry(lg)
			return
		}
		if sh.log == nil {
			return
		}
		lg = sh.log
	}
	began := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), c.enterTime())
	fence, records, err := c.cfg.Log.Enter(ctx, lg.fence)
	cancel()
	if err != nil {
		c.fails(sh, inTime(began, c.enterTime()), fmt.Errorf("take over the log: %w", err))
		return
	}
	folded, err := c.fold(sh, lg.fence.Head, records)
	switch _, silent := errors.AsType[*nonce.StoreError](err); {
	case sh.log != lg:
		return
	case silent: // the store is away, and not the log
		c.works(sh)
		c.retry(lg)
		return
	case err != nil:
		c.fails(sh, true, fmt.Errorf("fold the log: %w", err))
		return
	}
	again, cancel := c.logTime()
	defer cancel()
	began = time.Now()
	if err := c.cfg.Log.Append(again, []nonce.LogAppend{{Fence: fence}})[0]; err != nil {
		c.fails(sh, inTime(began, c.cfg.Timeout), fmt.Errorf("compare the log: %w", err))
		return
	}
	lg.shipped, lg.fence, lg.serves = lg.fence.Head, fence, true
	c.take(sh, folded)
	c.works(sh)
	c.shipper.began = time.Time{}
	c.log.Info("took over a log", "shard", sh.ID(), "records", len(records), "signers", len(lg.dirty),
		"fencing_token", fence.Token, "head", fence.Head)
}

// take begins to remember what a log has, ahead of the rows.
func (c *committer) take(sh *shard, all []*foldedSigner) {
	for _, f := range all {
		if f.unreadable == nil {
			sig := sh.Remember(f.name, f.row, sh.Token())
			f.changes = int(f.row.Version - f.base.Version)
			sh.log.dirty[sig] = &f.unshipped
			c.unshipped += f.changes
		}
	}
	for _, f := range all {
		if f.unreadable != nil {
			safe := sh.StopUnreadable(f.name, f.row, f.token, f.safe)
			sh.log.refuse(f.name)
			c.log.Error("what the log has of a signer whose row cannot be read is left out: "+
				"once the row is mended, the signer is stopped until nonce_setFloor gives it a safe floor",
				"signer", f.name, "seen_next", safe)
		}
	}
}

// foldedSigner is a signer with what a log has of it.
type foldedSigner struct {
	unshipped
	name       string
	row        nonce.Signer
	unreadable error // its row
	safe       int64 // then: a floor above all that the log handed out
}

// fold lays the records of a log over the rows of their signers, but those up to a head that was
// shipped: the rows have them, or the store refused them. It returns the signers that are to be
// shipped, and those whose row cannot be read.
func (c *committer) fold(sh *shard, shipped int64, records []nonce.LogRecord) (dirty []*foldedSigner, err error) {
	records = slices.DeleteFunc(records, func(r nonce.LogRecord) bool { return r.Seq <= shipped })
	var all []*foldedSigner
	at := make(map[string]*foldedSigner)
	for i := range records {
		for j := range records[i].Changes {
			if name := records[i].Changes[j].Name; at[name] == nil {
				at[name] = &foldedSigner{name: name}
				all = append(all, at[name])
			}
		}
	}
	if err := c.loadFolded(sh, all); err != nil {
		return nil, err
	}
	for i := range records {
		for j := range records[i].Changes {
			ch := &records[i].Changes[j]
			f := at[ch.Name]
			if f.unreadable != nil {
				if ch.Version > f.row.Version {
					f.safe = max(f.safe, ch.Next)
				}
				continue
			}
			applied, err := ch.Apply(&f.row)
			if err != nil {
				return nil, err
			}
			if applied {
				f.add(ch.Version, ch.History, ch.Requests)
			}
		}
	}
	for _, f := range all {
		if f.safe > 0 || f.unreadable == nil && f.row.Version > f.base.Version {
			dirty = append(dirty, f)
		}
	}
	return dirty, nil
}

// foldChunk bounds the signers that are read at a time.
const foldChunk = 1000

// loadFolded reads the rows of signers.
func (c *committer) loadFolded(sh *shard, all []*foldedSigner) error {
	for chunk := range slices.Chunk(all, foldChunk) {
		needs := make([]nonce.SignerNeed, len(chunk))
		for i, f := range chunk {
			needs[i].Signer = f.name
		}
		loaded, err := c.svc.Load(needs)
		if err != nil {
			return err
		}
		for i, f := range chunk {
			l := &loaded.Signers[i]
			if l.Shard.Token != sh.Token() || l.Shard.Owner != c.svc.Holder() {
				sh.Lose()
				return nonce.ErrFenced
			}
			if f.unreadable = l.Err; l.Err != nil { // its requests are refused
				c.log.Error("the row of a signer cannot be read", "signer", f.name, "error", l.Err)
			}
			f.row, f.unshipped = l.Signer, unshipped{base: l.Signer, token: l.Token, since: time.Now()}
		}
	}
	return nil
}

// declare says that a log is lost that this node could not take over.
func (c *committer) declare(sh *shard) {
	ctx, cancel := c.svc.Timeout()
	defer cancel()
	done, err := c.cfg.Store.Declare(ctx, c.svc.Holder(), sh.Term(), c.cfg.Margin)
	if done || err != nil && nonce.OutcomeOf(err) == nonce.Unknown {
		c.degrade(fmt.Sprintf("shard %d: %v", sh.ID(), sh.why))
	}
	if err == nil && done {
		c.log.Error("the log of a shard was lost with what was not shipped; what it may have handed out is in doubt",
			"shard", sh.ID(), "error", sh.why)
		c.lost.Add(1)
	} else {
		c.log.Warn("a loss was not declared", "shard", sh.ID(), "done", done, "error", err)
	}
	// Whatever became of it, to acquire the shard again shows the engine, and the log is tried again
	// before the next declaration.
	sh.Lose()
	sh.Take()
}

// Lost implements service.Committer. What was not answered yet is unknown: the log has it, and the next
// owner ships it.
func (c *committer) Lost(of service.Shard) {
	sh := c.of(of)
	lg := sh.log
	if lg == nil {
		return
	}
	lg.resume(func(p service.Part) { p.Unknown(errDoubt) })
	for sig, u := range lg.dirty {
		for _, v := range u.waiting {
			v.Unknown(errDoubt)
		}
		c.drop(sh, sig)
	}
	sh.log = nil
}
