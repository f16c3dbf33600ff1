package main

import (
	"context"

	"noncegate/internal/metrics"
	"noncegate/ws"
)

// openGauges registers how full each bounded stage is, beside its bound.
func (a *app) openGauges(context.Context) error {
	service, server := a.service, a.server
	pair := func(name, what string, f func() (used, capacity int)) {
		metrics.Gauge(a.registry, name+"_places_used", what+": places taken.", func() float64 { used, _ := f(); return float64(used) })
		metrics.Gauge(a.registry, name+"_places", what+": places there are.", func() float64 { _, capacity := f(); return float64(capacity) })
	}
	pair("inflight", "Requests not answered yet", server.Inflight)
	pair("node_inflight", "Requests of other nodes not answered yet", server.NodeInflight)
	pair("worker", "Worker queues, all shards", service.Queued)
	pair("encode", "Encode pool", func() (int, int) { return a.encode.Reserved(), a.encode.Capacity() })
	pair("guard", "Guarded calls under way", a.guard.Places)
	pair("postdb", "Post-DB pool", func() (int, int) { return a.postdb.Reserved(), a.postdb.Capacity() })
	metrics.Gauge(a.registry, "encode_running", "Encoders at work.", func() float64 { return float64(a.encode.Running()) })
	metrics.Gauge(a.registry, "postdb_running", "Post-DB workers at work.", func() float64 { return float64(a.postdb.Running()) })
	metrics.Gauge(a.registry, "connections_max", "Most open WebSocket connections.", func() float64 { return float64(a.cfg.MaxConnections) })
	metrics.Gauge(a.registry, "sockets_waiting", "Open sockets whose clients were not let in yet. 0 without --rights.", func() float64 { return float64(server.Waiting()) })
	metrics.Gauge(a.registry, "sockets_waiting_max", "Most of them.", func() float64 { return float64(a.cfg.MaxUnauthenticated) })
	metrics.Gauge(a.registry, "signers_remembered", "Signers whose state is kept between requests: those this node served lately.", func() float64 { n, _ := service.Remembered(); return float64(n) })
	metrics.Gauge(a.registry, "signers_remembered_max", "Most signers whose state is kept between requests. 0 in mode basic.", func() float64 { _, most := service.Remembered(); return float64(most) })
	metrics.Gauges(a.registry, shardGauges, a.shardValues)
	metrics.Gauges(a.registry, logGauges, a.logValues)
	a.perf.EngineFrom(a.engineStats)
	metrics.Gauge(a.registry, "lease_ttl_seconds", "How long a lease is: --lease-ttl.", func() float64 { return a.cfg.LeaseTTL.Seconds() })
	metrics.Gauges(a.registry, peerGauges, a.peerValues)
	metrics.Gauges(a.registry, redisGauges, a.redisValues)
	a.openTLSMetrics()
	metrics.Gauge(a.registry, "signers_stopped", "Signers stopped because the store showed less of them than was seen; a safe floor ends it.", func() float64 { return float64(service.StoppedSigners()) })
	metrics.Counter(a.registry, "unknown_commits_total", "Commits that ended without an answer of the store. Most are settled by reading.", func() float64 { return float64(service.UnknownCommits()) })
	metrics.Counter(a.registry, "version_conflicts_total", "Commits of one signer's requests that the store refused because a node in mode basic had written meanwhile; they were read and planned anew.", func() float64 { return float64(service.VersionConflicts()) })
	metrics.Counter(a.registry, "pruned_total", "Consumed allocations deleted because they were older than --consumed-retention.", func() float64 { return float64(service.Pruned()) })
	metrics.Gauge(a.registry, "subscriptions", "Open subscriptions to events.", func() float64 { return float64(a.hub.Subscriptions()) })
	metrics.Gauges(a.registry, outboundGauges, func() []float64 { return outboundValues(server.Outbound()) })
	metrics.Counter(a.registry, "panics_total", "Mistakes of this program that were caught: panics of connections, encoders and post-DB work.", func() float64 {
		return float64(server.Panics()) + float64(a.encode.Panics()) + float64(a.postdb.Panics())
	})
	return nil
}

// outboundGauges are what waits for clients to read, in the order of
// outboundValues.
var outboundGauges = []metrics.Named{
	{Name: "outbound_bytes", Help: "Bytes that wait for clients to read: queued, encoded or being written, over all connections."},
	{Name: "outbound_promised_bytes", Help: "Bytes of --write-max-bytes that are promised to answers whose work is under way, over all connections."},
	{Name: "outbound_messages", Help: "Messages that wait for clients to read, and answers under way, over all connections."},
	{Name: "outbound_largest_bytes", Help: "Bytes that wait for the client that has most."},
	{Name: "connections_paused", Help: "Connections that are not read now because their clients do not read."},
}

func outboundValues(o ws.Outbound) []float64 {
	return []float64{float64(o.Bytes), float64(o.Promised), float64(o.Messages), float64(o.Largest), float64(o.Paused)}
}
