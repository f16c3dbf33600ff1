package main

import (
	"context"
	"fmt"
	"time"

	"noncegate/engine"
	"noncegate/flush"
	"noncegate/nonce"
	"noncegate/nonce/redislog"
	"noncegate/nonce/service"
	"noncegate/perf"
	"noncegate/wire"
)

// logConfig is what the service on shards needs for the performance engine; nil: there is none.
// A Redis that has the logs of another database stops the start.
func (a *app) logConfig(ctx context.Context) (*service.LogConfig, error) {
	store, ok := a.store.(nonce.LogStore)
	if !ok || a.errNoEngine() != nil {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, engineOpenTime)
	defer cancel()
	log, err := redislog.Open(ctx, a.redis, a.place()())
	if err != nil {
		return nil, settingErrorf("redis", "cannot be used: %s", sentenceOf(err))
	}
	c := a.cfg
	return &service.LogConfig{
		Log: log, Store: store, Grant: c.EngineGrant, ShipEvery: c.ShipInterval, ShipSLA: c.FlushSLA,
		LostAfter: c.EngineLostAfter, Timeout: c.EngineTimeout, Margin: lossMargin,
	}, nil
}

// logged is the service on shards; nil with the other heart.
func (a *app) logged() *service.Service {
	s, err := a.shardService()
	if err != nil {
		return nil
	}
	return s
}

// rehearsing is how far the rehearsal of a shard of the node that answers is, for GET /engine.
type rehearsing struct {
	Shard   int    `json:"shard"`
	KeptUp  string `json:"keptUp"`
	Done    bool   `json:"done"`
	Trouble string `json:"trouble,omitempty"`
}

// loggedShard is a log of the node that answers, for GET /engine.
type loggedShard struct {
	Shard   int    `json:"shard"`
	Serves  bool   `json:"serves"`
	Head    int64  `json:"head"`
	Shipped int64  `json:"shipped"`
	Signers int    `json:"unshippedSigners"`
	Behind  string `json:"behind"`
	Grant   string `json:"grant"`
	Trouble string `json:"trouble,omitempty"`
}

func (a *app) loggedStatus(ctx context.Context, s *service.Service) engineStatus {
	st := s.Engine()
	out := engineStatus{
		Node: a.node, Available: true, State: nonce.EngineState(st.State), Goal: loggedGoal(&st.Goal), Number: st.Goal.Change, Reason: st.Goal.Reason,
		ChangedAt: st.Goal.At, Shards: st.Shards, Logs: st.Performance, Lost: st.Lost, Redis: "ok",
	}
	for _, sh := range st.Here {
		l := loggedShard{
			Shard: sh.Shard, Serves: sh.Serves, Head: sh.Head, Shipped: sh.Shipped, Signers: sh.Signers,
			Behind: sh.Behind.Round(time.Millisecond).String(), Grant: sh.Grant.Round(time.Millisecond).String(), Trouble: sh.Trouble,
		}
		out.Here = append(out.Here, l)
	}
	if st.State == service.StateDualWrite {
		out.Rehearsed, out.Rehearse = st.Rehearsed, st.Goal.Rehearse.String()
		for _, sh := range st.Rehearsing {
			out.Rehearsing = append(out.Rehearsing, rehearsing{sh.Shard, sh.KeptUp.Round(time.Millisecond).String(), sh.Done, sh.Trouble})
		}
	}
	if _, err := a.redis.Check(ctx); err != nil {
		out.Redis = sentenceOf(err)
	}
	return out
}

func loggedGoal(g *nonce.EngineGoal) nonce.EngineState {
	if g.Performance {
		return nonce.StatePerformance
	}
	return nonce.StateReliable
}

