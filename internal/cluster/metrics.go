package cluster

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"noncegate/internal/metrics"
	"noncegate/nonce"
)

// Result is how the forwarding of one op went: a label of metrics.
type Result string

// The results. Busy and Away are refusals of Forward.
const (
	Answered Result = "answered"
	Bounced  Result = "bounced"  // not done there; it is routed again
	Doubtful Result = "doubtful" // sent and not answered; it is asked again
	Expired  Result = "expired"  // the same, and its time was over
	Busy     Result = "busy"     // as many as may be are under way there
	Away     Result = "away"     // that node does not answer
)

// resultOf names a verdict.
func resultOf(v nonce.Verdict) Result {
	return [...]Result{nonce.Answered: Answered, nonce.Bounced: Bounced, nonce.Doubtful: Doubtful, nonce.Expired: Expired}[v]
}

// Metrics are what a Router counts. A node that has no Router has them too, as 0.
type Metrics struct {
	forwarded metrics.Family[Result]
	took      prometheus.Histogram
}

// NewMetrics makes the metrics and registers them with reg.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	return &Metrics{
		forwarded: metrics.NewFamily(reg, "forwarded_total", "result",
			"Requests sent to the node that owns their signer: answered there; bounced, to be routed again; doubtful, sent and not answered, asked again; "+
				"expired, told unknown; busy, refused for want of a slot; away, that node does not answer.",
			Answered, Bounced, Doubtful, Expired, Busy, Away),
		took: metrics.Seconds(reg, "forward_seconds", "Time from sending a request to the node that owns its signer to the answer."),
	}
}

// returned counts an op that was taken over, once for each call of Forward.
func (m *Metrics) returned(r Result, took time.Duration) {
	m.forwarded.Inc(r)
	if r == Answered {
		m.took.Observe(took.Seconds())
	}
}
