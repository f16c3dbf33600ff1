package service

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"noncegate/lease"
	"noncegate/nonce"
	"noncegate/nonce/rules"
)

// A shard's row says which engine it has. Plans of a shard with the reliable engine are committed by
// the store's statement (commit.go). Those of a shard with the performance engine go to a Committer,
// which says of each Part whether it was applied, was not, or is unknown, and when its answers may be
// told. Committers know this package; it knows them by these two interfaces only.

// Engine makes Committers. Its methods may be called from any goroutine.
type Engine interface {
	// Attach gives the engine its service, before anything else is called, and returns the committer of
	// each worker.
	Attach(Host, []Worker) []Committer
	// Goroutines are what the service runs until stop is closed.
	Goroutines() []func(stop <-chan struct{})
	// Look reads which engine is wanted of all shards; Order, a little later, has the shards of this
	// node follow.
	Look(context.Context) error
	Order()
	// Leaves reports whether a shard of that row, which has the performance engine and which any node
	// could have taken since then, is left to other nodes; zero: since now.
	Leaves(row *lease.Shard, since time.Time) bool
}

// Committer commits the plans of one worker for shards with the performance engine. Its methods are
// called by whoever runs a batch of the worker, one at a time.
type Committer interface {
	// Commit makes parts durable, and calls for each one of Applied, Early, Again, Refuse, Wait and
	// Suspend.
	Commit([]Part)
	// Committed is told of a part that the store's statement applies, before memory follows.
	Committed(Part)
	// Keeps reports whether it keeps an answer of a part that is applied, to tell it later.
	Keeps(Part, Answer) bool

	// Ready says why plans of a shard cannot be committed just now; nil: they can.
	Ready(Shard) error
	// Behind reports whether the rows lack something of a signer, and has them follow soon.
	Behind(Signer) bool
	// FloorWaits says why the safe floor of a stopped signer cannot be committed yet; nil: it can.
	FloorWaits(Signer) error
	// Overlay adds to what was read for a part what the rows do not have yet.
	Overlay(Part)

	// Acquired follows an acquire of a shard. anew: it was not this node's before.
	Acquired(sh Shard, row *lease.Shard, anew bool)
	// Leave gives a shard the reliable engine because another node is to have it, and reports
	// whether that other node may.
	Leave(Shard) bool
	// Lost ends all that a shard has under way: it is this node's no more.
	Lost(Shard)

	// Ask calls the store for what a batch waits for, and bounds that wait.
	Ask(func(context.Context) error) error
	// Due reports whether there is something to do without any request.
	Due() bool
	// Begin, Tend and End are called in each batch: first, after shards were taken and given up, and
	// last.
	Begin()
	Tend()
	End()
}

// attach connects the service and its engine.
func (s *Service) attach() {
	workers := make([]Worker, len(s.workers))
	for i, w := range s.workers {
		workers[i] = Worker{w}
	}
	for i, c := range s.cfg.Engine.Attach(Host{s}, workers) {
		s.workers[i].engine = c
	}
}

// Host is the service, as an engine sees it.
type Host struct{ s *Service }

// Config are the settings of the service.
func (h Host) Config() *Config { return &h.s.cfg }

// Holder is this run of the node.
func (h Host) Holder() lease.Holder { return h.s.holder }

// Log is for what an operator is to read.
func (h Host) Log() *slog.Logger { return h.s.log }

// Figures are what the service measures.
func (h Host) Figures() nonce.Figures { return h.s.fig }

// Shards are all shards, also those of other nodes.
func (h Host) Shards() []Shard {
	all := make([]Shard, len(h.s.shards))
	for i, sh := range h.s.shards {
		all[i] = Shard{sh}
	}
	return all
}

// Serves reports whether the node takes part: it is neither about to leave nor halted.
func (h Host) Serves() bool { return h.s.basic == nil && !h.s.table.Retired() && h.s.haltedBy() == nil }

// Clock is what is known of the store's clock, which Observe takes a reading of.
func (h Host) Clock() nonce.Clock                    { return h.s.clock.now() }
func (h Host) Observe(started, ended, now time.Time) { h.s.clock.observe(started, ended, now) }

