package cluster

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"noncegate/backpressure"
	"noncegate/internal/metrics"
	"noncegate/nonce"
	"noncegate/wire"
)

// result is how the forwarding of one op went: a label of metrics.
type result string

// The results. resultBusy and resultAway are refusals of Forward.
const (
	resultAnswered result = "answered"
	resultBounced  result = "bounced"  // not done there; it is routed again
	resultDoubtful result = "doubtful" // sent and not answered; it is asked again
	resultExpired  result = "expired"  // the same, and its time was over
	resultBusy     result = "busy"     // as many as may be are under way there
	resultAway     result = "away"     // that node does not answer
)

// results are the names of verdicts.
var results = [...]result{
	nonce.Answered: resultAnswered, nonce.Bounced: resultBounced, nonce.Doubtful: resultDoubtful, nonce.Expired: resultExpired,
}

// Metrics are what a Router counts. A node that has no Router has them too, as 0.
type Metrics struct {
	forwarded metrics.Family[result]
	took      prometheus.Histogram
	refused   metrics.Family[string]
	inflight  atomic.Pointer[backpressure.Gate] // nil: there is no Router
}

// NewMetrics makes the metrics and registers them with reg.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{
		forwarded: metrics.NewFamily(reg, "forwarded_total", "result",
			"Requests sent to the node that owns their signer: answered there; bounced, to be routed again; "+
				"doubtful, sent and not answered, asked again; "+
				"expired, told unknown; busy, refused for want of a slot; away, that node does not answer.",
			resultAnswered, resultBounced, resultDoubtful, resultExpired, resultBusy, resultAway),
		took: metrics.Seconds(reg, "forward_seconds", "Time from sending a request to the node that owns its signer to the answer."),
		refused: metrics.NewFamily(reg, "node_refused_total", "reason",
			"Error replies to other nodes, which route the request again or pass the answer on, by data.reason.", wire.Reasons()...),
	}
	metrics.Slots(reg, "node_inflight", "Requests of other nodes not answered yet", func() (used, capacity int) {
		if gate := m.inflight.Load(); gate != nil {
			used, capacity = gate.Used(), gate.Capacity()
		}
		return used, capacity
	})
	return m
}
