package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"noncegate/lease"
	"noncegate/nonce"
)

// Nonce is what the service of nonces measures.
type Nonce struct {
	perf *Set

	acquired     Family[lease.AcquireResult]
	renewed      Family[nonce.RenewResult]
	fenced       Family[string]
	wentBack     *Count
	invariant    *Count
	expired      *Count
	sweepsPaused *Level
}

var _ nonce.Figures = (*Nonce)(nil)

// NewNonce makes the metrics and registers them with reg. What ws_perf tells is
// observed in perf.
func NewNonce(reg prometheus.Registerer, perf *Set) *Nonce {
	var writes []string
	for k := range nonce.Kinds() {
		if k.Writes() {
			writes = append(writes, k.String())
		}
	}
	return &Nonce{
		perf: perf,
		acquired: NewFamily(reg, "lease_acquire_total", "result", "Attempts to take a shard.",
			lease.AcquireNew, lease.AcquireTakeover, lease.AcquireHeld, lease.AcquireError),
		renewed: NewFamily(reg, "lease_renew_total", "result", "Heartbeats that renewed the lease of this node; late: it had ended before.",
			nonce.RenewInTime, nonce.RenewLate),
		fenced:    NewFamily(reg, "fence_rejects_total", "op", "Operations refused because ownership was lost.", writes...),
		wentBack:  NewCount(reg, "store_went_back_total", "Times the store showed less than was seen before."),
		invariant: NewCount(reg, "invariant_alarms_total", "Rows found not as the rules left them; any is an alarm."),
		expired: NewCount(reg, "holds_expired_total",
			"Holds whose deadline passed without a mark: their nonces came back, or are unknown from then on."),
		sweepsPaused: NewLevel(reg, "sweeps_paused", "1 while sweeps of due holds are paused because the store's clock jumped."),
	}
}

// WorkerQueue implements nonce.Figures.
func (n *Nonce) WorkerQueue(d time.Duration) { n.perf.WorkerQueue.Observe(d) }

// Commit implements nonce.Figures.
func (n *Nonce) Commit(d time.Duration, ops int) {
	n.perf.Commit.Observe(d)
	n.perf.BatchSize.Observe(ops)
}

// LeaseAcquire implements nonce.Figures.
func (n *Nonce) LeaseAcquire(result lease.AcquireResult) { n.acquired.Inc(result) }

// LeaseRenew implements nonce.Figures.
func (n *Nonce) LeaseRenew(result nonce.RenewResult) { n.renewed.Inc(result) }

// FenceReject implements nonce.Figures.
func (n *Nonce) FenceReject(op nonce.Kind) { n.fenced.Inc(op.String()) }

// WentBack implements nonce.Figures.
func (n *Nonce) WentBack() { n.wentBack.Inc() }

// Invariant implements nonce.Figures.
func (n *Nonce) Invariant() { n.invariant.Inc() }

// Swept implements nonce.Figures.
func (n *Nonce) Swept(expired int) { n.expired.Add(expired) }

// SweepsPaused implements nonce.Figures.
func (n *Nonce) SweepsPaused(paused bool) { n.sweepsPaused.Set(paused) }
