package service

import (
	"context"
	"errors"
	"slices"
	"time"

	"noncegate/nonce"
	"noncegate/nonce/rules"
)

// maxRounds bounds how often a group is planned again because its version moved
// under it or its shard was lost and taken again. Beyond it the ops are told busy: nothing
// happened.
const maxRounds = 64

// group is one signer's part of a batch: its tasks in order of arrival. A round acquires the
// shards that are not owned, reads what is not remembered, plans, commits, and ends the
// tasks that the commit covered; what depends on them waits for the next.
type group struct {
	name  string
	shard *shard
	tasks []*task
	few   [4]*task // the memory of tasks, while there are no more
	tries int      // rounds since something of it was committed, or it was parked

	sig      *signer               // nil: it must be read
	wants    rules.Wants           // what the last plan needs to go on
	history  map[int64]*nonce.Past // what was read for the next plan
	requests map[string]*nonce.Remembered
	plan     *rules.Plan // nil: none is made; its memory is made
	made     rules.Plan
	write    nonce.Write

	nextRound         bool           // the engine is done with it, and what is left of it goes on in the next round
	inDoubt           bool           // the store may still read what a commit of it had
	noExpiry          bool           // overdue holds stay as they are in this batch
	look              bool           // it is looked at for overdue holds
	listed            nonce.DueEntry // as which the store has listed it; without a name: it does not matter
	retryAt, refuseAt time.Time      // while it is parked: the next try, and when it is refused
	pause             time.Duration  // before the next try at a lock
}

// add joins a task to a group that is parked.
func (g *group) add(t *task) {
	t.move(waiting)
	g.tasks = append(g.tasks, t)
}

// unread forgets what was read for a plan.
func (g *group) unread() { g.history, g.requests, g.plan = nil, nil, nil }

// pop takes the first n tasks out.
func (g *group) pop(n int) { g.tasks = g.tasks[n:] }

// planned are the tasks that the plan answers.
func (g *group) planned() []*task { return g.tasks[:len(g.plan.Answers)] }

// failGroup ends all tasks of the group that change something with err. Reads are answered;
// they need no ownership.
func (w *worker) failGroup(g *group, err error) {
	tasks := g.tasks
	g.tasks = nil
	for _, t := range tasks {
		if t.reads() {
			w.read(t)
		} else {
			w.refuse(t, err)
		}
	}
}

// round takes every group one step further and returns those that go on. A step may end,
// park or route a group, or put it into worker.rerouted to begin the next round at front.
func (w *worker) round(groups []*group) []*group {
	groups = w.front(groups)
	groups = w.ensureOwned(groups)
	groups = w.load(groups)
	next := w.commit(w.planAll(groups))
	next = append(next, w.rerouted...)
	w.rerouted = nil
	return next
}

// front deals with what needs no plan at the head of each group, and returns the groups
// that are left.
func (w *worker) front(groups []*group) []*group {
	left := groups[:0]
	for _, g := range groups {
		w.dismiss(g)
		if !w.leadIn(g) || len(g.tasks) == 0 && !g.look {
			continue
		}
		if len(g.tasks) > 0 && g.tasks[0].req.Kind == nonce.KindList { // for what the rows do not have yet
			w.park(g, errRowsBehind)
			continue
		}
		g.tries++
		if g.tries > maxRounds {
			w.failGroup(g, nonce.ErrBusy)
			continue
		}
		left = append(left, g)
	}
	return left
}

// dismiss ends the tasks whose caller is gone, of which nothing is committed yet, and refuses
// those that would make this node take a shard again right after it gave it up for another
// node, which they are told. What can be forwarded is not refused; depart sends it.
func (w *worker) dismiss(g *group) {
	to := w.svc.table.YieldedTo(&g.shard.Term)
	for _, t := range g.tasks {
		switch {
		case t.gone():
			w.refuse(t, nonce.ErrGone)
		case to != "" && !t.reads() && !(t.local() && w.svc.cfg.Router != nil):
			w.refuse(t, w.svc.atNode(to))
		}
	}
	g.tasks = slices.DeleteFunc(g.tasks, (*task).over)
}

// leadIn ends or hands on what is at the head of the group and needs no plan. It
// returns false when the rest of the group waits for another node.
func (w *worker) leadIn(g *group) bool {
	for {
		if w.svc.cfg.Router == nil {
			w.dropBroken(g)
		} else if !w.depart(g) {
			return false
		}
		if len(g.tasks) == 0 || !w.frontTask(g) {
			return true
		}
		g.pop(1)
	}
}

const errRowsBehind nonce.Told = "the rows do not have all of the signer yet; try again"

// rowsBehind reports whether the rows lack something of the group's signer.
func (w *worker) rowsBehind(g *group) bool {
	sig := w.memory.signers[g.name]
	return g.shard.Performance && sig != nil && w.engine.Behind(Signer{sig})
}

// overlay adds what the rows do not have yet to what was read for a plan.
func (w *worker) overlay(g *group) {
	if g.shard.Performance {
		w.engine.Overlay(Part{g})
	}
}

