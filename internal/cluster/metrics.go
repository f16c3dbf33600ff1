package cluster

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"noncegate/internal/metrics"
	"noncegate/nonce"
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

// resultOf names a verdict.
func resultOf(v nonce.Verdict) result {
	return [...]result{nonce.Answered: resultAnswered, nonce.Bounced: resultBounced, nonce.Doubtful: resultDoubtful, nonce.Expired: resultExpired}[v]
}

// Metrics are what a Router counts. A node that has no Router has them too, as 0.
type Metrics struct {
	forwarded metrics.Family[result]
	took      prometheus.Histogram
}

// NewMetrics makes the metrics and registers them with reg.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	return &Metrics{
		forwarded: metrics.NewFamily(reg, "forwarded_total", "result",
			"Requests sent to the node that owns their signer: answered there; bounced, to be routed again; doubtful, sent and not answered, asked again; "+
				"expired, told unknown; busy, refused for want of a slot; away, that node does not answer.",
			resultAnswered, resultBounced, resultDoubtful, resultExpired, resultBusy, resultAway),
		took: metrics.Seconds(reg, "forward_seconds", "Time from sending a request to the node that owns its signer to the answer."),
	}
}

// returned counts an op that was taken over, once for each call of Forward.
func (m *Metrics) returned(r result, took time.Duration) {
	m.forwarded.Inc(r)
	if r == resultAnswered {
		m.took.Observe(took.Seconds())
	}
}
