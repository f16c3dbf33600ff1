package main

import (
	"context"
	"errors"
	"time"

	"noncegate/internal/metrics"
	"noncegate/nonce"
	"noncegate/nonce/performance"
	"noncegate/nonce/redislog"
	"noncegate/nonce/service"
	"noncegate/wire"
)

// lossMargin is added to the wait after a loss, for clocks that drift.
const lossMargin = 2 * time.Second

// engineOpenTime bounds what the start asks PostgreSQL and Redis about the engines.
const engineOpenTime = 10 * time.Second

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

// openEngine makes the performance engine, unless this node does not have it: then both are nil.
// A Redis that has the logs of another database stops the start.
func (a *app) openEngine(ctx context.Context) (service.Engine, error) {
	store, ok := a.store.(nonce.LogStore)
	id := a.databaseID()
	if !ok || id == nil || a.errNoEngine() != nil {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, engineOpenTime)
	defer cancel()
	log, err := redislog.Open(ctx, a.redis.Client(), id())
	if err != nil {
		return nil, settingErrorf("redis", "cannot be used: %s", sentenceOf(err))
	}
	c := a.cfg
	a.engine, err = performance.New(performance.Config{
		Log: log, Store: store, Grant: c.EngineGrant, ShipEvery: c.ShipInterval, ShipSLA: c.ShipSLA,
		LostAfter: c.RedisLostAfter, Timeout: c.EngineTimeout, Margin: lossMargin,
	})
	return a.engine, err
}

// logGauges are the logs of this node, in the order of logValues.
var logGauges = []metrics.Named{
	{Name: "shards_logged", Help: "Shards of the database that have the performance engine, as this node saw last."},
	{Name: "logs_served", Help: "Logs that this node serves."},
	{Name: "logs_failing", Help: "Logs of this node that cannot be used just now."},
	{Name: "logs_lost", Help: "Logs that this node declared lost, with what was not shipped."},
	{Name: "log_unshipped_changes", Help: "Changes of this node's signers that the log has and the rows do not."},
	{Name: "engine_degraded", Help: "1 from when a node left the performance engine because of a trouble until somebody switches, " +
		"as this node saw last."},
	{Name: "shards_rehearsed", Help: "Shards that have kept up with the rehearsal of the performance engine, or have it."},
	{Name: "log_reached", Help: "1 while this node reaches the Redis that was accepted."},
	{Name: "log_behind_seconds", Help: "How long the rows have been behind the log for the signer that has waited for the longest."},
}

func (a *app) logValues() []float64 {
	var f performance.Figures
	if a.engine != nil {
		f = a.engine.Figures()
	} else {
		for _, sh := range a.service.Shards() {
			if sh.Performance {
				f.Logged++
			}
		}
	}
	return []float64{
		float64(f.Logged), float64(f.Serving), float64(f.Failing), float64(f.Lost), float64(f.Unshipped), oneIf(f.Degraded), float64(f.Rehearsed),
		oneIf(f.Reached), f.Behind.Seconds(),
	}
}

func oneIf(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// engineOfAll is the engine that every signer has; of a cluster between the two, reliable.
func (a *app) engineOfAll() string {
	if a.engine == nil {
		return wire.EngineReliable
	}
	if state, _ := a.engine.State(); state == performance.Performance {
		return wire.EnginePerformance
	}
	return wire.EngineReliable
}

// engineStats is what gateway_stats and the ws_perf line say of the engines; nil: there is only
// one.
func (a *app) engineStats() *wire.EngineStats {
	if a.engine == nil {
		return nil
	}
	state, generation := a.engineState()
	f := a.engine.Figures()
	return &wire.EngineStats{
		State: state, Generation: generation, Shards: int64(f.Logged), Unshipped: int64(f.Unshipped), BehindMs: f.Behind.Milliseconds(),
	}
}

// engineState is what gateway_info says of the engines; "": there is only one.
func (a *app) engineState() (state string, generation int64) {
	if a.engine == nil {
		return "", 0
	}
	is, change := a.engine.State()
	return string(is), change
}