// errStopped refuses what could hand out a nonce twice.
const errStopped nonce.Told = "the store went back and lost acknowledged writes of this signer; " +
	"raise its floor above every nonce that was handed out"

// frontTask ends the group's first task if it needs no plan.
func (w *worker) frontTask(g *group) bool {
	t := g.tasks[0]
	stopped := w.memory.signers[g.name] // nil: the signer is not stopped, or is to be read first
	if stopped != nil && (!stopped.stopped || stopped.stay != g.shard.Stay) {
		stopped = nil
	}
	switch {
	case t.req.Kind == nonce.KindList && w.rowsBehind(g):
		return false // front has it wait
	case t.req.Kind == nonce.KindList, t.reads() && (!g.shard.Mine() || stopped != nil || w.svc.haltedBy() != nil):
		w.read(t)
	case w.svc.haltedBy() != nil:
		w.refuse(t, &nonce.UnavailableError{Outcome: nonce.NotSent, Err: w.svc.haltedBy()})
	case stopped != nil && (t.req.Kind != nonce.KindSetFloor || t.req.Floor < stopped.safe):
		w.refuse(t, &nonce.UnavailableError{Outcome: nonce.NotSent, Err: errStopped})
	default:
		return false
	}
	return true
}

// read answers a read from the store, without ownership. Once the store did not answer one in
// time, it is not asked for others of the batch: each could take as long.
func (w *worker) read(t *task) {
	if w.noReads != nil {
		w.refuse(t, w.noReads)
		return
	}
	t.endRead(w.askStore(func(ctx context.Context) error { return w.svc.read(ctx, t.req, t.res) }))
	if errors.Is(t.res.Err, context.DeadlineExceeded) {
		w.noReads = t.res.Err
	}
	w.finish(t)
}

// planAll plans each group, and returns those that there is something to commit of.
func (w *worker) planAll(groups []*group) (ready, next []*group) {
	ready = make([]*group, 0, len(groups))
	for _, g := range groups {
		w.plan(g)
		switch {
		case len(g.plan.Answers) > 0 || g.plan.Writes || g.write.DueAt != 0:
			ready = append(ready, g)
		case g.plan.Wants.Any():
			next = append(next, g) // more must be read first
		default:
			w.lookedAt(g)
		}
	}
	return ready, next
}

// plan runs the rules over the group's tasks up to the first list.
func (w *worker) plan(g *group) {
	w.requests = w.requests[:0]
	for _, t := range g.tasks {
		if t.req.Kind == nonce.KindList {
			break
		}
		w.requests = append(w.requests, t.req)
	}
	sig, now := g.sig, w.svc.clock.now()
	w.overlay(g)
	w.input = rules.Input{
		LostUntil: g.shard.Took.LostUntil(now.Earliest),
		Signer:    sig.row, Token: g.shard.Token(), Now: now, History: g.history, Requests: g.requests,
		Chain: sig.chain, Claim: w.claim, NoExpiry: g.noExpiry || w.svc.clock.paused(),
	}
	made := &g.made
	if w.engine != nil || g.inDoubt { // the plan before may still be read
		made = new(rules.Plan)
	}
	g.plan = w.svc.cfg.Rules.MakeIn(made, &w.input, w.requests)
	w.input = rules.Input{}
	g.wants = g.plan.Wants
	g.write = nonce.Write{
		Name: g.name, Term: g.shard.Believed(), Generation: w.generation, Check: !g.plan.Writes, Signer: g.plan.Signer,
		History: g.plan.History, Requests: g.plan.Requests, NotBefore: g.plan.NotBefore,
	}
	if g.plan.Writes || g.listed.Signer != "" && !g.plan.Wants.Any() {
		g.write.DueAt = w.dueAt(g)
	}
	if g.plan.Watch != sig.watch {
		g.write.Watch = g.plan.Watch
	}
}

// dueAt is for when a commit lists the signer, 0 where it is listed as it should be: a
// signer in use is listed once, and again only for an earlier deadline, or when what it was
// listed for has passed.
func (w *worker) dueAt(g *group) int64 {
	passed := g.sig.listed != 0 && g.sig.listed <= w.svc.clock.now().Earliest || g.listed.Signer != ""
	switch first := g.plan.Signer.FirstDeadline(); {
	case first != 0 && first == g.listed.At: // it is over, and cannot be ended yet
	case first != 0 && (passed || g.sig.listed == 0 || first < g.sig.listed):
		return first
	case first == 0 && passed:
		return nonce.Unlisted
	}
	return 0
}

// releaseHolds gives back what the group's plan reserved of principals' open holds.
func (w *worker) releaseHolds(g *group) {
	for i, t := range g.planned() {
		w.svc.open.Release(t.req.Principal, g.plan.Answers[i].Claimed)
	}
}

// sentBack reports whether an error says that the signer is not this node's to serve: an op of
// another node that ends in it is routed again by that node.
func sentBack(err error) bool {
	_, elsewhere := errors.AsType[*nonce.NotOwnerError](err)
	return elsewhere || err == nonce.ErrFenced || err == nonce.ErrDraining
}
