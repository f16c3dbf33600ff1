package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"noncegate/engine"
	"noncegate/flush"
	"noncegate/nonce"
	"noncegate/nonce/redisstore"
	"noncegate/redisdb"
)

// fastEngine is what the performance engine consists of, beside the service.
type fastEngine struct {
	store   engine.Store
	redis   *redisstore.Store
	manager *engine.Manager
	worker  *flush.Worker
}

// lossMargin is added to the wait after a loss, for clocks that drift.
const lossMargin = 2 * time.Second

// errNoEngine says why there is no performance engine, or nothing.
func (a *app) errNoEngine() error {
	_, embedded := a.cfg.SQLitePath()
	switch {
	case embedded:
		return errors.New("a SQLite store has no performance engine: it needs PostgreSQL")
	case a.redis == nil:
		return errors.New("there is no Redis: start the gateway with --redis")
	case a.cfg.Mode == string(nonce.Basic):
		return errors.New("mode basic has no performance engine")
	}
	return nil
}

// openEngine makes what the service needs of the performance engine. The flush begins
// before the service, which ends only when everything that it answers is flushed.
func (a *app) openEngine(ctx context.Context) error {
	store, ok := a.store.(engine.Store)
	if _, rows := a.store.(nonce.ShardStore); rows || !ok || a.errNoEngine() != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, engineOpenTime)
	defer cancel()
	shards, err := store.FlushShards(ctx, a.cfg.FlushShards)
	if err != nil {
		return fmt.Errorf("open the performance engine: %w", err)
	}
	if shards != a.cfg.FlushShards {
		a.log.Warn("the number of flush shards was fixed before", "flush_shards", shards, "setting", a.cfg.FlushShards)
	}
	e := &fastEngine{store: store}
	e.redis, err = redisstore.Open(a.redis.Client(), redisstore.Config{
		Cluster: a.place()(), Shards: shards, Retention: a.cfg.RequestRetention.Truncate(time.Millisecond), Observe: e.observe(a),
	})
	if err != nil {
		return err
	}
	c := a.cfg
	e.manager, err = engine.New(ctx, engine.Deps{Store: store, Redis: e.redis, Check: a.checkRedis, Figures: engineFigures{a.figures.Engine}, Log: a.log}, engine.Config{
		Node: a.node, RequestRetention: c.RequestRetention, FlushSLA: c.FlushSLA, LostAfter: c.EngineLostAfter, RedisLimit: c.EngineRedisLimit,
		ScriptLimit: c.EngineScriptLimit, LagLimit: c.EngineLagLimit, RetryLimit: c.EngineRetryLimit, Observe: c.EngineObserve, AutoUp: c.EngineAutoUp == "on",
	})
	if err != nil {
		return fmt.Errorf("open the performance engine: %w", err)
	}
	e.worker, err = flush.Start(ctx, e.redis, store, a.flushHooks(e), a.log, flush.Config{
		Shards: shards, LeaseTTL: c.LeaseTTL, Share: min(handOutsGather, c.FlushSLA/4),
	})
	if err != nil {
		return err
	}
	a.onStop("flush", func(context.Context) error { e.worker.Stop(); return nil })
	a.engine = e
	return nil
}

// handOutsGather is how long hand-outs wait for one another before they are flushed.
// Longer makes fewer and larger changes of what one signer was handed out, and costs
// more with a loss (docs/measured.md has a few noisy runs).
const handOutsGather = 250 * time.Millisecond

// engineOpenTime bounds what the start asks PostgreSQL about the engines.
const engineOpenTime = 10 * time.Second

// observe is told of each pipeline of Redis. Those of the service and of the flush
// count; those that somebody looks with, or that walk over much, do not.
func (e *fastEngine) observe(a *app) func(string, int, time.Duration) {
	return func(call string, _ int, took time.Duration) {
		switch call {
		case "read", "commit", "mirror":
			a.figures.Engine.Script.Observe(took)
			if e.manager != nil {
				e.manager.Script(took)
			}
		}
	}
}

// conflictTime bounds what is done about a signer whose events the store refuses.
const conflictTime = 5 * time.Second

