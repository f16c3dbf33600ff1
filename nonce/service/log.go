package service

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"noncegate/lease"
	"noncegate/nonce"
	"noncegate/nonce/rules"
)

// LogConfig is what a service needs for shards with the performance engine.
type LogConfig struct {
	Log   nonce.ShardLog
	Store nonce.LogStore
	// Grant is how long a log hands out while the store is away, at most.
	Grant time.Duration
	// ShipEvery is between two shipments; while answers wait for one, it is ShipSoon.
	ShipEvery, ShipSoon time.Duration
	// ShipSLA is how far the rows may be behind before hand-outs wait for them too, unless the
	// store is away. Batches wait as long for what they read of the store.
	ShipSLA time.Duration
	// LostAfter is how long a log is out of reach, or not what was accepted, before it counts as
	// lost.
	LostAfter time.Duration
	// Timeout bounds one call of the log. Past it an append is unknown.
	Timeout time.Duration
	// MaxUnshipped bounds the changes of a worker that the rows do not have yet. Beyond it ops
	// are refused.
	MaxUnshipped int
	// Margin is added to what is in doubt after a loss, for clocks that part; 0: 2s.
	Margin time.Duration
}

func (c *LogConfig) defaults() {
	c.Grant = cmp.Or(c.Grant, 45*time.Second)
	c.ShipEvery = cmp.Or(c.ShipEvery, 100*time.Millisecond)
	c.ShipSoon = cmp.Or(c.ShipSoon, 5*time.Millisecond)
	c.ShipSLA = cmp.Or(c.ShipSLA, 2*time.Second)
	c.LostAfter = cmp.Or(c.LostAfter, 10*time.Second)
	c.Timeout = cmp.Or(c.Timeout, time.Second)
	c.MaxUnshipped = cmp.Or(c.MaxUnshipped, 200_000)
	c.Margin = cmp.Or(c.Margin, 2*time.Second)
}

// settled reports whether batches may go into the log.
func (lg *shardLog) settled() bool {
	return lg.serves && len(lg.unanswered) == 0 && !lg.raising && !lg.leaving
}

// shardLog is the log of a shard that is this node's. It belongs to worker.batchMu.
//
// Until it serves, nothing of its signers is remembered. From then on memory is whole: it has
// all that the log accepted, until the shard is lost. While it is stuck it is not known whether
// the log has what was appended last; nothing is planned meanwhile.
type shardLog struct {
	fence      nonce.LogFence
	engine     lease.Engine
	serves     bool
	unanswered []*group // whose append has an unknown outcome
	raising    bool     // it is not known whether the try was raised; nothing is appended meanwhile
	// A statement that gives the shard the reliable engine was not answered. It may have happened,
	// or still happen, so nothing is appended any more, and it is sent until it is answered.
	leaving    bool
	leavingFor string    // the reason, as turnOff was told
	failing    time.Time // since when the log does not do what it should; zero: it does
	retryAt    time.Time // the next try while it fails
	why        error     // of the last one
	seen       time.Time // when it was last seen to do what it should
	full       bool      // a record was refused for want of room, and none was taken since
	fullAt     time.Time // when the last one was

	dirty   map[*signer]struct{} // signers that have something to be shipped
	shipped int64                // the head up to which the rows have everything
	trimmed int64
	trust   time.Time        // until when hand-outs may rest on the log alone
	refused map[string]int64 // the head up to which what the log has of a stopped signer is not for the rows
}

// refuse leaves out what the log has of a signer, which is stopped.
func (lg *shardLog) refuse(name string) {
	if lg.refused == nil {
		lg.refused = make(map[string]int64)
	}
	lg.refused[name] = lg.fence.Head
}

// unshipped is what the rows do not have yet of a signer.
type unshipped struct {
	base     nonce.Signer // as the store has it, as far as is known
	token    int64        // of that row
	since    time.Time
	history  []versioned[nonce.Past]
	requests []versioned[nonce.Remembered]
	waiting  []untold
	relist   bool        // what it was listed for has passed
	watch    nonce.Watch // as which it is to be watched
	handed   int         // nonces, since the last shipment
}

// versioned is a thing that a version of a signer brought.
type versioned[T any] struct {
	version int64
	it      T
}

// untold is an answer that waits until the rows have a version.
type untold struct {
	version int64
	task    *task
	answer  rules.Answer
}

