// Package observe reads what gateways say of themselves while a load runs: their /metrics page, once a second. At the end it tells for each
// how long its stages took, whether one of their queues grew, which counters moved, and how much memory the process held.
//
// It never ends or delays a load. A gateway without /metrics, one that is slow, hangs, restarts or answers nonsense costs figures and a
// sentence in result.Node.Missing, nothing else. One reading at a time goes to each gateway, bounded in time and bytes. What a process
// counted between its last reading and its end is lost, and percentiles are as fine as the gateway's buckets.
package observe

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"regexp"
	"sync"
	"time"

	"noncegate/scripts/loadtest/result"
)

const interval = time.Second

// stages are the histograms that become stages, in the order of a request's way.
var stages = []struct{ metric, name string }{
	{"noncegate_worker_queue_seconds", "workerQueueMs"},
	{"noncegate_commit_seconds", "commitMs"},
	{"noncegate_encode_queue_seconds", "encodeQueueMs"},
	{"noncegate_write_queue_seconds", "writeQueueMs"},
	{"noncegate_postdb_queue_seconds", "postDbQueueMs"},
}

// Pages are the /metrics of gateways, and what is shown there.
type Pages struct {
	URLs   []string
	Header http.Header // sent with each request
	TLS    *tls.Config // of https addresses
}

// Observer reads a number of gateways. Its functions may be called from any goroutine.
type Observer struct {
	// Begin says that the measured time begins now: what was counted before is left out. It returns at once. Only the first call counts.
	Begin func()
	// End says that the measured time ends now, reads every gateway a last time, also after the end of the context given to Start, and
	// returns the figures in the order of the URLs. Without Begin there are none. A further call returns the same.
	End func() []result.Node
}

// Start makes an observer of the pages. Readings stop when ctx ends; End must be called in any case. It has a goroutine for each gateway
// from Begin to End.
func (p Pages) Start(ctx context.Context) *Observer { return start(ctx, p.URLs, p.Read) }

// start is Start with what it reads with.
func start(ctx context.Context, urls []string, read func(context.Context, string) (map[string]float64, error)) *Observer {
	running, stop := context.WithCancel(ctx)
	var following sync.WaitGroup
	var nodes []*node
	for _, url := range urls {
		get := func(ctx context.Context) (map[string]float64, error) { return read(ctx, url) }
		nodes = append(nodes, &node{url: url, get: get, grown: reading{}, pending: reading{}, seconds: map[string][]result.Point{}})
	}
	return &Observer{
		Begin: sync.OnceFunc(func() {
			for _, n := range nodes {
				n.began = time.Now()
				following.Go(func() { n.follow(running) })
			}
		}),
		End: sync.OnceValue(func() (found []result.Node) {
			stop()
			following.Wait()
			for _, n := range nodes {
				if !n.began.IsZero() {
					following.Go(func() { n.read(context.WithoutCancel(ctx)) })
				}
			}
			following.Wait()
			for _, n := range nodes {
				found = append(found, n.result())
			}
			return found
		}),
	}
}

// node is one gateway and what it said so far. It belongs to the goroutine that runs follow, and to End once that has ended.
type node struct {
	url   string
	get   func(context.Context) (map[string]float64, error)
	began time.Time

	last     reading // good one since the begin
	readings int     // since the begin, good ones
	failures int
	lastErr  error
	restarts int

	grown   reading                   // since the begin
	pending reading                   // since lastAt
	lastAt  float64                   // of the last point of seconds, or of the first reading
	seconds map[string][]result.Point // p95 in milliseconds, by metric
	memory  []result.Point
}

// follow reads the gateway now, and then every second until ctx ends.
func (n *node) follow(ctx context.Context) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for ctx.Err() == nil {
		n.read(ctx)
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
}

func (n *node) read(ctx context.Context) {
	r, err := n.get(ctx)
	switch {
	case err == nil:
		n.take(r, time.Since(n.began).Seconds())
	case ctx.Err() == nil: // else we were stopped, the gateway did nothing wrong
		n.failures++
		n.lastErr = err
	}
}

// take adds a reading made at seconds after the begin. The first is what the others are compared with; one of another process is compared
// with nothing. A name that is missing this time is no counter that went back.
func (n *node) take(r reading, at float64) {
	n.readings++
	n.memory = append(n.memory, result.Point{At: at, Value: r["process_resident_memory_bytes"]})
	last := n.last
	n.last = r
	const started = "process_start_time_seconds"
	switch {
	case last == nil:
		n.lastAt = at
		return
	case r[started] != last[started]:
		n.restarts++
		last = nil
	}
	for name, v := range r {
		by := max(0, v-last[name])
		n.grown[name] += by
		n.pending[name] += by
	}
	// The last reading may follow the one before at once: a percentile of a few observations would stand in the series like one of a whole
	// second.
	if at-n.lastAt < interval.Seconds()/2 {
		return
	}
	for _, s := range stages {
		if h := n.pending.histogram(s.metric); h.count() > 0 {
			n.seconds[s.metric] = append(n.seconds[s.metric], result.Point{At: at, Value: 1000 * h.quantile(0.95)})
		}
	}
	clear(n.pending)
	n.lastAt = at
}

func (n *node) result() result.Node {
	out := result.Node{Metrics: n.url, Missing: n.missing(), Restarts: n.restarts, Memory: n.memory, Counters: map[string]float64{}}
	for name, by := range n.grown {
		if by > 0 && isCounter.MatchString(name) {
			out.Counters[name] = by
		}
	}
	for _, s := range stages {
		if h := n.grown.histogram(s.metric); len(h) > 0 {
			out.Stages = append(out.Stages, result.Stage{
				Name: s.name, Count: int64(h.count()), P50: 1000 * h.quantile(0.50), P95: 1000 * h.quantile(0.95), P99: 1000 * h.quantile(0.99),
				Second: n.seconds[s.metric], Growth: GrowthOf(n.seconds[s.metric], h, time.Since(n.began)),
			})
		}
	}
	return out
}

var isCounter = regexp.MustCompile(`^[a-z_]+_(total|count|sum)($|\{)`)

// missing says in a sentence what the figures lack, or nothing.
func (n *node) missing() string {
	switch attempts := n.readings + n.failures; {
	case attempts == 0:
		return "was not read within the measured time"
	case n.readings == 0:
		return fmt.Sprintf("could not be read: %v", n.lastErr)
	case n.failures > 0:
		return fmt.Sprintf("%d of %d readings failed, the last one: %v", n.failures, attempts, n.lastErr)
	case n.readings == 1:
		return "was read only once within the measured time, which shows no change"
	case n.restarts > 0:
		return "restarted; what it counted between its last reading and its end is lost"
	}
	return ""
}
