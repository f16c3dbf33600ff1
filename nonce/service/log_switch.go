package service

import (
	"context"
	"errors"
	"time"

	"noncegate/nonce"
)

// goal is which engine is wanted, as this node saw last.
func (s *Service) goal() nonce.EngineGoal {
	if g := s.engine.goal.Load(); g != nil {
		return *g
	}
	return nonce.EngineGoal{}
}

// trouble is why the performance engine is to be left, and the change of the goal under which
// it was met: who wants the engine again afterwards knows of it.
type trouble struct {
	reason string
	change int64
}

// degrade says that the performance engine is to be left, for a reason. It is written when the
// watch looks next, unless the goal has changed meanwhile.
func (s *Service) degrade(reason string) {
	s.engine.trouble.Store(&trouble{reason, s.goal().Change})
}

// lookEngine reads which engine is wanted, and says that there was trouble.
func (s *Service) lookEngine(ctx context.Context) error {
	if s.cfg.Log == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.StoreTimeout)
	defer cancel()
	g, err := s.cfg.Log.Store.Engine(ctx)
	if err != nil {
		return err
	}
	if met := s.engine.trouble.Load(); met != nil {
		if g.Performance && g.Change == met.change {
			if g, err = s.cfg.Log.Store.SetEngine(ctx, g.Change, nonce.EngineGoal{Degraded: true, Reason: met.reason}); err != nil {
				return err
			}
			s.log.Error("the performance engine is left", "because", met.reason)
		}
		s.engine.trouble.CompareAndSwap(met, nil)
	}
	s.engine.goal.Store(&g)
	return nil
}

// switchShards orders the shards of this node to the engine that is wanted, a few at a time.
func (s *Service) switchShards() {
	if s.cfg.Log == nil || s.basic != nil || s.retired.Load() || s.haltedBy() != nil || s.engine.goal.Load() == nil {
		return
	}
	goal := s.goal()
	if goal.Performance && (s.engine.reach.missed() > 0 || !s.rehearsed(&goal)) {
		return
	}
	for _, sh := range s.shards {
		if sh.mine() && sh.view.Load().Performance != goal.Performance {
			sh.worker.command(command{shard: sh, engine: true, take: goal.Performance})
		}
	}
}

// switchLog gives a shard the engine that it was ordered to, unless that is not to be done any more, or
// cannot be done now.
func (w *worker) switchLog(sh *shard, on bool) {
	switch {
	case on && sh.mine() && sh.log == nil && !w.svc.retired.Load() && w.svc.haltedBy() == nil:
		w.turnOn(sh)
	case !on && sh.log != nil && sh.log.settled() && !w.logs.storeAway:
		w.turnOff(sh, "")
	}
}

// rehearsed reports whether every shard has kept up with its rehearsal, or has the performance
// engine already.
func (s *Service) rehearsed(goal *nonce.EngineGoal) bool {
	if goal.Rehearse == 0 {
		return true
	}
	return s.rehearsedShards() == len(s.shards)
}

func (s *Service) rehearsedShards() (n int) {
	change := s.goal().Change
	for _, sh := range s.shards {
		if row := sh.view.Load(); row.Performance || change > 0 && row.Rehearsed == change {
			n++
		}
	}
	return n
}

// EngineState is a state of the whole cluster.
type EngineState string

// The states, which follow from what is wanted and from which engine each shard has.
const (
	StateReliable    EngineState = "RELIABLE"
	StateDualWrite   EngineState = "DUAL_WRITE" // the rehearsal runs
	StatePerformance EngineState = "PERFORMANCE"
	StateDrain       EngineState = "DRAIN_AND_SYNC"
	StateDegraded    EngineState = "DEGRADED" // a node began the drain by itself
)

// EngineStatus is what this node knows of the engines.
type EngineStatus struct {
	State       EngineState
	Goal        nonce.EngineGoal
	Shards      int
	Performance int // shards with the performance engine
	Rehearsed   int // shards that have kept up with the rehearsal, or have the engine
	Lost        int64
	Here        []LoggedShard // shards with a log that are this node's
	Rehearsing  []Rehearsing  // shards that are this node's and rehearse
}

// LoggedShard is a shard of this node with the performance engine.
type LoggedShard struct {
	Shard         int
	Serves        bool
	Head, Shipped int64
	Signers       int           // that have something to be shipped
	Behind        time.Duration // of what has waited to be shipped for the longest
	Grant         time.Duration // that is left
	Trouble       string        // "": none
}

// Engine tells which engine serves. It waits for the batch under way of each worker.
func (s *Service) Engine() EngineStatus {
	st := EngineStatus{Goal: s.goal(), Shards: len(s.shards), Lost: s.tally.lost.Load()}
	st.Performance = s.loggedShards()
	st.State, _ = s.EngineState()
	st.Rehearsed = s.rehearsedShards()
	if s.engine.rehearsal != nil && s.engine.rehearsal.progress.Load() != nil {
		st.Rehearsing = *s.engine.rehearsal.progress.Load()
	}
	for _, w := range s.workers {
		w.batchMu.Lock()
		for _, sh := range w.owned() {
			if lg := sh.log; lg != nil {
				st.Here = append(st.Here, lg.status(sh.id))
			}
		}
		w.batchMu.Unlock()
	}
	return st
}

// EngineState is the state of the cluster, as this node saw it last, and the number of the goal.
func (s *Service) EngineState() (EngineState, int64) {
	goal, logged := s.goal(), s.loggedShards()
	switch {
	case goal.Performance && logged == len(s.shards):
		return StatePerformance, goal.Change
	case goal.Performance:
		return StateDualWrite, goal.Change
	case goal.Degraded:
		return StateDegraded, goal.Change
	case logged > 0:
		return StateDrain, goal.Change
	}
	return StateReliable, goal.Change
}

