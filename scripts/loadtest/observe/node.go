package observe

import (
	"context"
	"fmt"
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

// node is one gateway and what it said so far. It belongs to the goroutine that runs follow, and
// to End once that has ended.
type node struct {
	url   string
	get   reader
	began time.Time // zero: the measured time has not begun

	last     *reading // good one since the begin
	readings int      // since the begin, good ones
	failures int
	lastErr  error
	restarts int

	grown   map[string]float64    // counters
	total   map[string]cumulative // stages
	pending map[string]cumulative // what passed since lastAt
	lastAt  float64               // of the last point of seconds, or of the first reading
	seconds map[string][]result.Point
	memory  []result.Point
}

// follow reads the gateway once the measured time begins, and then every second until ctx ends.
func (n *node) follow(ctx context.Context, begin <-chan time.Time) {
	select {
	case <-ctx.Done():
		return
	case n.began = <-begin:
	}
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		n.read(ctx)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// read reads the gateway once.
func (n *node) read(ctx context.Context) {
	r, err := n.get(ctx, n.url)
	switch {
	case err != nil && ctx.Err() != nil: // we were stopped, the gateway did nothing wrong
	case err != nil:
		n.failures++
		n.lastErr = err
	default:
		n.take(r, time.Since(n.began).Seconds())
	}
}

// take adds a reading made at seconds after the begin. The first is what the others are compared
// with; one of another process is compared with nothing. A name that is missing this time is no
// counter that went back.
func (n *node) take(r *reading, at float64) {
	n.readings++
	n.memory = append(n.memory, result.Point{At: at, Value: r.gauges["process_resident_memory_bytes"]})
	last := n.last
	n.last = r
	const started = "process_start_time_seconds"
	switch {
	case last == nil:
		n.grown, n.total, n.pending, n.seconds = map[string]float64{}, map[string]cumulative{}, map[string]cumulative{}, map[string][]result.Point{}
		n.lastAt = at
		return
	case r.gauges[started] != last.gauges[started]:
		n.restarts++
		last = new(reading)
	}
	for name, v := range r.counters {
		if was := last.counters[name]; v > was {
			n.grown[name] += v - was
		}
	}
	for _, s := range stages {
		passed := r.histograms[s.metric].since(last.histograms[s.metric])
		n.total[s.metric] = n.total[s.metric].and(passed)
		n.pending[s.metric] = n.pending[s.metric].and(passed)
	}
	// The last reading may follow the one before at once: a percentile of a few observations
	// would stand in the series like one of a whole second.
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

// result is what the gateway said of the measured time.
func (n *node) result() result.Node {
	out := result.Node{Metrics: n.url, Missing: n.missing(), Restarts: n.restarts, Memory: n.memory, Counters: n.grown}
	for _, s := range stages {
		h := n.total[s.metric]
		if len(h.counts) == 0 {
			continue
		}
		out.Stages = append(out.Stages, result.Stage{
			Name: s.name, Count: h.count(),
			P50: 1000 * h.quantile(0.50), P95: 1000 * h.quantile(0.95), P99: 1000 * h.quantile(0.99),
			Second: n.seconds[s.metric], Growth: GrowthOf(n.seconds[s.metric], h.bounds, time.Since(n.began)),
		})
	}
	return out
}

// missing says in a sentence what the figures lack, or nothing.
func (n *node) missing() string {
	const once = "was read only once within the measured time, which shows no change"
	switch attempts := n.readings + n.failures; {
	case attempts == 0:
		return "was not read within the measured time"
	case n.readings == 0:
		return fmt.Sprintf("could not be read: %v", n.lastErr)
	case n.readings == 1 && n.failures > 0:
		return fmt.Sprintf("%s: %v", once, n.lastErr)
	case n.readings == 1:
		return once
	case n.failures > 0:
		return fmt.Sprintf("%d of %d readings failed, the last one: %v", n.failures, attempts, n.lastErr)
	case n.restarts > 0:
		return "restarted; what it counted between its last reading and its end is lost"
	}
	return ""
}
