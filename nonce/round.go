package nonce

import (
	"context"
	"errors"
	"slices"
	"time"

	"noncegate/lease"
)

// acquireRetry is how much longer than after a commit it takes until a locked row
// is tried again after an acquire: an acquire has waited for the lock, and the whole
// shard with it.
const acquireRetry = 50

// maxRounds bounds how often a group is planned again because its version moved
// under it or its acquire lost a race. Beyond it the ops are told busy: nothing
// happened.
const maxRounds = 64

// group is one signer's part of a batch: its ops in order of arrival. A round
// acquires what is not owned, reads what is not remembered, plans, commits, and
// ends the ops the commit covered; what depends on them waits for the next.
type group struct {
	st    *state
	ops   []*Op
	draft *draft
	count int // the first count ops are in the draft
	tries int

	byID              bool // request ids are to be read before planning
	idsRead           bool // they were read for this plan
	loaded            bool // what the plan needs was read
	noSweep, noAlign  bool // one of this signer was aborted all alone
	borrowed          bool // the lease was last acquired for prunings alone, see prune
	stranger          bool // and nothing was remembered of the signer before
	retryAt, giveUpAt time.Time
}

// fail ends all ops of the group that change something with err. Reads stay;
// they need no ownership.
func (g *group) fail(sh *shard, err error) {
	reads := g.ops[:0]
	for _, op := range g.ops {
		if op.Kind.reads() {
			reads = append(reads, op)
			continue
		}
		op.Err = err
		sh.finish(op)
	}
	g.ops = reads
	for _, op := range reads {
		sh.read(op)
	}
	g.ops = nil
}

// sweepFirst puts a sweep before the group's ops.
func (g *group) sweepFirst() {
	if !g.noSweep {
		g.first(kindSweep)
	}
}

// first puts an op of the service's own before the group's ops, unless it is there.
func (g *group) first(k Kind) {
	if !g.st.halted && !slices.ContainsFunc(g.ops, func(op *Op) bool { return op.Kind == k && op.Completion == nil }) {
		g.ops = append([]*Op{{Kind: k, Signer: g.st.signer}}, g.ops...)
	}
}

// pop ends the first n ops.
func (g *group) pop(sh *shard, n int) {
	for _, op := range g.ops[:n] {
		sh.finish(op)
	}
	g.ops = g.ops[n:]
}

// round takes every group one step further and returns those that go on.
func (sh *shard) round(groups []*group) []*group {
	groups = sh.front(groups)
	groups = sh.acquire(groups)
	groups = sh.engines(groups)
	groups = sh.load(groups)
	groups, next := sh.prune(groups)
	slow, fast := make([]*group, 0, len(groups)), []*group(nil)
	changes, fastChanges := make([]Change, 0, len(groups)), []Change(nil)
	for _, g := range groups {
		switch {
		case !sh.plan(g):
			next = append(next, g) // more must be read first
		case g.st.fast():
			fast, fastChanges = append(fast, g), append(fastChanges, g.draft.finish(0))
		default:
			slow, changes = append(slow, g), append(changes, g.draft.finish(sh.epoch))
		}
	}
	next = append(next, sh.commit(slow, changes)...)
	next = append(next, sh.commitFast(fast, fastChanges)...)
	next = append(next, sh.anew...)
	sh.anew = nil
	return next
}

// front deals with what needs no plan at the head of each group: callers that
// are gone, reads, and signers that were stopped. It returns the groups that are
// left, each with a sweep before it where a remembered hold is overdue.
func (sh *shard) front(groups []*group) []*group {
	left := groups[:0]
	for _, g := range groups {
		sh.dropGone(g)
		if !sh.leadIn(g) || len(g.ops) == 0 {
			continue
		}
		if g.tries++; g.tries > maxRounds {
			g.fail(sh, ErrBusy)
			continue
		}
		if sh.dueNow(g.st) {
			g.sweepFirst()
		}
		left = append(left, g)
	}
	return left
}

// leadIn ends or hands on what is at the head of the group and needs no plan. It
// returns false when the rest of the group waits for another node.
func (sh *shard) leadIn(g *group) bool {
	for {
		if sh.svc.cfg.Router == nil {
			sh.dropBroken(g)
		} else if !sh.depart(g) {
			return false
		}
		if len(g.ops) == 0 || !sh.frontOp(g) {
			return true
		}
		g.ops = g.ops[1:]
	}
}