// Logs reports whether this node can serve shards with the performance engine.
func (s *Service) Logs() bool { return s.cfg.Log != nil }

func (s *Service) loggedShards() (n int) {
	for _, sh := range s.shards {
		if sh.view.Load().Performance {
			n++
		}
	}
	return n
}

func (lg *shardLog) status(id int) LoggedShard {
	now := time.Now()
	out := LoggedShard{Shard: id, Serves: lg.serves, Head: lg.fence.Head, Shipped: lg.shipped, Signers: len(lg.dirty), Grant: max(0, lg.trust.Sub(now))}
	for sig := range lg.dirty {
		out.Behind = max(out.Behind, now.Sub(sig.unshipped.since))
	}
	if !lg.failing.IsZero() && lg.why != nil {
		out.Trouble = lg.why.Error()
	}
	return out
}

// errNoRedis refuses a switch on a node without Redis.
var errNoRedis = errors.New("this node has no Redis, or its store is not PostgreSQL: it has only the reliable engine")

// Switch says which engine is wanted of all shards. Their owners follow when they look next.
func (s *Service) Switch(ctx context.Context, performance bool, rehearse time.Duration, reason string) (nonce.EngineGoal, error) {
	if s.cfg.Log == nil {
		return nonce.EngineGoal{}, errNoRedis
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.StoreTimeout)
	defer cancel()
	was, err := s.cfg.Log.Store.Engine(ctx)
	if err != nil {
		return was, err
	}
	if was.Performance == performance && !was.Degraded {
		return was, nil
	}
	goal, err := s.cfg.Log.Store.SetEngine(ctx, was.Change, nonce.EngineGoal{Performance: performance, Rehearse: rehearse, Reason: reason})
	if err == nil {
		s.engine.goal.Store(&goal)
	}
	return goal, err
}

// Ship ships what the logs of this node have, and reports how many shards have nothing left.
func (s *Service) Ship() (whole, shards int) {
	for _, w := range s.workers {
		w.batchMu.Lock()
		for _, sh := range w.serving() {
			shards++
			if w.flush(sh, false) {
				whole++
			}
		}
		w.wakeLater()
		w.wakeAll()
		w.batchMu.Unlock()
	}
	return whole, shards
}

// turnOff gives a shard the reliable engine, in the statement that ships the last of its log
// from memory, which is whole. What is under way to the log without an answer is not in it, so
// it did not happen. It reports whether it is done.
func (w *worker) turnOff(sh *shard, reason string) bool {
	lg := sh.log
	if reason != "" {
		w.svc.degrade(reason)
	}
	lg.leavingFor = reason
	if !w.flush(sh, true) {
		if sh.log == lg {
			w.retryLog(lg)
		}
		return false
	}
	w.svc.log.Info("a shard has the reliable engine", "shard", sh.id, "because", reason)
	w.unstick(sh, func(g *group) { w.releaseHolds(g); g.unread() })
	trim := lg.fence
	sh.log, sh.logFailed.since = nil, time.Time{}
	view := *sh.view.Load()
	view.Performance = false
	sh.see(view)
	if (lg.full || reason == "" && lg.failing.IsZero()) && w.svc.engine.reach.missed() == 0 {
		ctx, cancel := w.svc.logTime()
		defer cancel()
		if err := w.svc.cfg.Log.Log.Trim(ctx, []nonce.LogFence{trim}); err != nil {
			w.svc.log.Debug("a log was not trimmed", "shard", sh.id, "error", err)
		}
	}
	return true
}

// turnOn gives a shard the performance engine: it is acquired again, so that what is left of an
// earlier stay is refused, and its signers are forgotten.
func (w *worker) turnOn(sh *shard) {
	cfg := w.svc.cfg.Log
	was := *sh.view.Load()
	rows, err := w.tryAcquire([]int{sh.id})
	if err != nil || !rows[0].Taken {
		w.svc.log.Warn("a shard could not be acquired for the performance engine", "shard", sh.id, "error", err)
		if err == nil {
			_ = w.acquired(sh, &rows[0], &was) // somebody else has it
		}
		return
	}
	w.lose(sh)
	if err := w.acquired(sh, &rows[0], &was); err != nil || sh.log != nil {
		return
	}
	ctx, cancel := w.svc.logTime()
	defer cancel()
	fence, err := cfg.Log.Begin(ctx, sh.id, rows[0].Token)
	if err != nil {
		w.svc.log.Warn("a log was not begun", "shard", sh.id, "error", err)
		return
	}
	sent := time.Now()
	storeCtx, done := w.svc.timeout()
	defer done()
	on, err := cfg.Store.TurnOn(storeCtx, w.svc.holder, sh.shardTerm(), fence.Identity, nonce.Grant{For: cfg.Grant, LongestHold: w.svc.cfg.MaxHold})
	if err != nil || !on {
		w.svc.log.Warn("a shard was not given the performance engine", "shard", sh.id, "error", err)
		w.lose(sh) // it may have it: to acquire it again shows
		sh.unsure = true
		w.command(command{shard: sh, take: true})
		return
	}
	row := rows[0]
	row.Performance, row.Identity, row.Shipped = true, fence.Identity, 0
	w.beginLog(sh, &row)
	sh.log.fence, sh.log.serves, sh.log.trust = fence, true, sent.Add(cfg.Grant)
	sh.see(row)
	w.svc.log.Info("a shard has the performance engine", "shard", sh.id, "fencing_token", row.Token)
}
