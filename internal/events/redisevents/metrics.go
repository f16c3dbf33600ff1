package redisevents

import (
	"github.com/prometheus/client_golang/prometheus"

	"noncegate/internal/metrics"
)

// Metrics are what a Publisher and a Listener of one node count. A node without Redis has
// them too, as 0.
type Metrics struct {
	published, failed, dropped, received *metrics.Count // events
	missed                               *metrics.Count // events that did not come, and one for each loss of unknown size
	garbled                              *metrics.Count // messages that no node of ours wrote
}

// NewMetrics makes the metrics and registers them with reg.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	return &Metrics{
		published: metrics.NewCount(reg, "redis_events_published_total", "Events that Redis took for other nodes."),
		failed: metrics.NewCount(reg, "redis_events_failed_total",
			"Events that Redis did not take, or did not say that it took. Subscribers of other nodes are told that they missed them."),
		dropped: metrics.NewCount(reg, "redis_events_dropped_total",
			"Events for other nodes that found no room while they waited for Redis or in the post-DB pool. Their subscribers are told that they missed them."),
		received: metrics.NewCount(reg, "redis_events_received_total", "Events of other nodes that came by Redis."),
		missed: metrics.NewCount(reg, "redis_events_missed_total",
			"Events of other nodes that did not come by Redis, and one for each loss of unknown size. The subscribers concerned are told."),
		garbled: metrics.NewCount(reg, "redis_messages_garbled_total",
			"Messages on the channels of this program that it did not write, and ignores."),
	}
}