var (
	errLogBehind = nonce.Told("the log of the signer's shard has no room; try again")
	errLogAway   = nonce.Told("the log of the signer's shard cannot be used just now; try again")
	errLogDoubt  = nonce.Told("the shard was lost before the store had the write; ask again with the same request id")
	errNoLog     = nonce.Told("the signer's shard has the performance engine, and this node has no Redis")
	errNoCeiling = nonce.Told("no nonces could be reserved in the store")
)

// logTime bounds one call of the log.
func (s *Service) logTime() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), s.cfg.Log.Timeout)
}

// inLog reports whether what is planned of the signer goes into the log of its shard. The safe floor of
// one that is stopped goes to the store: a shipment from before that comes late must not take its version.
func (s *signer) inLog() bool { return s.shard.log != nil && (!s.stopped || s.unshipped != nil) }

// split takes the groups out that go into a log.
func split(groups []*group) (logged, rest []*group) {
	if !slices.ContainsFunc(groups, func(g *group) bool { return g.sig.inLog() }) {
		return nil, groups
	}
	for _, g := range groups {
		if g.sig.inLog() {
			logged = append(logged, g)
		} else {
			rest = append(rest, g)
		}
	}
	return logged, rest
}

// handsOut is how many nonces a plan hands out that are answered when the log has them.
func handsOut(g *group) (n int) {
	for i := range g.plan.Answers {
		if a := &g.plan.Answers[i]; a.Wrote && a.Err == nil {
			n += len(a.Nonces)
		}
	}
	return n
}

// append writes what was planned into the logs of its shards, in one call, and returns the
// groups that go on.
func (w *worker) append(groups, next []*group) []*group {
	if w.logs.unshipped > w.svc.cfg.Log.MaxUnshipped {
		for _, g := range groups {
			w.releaseHolds(g)
			w.failGroup(g, &nonce.UnavailableError{Outcome: nonce.NotSent, Err: errLogBehind})
		}
		return next
	}
	groups, next = w.tooEarly(groups, next)
	groups = w.reserve(groups)
	if len(groups) == 0 {
		return next
	}
	items, of := appends(groups)
	started := time.Now()
	ctx, cancel := w.svc.logTime()
	errs := w.svc.cfg.Log.Log.Append(ctx, items)
	cancel()
	ops := 0
	for i, sh := range of {
		mine := slices.DeleteFunc(slices.Clone(groups), func(g *group) bool { return g.shard != sh })
		switch err := errs[i]; {
		case err == nil:
			if items[i].Record != nil {
				sh.log.fence.Head++
				sh.log.full = false
			}
			w.works(sh)
			for _, g := range mine {
				ops += len(g.plan.Answers)
				w.accepted(g)
				if len(g.tasks) > 0 || g.look {
					next = append(next, g)
				}
			}
		default:
			w.notAccepted(sh, mine, items[i].Record != nil, err)
		}
	}
	if ops > 0 {
		w.svc.fig.Commit(time.Since(started), ops)
	}
	return next
}

// tooEarly sends groups back whose plan ends holds that may not be over yet.
func (w *worker) tooEarly(groups, next []*group) (left, all []*group) {
	now := w.svc.clock.now().Earliest
	for _, g := range groups {
		if g.plan.NotBefore > now {
			w.releaseHolds(g)
			g.unread()
			g.noExpiry = true
			next = append(next, g)
		} else {
			left = append(left, g)
		}
	}
	return left, next
}

// appends are the records of a batch, one a shard.
func appends(groups []*group) (items []nonce.LogAppend, of []*shard) {
	for _, g := range groups {
		at := slices.Index(of, g.shard)
		if at < 0 {
			at = len(of)
			of, items = append(of, g.shard), append(items, nonce.LogAppend{Fence: g.shard.log.fence})
		}
		if !g.plan.Writes {
			continue
		}
		item := &items[at]
		if item.Record == nil {
			item.Record = &nonce.LogRecord{Shard: g.shard.id, Token: item.Fence.Token, Seq: item.Fence.Head + 1}
		}
		c := nonce.ChangeOf(g.name, &g.sig.row, &g.plan.Signer)
		c.History, c.Requests = g.plan.History, g.plan.Requests
		item.Record.Changes = append(item.Record.Changes, c)
	}
	return items, of
}

// covered reports whether the signer's ceiling is above all that a row may hand out.
func covered(sig *signer, sh *shardLog, next int64) bool {
	return sig.row.Ceiling >= next && sig.row.Ceiling > 0 && sig.row.Epoch == sh.engine.Epoch
}

// minBlock is the fewest nonces that are reserved ahead.
const minBlock = 16

