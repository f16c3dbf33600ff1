package main

import (
	"context"
	"sync/atomic"
	"time"

	"noncegate/internal/metrics"
	"noncegate/nonce"
)

// totalsEvery is how often what is open in the store is counted, for the metrics.
const totalsEvery = 15 * time.Second

// openTotals counts what is open in the whole store now and then. Each count is bounded
// (nonce.TotalsBound), so that many rows cost no more than that.
func (a *app) openTotals(context.Context) error {
	var last atomic.Pointer[nonce.Totals]
	last.Store(new(nonce.Totals))
	a.every("totals", totalsEvery, func(ctx context.Context) { a.countTotals(ctx, &last) })
	gauge := func(name, help string, of func(*nonce.Totals) float64) {
		metrics.Gauge(a.registry, name, help, func() float64 { return of(last.Load()) })
	}
	gauge("open_holds", "Holds in the whole store that are not ended, unknown ones included, as counted every 15 s up to 100,000.",
		func(t *nonce.Totals) float64 { return float64(t.Held) })
	gauge("unknown_holds", "Those of which nobody knows whether they were used.", func(t *nonce.Totals) float64 { return float64(t.Unknown) })
	gauge("released_nonces", "Nonces in the whole store that were given back and not handed out again, as counted every 15 s up to 100,000.",
		func(t *nonce.Totals) float64 { return float64(t.Released) })
	gauge("repeated_nonces", "Nonces that are held or released with attempt 3 or higher: somebody's transactions fail, or are not marked.",
		func(t *nonce.Totals) float64 { return float64(t.Repeated) })
	gauge("oldest_overdue_hold_seconds", "How long ago the first hold ended that nobody has ended yet; 0: none.",
		func(t *nonce.Totals) float64 { return t.OldestOverdue.Seconds() })
	gauge("signers_unreadable", "Signers in the whole store that are stopped because their state cannot be read, as counted every 15 s.",
		func(t *nonce.Totals) float64 { return float64(t.Unreadable) })
	return nil
}

// totalsTimeout bounds one count.
const totalsTimeout = 5 * time.Second

func (a *app) countTotals(ctx context.Context, last *atomic.Pointer[nonce.Totals]) {
	one, cancel := context.WithTimeout(ctx, totalsTimeout)
	defer cancel()
	t, err := a.store.Totals(one)
	if err != nil {
		a.log.Debug("counting what is open", "error", err)
		return
	}
	last.Store(&t)
}
