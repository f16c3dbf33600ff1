package perf

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// EngineState is a state of the cluster between its engines.
type EngineState string

// The states.
const (
	EngineReliable    EngineState = "RELIABLE"
	EngineDualWrite   EngineState = "DUAL_WRITE"
	EnginePerformance EngineState = "PERFORMANCE"
	EngineDrain       EngineState = "DRAIN_AND_SYNC"
	EngineDegraded    EngineState = "DEGRADED"
)

var engineStates = []EngineState{EngineReliable, EngineDualWrite, EnginePerformance, EngineDrain, EngineDegraded}

// EngineTrouble is a reason to leave the performance engine.
type EngineTrouble string

// The reasons.
const (
	TroubleLoss      EngineTrouble = "loss"
	TroubleRedis     EngineTrouble = "redis"
	TroubleSlow      EngineTrouble = "slow"
	TroubleLag       EngineTrouble = "lag"
	TroubleRetries   EngineTrouble = "retries"
	TroubleDifferent EngineTrouble = "different"
)

var engineTroubles = []EngineTrouble{TroubleLoss, TroubleRedis, TroubleSlow, TroubleLag, TroubleRetries, TroubleDifferent}

// FlushResult is what the store did with an event of the performance engine.
type FlushResult string

// The results.
const (
	FlushApplied FlushResult = "applied"
	FlushAlready FlushResult = "already" // the store had it: the flush was repeated
	FlushOver    FlushResult = "over"    // its signer was lost or left meanwhile
	FlushDead    FlushResult = "dead"    // it can never be applied
)

var flushResults = []FlushResult{FlushApplied, FlushAlready, FlushOver, FlushDead}

// FlushRetry is why the flush tries again.
type FlushRetry string

// The reasons.
const (
	RetryRedis   FlushRetry = "redis"
	RetryLost    FlushRetry = "lost"
	RetryAway    FlushRetry = "away"
	RetryUnknown FlushRetry = "unknown"
	RetryRefused FlushRetry = "refused"
	RetryLocked  FlushRetry = "locked"
	RetryGap     FlushRetry = "gap"
)

var flushRetries = []FlushRetry{RetryRedis, RetryLost, RetryAway, RetryUnknown, RetryRefused, RetryLocked, RetryGap}

// MoveTo is the engine that signers moved to.
type MoveTo string

// The engines.
const (
	MoveReliable    MoveTo = "reliable"
	MovePerformance MoveTo = "performance"
)

var moveEngines = []MoveTo{MoveReliable, MovePerformance}

// Span is a duration that goes up and down, shown in seconds.
type Span struct{ n atomic.Int64 }

// Set makes it d.
func (s *Span) Set(d time.Duration) { s.n.Store(int64(d)) }

func newSpan(reg prometheus.Registerer, name, help string) *Span {
	s := new(Span)
	reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help},
		func() float64 { return time.Duration(s.n.Load()).Seconds() }))
	return s
}

// Engine is the figures of the performance engine. They are 0 without Redis, and
// gateway_stats then says nothing of it.
type Engine struct {
	Script *Stage // one batch of Redis' scripts, the way there and back included
	Mirror *Stage // from a commit until Redis has it too, in DUAL_WRITE
	Flush  *Stage // one transaction of the flush

	FlushRows     *Count // rows written by the flush
	FlushWaiting  *Level // events that the store has not followed yet, all shards
	FlushOldest   *Span  // age of the oldest of them
	DeadLetters   *Level // events that can never be applied, all shards
	Generation    *Level // of the cluster's state: it rises with each change
	Entered       *Level // signers that Redis serves
	Unowned       *Level // of those, with no live lease
	Doubtful      *Level // signers with nonces in doubt after a loss
	Lost          *Count // signers declared lost with Redis
	Waiting       *Level // answers that wait for their flush
	Compared      *Level // signers in the last reconciliation
	Differences   *Level // signers that differed in it
	Reconciled    *Count // reconciliations
	state         map[EngineState]*Level
	troubles      family[EngineTrouble]
	degraded      family[EngineTrouble]
	flushed       family[FlushResult]
	retries       family[FlushRetry]
	moves         family[MoveTo]
	grant, blocks prometheus.Histogram

	told atomic.Pointer[EngineState] // the last State; nil: there was none, and is no such engine
}

