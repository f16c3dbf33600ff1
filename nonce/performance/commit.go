package performance

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"noncegate/nonce"
	"noncegate/nonce/rules"
	"noncegate/nonce/service"
)

// Commit implements service.Committer: what was planned goes into the logs of its shards, in one call.
func (c *committer) Commit(parts []service.Part) {
	if c.unshipped > c.cfg.MaxUnshipped {
		for _, p := range parts {
			p.Refuse(errBehind)
		}
		return
	}
	parts = c.reserve(c.tooEarly(parts))
	if len(parts) == 0 {
		return
	}
	items, of := c.appends(parts)
	started := time.Now()
	ctx, cancel := c.logTime()
	errs := c.cfg.Log.Append(ctx, items)
	cancel()
	answers := 0
	for i, sh := range of {
		mine := slices.DeleteFunc(slices.Clone(parts), func(p service.Part) bool { return p.Shard() != sh.Shard })
		if errs[i] != nil {
			c.notAccepted(sh, mine, items[i].Record != nil, errs[i])
			continue
		}
		if items[i].Record != nil {
			sh.log.fence.Head++
			sh.log.full = false
		}
		c.works(sh)
		for _, p := range mine {
			answers += len(p.Plan().Answers)
			c.accepted(p)
		}
	}
	if answers > 0 {
		c.svc.Figures().Commit(time.Since(started), answers)
	}
}

// tooEarly sends back parts whose plan ends holds that may not be over yet.
func (c *committer) tooEarly(parts []service.Part) (left []service.Part) {
	now := c.svc.Clock().Earliest
	for _, p := range parts {
		if p.Plan().NotBefore > now {
			p.Early()
		} else {
			left = append(left, p)
		}
	}
	return left
}

// appends are the records of a batch, one a shard.
func (c *committer) appends(parts []service.Part) (items []nonce.LogAppend, of []*shard) {
	for _, p := range parts {
		sh, plan := c.of(p.Shard()), p.Plan()
		at := slices.Index(of, sh)
		if at < 0 {
			at = len(of)
			of, items = append(of, sh), append(items, nonce.LogAppend{Fence: sh.log.fence})
		}
		if !plan.Writes {
			continue
		}
		item := &items[at]
		if item.Record == nil {
			item.Record = &nonce.LogRecord{Shard: sh.ID(), Token: item.Fence.Token, Seq: item.Fence.Head + 1}
		}
		item.Record.Changes = append(item.Record.Changes, changeOf(p))
	}
	return items, of
}

// changeOf is what a part changes of its signer.
func changeOf(p service.Part) nonce.LogChange {
	c := nonce.ChangeOf(p.Signer().Name(), p.Signer().Row(), &p.Plan().Signer)
	c.History, c.Requests = p.Plan().History, p.Plan().Requests
	return c
}

// covered reports whether the signer's ceiling is above all that a row may hand out.
func covered(sig service.Signer, lg *shardLog, next int64) bool {
	row := sig.Row()
	return row.Ceiling >= next && row.Ceiling > 0 && row.Epoch == lg.epoch
}

// minBlock is the fewest nonces that are reserved ahead.
const minBlock = 16

// ceilingReach is how far, in times of what a signer may hold, a ceiling may be above the row's cursor.
// After a loss all nonces between the two are in doubt.
const ceilingReach = 4

// farAhead reports whether the cursor has left the row's far behind, as a floor or a chain lets
// it. Then no ceiling is raised before a shipment has brought the row there: what is handed out
// waits for it.
func (c *committer) farAhead(p service.Part) bool {
	base := p.Signer().Row().Next
	if u := c.of(p.Shard()).log.dirty[p.Signer()]; u != nil {
		base = u.base.Next
	}
	return p.Plan().Signer.Next-base > int64(ceilingReach*c.svc.Config().Rules.MaxLive)
}

// handsOut is how many nonces a plan hands out that are answered when the log has them.
func handsOut(plan *rules.Plan) (n int) {
	for i := range plan.Answers {
		if a := &plan.Answers[i]; a.Wrote && a.Err == nil {
			n += len(a.Nonces)
		}
	}
	return n
}

