package observe

import (
	"context"
	"fmt"
	"slices"
	"time"

	"noncegate/scripts/loadtest/result"
)

// stages are the histograms that become stages, in the order of a request's way.
var stages = []struct{ metric, name string }{
	{"noncegate_worker_queue_seconds", "workerQueueMs"},
	{"noncegate_commit_seconds", "commitMs"},
	{"noncegate_encode_queue_seconds", "encodeQueueMs"},
	{"noncegate_write_queue_seconds", "writeQueueMs"},
	{"noncegate_postdb_queue_seconds", "postDbQueueMs"},
}

func isStage(metric string) bool {
	return slices.ContainsFunc(stages, func(s struct{ metric, name string }) bool { return s.metric == metric })
}

// node is one gateway and what it said so far. It belongs to the goroutine that
// reads that gateway, and to End once that goroutine has ended.
type node struct {
	url string

	counters   map[string]float64    // last value of each
	histograms map[string]cumulative // last value of each
	started    float64               // of the process, as last said

	readings int // since the begin, good ones
	failures int
	lastErr  error
	restarts int

	increase map[string]float64
	total    map[string]cumulative
	pending  map[string]cumulative // what passed since lastAt
	lastAt   float64               // of the last point of seconds, or of the first reading
	seconds  map[string][]result.Point
	memory   []result.Point
}

func newNode(url string) *node {
	return &node{
		url:      url,
		increase: map[string]float64{},
		total:    map[string]cumulative{},
		pending:  map[string]cumulative{},
		seconds:  map[string][]result.Point{},
	}
}

// read reads the gateway once. began tells when the measured time began, and
// whether it has; before that only the last reading is kept.
func (n *node) read(ctx context.Context, read reader, began func() (time.Time, bool)) {
	r, err := read(ctx, n.url)
	begin, measuring := began()
	switch {
	case !measuring:
		return
	case err != nil && ctx.Err() != nil: // we were stopped, the gateway did nothing wrong
		return
	case err != nil:
		n.failures++
		n.lastErr = err
		return
	}
	n.take(r, time.Since(begin).Seconds())
}

// take adds a reading made at seconds after the begin. The first is what the
// others are compared with.
func (n *node) take(r *reading, at float64) {
	if r.memory > 0 {
		n.memory = append(n.memory, result.Point{At: at, Value: r.memory})
	}
	if n.readings > 0 {
		n.compare(r, at)
	} else {
		n.counters, n.histograms, n.lastAt = r.counters, r.histograms, at
	}
	if r.started > 0 {
		n.started = r.started
	}
	n.readings++
}

// compare adds what grew since the last reading. A name that is new counts from
// zero, and one that is missing this time keeps its last value: neither is a
// counter that went back.
func (n *node) compare(r *reading, at float64) {
	if n.restarted(r) {
		n.restarts++
		n.counters, n.histograms = map[string]float64{}, map[string]cumulative{}
	}
	for name, v := range r.counters {
		grown := v - n.counters[name]
		if grown < 0 {
			grown = v
		}
		n.increase[name] += grown
		n.counters[name] = v
	}
	for name, h := range r.histograms {
		delta := h.since(n.histograms[name])
		n.histograms[name] = h
		n.total[name] = n.total[name].and(delta)
		n.pending[name] = n.pending[name].and(delta)
	}
	// The last reading may follow the one before at once: a percentile of a few
	// observations would stand in the series like one of a whole second.
	if at-n.lastAt < interval.Seconds()/2 {
		return
	}
	for name, passed := range n.pending {
		if passed.count() > 0 {
			n.seconds[name] = append(n.seconds[name], result.Point{At: at, Value: 1000 * passed.quantile(0.95)})
		}
	}
	clear(n.pending)
	n.lastAt = at
}

// restarted reports whether r comes from another process than the last reading:
// by its start time, or, where it says none, by anything having gone back.
func (n *node) restarted(r *reading) bool {
	if r.started > 0 && n.started > 0 {
		return r.started != n.started
	}
	for name, v := range r.counters {
		if v < n.counters[name] {
			return true
		}
	}
	for name, h := range r.histograms {
		if h.count() < n.histograms[name].count() {
			return true
		}
	}
	return false
}

// result is what the gateway said of the measured time, which lasted for elapsed.
func (n *node) result(elapsed time.Duration) result.Node {
	out := result.Node{Metrics: n.url, Missing: n.missing(), Restarts: n.restarts, Memory: n.memory}
	for name, v := range n.increase {
		if v > 0 {
			if out.Counters == nil {
				out.Counters = map[string]float64{}
			}
			out.Counters[name] = v
		}
	}
	for _, s := range stages {
		h, ok := n.total[s.metric]
		if !ok {
			continue
		}
		out.Stages = append(out.Stages, result.Stage{
			Name: s.name, Count: h.count(),
			P50: 1000 * h.quantile(0.50), P95: 1000 * h.quantile(0.95), P99: 1000 * h.quantile(0.99),
			Second: n.seconds[s.metric],
			Growth: GrowthOf(n.seconds[s.metric], milliseconds(h.bounds), elapsed),
		})
	}
	return out
}

// missing says in a sentence what the figures lack, or nothing.
func (n *node) missing() string {
	attempts := n.readings + n.failures
	switch {
	case attempts == 0:
		return "was not read within the measured time"
	case n.readings == 0:
		return fmt.Sprintf("could not be read: %v", n.lastErr)
	case n.readings == 1 && n.failures == 0:
		return "was read only once within the measured time, which shows no change"
	case n.readings == 1:
		return fmt.Sprintf("was read only once within the measured time, which shows no change: %v", n.lastErr)
	case n.failures > 0:
		return fmt.Sprintf("%d of %d readings failed, the last one: %v", n.failures, attempts, n.lastErr)
	case n.restarts > 0:
		return "restarted; what it counted between its last reading and its end is lost"
	case len(n.total) == 0:
		return "has none of the stages of a gateway"
	}
	return ""
}

func milliseconds(seconds []float64) []float64 {
	out := make([]float64, len(seconds))
	for i, s := range seconds {
		out[i] = 1000 * s
	}
	return out
}