func newEngine(reg prometheus.Registerer, undeclared *Count) *Engine {
	e := &Engine{
		Script: newStage(reg, "engine_script_seconds", "Time of one batch of scripts of Redis, the way there and back included."),
		Mirror: newStage(reg, "engine_mirror_seconds", "Time from a commit of the store until Redis had it too, in DUAL_WRITE."),
		Flush:  newStage(reg, "flush_seconds", "Time of one transaction of the flush, commit included."),

		FlushRows:    newCount(reg, "flush_rows_total", "Rows written to the store by the flush."),
		FlushWaiting: newLevel(reg, "flush_waiting_events", "Events of Redis that the store has not followed yet, in all flush shards."),
		FlushOldest:  newSpan(reg, "flush_oldest_seconds", "Age of the oldest event that the store has not followed yet."),
		DeadLetters:  newLevel(reg, "flush_dead_letters", "Events that could never be applied and were put aside, in all flush shards; any is an alarm."),
		Generation:   newLevel(reg, "engine_generation", "Number of the cluster's engine state; it rises with each change."),
		Entered:      newLevel(reg, "engine_signers", "Signers that the performance engine serves, in the whole cluster."),
		Unowned:      newLevel(reg, "engine_signers_unowned", "Of those, signers with no live lease."),
		Doubtful:     newLevel(reg, "engine_signers_in_doubt", "Signers with nonces in doubt after a loss of Redis, in the whole cluster."),
		Lost:         newCount(reg, "engine_signers_lost_total", "Signers declared lost with Redis."),
		Waiting:      newLevel(reg, "engine_answers_waiting", "Answers that wait until the store has followed."),
		Compared:     newLevel(reg, "engine_reconcile_signers", "Signers that the last reconciliation of this node could compare."),
		Differences:  newLevel(reg, "engine_reconcile_differences", "Signers of the last reconciliation of this node whose copy in Redis was not what the store had."),
		Reconciled:   newCount(reg, "engine_reconciliations_total", "Comparisons of Redis and the store that this node finished."),

		state:    make(map[EngineState]*Level, len(engineStates)),
		troubles: newFamily(reg, undeclared, "engine_troubles_total", "reason", "Troubles with the performance engine that this node saw.", engineTroubles),
		degraded: newFamily(reg, undeclared, "engine_degraded_total", "reason", "Times this node left the performance engine for the whole cluster because of a trouble.", engineTroubles),
		flushed:  newFamily(reg, undeclared, "flush_events_total", "result", "Events of Redis that were settled: applied; already, the store had it; over, its signer was lost or left meanwhile; dead, it can never be applied.", flushResults),
		retries:  newFamily(reg, undeclared, "flush_retries_total", "reason", "Times the flush of a shard was put off and tried again.", flushRetries),
		moves:    newFamily(reg, undeclared, "engine_moves_total", "to", "Signers that this node moved to an engine.", moveEngines),
		grant: prometheus.NewHistogram(prometheus.HistogramOpts{Namespace: namespace, Name: "engine_grant_left_seconds",
			Help: "How long a signer's grant still ran when it was handed out from.", Buckets: []float64{0, 1, 2.5, 5, 10, 15, 20, 30, 45, 60, 120, 300}}),
		blocks: prometheus.NewHistogram(prometheus.HistogramOpts{Namespace: namespace, Name: "engine_block_left_nonces",
			Help: "How many nonces a signer's block still had when it was handed out from.", Buckets: prometheus.ExponentialBuckets(1, 4, 10)}),
	}
	reg.MustRegister(e.grant, e.blocks)
	for _, s := range engineStates {
		l := new(Level)
		reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Namespace: namespace, Name: "engine_state", Help: "1 for the state of the cluster between its engines, as this node knows it.",
			ConstLabels: prometheus.Labels{"state": string(s)},
		}, func() float64 { return float64(l.n.Load()) }))
		e.state[s] = l
	}
	e.show(EngineReliable)
	return e
}

// State makes s the one state that shows 1.
func (e *Engine) State(s EngineState) {
	e.told.Store(&s)
	e.show(s)
}

func (e *Engine) show(s EngineState) {
	for each, l := range e.state {
		if each == s {
			l.Set(1)
		} else {
			l.Set(0)
		}
	}
}

// Trouble counts a trouble.
func (e *Engine) Trouble(t EngineTrouble) { e.troubles.add(t, 1) }

// Degraded counts a degradation.
func (e *Engine) Degraded(t EngineTrouble) { e.degraded.add(t, 1) }

// Flushed counts n settled events.
func (e *Engine) Flushed(r FlushResult, n int) { e.flushed.add(r, n) }

// FlushRetry counts a shard that is tried again.
func (e *Engine) FlushRetry(r FlushRetry) { e.retries.add(r, 1) }

// Moved counts n signers that moved.
func (e *Engine) Moved(to MoveTo, n int) { e.moves.add(to, n) }

// GrantLeft observes what is left of a signer's block and grant.
func (e *Engine) GrantLeft(nonces int64, grant time.Duration) {
	e.grant.Observe(grant.Seconds())
	e.blocks.Observe(float64(nonces))
}
