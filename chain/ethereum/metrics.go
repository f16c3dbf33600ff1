package ethereum

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"noncegate/chain"
	"noncegate/chain/ethereum/internal/jsonrpc"
	figures "noncegate/internal/metrics"
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

type metrics struct {
	requests      *prometheus.CounterVec
	seconds       *prometheus.HistogramVec
	answers       *prometheus.CounterVec
	disagreements *prometheus.CounterVec

	reorgs, finalFell, skipped *figures.Count
}

// What nodes can disagree about, as labels.
const (
	disagreeHead  = "head"
	disagreeCount = "count"
)

// newMetrics registers the figures of one chain. Several chains share a registerer: each
// has its own value of the label chain, and one that is there twice panics.
func newMetrics(reg prometheus.Registerer, c *Client) *metrics {
	reg = prometheus.WrapRegistererWith(prometheus.Labels{"chain": c.set.ID}, reg)
	counters := func(name, help string, labels ...string) *prometheus.CounterVec {
		v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "noncegate_chain_" + name, Help: help}, labels)
		reg.MustRegister(v)
		return v
	}
	m := &metrics{
		requests: counters("requests_total",
			"Calls to nodes of the chain, by what became of them. A batch has several.", "node", "method", "result"),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "noncegate_chain_request_seconds", Help: "How long requests to nodes of the chain took. A batch is one.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 14),
		}, []string{"node"}),
		answers: counters("answers_total", "What became of transactions that were sent, over all nodes of the chain.", "class"),
		disagreements: counters("disagreements_total",
			"Times that nodes of the chain were on different branches, or had different counts of an account at the same block.", "about"),
		reorgs: figures.NewCount(reg, "chain_reorgs_total", "Times that blocks were replaced by others."),
		finalFell: figures.NewCount(reg, "chain_final_fell_total",
			"Times that a block that was final is not any more: the nodes were reset, or they lie."),
		skipped: figures.NewCount(reg, "chain_blocks_skipped_total",
			"Times that blocks were not read one by one, because there were too many or no node had them."),
	}
	reg.MustRegister(m.seconds)
	for class := chain.Unknown; class <= chain.NotReached; class++ {
		m.answers.WithLabelValues(class.String())
	}
	m.disagreements.WithLabelValues(disagreeHead)
	m.disagreements.WithLabelValues(disagreeCount)
	c.gauges(reg)
	return m
}

// gauges register what Status says.
func (c *Client) gauges(reg prometheus.Registerer) {
	gauge := func(name, help string, value func() float64) { figures.Gauge(reg, "chain_"+name, help, value) }
	gauge("head_number", "Number of the newest block of the chain; 0 before the first.",
		func() float64 { return float64(c.Status().Head.Number) })
	gauge("final_number", "Number of the newest block that is final; 0 before the first.",
		func() float64 { return float64(c.Status().Final.Number) })
	gauge("last_head_age_seconds", "How long ago a new block was seen; since the start, before the first.",
		func() float64 { return time.Since(c.Status().HeadAt).Seconds() })
	gauge("final_missing", "Whether no node names a final block (1), so that floors do not follow the chain.",
		func() float64 { return flag(c.noFinal.Load()) })
	for _, n := range c.nodes {
		reg := prometheus.WrapRegistererWith(prometheus.Labels{"node": n.name}, reg)
		of := func(name, help string, value func(NodeStatus) float64) {
			figures.Gauge(reg, "chain_node_"+name, help, func() float64 { return value(n.status()) })
		}
		of("up", "Whether the node answered last and is of the chain (1) or not (0).", func(s NodeStatus) float64 { return flag(s.Up) })
		of("lag_blocks", "How many blocks the node is behind the newest block; 0 where it is not up.",
			func(s NodeStatus) float64 { return float64(s.Lag) })
		of("other_chain", "Whether the node is of another chain (1), so that it is never asked.",
			func(s NodeStatus) float64 { return flag(s.OtherChain != "") })
		of("off_branch", "Whether the node is up and on another branch, or was not believed (1).",
			func(s NodeStatus) float64 { return flag(s.Up && !s.OnBranch) })
		of("wrong", "Whether the node contradicts the others in a count or the final block and is left out (1).",
			func(s NodeStatus) float64 { return flag(s.Wrong) })
		of("backing_off", "Whether the node wanted fewer requests and is left alone (1).",
			func(s NodeStatus) float64 { return flag(!s.BackingOffUntil.IsZero()) })
	}
}

func flag(on bool) float64 {
	if on {
		return 1
	}
	return 0
}