// reserve sees to it that the ceilings are above what is handed out, and returns the parts to
// go on with, which are all of which that is so or that are far ahead. The others end.
func (c *committer) reserve(parts []service.Part) []service.Part {
	var short []service.Part
	var up []nonce.Ceiling
	for _, p := range parts {
		sig, next := p.Signer(), p.Plan().Signer.Next
		if handsOut(p.Plan()) > 0 && !covered(sig, c.of(p.Shard()).log, next) && !c.farAhead(p) {
			block := sig.Reserved()
			*block = min(max(2**block, minBlock), int64(c.svc.Config().Rules.MaxLive))
			short = append(short, p)
			up = append(up, nonce.Ceiling{Name: sig.Name(), Term: p.Shard().Term(), Next: max(next+*block, sig.Row().Ceiling)})
		}
	}
	if len(short) == 0 {
		return parts
	}
	var got []bool
	err := c.Ask(func(ctx context.Context) (err error) {
		got, err = c.cfg.Store.Reserve(ctx, c.svc.Holder(), up)
		return err
	})
	for i, p := range short {
		lg, row := c.of(p.Shard()).log, p.Signer().Row()
		switch {
		case lg == nil: // it was lost with another of its signers
		case err == nil && got[i]:
			row.Ceiling, row.Epoch = up[i].Next, lg.epoch
			p.Plan().Signer.Ceiling, p.Plan().Signer.Epoch = row.Ceiling, row.Epoch
		default:
			parts = slices.DeleteFunc(parts, func(x service.Part) bool { return x == p })
			if err != nil {
				p.Refuse(err)
				continue
			}
			c.log.Debug("no nonces were reserved", "signer", up[i].Name)
			p.Refuse(errNoCeiling)
			p.Shard().Lose() // it may be another's: the next request finds out
		}
	}
	return slices.DeleteFunc(parts, func(p service.Part) bool {
		lost := c.of(p.Shard()).log == nil
		if lost {
			p.Again()
		}
		return lost
	})
}

// accepted follows a record that the log has: memory, what is to be shipped, and answers.
func (c *committer) accepted(p service.Part) {
	plan := p.Plan()
	if plan.Writes || p.Listed() || p.Watch().Kind != nonce.WatchAsIs {
		u := c.unship(p.Signer())
		u.watch = plan.Watch
		u.relist = u.relist || p.Listed()
		if plan.Writes {
			u.add(plan.Signer.Version, plan.History, plan.Requests)
			u.handed += handsOut(plan)
			u.changes++
			c.unshipped++
		}
	}
	p.Applied()
}

func (u *unshipped) add(version int64, history []nonce.Past, requests []nonce.Remembered) {
	for _, p := range history {
		u.history = append(u.history, versioned[nonce.Past]{version, p})
	}
	for _, q := range requests {
		u.requests = append(u.requests, versioned[nonce.Remembered]{version, q})
	}
}

// unship begins to keep what is to be shipped of a signer.
func (c *committer) unship(sig service.Signer) *unshipped {
	lg := c.of(sig.Shard()).log
	u := lg.dirty[sig]
	if u == nil {
		u = &unshipped{base: *sig.Row(), token: sig.Token(), since: time.Now()}
		lg.dirty[sig] = u
		sig.Ahead(true)
	}
	return u
}

// Keeps implements service.Committer: an answer waits until the rows have what it rests on. It is asked
// when the log has replied. While a grant runs hand-outs, and what refuses one,
// are answered when the log has them, and what rests on nothing unshipped is, too; past it
// nothing rests on the log alone, and the next shipment compares the row.
func (c *committer) Keeps(p service.Part, a service.Answer) bool {
	lg := c.of(p.Shard()).log
	u := lg.dirty[p.Signer()]
	if now := time.Now(); now.Before(lg.trust) && (u == nil || a.Kind() == nonce.KindStatus || c.early(p, u, a, now)) {
		return false
	}
	u = c.unship(p.Signer())
	u.waiting = append(u.waiting, untold{p.Plan().Signer.Version, a})
	c.shipper.impatient = true
	return true
}

