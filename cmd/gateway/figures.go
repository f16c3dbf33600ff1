package main

import (
	"context"
	"time"

	"noncegate/nonce"
	"noncegate/perf"
)

// nonceFigures carries what the service measures to the figures.
type nonceFigures struct{ set *perf.Set }

var _ nonce.Figures = nonceFigures{}

// WorkerQueue implements nonce.Figures.
func (f nonceFigures) WorkerQueue(d time.Duration) { f.set.WorkerQueue.Observe(d) }

// Commit implements nonce.Figures.
func (f nonceFigures) Commit(d time.Duration, ops int) {
	f.set.Commit.Observe(d)
	f.set.BatchSize.Observe(ops)
}

// LeaseAcquire implements nonce.Figures.
func (f nonceFigures) LeaseAcquire(r nonce.AcquireResult) {
	f.set.LeaseAcquire(perf.AcquireResult(r), 1)
}

// LeaseRenew implements nonce.Figures.
func (f nonceFigures) LeaseRenew(r nonce.RenewResult) { f.set.LeaseRenew(perf.RenewResult(r), 1) }

// FenceReject implements nonce.Figures.
func (f nonceFigures) FenceReject(op nonce.Kind) { f.set.FenceRejects(perf.FenceOp(op.String()), 1) }

// WentBack implements nonce.Figures.
func (f nonceFigures) WentBack() { f.set.StoreWentBack.Inc() }

// Invariant implements nonce.Figures.
func (f nonceFigures) Invariant() { f.set.InvariantAlarms.Inc() }

// Swept implements nonce.Figures.
func (f nonceFigures) Swept(expired int) { f.set.HoldsExpired.Add(expired) }

// SweepsPaused implements nonce.Figures.
func (f nonceFigures) SweepsPaused(paused bool) {
	level := int64(0)
	if paused {
		level = 1
	}
	f.set.SweepsPaused.Set(level)
}

// openGauges registers how full each bounded stage is, beside its bound.
func (a *app) openGauges(context.Context) error {
	service, server := a.service.Load(), a.server
	pair := func(name, what string, f func() (used, capacity int)) {
		a.figures.Gauge(name+"_places_used", what+": places taken.", func() float64 { used, _ := f(); return float64(used) })
		a.figures.Gauge(name+"_places", what+": places there are.", func() float64 { _, capacity := f(); return float64(capacity) })
	}
	pair("inflight", "Requests not answered yet", server.Inflight)
	pair("worker", "Worker queues, all shards", service.Queued)
	pair("encode", "Encode pool", func() (int, int) { return a.encode.Reserved(), a.encode.Capacity() })
	pair("postdb", "Post-DB pool", func() (int, int) { return a.postdb.Reserved(), a.postdb.Capacity() })
	a.figures.Gauge("encode_running", "Encoders at work.", func() float64 { return float64(a.encode.Running()) })
	a.figures.Gauge("postdb_running", "Post-DB workers at work.", func() float64 { return float64(a.postdb.Running()) })
	a.figures.Gauge("connections_max", "Most open WebSocket connections.", func() float64 { return float64(a.cfg.MaxConnections) })
	a.figures.Gauge("panics", "Mistakes of this program that were caught: panics of connections, encoders and post-DB work.", func() float64 {
		return float64(server.Panics()) + float64(a.encode.Panics()) + float64(a.postdb.Panics())
	})
	return nil
}
