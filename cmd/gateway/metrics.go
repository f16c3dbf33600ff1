package main

import (
	"context"

	"noncegate/internal/metrics"
)

// openGauges registers what is read of packages that know no Prometheus, or of several.
func (a *app) openGauges(context.Context) error {
	service, server := a.service, a.server
	metrics.Slots(a.registry, "worker", "Worker queues, all workers", service.Queued)
	metrics.Slots(a.registry, "encode", "Encode pool", func() (int, int) { return a.encode.Reserved(), a.encode.Capacity() })
	metrics.Slots(a.registry, "postdb", "Post-DB pool", func() (int, int) { return a.postdb.Reserved(), a.postdb.Capacity() })
	metrics.Gauge(a.registry, "encode_running", "Encoders at work.", a.encode.Running)
	metrics.Gauge(a.registry, "postdb_running", "Post-DB workers at work.", a.postdb.Running)
	metrics.Gauge(a.registry, "signers_remembered",
		"Signers whose state is kept between requests: those this node served lately.",
		func() int { n, _, _, _ := service.Remembered(); return n })
	metrics.Gauge(a.registry, "signers_remembered_max",
		"Most signers whose state is kept between requests. 0 in mode basic.", func() int { _, most, _, _ := service.Remembered(); return most })
	metrics.Gauges(a.registry, shardGauges, a.shardValues)
	metrics.Gauges(a.registry, logGauges, a.logValues)
	a.perf.EngineFrom(a.engineStats)
	metrics.Gauge(a.registry, "lease_ttl_seconds", "How long a lease is: --lease-ttl.", func() float64 { return a.cfg.LeaseTTL.Seconds() })
	metrics.Gauges(a.registry, peerGauges, a.peerValues)
	a.openTLSMetrics()
	metrics.Gauge(a.registry, "signers_stopped",
		"Signers stopped because the store showed less of them than was seen; a safe floor ends it.", service.StoppedSigners)
	metrics.Counter(a.registry, "unknown_commits_total",
		"Commits that ended without an answer of the store. Most are settled by reading.", service.UnknownCommits)
	metrics.Counter(a.registry, "version_conflicts_total",
		"Commits of one signer's requests that the store refused because a node in mode basic had written meanwhile; "+
			"they were read and planned anew.", service.VersionConflicts)
	metrics.Counter(a.registry, "pruned_total",
		"Consumed allocations deleted because they were older than --consumed-retention.", service.Pruned)
	metrics.Gauge(a.registry, "subscriptions", "Open subscriptions to events.", a.hub.Subscriptions)
	metrics.Counter(a.registry, "panics_total",
		"Mistakes of this program that were caught: panics of connections, encoders and post-DB work.", func() float64 {
			return float64(server.Panics()) + float64(a.encode.Panics()) + float64(a.postdb.Panics())
		})
	return nil
}