// Timeout bounds one call of the store.
func (h Host) Timeout() (context.Context, context.CancelFunc) { return h.s.timeout() }

// Load reads signers.
func (h Host) Load(needs []nonce.SignerNeed) (nonce.Loaded, error) { return h.s.load(needs) }

// Others reports whether other nodes are there that could serve shards.
func (h Host) Others() bool {
	return slices.ContainsFunc(h.s.table.Fleet().Live, func(node string) bool { return node != h.s.holder.Node })
}

// Hears notes that the store answered; Heard is when it did last.
func (h Host) Hears(at time.Time) { h.s.heard.Store(&at) }
func (h Host) Heard() time.Time   { return *h.s.heard.Load() }

// UnknownCommit counts a commit whose outcome is unknown.
func (h Host) UnknownCommit() { h.s.tally.unknown.Add(1) }

// Worker is one of the service's. Its methods but Wake and Do are for whoever runs its batch.
type Worker struct{ w *worker }

// Index is its number.
func (w Worker) Index() int { return w.w.index }

// Generation is that of the store, as of which memory is.
func (w Worker) Generation() uint64 { return w.w.generation }

// Wake has it run a batch, or look whether there is something to do.
func (w Worker) Wake() { w.w.signal() }

// Do runs something between two batches.
func (w Worker) Do(what func()) {
	w.w.batchMu.Lock()
	defer w.w.batchMu.Unlock()
	what()
	w.w.wakeLater()
	w.w.wakeAll()
}

// Shard is a shard. Its methods but ID, Worker, Row, Token, Mine and Take are for whoever runs a batch of
// its worker.
type Shard struct{ sh *shard }

// ID is its number.
func (s Shard) ID() int { return s.sh.ID }

// Worker is the index of its worker.
func (s Shard) Worker() int { return s.sh.worker.index }

// Row is its row, as this node saw it last.
func (s Shard) Row() *lease.Shard { return s.sh.Row() }

// Mine reports whether this node owns it.
func (s Shard) Mine() bool { return s.sh.Mine() }

// Token is that under which it is this node's; 0: it is not.
func (s Shard) Token() int64 { return s.sh.Token() }

// Term is what this node believes of it.
func (s Shard) Term() lease.ShardTerm { return s.sh.Believed() }

// Acquire acquires it again, under a higher token; forget: what is remembered of its signers is not
// valid any more. An error says that it is not known whether it was acquired, or why this node does
// not have it although it was.
func (s Shard) Acquire(forget bool) (lease.Shard, error) {
	return s.sh.worker.svc.table.Again(&s.sh.Term, forget)
}

// Lose makes it not this node's; whoever asks next acquires it first, which tells whose it is.
func (s Shard) Lose() {
	s.sh.worker.lose(s.sh)
	s.sh.Doubt()
}

// Release gives it back, so that another node can take it.
func (s Shard) Release() { s.sh.worker.svc.table.GiveUp([]*lease.Term{&s.sh.Term}) }

// Take has its worker acquire it in the next batch.
func (s Shard) Take() { s.sh.worker.order(lease.Order{Shard: &s.sh.Term, Take: true}) }

// Has follows a row that a statement of the engine has left.
func (s Shard) Has(row *lease.Shard) {
	s.sh.Performance = row.Performance
	s.sh.See(*row)
}

// Signer is a signer that is remembered; the zero Signer: it is not.
func (s Shard) Signer(name string) Signer { return Signer{s.sh.worker.memory.signers[name]} }

// Remember begins to remember a signer, ahead of its row, instead of what was remembered of it.
func (s Shard) Remember(name string, row nonce.Signer, token int64) Signer {
	w, sig := s.sh.worker, &signer{name: name, shard: s.sh, stay: s.sh.Stay, row: row, token: token, ahead: true}
	if was := w.memory.signers[name]; was != nil {
		switch {
		case !was.stopped:
		case row.Floor >= was.safe:
			s.sh.Stopped.Add(-1)
		default:
			sig.stopped, sig.safe = true, was.safe
		}
		w.memory.forget(was)
	}
	w.followChain(sig)
	w.memory.add(sig)
	return Signer{sig}
}

