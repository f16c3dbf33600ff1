package ethereum

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"noncegate/chain"
	"noncegate/chain/ethereum/internal/jsonrpc"
)

// result is what became of one call, as a label.
type result string

const (
	resultOK          result = "ok"
	resultRefused     result = "refused"     // the node answered with an error
	resultLimited     result = "limited"     // it wants fewer requests
	resultTimeout     result = "timeout"     // no answer in time
	resultUnreachable result = "unreachable" // nothing was sent
	resultLost        result = "lost"        // sent, and the connection broke or the status was no answer
	resultTooLarge    result = "too_large"   // the answer
	resultNonsense    result = "nonsense"    // the answer is not what was asked for
	resultBusy        result = "busy"        // as many requests are under way as are allowed
)

// resultOf tells what became of a call.
func resultOf(c *jsonrpc.Call) result {
	switch status, isStatus := errors.AsType[*jsonrpc.StatusError](c.Fail); {
	case c.Fail == nil && c.Err == nil:
		return resultOK
	case c.Fail == nil:
		return resultRefused
	case errors.Is(c.Fail, ErrBusy):
		return resultBusy
	case isStatus && status.Code == 429:
		return resultLimited
	case errors.Is(c.Fail, jsonrpc.ErrNotSent):
		return resultUnreachable
	case errors.Is(c.Fail, errTimeout), errors.Is(c.Fail, context.DeadlineExceeded):
		return resultTimeout
	case errors.Is(c.Fail, jsonrpc.ErrTooLarge):
		return resultTooLarge
	case errors.Is(c.Fail, jsonrpc.ErrNonsense):
		return resultNonsense
	}
	return resultLost
}

// otherMethod is the label of methods that only others ask for, by Call.
const otherMethod = "other"

// methodLabel is the method, if this package asks for it.
func methodLabel(method string) string {
	switch method {
	case methodChainID, methodBlockByNumber, methodBlockByHash, methodCount, methodCode, methodSyncing, methodTxByHash,
		methodTxBySender, methodContentFrom, methodSend:
		return method
	}
	return otherMethod
}

const namespace = "noncegate"

type metrics struct {
	requests      *prometheus.CounterVec
	seconds       *prometheus.HistogramVec
	answers       *prometheus.CounterVec
	disagreements *prometheus.CounterVec
	reorgs        prometheus.Counter
	finalFell     prometheus.Counter
	skipped       prometheus.Counter
}

// What nodes can disagree about, as labels.
const (
	disagreeHead  = "head"
	disagreeCount = "count"
)

// newMetrics registers the figures of one chain. Several chains share a registerer: each
// has its own value of the label chain.
func newMetrics(reg prometheus.Registerer, c *Client) (*metrics, error) {
	counter := func(name, help string) prometheus.CounterOpts {
		return prometheus.CounterOpts{Namespace: namespace, Subsystem: "chain", Name: name, Help: help}
	}
	m := &metrics{
		requests: prometheus.NewCounterVec(counter("requests_total",
			"Calls to nodes of the chain, by what became of them. A batch has several."), []string{"node", "method", "result"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: namespace, Subsystem: "chain", Name: "request_seconds",
			Help:    "How long requests to nodes of the chain took. A batch is one.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 14),
		}, []string{"node"}),
		answers: prometheus.NewCounterVec(counter("answers_total",
			"What became of transactions that were sent, over all nodes of the chain."), []string{"class"}),
		disagreements: prometheus.NewCounterVec(counter("disagreements_total",
			"Times that nodes of the chain were on different branches, or had different counts of an account at the same block."), []string{"about"}),
		reorgs: prometheus.NewCounter(counter("reorgs_total",
			"Times that blocks were replaced by others.")),
		finalFell: prometheus.NewCounter(counter("final_fell_total",
			"Times that a block that was final is not any more: the nodes were reset, or they lie.")),
		skipped: prometheus.NewCounter(counter("blocks_skipped_total",
			"Times that blocks were not read one by one, because there were too many or no node had them.")),
	}
	for class := chain.Unknown; class <= chain.Free; class++ {
		m.answers.WithLabelValues(class.String())
	}
	m.disagreements.WithLabelValues(disagreeHead)
	m.disagreements.WithLabelValues(disagreeCount)
	reg = prometheus.WrapRegistererWith(prometheus.Labels{"chain": c.set.ID}, reg)
	all := append(c.gauges(), m.requests, m.seconds, m.answers, m.disagreements, m.reorgs, m.finalFell, m.skipped)
	for _, col := range all {
		if err := reg.Register(col); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// gauges are what Status says.
func (c *Client) gauges() (all []prometheus.Collector) {
	gauge := func(name, help string, labels prometheus.Labels, value func() float64) {
		opts := prometheus.GaugeOpts{Namespace: namespace, Subsystem: "chain", Name: name, Help: help, ConstLabels: labels}
		all = append(all, prometheus.NewGaugeFunc(opts, value))
	}
	gauge("head_number", "Number of the newest block of the chain; 0 before the first.", nil,
		func() float64 { return float64(c.Status().Head.Number) })
	gauge("final_number", "Number of the newest block that is final; 0 before the first.", nil,
		func() float64 { return float64(c.Status().Final.Number) })
	gauge("last_head_age_seconds", "How long ago a new block was seen; since the start, before the first.", nil,
		func() float64 { return time.Since(c.Status().HeadAt).Seconds() })
	gauge("final_missing", "Whether no node names a final block (1), so that floors do not follow the chain.", nil, func() float64 {
		if c.noFinal.Load() {
			return 1
		}
		return 0
	})
	for _, n := range c.nodes {
		of := prometheus.Labels{"node": n.name}
		flag := func(name, help string, on func(NodeStatus) bool) {
			gauge(name, help, of, func() float64 {
				if on(n.status()) {
					return 1
				}
				return 0
			})
		}
		flag("node_up", "Whether the node answered last and is of the chain (1) or not (0).",
			func(s NodeStatus) bool { return s.Up })
		gauge("node_lag_blocks", "How many blocks the node is behind the newest block; 0 where it is not up.", of,
			func() float64 { return float64(n.status().Lag) })
		flag("node_other_chain", "Whether the node is of another chain (1), so that it is never asked.",
			func(s NodeStatus) bool { return s.OtherChain != "" })
		flag("node_off_branch", "Whether the node is up and on another branch, or was not believed (1).",
			func(s NodeStatus) bool { return s.Up && !s.OnBranch })
		flag("node_wrong", "Whether the node contradicts the others in a count or the final block and is left out (1).",
			func(s NodeStatus) bool { return s.Wrong })
		flag("node_backing_off", "Whether the node wanted fewer requests and is left alone (1).",
			func(s NodeStatus) bool { return !s.BackingOffUntil.IsZero() })
	}
	return all
}