// switchLogs does what POST /engine/switch asks for.
func (a *app) switchLogs(ctx context.Context, s *service.Service, to nonce.EngineState, dryRun bool) (any, error) {
	from, _ := s.EngineState()
	r := engine.SwitchReport{From: nonce.EngineState(from), To: to, Goal: to, DryRun: dryRun}
	performance := to == nonce.StatePerformance
	switch {
	case to == nonce.StateDualWrite:
		return r, &engine.RefusedError{State: r.From, Reason: "on the way to performance the cluster passes through DUAL_WRITE; ask for performance"}
	case to == nonce.StateDrain:
		r.Goal = nonce.StateReliable
	}
	if performance {
		notes, err := a.checkRedis(ctx)
		check := engine.CheckResult{Name: "redis", OK: err == nil, Text: fmt.Sprint(notes)}
		if err != nil {
			check.Text = sentenceOf(err)
		}
		if r.Checks = append(r.Checks, check); err != nil {
			return r, &engine.RefusedError{State: r.From, Reason: sentenceOf(err)}
		}
	}
	if dryRun {
		return r, nil
	}
	if _, err := s.Switch(ctx, performance, a.cfg.EngineRehearsal, "an operator at "+a.node); err != nil {
		return r, err
	}
	r.Done = true
	a.log.Info("which engine is wanted was said by hand", "to", string(to), "from", string(r.From))
	return r, nil
}

// replayLogs ships what this node's logs have.
func replayLogs(s *service.Service) flush.DrainReport {
	whole, shards := s.Ship()
	return flush.DrainReport{Settled: whole, Left: shards - whole}
}

// reconcileLogs compares Redis with the rows and with the memory of this node.
func reconcileLogs(ctx context.Context, s *service.Service) (engine.ReconcileReport, error) {
	began := time.Now()
	got, err := s.Reconcile(ctx)
	r := engine.ReconcileReport{Equal: got.Equal, Different: len(got.Differences), Took: time.Since(began).Round(time.Millisecond).String()}
	for _, d := range got.Differences {
		r.Differences = append(r.Differences, engine.Difference{Signer: d.Signer, What: d.What, Redis: d.Log, Store: d.Memory})
	}
	return r, err
}

// logGauges are the logs of this node, in the order of logValues.
var logGauges = []perf.Named{
	{Name: "shards_logged", Help: "Shards of the database that have the performance engine, as this node saw last. 0 with --heart old."},
	{Name: "logs_served", Help: "Logs that this node serves. 0 with --heart old."},
	{Name: "logs_failing", Help: "Logs of this node that cannot be used just now. 0 with --heart old."},
	{Name: "logs_lost", Help: "Logs that this node declared lost, with what was not shipped. 0 with --heart old."},
	{Name: "log_unshipped_changes", Help: "Changes of this node's signers that the log has and the rows do not. 0 with --heart old."},
	{Name: "engine_degraded", Help: "1 from when a node left the performance engine because of a trouble until somebody switches, as this node saw last."},
	{Name: "shards_rehearsed", Help: "Shards that have kept up with the rehearsal of the performance engine, or have it."},
	{Name: "log_reached", Help: "1 while this node reaches the Redis that was accepted."},
	{Name: "log_behind_seconds", Help: "How long the rows have been behind the log for the signer that has waited for the longest. 0 with --heart old."},
}

func (a *app) logValues() []float64 {
	s := a.logged()
	if s == nil {
		return make([]float64, len(logGauges))
	}
	f := s.LogFigures()
	return []float64{float64(f.Logged), float64(f.Serving), float64(f.Failing), float64(f.Lost), float64(f.Unshipped), oneIf(f.Degraded), float64(f.Rehearsed), oneIf(f.Reached), f.Behind.Seconds()}
}

func oneIf(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// engineOfAll is the engine that every signer has; of a cluster between the two, reliable.
func (a *app) engineOfAll() string {
	if s := a.logged(); s != nil {
		if state, _ := s.EngineState(); state == service.StatePerformance {
			return wire.EnginePerformance
		}
	}
	return wire.EngineReliable
}

// engineStats is what ws_perf says of the engines; nil: there is only one.
func (a *app) engineStats() *wire.EngineStats {
	s := a.logged()
	if s == nil || !s.Logs() {
		return nil
	}
	state, generation := a.engineState()
	f := s.LogFigures()
	return &wire.EngineStats{State: state, Generation: generation, Shards: int64(f.Logged), Unshipped: int64(f.Unshipped), BehindMs: f.Behind.Milliseconds()}
}

// engineState is what gateway_info says of the engines; "": there is only one.
func (a *app) engineState() (state string, generation int64) {
	if s := a.logged(); s != nil && s.Logs() {
		is, change := s.EngineState()
		return string(is), change
	}
	if a.engine == nil {
		return "", 0
	}
	c := a.engine.manager.State()
	return string(c.State), c.Generation
}