// StopUnreadable stops a signer whose row cannot be read, for when it was mended; row is what there is
// of it. It returns the floor that lets it serve again, safe or above.
func (s Shard) StopUnreadable(name string, row nonce.Signer, token, safe int64) int64 {
	w := s.sh.worker
	sig := w.memory.signers[name]
	if sig == nil {
		sig = &signer{name: name, shard: s.sh, row: row, token: token}
		w.memory.add(sig)
	}
	sig.safe = max(sig.safe, safe)
	sig.disown()
	sig.stop()
	sig.stay = noStay
	return sig.safe
}

// Signer is one that a worker remembers. Two Signers are equal if they are the same one.
type Signer struct{ s *signer }

// Known reports whether it is remembered.
func (s Signer) Known() bool { return s.s != nil }

// Name is its name.
func (s Signer) Name() string { return s.s.name }

// Shard is its shard.
func (s Signer) Shard() Shard { return Shard{s.s.shard} }

// Row is what is remembered. Only what the engine keeps in it may be changed in place.
func (s Signer) Row() *nonce.Signer { return &s.s.row }

// Token is that under which the row was written.
func (s Signer) Token() int64 { return s.s.token }

// Reserved is how many nonces were reserved ahead last; it is the committer's.
func (s Signer) Reserved() *int64 { return &s.s.reserved }

// Ahead says whether memory is ahead of the row, as it is from then on: whole, and not forgotten.
func (s Signer) Ahead(is bool) { s.s.ahead = is }

// Listing are the deadline for which the store has it listed, and as which it is watched, as far as is
// known.
func (s Signer) Listing() (listed *int64, watch *nonce.Watch) { return &s.s.listed, &s.s.watch }

// FirstDeadline is the earliest of its holds; 0: it has none.
func (s Signer) FirstDeadline() int64 { return s.s.row.FirstDeadline() }

// Stop has nothing but a safe floor change it. An operator is told why by the caller.
func (s Signer) Stop() { s.s.stop() }

// FallBack makes memory what the row is: what was ahead of it may be lost. A row that shows less once
// the shard has the reliable engine in that epoch stops the signer.
func (s Signer) FallBack(row nonce.Signer, token, epoch int64) {
	sig := s.s
	sig.safe = max(sig.safe, sig.row.Next) // for when the store went back
	sig.confirmed, sig.confirmedIn, sig.ahead = sig.row.Version, epoch, false
	sig.shard.worker.memory.set(sig, row, token)
}

// Part is one signer's part of a batch, with a plan.
type Part struct{ g *group }

// Shard is its shard.
func (p Part) Shard() Shard { return Shard{p.g.shard} }

// Signer is its signer.
func (p Part) Signer() Signer { return Signer{p.g.sig} }

// Plan is what is to be committed.
func (p Part) Plan() *rules.Plan { return p.g.plan }

// Listed reports whether the signer is looked at because the store has it listed, and how its plan wants
// it watched, if that is to change.
func (p Part) Listed() bool       { return p.g.listed.Signer != "" }
func (p Part) Watch() nonce.Watch { return p.g.write.Watch }

// Follows reports whether the plan is of the row that is remembered.
func (p Part) Follows() bool {
	version := p.g.sig.row.Version
	if p.g.plan.Writes {
		version++
	}
	return p.g.plan.Signer.Version == version
}

// Applied says that the plan is durable: memory follows, and the answers that the committer does not
// keep are told.
func (p Part) Applied() {
	g, w := p.g, p.g.shard.worker
	g.listed = nonce.DueEntry{}
	if g.plan.Writes {
		w.set(g.sig, g.plan.Signer, g.write.Term.Token)
	}
	w.concluded(g, w.svc.storeTime())
	g.nextRound = true
}

// Undone says that nothing of the plan happened. It may be said twice.
func (p Part) Undone() {
	if p.g.plan != nil {
		p.g.shard.worker.releaseHolds(p.g)
		p.g.unread()
	}
}

// Unknown says that nobody knows whether the plan happened, and why. What would have written nothing
// is planned again.
func (p Part) Unknown(why error) {
	p.g.shard.worker.releaseHolds(p.g)
	p.g.shard.worker.endUnknown(p.g, why, func(*task) bool { return false })
	p.g.unread()
}

