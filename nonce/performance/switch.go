package performance

import (
	"context"
	"time"

	"noncegate/lease"
	"noncegate/nonce"
	"noncegate/nonce/service"
)

// trouble is why the performance engine is to be left, and the change of the goal under which
// it was met: a later change of the goal was made with knowledge of it.
type trouble struct {
	reason string
	change int64
}

// degrade says that the performance engine is to be left, for a reason. It is written when the
// watch looks next, unless the goal has changed meanwhile.
func (e *Engine) degrade(reason string) {
	e.trouble.Store(&trouble{reason, e.wanted().Change})
}

// wanted is which engine is wanted, as this node saw last.
func (e *Engine) wanted() nonce.EngineGoal {
	if g := e.goal.Load(); g != nil {
		return *g
	}
	return nonce.EngineGoal{}
}

// Look implements service.Engine: it reads which engine is wanted, and says that there was trouble.
func (e *Engine) Look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, e.svc.Config().StoreTimeout)
	defer cancel()
	g, err := e.cfg.Store.Engine(ctx)
	if err != nil {
		return err
	}
	if met := e.trouble.Load(); met != nil {
		if g.Performance && g.Change == met.change {
			if g, err = e.cfg.Store.SetEngine(ctx, g.Change, nonce.EngineGoal{Degraded: true, Reason: met.reason}); err != nil {
				return err
			}
			e.log.Error("the performance engine is left", "because", met.reason)
		}
		e.trouble.CompareAndSwap(met, nil)
	}
	e.goal.Store(&g)
	return nil
}

// Order implements service.Engine: it orders the shards of this node to the engine that is wanted.
func (e *Engine) Order() {
	if !e.svc.Serves() || e.goal.Load() == nil {
		return
	}
	goal := e.wanted()
	if goal.Performance && (e.reach.missed() > 0 || !e.allRehearsed(&goal)) {
		return
	}
	for _, sh := range e.shards {
		if sh.Mine() && sh.Row().Performance != goal.Performance {
			sh.ordered.Store(&goal.Performance)
			e.parts[sh.Worker()].worker.Wake()
		}
	}
}

// follow gives a shard the engine that it was ordered to, unless that is not to be done any more, or
// cannot be done now.
func (c *committer) follow(sh *shard, on bool) {
	switch {
	case on && sh.Mine() && sh.log == nil && c.svc.Serves():
		c.turnOn(sh)
	case !on && sh.log != nil && sh.log.settled() && !c.storeAway:
		c.turnOff(sh, "")
	}
}

// allRehearsed reports whether every shard has kept up with its rehearsal, or has the performance
// engine already.
func (e *Engine) allRehearsed(goal *nonce.EngineGoal) bool {
	return goal.Rehearse == 0 || e.rehearsedShards() == len(e.shards)
}

func (e *Engine) rehearsedShards() int {
	change := e.wanted().Change
	return e.count(func(row *lease.Shard) bool { return row.Performance || change > 0 && row.Rehearsed == change })
}

func (e *Engine) loggedShards() int {
	return e.count(func(row *lease.Shard) bool { return row.Performance })
}

// count counts shards by their rows.
func (e *Engine) count(which func(*lease.Shard) bool) (n int) {
	for _, sh := range e.shards {
		if which(sh.Row()) {
			n++
		}
	}
	return n
}

// Wanted reads which engine is wanted of all shards.
func (e *Engine) Wanted(ctx context.Context) (nonce.EngineGoal, error) {
	ctx, cancel := context.WithTimeout(ctx, e.svc.Config().StoreTimeout)
	defer cancel()
	return e.cfg.Store.Engine(ctx)
}

// Switch says which engine is wanted of all shards, if that was not changed since it was read as was. It returns what is
// wanted then. The owners of the shards follow when they look next.
func (e *Engine) Switch(
	ctx context.Context, was nonce.EngineGoal, performance bool, rehearse time.Duration, reason string,
) (nonce.EngineGoal, error) {
	ctx, cancel := context.WithTimeout(ctx, e.svc.Config().StoreTimeout)
	defer cancel()
	if was.Performance == performance && !was.Degraded {
		return was, nil
	}
	goal, err := e.cfg.Store.SetEngine(ctx, was.Change, nonce.EngineGoal{Performance: performance, Rehearse: rehearse, Reason: reason})
	if err == nil {
		e.goal.Store(&goal)
	}
	return goal, err
}

// Leave implements service.Committer. A next owner that does not get into the log would declare it lost.
func (c *committer) Leave(of service.Shard) bool {
	sh := c.of(of)
	return sh.log == nil || !sh.log.serves || !c.storeAway && c.turnOff(sh, "")
}

// turnOff gives a shard the reliable engine, in the statement that ships the last of its log
// from memory, which is whole. What is under way to the log without an answer is not in it, so
// it did not happen. It reports whether it is done.
func (c *committer) turnOff(sh *shard, reason string) bool {
	lg := sh.log
	if reason != "" {
		c.degrade(reason)
	}
	lg.leavingFor = reason
	if !c.flush(sh, true) {
		if sh.log == lg {
			c.retry(lg)
		}
		return false
	}
	c.log.Info("a shard has the reliable engine", "shard", sh.ID(), "because", reason)
	lg.resume(service.Part.Undone)
	trim := (lg.full || reason == "" && sh.failing.IsZero()) && c.reach.missed() == 0
	sh.log, sh.failing = nil, time.Time{}
	row := *sh.Row()
	row.Performance = false
	if sh.Has(&row); trim {
		c.trim([]nonce.LogFence{lg.fence})
	}
	return true
}

// turnOn gives a shard the performance engine: it is acquired again, so that what is left of an
// earlier stay is refused, and its signers are forgotten.
func (c *committer) turnOn(sh *shard) {
	row, err := sh.Acquire(true)
	switch {
	case err != nil:
		c.log.Warn("a shard could not be acquired for the performance engine", "shard", sh.ID(), "error", err)
		return
	case !row.Taken || sh.log != nil:
		return
	}
	ctx, cancel := c.logTime()
	defer cancel()
	fence, err := c.cfg.Log.Begin(ctx, sh.ID(), row.Token)
	if err != nil {
		c.log.Warn("a log was not begun", "shard", sh.ID(), "error", err)
		return
	}
	sent := time.Now()
	storeCtx, done := c.svc.Timeout()
	defer done()
	on, err := c.cfg.Store.TurnOn(storeCtx, c.svc.Holder(), sh.Term(), fence.Identity, c.grant())
	if err != nil || !on {
		c.log.Warn("a shard was not given the performance engine", "shard", sh.ID(), "error", err)
		sh.Lose() // it may have it: to acquire it again shows
		sh.Take()
		return
	}
	row.Performance, row.Identity, row.Shipped = true, fence.Identity, 0
	sh.log = newLog(sh.Shard, &row)
	sh.log.fence, sh.log.serves, sh.log.trust = fence, true, sent.Add(c.cfg.Grant)
	sh.Has(&row)
	c.log.Info("a shard has the performance engine", "shard", sh.ID(), "fencing_token", row.Token)
}
