package main

import (
	"time"

	"noncegate/engine"
	"noncegate/flush"
	"noncegate/nonce"
	"noncegate/perf"
)

// engineFigures carries what the performance engine measures to the figures.
type engineFigures struct{ set *perf.Engine }

var (
	_ nonce.FastFigures = engineFigures{}
	_ engine.Figures    = engineFigures{}
)

// Scripts implements nonce.FastFigures. The batches are measured where they are sent.
func (f engineFigures) Scripts(time.Duration, int) {}

// Mirrored implements nonce.FastFigures.
func (f engineFigures) Mirrored(delay time.Duration) { f.set.Mirror.Observe(delay) }

// Lost implements nonce.FastFigures.
func (f engineFigures) Lost(signers int) { f.set.Lost.Add(signers) }

// Moved implements nonce.FastFigures.
func (f engineFigures) Moved(to nonce.Engine, signers int) {
	f.set.Moved(perf.MoveTo(to.String()), signers)
}

// GrantLeft implements nonce.FastFigures.
func (f engineFigures) GrantLeft(nonces int64, grant time.Duration) { f.set.GrantLeft(nonces, grant) }

// Waiting implements nonce.FastFigures.
func (f engineFigures) Waiting(ops int) { f.set.Waiting.Set(int64(ops)) }

// State implements engine.Figures.
func (f engineFigures) State(c nonce.EngineCluster) {
	f.set.State(perf.EngineState(c.State))
	f.set.Generation.Set(c.Generation)
}

// Counts implements engine.Figures.
func (f engineFigures) Counts(c nonce.EngineCounts) {
	f.set.Entered.Set(int64(c.Entered))
	f.set.Unowned.Set(int64(c.Unowned))
	f.set.Doubtful.Set(int64(c.Doubtful))
}

// Lag implements engine.Figures.
func (f engineFigures) Lag(events int64, oldest time.Duration, dead int64) {
	f.set.FlushWaiting.Set(events)
	f.set.FlushOldest.Set(oldest)
	f.set.DeadLetters.Set(dead)
}

// Trouble implements engine.Figures.
func (f engineFigures) Trouble(t nonce.Trouble) { f.set.Trouble(perf.EngineTrouble(t)) }

// Degraded implements engine.Figures.
func (f engineFigures) Degraded(t nonce.Trouble) { f.set.Degraded(perf.EngineTrouble(t)) }

// Reconciled implements engine.Figures.
func (f engineFigures) Reconciled(r engine.ReconcileReport) {
	f.set.Reconciled.Inc()
	f.set.Compared.Set(int64(r.Equal + r.Different))
	f.set.Differences.Set(int64(r.Different))
}

// flushFigures carries what the flush measures to the figures, and its retries to who
// judges them.
type flushFigures struct {
	set     *perf.Engine
	manager *engine.Manager
}

var _ flush.Figures = flushFigures{}

// Applied implements flush.Figures.
func (f flushFigures) Applied(took time.Duration, rows, _ int) {
	f.set.Flush.Observe(took)
	f.set.FlushRows.Add(rows)
}

// Settled implements flush.Figures.
func (f flushFigures) Settled(v nonce.FlushVerdict, events int) {
	switch v {
	case nonce.FlushApplied:
		f.set.Flushed(perf.FlushApplied, events)
	case nonce.FlushAlready:
		f.set.Flushed(perf.FlushAlready, events)
	case nonce.FlushOver:
		f.set.Flushed(perf.FlushOver, events)
	}
}

// Retry implements flush.Figures. A store that is away, and a row that somebody has
// locked, are no trouble of the flush.
func (f flushFigures) Retry(r flush.RetryReason) {
	f.set.FlushRetry(perf.FlushRetry(r))
	switch r {
	case flush.RetryAway, flush.RetryLocked:
	default:
		f.manager.Retry()
	}
}

// Buried implements flush.Figures.
func (f flushFigures) Buried(events int) { f.set.Flushed(perf.FlushDead, events) }