// dropGone ends the ops whose caller is gone: nothing of them is committed yet.
func (sh *shard) dropGone(g *group) {
	left := g.ops[:0]
	for _, op := range g.ops {
		if op.Completion == nil || !op.Completion.Gone() {
			left = append(left, op)
			continue
		}
		op.Err = ErrGone
		sh.finish(op)
	}
	g.ops = left
}

// frontOp ends the group's first op if it needs no plan.
func (sh *shard) frontOp(g *group) bool {
	op := g.ops[0]
	switch {
	case op.Kind.reads():
		sh.read(op)
		return true
	case sh.svc.haltedBy() != nil:
		op.Err = &UnavailableError{Outcome: NotSent, Err: sh.svc.haltedBy()}
	case g.st.halted && (op.Kind != KindSetFloor || op.askedFloor < g.st.safeFloor):
		op.Err = &UnavailableError{Outcome: NotSent, Err: errSignerHalted}
	default:
		return false
	}
	sh.finish(op)
	return true
}

func (sh *shard) dueNow(st *state) bool {
	if !st.owned || st.dueAt.IsZero() {
		return false
	}
	now, ok := sh.svc.clock.estimate(time.Now())
	return ok && now.After(st.dueAt) && !sh.svc.clock.paused()
}

// read answers a read from the store.
func (sh *shard) read(op *Op) {
	seen := int64(0)
	if st := sh.states[op.Signer]; st != nil && st.owned && st.fast() { // else it may never have been in Redis
		seen = st.version
	}
	sh.svc.read(op, seen)
	sh.finish(op)
}

// need says what must be read of the group's signer before its ops are planned.
// all: nothing is remembered yet.
func (sh *shard) need(g *group, all bool) (Need, bool) {
	n := Need{Signer: g.st.signer}
	takes := 0
	for _, op := range g.ops {
		if op.RequestID != "" && (all || g.byID) {
			n.RequestIDs = append(n.RequestIDs, op.RequestID)
		}
		switch op.Kind {
		case KindAllocate:
			takes += op.takes()
		case KindMarkUsed, KindMarkRecyclable, KindExtend, KindMarkSigned, KindRepair:
			if wanted := op.wanted(g.st, &sh.svc.cfg.Rules); all || !g.st.knows(wanted) {
				n.Nonces = append(n.Nonces, wanted)
			}
			takes += op.takes()
		case kindSweep:
			n.Due = loadDue
		}
	}
	if all {
		n.Released, n.Due = max(loadReleased, takes), loadDue
	} else if takes > len(g.st.released) && g.st.releasedMore {
		n.Released = max(loadReleased, takes)
	}
	if sh.svc.clock.paused() {
		n.Due = 0
	}
	return n, all || n.Released > 0 || n.Due > 0 || len(n.Nonces) > 0 || len(n.RequestIDs) > 0
}

// acquire takes the leases that are missing. Groups whose signer cannot be had
// are ended.
func (sh *shard) acquire(groups []*group) []*group {
	var missing []*group
	var needs []Need
	for _, g := range groups {
		sh.endDoubt(g.st)
		if !g.st.owned {
			g.borrowed, g.stranger = g.prunesOnly(), g.st.id == 0
			n, _ := sh.need(g, true)
			missing, needs = append(missing, g), append(needs, n)
		}
	}
	switch {
	case len(missing) == 0:
		return groups
	case sh.svc.retired.Load():
		for _, g := range missing {
			sh.giveAway(g)
		}
	default:
		sh.acquireAll(missing, needs)
	}
	left := groups[:0]
	for _, g := range groups {
		if len(g.ops) > 0 && g.st.owned {
			left = append(left, g)
		}
	}
	return left
}