// ceilingReach is how far, in times of what a signer may hold, a ceiling may be above the row's cursor.
// After a loss all nonces between the two are in doubt.
const ceilingReach = 4

// farAhead reports whether the cursor has left the row's far behind, as a floor or a chain lets
// it. Then no ceiling is raised before a shipment has brought the row there: what is handed out
// waits for it.
func (w *worker) farAhead(g *group) bool {
	base := g.sig.row.Next
	if u := g.sig.unshipped; u != nil {
		base = u.base.Next
	}
	return g.plan.Signer.Next-base > int64(ceilingReach*w.svc.cfg.Rules.MaxLive)
}

// reserve sees to it that the ceilings are above what is handed out, and returns the groups to
// go on with, which are all of which that is so or that are far ahead. The others end.
func (w *worker) reserve(groups []*group) []*group {
	var short []*group
	var up []nonce.Ceiling
	for _, g := range groups {
		if handsOut(g) > 0 && !covered(g.sig, g.shard.log, g.plan.Signer.Next) && !w.farAhead(g) {
			g.sig.block = min(max(2*g.sig.block, minBlock), int64(w.svc.cfg.Rules.MaxLive))
			short = append(short, g)
			up = append(up, nonce.Ceiling{Name: g.name, Term: g.shard.shardTerm(), Next: max(g.plan.Signer.Next+g.sig.block, g.sig.row.Ceiling)})
		}
	}
	if len(short) == 0 {
		return groups
	}
	var got []bool
	err := w.askStore(func(ctx context.Context) (err error) {
		got, err = w.svc.cfg.Log.Store.Reserve(ctx, w.svc.holder, up)
		return err
	})
	for i, g := range short {
		if g.shard.log == nil {
			continue // it was lost with another of its signers
		}
		if err == nil && got[i] {
			g.sig.row.Ceiling, g.sig.row.Epoch = up[i].Next, g.shard.log.engine.Epoch
			g.plan.Signer.Ceiling, g.plan.Signer.Epoch = g.sig.row.Ceiling, g.sig.row.Epoch
			continue
		}
		w.releaseHolds(g)
		g.unread()
		cause := err
		if cause == nil {
			cause = errNoCeiling
			g.shard.unsure = true
			w.svc.log.Debug("no nonces were reserved", "signer", g.name)
		}
		groups = slices.DeleteFunc(groups, func(x *group) bool { return x == g })
		w.failGroup(g, &nonce.UnavailableError{Outcome: nonce.NotSent, Err: cause})
		if err == nil { // the shard may be another's: who asks next finds out
			w.lose(g.shard)
		}
	}
	return slices.DeleteFunc(groups, func(g *group) bool {
		if g.shard.log != nil {
			return false
		}
		w.releaseHolds(g) // its shard was just lost
		g.unread()
		w.rerouted = append(w.rerouted, g)
		return true
	})
}

// accepted follows a record that the log has: memory, what is to be shipped, and answers.
func (w *worker) accepted(g *group) {
	sig, plan, lg := g.sig, g.plan, g.shard.log
	if plan.Writes || g.listed.Signer != "" || g.write.Watch.Kind != nonce.WatchAsIs {
		u := w.unship(sig)
		u.watch = plan.Watch
		u.relist = u.relist || g.listed.Signer != ""
		g.listed = nonce.DueEntry{}
		if plan.Writes {
			version := plan.Signer.Version
			for _, p := range plan.History {
				u.history = append(u.history, versioned[nonce.Past]{version, p})
			}
			for _, q := range plan.Requests {
				u.requests = append(u.requests, versioned[nonce.Remembered]{version, q})
			}
			u.handed += handsOut(g)
			w.logs.unshipped++
			w.set(sig, plan.Signer, lg.fence.Token)
		}
	}
	w.answer(g, w.svc.storeTime())
	if g.look && len(g.tasks) == 0 {
		w.lookedAt(g)
	}
	g.tries, g.refuseAt = 0, time.Time{}
	g.unread()
}

// unship begins to keep what is to be shipped of a signer.
func (w *worker) unship(sig *signer) *unshipped {
	if sig.unshipped == nil {
		sig.unshipped = &unshipped{base: sig.row, token: sig.token, since: time.Now()}
		sig.shard.log.dirty[sig] = struct{}{}
	}
	return sig.unshipped
}