// early reports whether a hand-out, or what refuses one, is told before the rows have it: they
// are not too far behind, unless the store is away, and the log may tell it alone.
func (c *committer) early(p service.Part, u *unshipped, a service.Answer, now time.Time) bool {
	return handOut(a) && (c.storeAway || now.Sub(u.since) < c.cfg.ShipSLA) &&
		alone(p.Signer(), c.of(p.Shard()).log, u, p.Plan().Signer.Next, a.What())
}

// alone reports whether the log may tell a hand-out without the rows: a loss of it leaves in
// doubt what was handed out, because that is below the ceiling and not consumed as the rows have it.
func alone(sig service.Signer, lg *shardLog, u *unshipped, next int64, a *rules.Answer) bool {
	if !covered(sig, lg, next) {
		return false
	}
	for i, n := range a.Nonces {
		if a.Attempts[i] > 1 && u.consumed(n, a.Attempts[i]) {
			return false
		}
	}
	return true
}

// consumed reports whether a nonce that was handed out before may be consumed as the rows have
// it, or will have it when a shipment arrives: in the log a repair may have handed it out again.
func (u *unshipped) consumed(n, attempt int64) bool {
	_, live := slices.BinarySearchFunc(u.base.Live, n, func(e nonce.Entry, n int64) int { return cmp.Compare(e.Nonce, n) })
	return n < u.base.Next && !live || rules.OfUnknown(attempt) ||
		slices.ContainsFunc(u.history, func(p versioned[nonce.Past]) bool { return p.it.Nonce == n })
}

// handOut reports whether an answer hands out, or refuses to and tells nothing of what became of a nonce.
func handOut(a service.Answer) bool {
	_, conflict := errors.AsType[*nonce.ConflictError](a.What().Err)
	return a.Kind() == nonce.KindAllocate && (len(a.What().Nonces) > 0 || a.What().Err != nil && !conflict)
}

// notAccepted deals with the parts of a shard whose log did not take their record, or did not
// say so.
func (c *committer) notAccepted(sh *shard, parts []service.Part, wrote bool, err error) {
	lg := sh.log
	if _, is := errors.AsType[*nonce.StoreError](err); is && nonce.OutcomeOf(err) == nonce.Unknown && wrote {
		c.svc.UnknownCommit()
		c.fails(sh, false, err)
		lg.unanswered = parts
		for _, p := range parts { // what comes for its signers joins them
			p.Suspend()
		}
		c.tryLog(sh)
		return
	}
	for _, p := range parts {
		p.Undone()
	}
	if errors.Is(err, nonce.ErrLogFull) {
		lg.full, lg.fullAt = true, time.Now()
	}
	c.broken(sh, err)
	for _, p := range parts {
		if sh.log == nil {
			p.Again()
		} else {
			p.Wait(errAway)
		}
	}
}

func (c *committer) Overlay(p service.Part) {
	lg := c.of(p.Shard()).log
	if lg == nil || lg.dirty[p.Signer()] == nil {
		return
	}
	u := lg.dirty[p.Signer()]
	for i := range u.history {
		p.AddPast(u.history[i].it)
	}
	for i := range u.requests {
		p.AddRequest(u.requests[i].it)
	}
}

func (c *committer) Ready(of service.Shard) error {
	if lg := c.of(of).log; lg != nil && !lg.settled() {
		return errAway
	}
	return nil
}

func (c *committer) Behind(sig service.Signer) bool {
	lg := c.of(sig.Shard()).log
	behind := lg != nil && lg.dirty[sig] != nil
	c.shipper.impatient = c.shipper.impatient || behind
	return behind
}

// FloorWaits implements service.Committer: a safe floor goes to the store, and only when the node that takes
// over the log leaves out what was refused.
func (c *committer) FloorWaits(sig service.Signer) error {
	if lg := c.of(sig.Shard()).log; c.storeAway || lg.shipped < lg.refused[sig.Name()] {
		return errAway
	}
	return nil
}
