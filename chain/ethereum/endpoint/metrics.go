package endpoint

import (
	"github.com/prometheus/client_golang/prometheus"

	"noncegate/chain"
	figures "noncegate/internal/metrics"
	"noncegate/internal/relay"
	"noncegate/wire"
)

// counters are what an Endpoint counts, with the chain as a label: chains are settings,
// and few.
type counters struct {
	requests *prometheus.CounterVec
	sends    *prometheus.CounterVec
	loose    *figures.Count
	offered  *prometheus.CounterVec // by outcome
	known    map[string]bool
}

// What a call came to.
const (
	resultOK      = "ok"
	resultRefused = "refused" // by the gateway
	resultNode    = "node"    // an error of the node
)

// otherMethod is the label of methods that are on no list.
const otherMethod = "other"

// What became of a transaction that was not given to a node, beside the classes of
// chain.Class.
const (
	sendRefused    = "refused"    // nothing happened
	sendUnrecorded = "unrecorded" // it may be recorded; it was not sent
)

// sendWords are the outcomes of those that were given to nodes.
var sendWords = map[chain.Class]string{
	chain.Unknown: "unknown", chain.InPool: "in_pool", chain.Taken: "taken", chain.Used: "used", chain.Free: "free",
	chain.Refused: "refused_by_nodes", chain.NotReached: "not_reached",
}

func newMetrics(id string, known []string, subscriptions func() int, reg prometheus.Registerer) *counters {
	reg = prometheus.WrapRegistererWith(prometheus.Labels{"chain": id}, reg)
	vec := func(name, help string, labels ...string) *prometheus.CounterVec {
		v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "noncegate_eth_" + name, Help: help}, labels)
		reg.MustRegister(v)
		return v
	}
	m := &counters{
		requests: vec("requests_total",
			"Calls of the Ethereum endpoint, by method and by what they came to: ok, refused by the gateway, node for an error of a node.",
			"method", "result"),
		sends: vec("sends_total", "Transactions that came to the Ethereum endpoint, by what became of them: the class of the nodes' answer, "+
			"refused where the gateway refused it, or unrecorded where the record is not known and nothing was sent.", "outcome"),
		loose: figures.NewCount(reg, "eth_loose_ends_total",
			"Transactions that were sent and whose outcome could not be recorded at once. It is recorded when their hold ends."),
		offered: vec("offered_again_total",
			"Transactions whose outcome was not known and that the gateway gave to the nodes again, by what became of them.", "outcome"),
		known: make(map[string]bool, len(known)),
	}
	figures.Gauge(reg, "eth_upstream_subscriptions",
		"Subscriptions that are open at nodes for clients of the Ethereum endpoint.", subscriptions)
	for _, method := range known {
		m.known[method] = true
	}
	for _, outcome := range []string{sendRefused, sendUnrecorded} {
		m.sends.WithLabelValues(outcome)
	}
	for _, word := range sendWords {
		m.sends.WithLabelValues(word)
		m.offered.WithLabelValues(word)
	}
	return m
}

func (m *counters) answered(method string, a *relay.Answer) {
	if !m.known[method] {
		method = otherMethod
	}
	result := resultOK
	switch {
	case a.Err != nil:
		result = resultRefused
	case a.Foreign != nil:
		result = resultNode
	}
	m.requests.WithLabelValues(method, result).Inc()
}

func (m *counters) sent(c chain.Class) { m.sends.WithLabelValues(sendWords[c]).Inc() }

func (m *counters) notSent(err *wire.Error) {
	if err.Data.Outcome == wire.OutcomeUnknown {
		m.sends.WithLabelValues(sendUnrecorded).Inc()
		return
	}
	m.sends.WithLabelValues(sendRefused).Inc()
}