// waits reports whether an answer waits until the rows have what it rests on, and keeps it if
// so. It is asked when the log has replied. While a grant runs hand-outs, and what refuses one,
// are answered when the log has them, and what rests on nothing unshipped is, too; past it
// nothing rests on the log alone, and the next shipment compares the row.
func (w *worker) waits(g *group, t *task, a *rules.Answer) bool {
	lg, u := g.shard.log, g.sig.unshipped
	if lg == nil {
		return false
	}
	if now := time.Now(); now.Before(lg.trust) && (u == nil || t.op.Kind == nonce.KindStatus || w.early(g, t, a, now)) {
		return false
	}
	t.move(waiting)
	u = w.unship(g.sig)
	u.waiting = append(u.waiting, untold{g.plan.Signer.Version, t, *a})
	w.logs.shipper.impatient = true
	return true
}

// early reports whether a hand-out, or what refuses one, is told before the rows have it: they
// are not too far behind, unless the store is away, and the log may tell it alone.
func (w *worker) early(g *group, t *task, a *rules.Answer, now time.Time) bool {
	return handOut(t, a) && (w.logs.storeAway || now.Sub(g.sig.unshipped.since) < w.svc.cfg.Log.ShipSLA) &&
		alone(g.sig, g.shard.log, g.plan.Signer.Next, a)
}

// alone reports whether the log may tell a hand-out without the rows: a loss of it leaves in
// doubt what was handed out, because that is below the ceiling and not consumed as the rows have it.
func alone(sig *signer, lg *shardLog, next int64, a *rules.Answer) bool {
	if !covered(sig, lg, next) {
		return false
	}
	for i, n := range a.Nonces {
		if a.Attempts[i] > 1 && sig.unshipped.consumed(n, a.Attempts[i]) {
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

// handOut reports whether an answer hands out, or refuses to.
func handOut(t *task, a *rules.Answer) bool {
	return t.op.Kind == nonce.KindAllocate && (len(a.Nonces) > 0 || plainRefusal(a.Err))
}

// plainRefusal reports whether an error tells nothing of what became of a nonce.
func plainRefusal(err error) bool {
	_, conflict := errors.AsType[*nonce.ConflictError](err)
	return err != nil && !conflict
}

// notAccepted deals with the groups of a shard whose log did not take their record, or did not
// say so.
func (w *worker) notAccepted(sh *shard, groups []*group, wrote bool, err error) {
	lg := sh.log
	if _, is := errors.AsType[*nonce.StoreError](err); is && nonce.OutcomeOf(err) == nonce.Unknown && wrote {
		w.svc.tally.unknown.Add(1)
		w.fails(sh, false, err)
		lg.unanswered = groups
		for _, g := range groups { // what comes for its signers joins them
			g.sig.pinned = true
			g.retryAt = never // but when the log has said what became of it
			for _, t := range g.tasks {
				t.move(waiting)
			}
			w.parked[g.name] = g
		}
		w.tryLog(sh)
		return
	}
	for _, g := range groups {
		w.releaseHolds(g)
		g.unread()
	}
	if errors.Is(err, nonce.ErrLogFull) {
		lg.full, lg.fullAt = true, time.Now()
	}
	w.broken(sh, err)
	for _, g := range groups {
		if sh.log == nil {
			w.rerouted = append(w.rerouted, g)
		} else {
			w.park(g, errLogAway)
		}
	}
}

// never is when what waits for something else than time is tried again.
var never = time.Unix(1<<40, 0)

// overlay adds what is not shipped yet to what was read for a plan.
func (g *group) overlay() {
	u := g.sig.unshipped
	if u == nil {
		return
	}
	for _, p := range u.history {
		if g.history == nil {
			g.history = make(map[int64]*nonce.Past)
		}
		past := p.it
		g.history[past.Nonce] = &past
	}
	for _, q := range u.requests {
		if g.requests == nil {
			g.requests = make(map[string]*nonce.Remembered)
		}
		asked := q.it
		g.requests[asked.ID] = &asked
	}
}

// unasked are the request ids of a group that nobody has looked up, and that are not about to be. In a log an id is proved new
// before the record is written: by what was not shipped yet, and by the store.
func (g *group) unasked() (ids []string) {
	if g.shard.log == nil {
		return nil
	}
	for _, t := range g.tasks {
		id := t.op.RequestID
		if id == "" || slices.Contains(ids, id) {
			continue
		}
		if _, read := g.requests[id]; read || slices.Contains(g.wants.Requests, id) {
			continue
		}
		if u := g.sig.unshipped; u != nil && slices.ContainsFunc(u.requests, func(q versioned[nonce.Remembered]) bool { return q.it.ID == id }) {
			continue
		}
		ids = append(ids, id)
	}
	return ids
}