func (a *app) flushHooks(e *fastEngine) flush.Hooks {
	return flush.Hooks{
		OpenLock: e.store.FlushLock,
		Accepted: e.manager.Accepted,
		Nodes:    a.flushingNodes,
		// Marks of other nodes are found by looking, and a signer that leaves the engine
		// is refused until it is flushed.
		Hurry: func() bool { return a.flushingNodes() > 1 || e.manager.Goal() != nonce.GoalPerformance },
		Flushed: func(signer string, version int64) {
			if s, ok := a.heart().(*nonce.Service); ok {
				s.Flushed(signer, version)
			}
		},
		Conflict: func(signer string, _ error) {
			ctx, cancel := context.WithTimeout(context.Background(), conflictTime)
			defer cancel()
			if err := e.manager.Conflict(ctx, signer); err != nil {
				a.log.Error("a signer that PostgreSQL cannot follow goes on", "signer", signer, "error", err)
			}
		},
		Figures: flushFigures{a.figures.Engine, e.manager},
	}
}

// flushingNodes is how many nodes there may be that flush.
func (a *app) flushingNodes() int {
	n := 0
	for _, node := range a.nodes() {
		if node.Live && node.Mode == string(nonce.WorkerQueue) {
			n++
		}
	}
	return max(1, n)
}

// fastConfig is the service's part of the performance engine; nil: there is none.
func (a *app) fastConfig() *nonce.FastConfig {
	if a.engine == nil {
		return nil
	}
	c := a.cfg
	return &nonce.FastConfig{
		Redis: wakingRedis{a.engine.redis, a.engine.worker}, Ledger: a.engine.store, Control: a.engine.manager, Figures: engineFigures{a.figures.Engine},
		Grant: c.EngineGrant, BlockMin: c.EngineBlockMin, BlockMax: c.EngineBlockMax, Timeout: c.EngineTimeout,
		LossMargin: lossMargin, MirrorQueue: c.WorkerQueueCapacity,
	}
}

// wakingRedis has what this node commits, and answers only when it is flushed, flushed
// at once where this node flushes it. Hand-outs are answered already.
type wakingRedis struct {
	*redisstore.Store
	worker *flush.Worker
}

// Commit implements nonce.Fast.
func (w wakingRedis) Commit(ctx context.Context, now time.Time, changes []nonce.FastChange) []nonce.FastResult {
	results := w.Store.Commit(ctx, now, changes)
	for i := range results {
		if results[i].Verdict == nonce.FastDone && !changes[i].Check && !handsOut(changes[i].Rows) {
			w.worker.Wake(w.Shard(changes[i].Signer))
		}
	}
	return results
}

// handsOut reports whether a change does nothing but to hand out nonces.
func handsOut(rows []nonce.RowChange) bool {
	return len(rows) > 0 && !slices.ContainsFunc(rows, func(r nonce.RowChange) bool { return r.Status != nonce.Held })
}

// startEngine lets the manager act, which needs the service. It ends before the
// service does: signers that are given back are not to be moved any more.
func (a *app) startEngine(ctx context.Context) error {
	if a.engine == nil {
		return nil
	}
	e := a.engine
	e.manager.Start(ctx, engine.Hooks{
		Settle:  a.heart().(*nonce.Service).Settle,
		Prefers: func(signer string) bool { return a.routerOfService() == nil || a.router.Prefer(signer) == "" },
		Leads:   e.worker.Leads,
		Replay:  e.worker.Drain,
	})
	a.onStop("engine manager", func(context.Context) error { e.manager.Stop(); return nil })
	return nil
}

// shardsHeld is how many flush shards this node flushes.
func (a *app) shardsHeld() float64 {
	if a.engine == nil {
		return 0
	}
	return float64(a.engine.worker.Held())
}

// shardsUnreadable is how many flush shards this node leaves to others.
func (a *app) shardsUnreadable() float64 {
	if a.engine == nil {
		return 0
	}
	return float64(a.engine.worker.Unreadable())
}

// checkRedis looks at Redis before the performance engine is entered.
func (a *app) checkRedis(ctx context.Context) ([]string, error) {
	facts, err := a.redis.Check(ctx)
	if err != nil {
		return nil, err
	}
	notes := make([]string, 0, len(facts.Servers))
	for i := range facts.Servers {
		notes = append(notes, redisNote(&facts.Servers[i]))
	}
	return notes, nil
}

// redisNote is what an operator should know of one server.
func redisNote(s *redisdb.Server) string {
	keeps := "no append-only file"
	if s.AOF {
		keeps = "append-only file, fsync " + s.Fsync
	}
	return s.Addr + ": Redis " + s.Version + ", " + s.Role + ", " + strconv.Itoa(s.Replicas) + " replicas, " + keeps + ", " + s.Policy
}