// Early says that the plan ends holds that may not be over yet: it is made again without ending any.
func (p Part) Early() {
	p.Undone()
	p.g.noExpiry, p.g.nextRound = true, true
}

// Again says that nothing happened, and that the shard may be another's by now.
func (p Part) Again() {
	p.Undone()
	p.g.shard.worker.rerouted = append(p.g.shard.worker.rerouted, p.g)
}

// Refuse says that nothing happened, nor will, and why.
func (p Part) Refuse(why error) {
	p.Undone()
	p.g.shard.worker.failGroup(p.g, &nonce.UnavailableError{Outcome: nonce.NotSent, Err: why})
}

// Wait says that nothing happened, and that it is tried again after a while.
func (p Part) Wait(why error) {
	p.Undone()
	p.g.shard.worker.park(p.g, why)
}

// never is when what waits for something else than time is tried again.
var never = time.Unix(1<<40, 0)

// Suspend says that it is not known yet whether the plan happened. What comes for the signer waits
// until Resume.
func (p Part) Suspend() {
	g := p.g
	g.sig.pinned = true
	g.retryAt = never
	for _, t := range g.tasks {
		t.move(waiting)
	}
	g.shard.worker.parked[g.name] = g
}

// Resume goes on with a suspended part. say calls Applied, Undone or Unknown.
func (p Part) Resume(say func(Part)) {
	g, w := p.g, p.g.shard.worker
	delete(w.parked, g.name)
	g.sig.pinned = false
	tasks := len(g.tasks)
	say(p)
	g.nextRound = false
	if len(g.tasks) == 0 && !g.look {
		return
	}
	for _, t := range g.tasks[:min(tasks, len(g.tasks))] {
		t.move(waiting)
	}
	g.retryAt = time.Now()
	w.parked[g.name] = g
	w.signal()
}

// AddPast and AddRequest add to what was read for the part.
func (p Part) AddPast(past nonce.Past) {
	if p.g.history == nil {
		p.g.history = make(map[int64]*nonce.Past)
	}
	p.g.history[past.Nonce] = &past
}

func (p Part) AddRequest(q nonce.Remembered) {
	if p.g.requests == nil {
		p.g.requests = make(map[string]*nonce.Remembered)
	}
	p.g.requests[q.ID] = &q
}

// Answer is what becomes of one request of a part.
type Answer struct {
	w *worker
	t *task
	a *rules.Answer
}

// Kind is that of the request.
func (a Answer) Kind() nonce.Kind { return a.t.req.Kind }

// What is told.
func (a Answer) What() *rules.Answer { return a.a }

// Tell tells it.
func (a Answer) Tell() { a.w.tellLate(a) }

// Unknown tells the caller that nobody knows, for a reason.
func (a Answer) Unknown(why error) {
	a.w.refuse(a.t, &nonce.UnavailableError{Outcome: nonce.Unknown, Err: why})
}

// split takes out the groups that go to the committer of the performance engine.
func split(groups []*group) (parts []Part, rest []*group) {
	if !slices.ContainsFunc(groups, func(g *group) bool { return g.sig.toEngine() }) {
		return nil, groups
	}
	for _, g := range groups {
		if g.sig.toEngine() {
			parts = append(parts, Part{g})
		} else {
			rest = append(rest, g)
		}
	}
	return parts, rest
}

// toEngine reports whether what is planned of the signer goes to the committer of the performance engine. The
// safe floor of one that is stopped goes to the store.
func (s *signer) toEngine() bool { return s.shard.Performance && (!s.stopped || s.ahead) }

// unasked are the request ids of a group that nobody has looked up, and that are not about to be. The
// store's statement proves an id new; a committer that answers before it must have it looked up.
func (g *group) unasked() (ids []string) {
	if !g.shard.Performance {
		return nil
	}
	for _, t := range g.tasks {
		id := t.req.RequestID
		if id == "" || slices.Contains(ids, id) || slices.Contains(g.wants.Requests, id) {
			continue
		}
		if _, read := g.requests[id]; !read {
			ids = append(ids, id)
		}
	}
	return ids
}