// acquireAll leaves each group either owned, or parked, or without ops.
func (sh *shard) acquireAll(groups []*group, needs []Need) {
	snaps, started, err := sh.tryAcquire(groups, needs)
	if err != nil && OutcomeOf(err) == Aborted && len(groups) > 1 {
		for i, g := range groups {
			sh.acquireAll([]*group{g}, needs[i:i+1])
		}
		return
	}
	for i, g := range groups {
		switch {
		case err == nil && snaps[i].verdict != FastDone:
			sh.notTaken(g, &snaps[i])
		case err == nil:
			sh.acquired(g, &snaps[i].Snapshot, started)
		case OutcomeOf(err) == Aborted:
			sh.park(g, acquireRetry*sh.svc.cfg.LockRetry, err)
		default:
			// The acquire may have happened, the ops did not.
			sh.svc.fig.LeaseAcquire(AcquireError)
			g.fail(sh, &UnavailableError{Outcome: NotSent, Err: err})
		}
	}
}

func (sh *shard) tryAcquire(groups []*group, needs []Need) ([]taken, time.Time, error) {
	ctx, cancel := context.WithTimeout(context.Background(), sh.svc.cfg.StoreTimeout)
	defer cancel()
	started := time.Now()
	snaps, err := sh.svc.store.Acquire(ctx, sh.svc.holder, sh.svc.cfg.LeaseTTL, needs)
	if err != nil {
		return nil, started, err
	}
	if len(snaps) > 0 {
		sh.svc.clock.observe(started, time.Now(), snaps[0].Now)
	}
	return sh.takeOver(groups, snaps, needs), started, nil
}

// acquired follows one result of an acquire.
func (sh *shard) acquired(g *group, s *Snapshot, started time.Time) {
	st := g.st
	switch {
	case !s.Acquired && !s.Lease.Held(s.Now):
		sh.park(g, sh.svc.cfg.LockRetry, errLeaseMoved)
		return
	case !s.Acquired:
		sh.svc.fig.LeaseAcquire(AcquireHeld)
		sh.elsewhere(g, s.Lease, s.Now, sh.svc.notOwner(s.Lease))
		return
	case !st.halted && st.wentBack(s, st.term.Token+1):
		sh.halt(g, s)
		return
	}
	st.fill(s)
	g.loaded, g.idsRead = true, true
	st.term = lease.NewTerm(s.Lease.Token, started, sh.svc.cfg.LeaseTTL, lease.Margin(sh.svc.cfg.LeaseTTL))
	st.setOwned(sh, true)
	st.owner, st.grantTrusted, st.mirror = "", time.Time{}, nil
	if st.fast() && g.unread() {
		g.loaded, g.byID = false, true // Redis does not have them any more, or they never were
	}
	if s.TookOverFrom != "" && !g.borrowed {
		sh.svc.fig.LeaseAcquire(AcquireTakeover)
		sh.svc.log.Info("took over an expired lease", "signer", st.signer, "from_node", s.TookOverFrom, "owner_node", sh.svc.holder.Node,
			"fencing_token", s.Lease.Token, "expires_at", s.Lease.ExpiresAt)
		return
	}
	sh.svc.fig.LeaseAcquire(AcquireNew)
}

// unread reports whether the read that was made for the group did not bring a row that
// it was to bring.
func (g *group) unread() bool {
	return slices.ContainsFunc(g.ops, func(op *Op) bool {
		switch op.Kind {
		case KindMarkUsed, KindMarkRecyclable, KindExtend, KindMarkSigned, KindRepair:
			return !g.st.knows(op.target)
		}
		return false
	})
}

// errLeaseMoved: the lease was given back between the try to take it and the
// read after it.
var errLeaseMoved = errors.New("the signer's lease changed hands; try again")

// halt stops a signer whose row shows less than was seen. Handing out from it
// could give a nonce two holders. A floor at or above all that was seen, once
// committed, lets it serve again.
func (sh *shard) halt(g *group, s *Snapshot) {
	sh.svc.tally.halt(g.st)
	g.st.setOwned(sh, false)
	g.st.safeFloor = max(g.st.safeFloor, g.st.next)
	sh.svc.fig.WentBack()
	sh.svc.log.Error("the store went back: this signer is stopped until nonce_setFloor gives it a safe floor",
		"signer", g.st.signer, "seen_version", g.st.version, "version", s.Version, "seen_next", g.st.next, "next", s.Next,
		"seen_token", g.st.term.Token, "token", s.Lease.Token)
	g.fail(sh, &UnavailableError{Outcome: NotSent, Err: errSignerHalted})
}

var errSignerHalted = errors.New("the store went back and lost acknowledged writes of this signer; raise its floor above every nonce that was handed out")

