package nonce

import (
	"context"
	"errors"
	"time"

	"noncegate/lease"
)

// commit writes one round and returns the groups that go on.
func (sh *shard) commit(groups []*group, changes []Change) []*group {
	if len(groups) == 0 {
		return nil
	}
	res, started, err := sh.tryCommit(groups, changes)
	for _, g := range groups {
		g.st.dropLoaded()
		g.loaded, g.idsRead = false, false
	}
	if err != nil {
		for _, g := range groups {
			sh.unclaim(g)
		}
		return sh.commitFailed(groups, err)
	}
	var refused []*group
	next := groups[:0]
	for i, g := range groups {
		if !res.Applied[i] {
			sh.unclaim(g)
			refused = append(refused, g)
			continue
		}
		sh.applied(g, res.Now, started)
		if len(g.ops) > 0 {
			next = append(next, g)
		}
	}
	return append(next, sh.refused(refused)...)
}

func (sh *shard) tryCommit(groups []*group, changes []Change) (CommitResult, time.Time, error) {
	ctx, cancel := context.WithTimeout(context.Background(), sh.svc.cfg.StoreTimeout)
	defer cancel()
	started := time.Now()
	res, err := sh.svc.store.Commit(ctx, sh.svc.holder, sh.svc.cfg.LeaseTTL, changes)
	ended := time.Now()
	if err == nil {
		ops := 0
		for _, g := range groups {
			ops += g.count
		}
		sh.svc.fig.Commit(ended.Sub(started), ops)
		sh.svc.clock.observe(started, ended, res.Now)
	}
	return res, started, err
}

// applied follows a commit: memory, lease, results, events, in this order.
func (sh *shard) applied(g *group, now, started time.Time) {
	st := g.st
	sh.mirrored(g, now)
	st.committed(g.draft, now)
	if st.fast() {
		sh.keepGrant(g, now)
	} else if !g.draft.change.Check {
		if st.term.Trusted(started) {
			sh.svc.fig.LeaseRenew(RenewInTime)
		} else {
			sh.svc.fig.LeaseRenew(RenewLate)
		}
		ttl := sh.svc.cfg.LeaseTTL
		st.term = st.term.Renewed(started, ttl, lease.Margin(ttl))
	}
	for _, op := range g.ops[:g.count] {
		if op.Kind == kindSweep {
			st.swept(now, len(op.Nonces) >= loadDue)
		}
		op.settleAt(now)
		sh.svc.cfg.open.settle(op)
		sh.svc.publish(sh.index, op, st.chain, st.version, now)
	}
	if st.halted && st.floor >= st.safeFloor {
		sh.svc.log.Warn("a new floor lets a stopped signer serve again", "signer", st.signer, "floor", st.floor)
		sh.svc.tally.resume(st)
	}
	g.tries = 0
	g.giveUpAt = time.Time{}
	sh.popApplied(g, now)
}

// unclaim gives back what the group's ops claimed of their principals' open holds.
func (sh *shard) unclaim(g *group) {
	for _, op := range g.ops[:g.count] {
		sh.svc.cfg.open.unclaim(op)
	}
}

// refused deals with groups whose change the store did not apply: it reads them
// and lets them go on, parks those that were only locked, ends those that are
// lost.
func (sh *shard) refused(groups []*group) []*group {
	if len(groups) == 0 {
		return nil
	}
	needs := make([]Need, len(groups))
	versions := make([]int64, len(groups))
	for i, g := range groups {
		g.byID = true
		needs[i], _ = sh.need(g, true)
		versions[i] = g.st.version
	}
	sh.inspect(groups, needs, true)
	next := groups[:0]
	for i, g := range groups {
		if g.st.owned && g.st.version != versions[i] {
			sh.svc.tally.moved.Add(1)
		}
		switch {
		case len(g.ops) == 0:
		case !g.st.owned: // it is routed again
		case g.st.version == versions[i] && !g.draft.repeats():
			g.st.dropLoaded()
			g.loaded, g.idsRead = false, false
			sh.park(g, sh.svc.cfg.LockRetry, errRowLocked)
		default:
			next = append(next, g)
		}
	}
	return next
}

var errRowLocked = errors.New("the signer's row stayed locked by another session")

// commitFailed deals with a commit that ended in an error.
func (sh *shard) commitFailed(groups []*group, err error) []*group {
	switch OutcomeOf(err) {
	case NotSent:
		for _, g := range groups {
			g.fail(sh, &UnavailableError{Outcome: NotSent, Err: err})
		}
		return nil
	case Aborted:
		return sh.again(groups, err)
	}
	sh.svc.tally.unknown.Add(1)
	sh.svc.log.Warn("a commit's outcome is unknown; its signers are acquired anew", "signers", len(groups), "error", err)
	return sh.settle(groups, err)
}

// again runs what was aborted as a whole in smaller pieces, so that only the one
// at fault is refused: signer by signer, then request by request.
func (sh *shard) again(groups []*group, cause error) []*group {
	if errors.Is(cause, ErrInvariant) {
		sh.svc.fig.Invariant()
	}
	var next []*group
	for _, g := range groups {
		sh.svc.log.Error("a commit was aborted", "signer", g.st.signer, "signers", len(groups), "ops", g.count, "error", cause)
		switch {
		case len(groups) > 1:
			next = append(next, sh.round([]*group{g})...)
		case len(g.ops) > 1:
			sh.oneByOne(g)
		default:
			g.refuse(sh, cause)
		}
	}
	return next
}

// refuse ends the one op that was aborted all alone.
func (g *group) refuse(sh *shard, cause error) {
	g.st.setOwned(sh, false) // what is remembered has proved wrong, or may have
	g.noSweep = g.noSweep || g.ops[0].Kind == kindSweep
	g.noAlign = g.noAlign || g.ops[0].Kind == kindAlign
	g.ops[0].Err = &UnavailableError{Outcome: Aborted, Err: cause}
	if errors.Is(cause, ErrInvariant) {
		g.ops[0].Err = ErrInternal
	}
	g.pop(sh, 1)
}

// oneByOne runs a group's ops in commits of their own, in order.
func (sh *shard) oneByOne(g *group) {
	all := g.ops
	for i := range all {
		g.ops = all[i : i+1 : i+1]
		for left := []*group{g}; len(left) > 0; {
			left = sh.round(left)
		}
		switch g {
		case sh.parked[g.st.signer]:
			g.ops = append(g.ops, all[i+1:]...)
			return
		case sh.waiting[g.st.signer]:
			for _, op := range all[i+1:] {
				sh.joinWaiting(g, op)
			}
			return
		}
	}
	g.ops = nil
}