// load reads what the plan needs and does not remember.
func (sh *shard) load(groups []*group) []*group {
	var wanting, fast []*group
	var needs, fastNeeds []Need
	for _, g := range groups {
		if g.loaded {
			continue
		}
		g.st.dropLoaded() // what was read for a group that was refused then is of that time
		n, wanted := sh.need(g, false)
		switch {
		case !wanted:
		case g.st.fast():
			fast, fastNeeds = append(fast, g), append(fastNeeds, n)
		default:
			wanting, needs = append(wanting, g), append(needs, n)
		}
	}
	if len(wanting) == 0 && len(fast) == 0 {
		return groups
	}
	if len(wanting) > 0 {
		sh.inspect(wanting, needs, false)
	}
	if len(fast) > 0 {
		sh.loadFast(fast, fastNeeds)
	}
	left := groups[:0]
	for _, g := range groups {
		if len(g.ops) > 0 && g.st.owned {
			left = append(left, g)
		}
	}
	return left
}

// inspect reads the groups' signers and compares each with what is remembered:
// a higher token means that ownership is lost, another version that the memory
// is stale and is replaced, less than was seen that the store went back. full
// says that the needs leave nothing to memory; where they do and memory proves
// stale, the group is read again in full.
func (sh *shard) inspect(groups []*group, needs []Need, full bool) {
	snaps, err := sh.svc.load(needs)
	var stale []*group
	var all []Need
	for i, g := range groups {
		if err != nil {
			g.fail(sh, &UnavailableError{Outcome: NotSent, Err: err})
			continue
		}
		if !sh.compare(g, &snaps[i], needs[i], full) {
			n, _ := sh.need(g, true)
			stale, all = append(stale, g), append(all, n)
		}
	}
	if len(stale) > 0 {
		sh.inspect(stale, all, true)
	}
}

// compare follows one read, and reports whether it was enough.
func (sh *shard) compare(g *group, s *Snapshot, n Need, full bool) bool {
	st := g.st
	switch {
	case st.wentBack(s, st.term.Token):
		sh.halt(g, s)
		return true
	case s.Lease.Token > st.term.Token:
		sh.lost(g, s)
		return true
	case s.Version == st.version:
		st.loaded(s)
		if n.Released > 0 {
			st.setFree(s)
		}
	case full:
		st.fill(s)
	default:
		return false
	}
	g.loaded, g.idsRead = true, full || g.byID
	return true
}

// lost ends a group whose signer another node, or another shard's term, took.
func (sh *shard) lost(g *group, s *Snapshot) {
	provided := g.st.term.Token
	g.st.setOwned(sh, false)
	g.st.term.Token, g.st.version, g.st.next = s.Lease.Token, s.Version, s.Next
	sh.svc.meet(s.Lease)
	for _, op := range g.ops {
		if !op.Kind.reads() {
			sh.svc.fig.FenceReject(op.Kind)
			sh.svc.log.Warn("fenced", "signer", op.Signer, "op", op.Kind.String(), "provided_token", provided,
				"token", s.Lease.Token, "owner_node", s.Lease.Holder.Node, "node", sh.svc.holder.Node)
		}
	}
	sh.elsewhere(g, s.Lease, s.Now, ErrFenced)
}

// plan runs the rules over as many of the group's ops as one commit can take,
// and reports whether there is one. Where not even the first op could be
// planned, because more must be read, the next round reads it.
func (sh *shard) plan(g *group) bool {
	if sh.svc.clock.paused() {
		g.st.due = nil // the read that found them may have noticed the jump
	}
	if len(g.st.due) > 0 {
		g.sweepFirst()
	}
	g.draft, g.count = newDraft(g.st, &sh.svc.cfg.Rules), 0
	g.draft.idsRead = g.idsRead
	if now, known := sh.svc.clock.estimate(time.Now()); known {
		g.draft.now = now
	}
	if !g.noAlign && g.draft.behind() && g.draft.begins(g.ops...) {
		g.first(kindAlign)
	}
	for _, op := range g.ops {
		if op.Kind.reads() || g.draft.apply(op) != nil {
			break
		}
		g.count++
	}
	g.byID = g.byID || g.draft.wantIDs
	g.loaded = g.loaded && g.count > 0
	return g.count > 0
}
