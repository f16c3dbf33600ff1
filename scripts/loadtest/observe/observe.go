// Package observe reads what gateways say of themselves while a load runs: their /metrics page, once a second. At the end it tells for each
// how long its stages took, whether one of their queues grew, which counters moved, and how much memory the process held.
//
// It never ends or delays a load. A gateway without /metrics, one that is slow, hangs, restarts or answers nonsense costs figures and a
// sentence in result.Node.Missing, nothing else. One reading at a time goes to each gateway, bounded in time and bytes. What a process
// counted between its last reading and its end is lost, and percentiles are as fine as the gateway's buckets.
package observe

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

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

// Start makes an observer, with a goroutine for each page from Begin to End. Readings stop when ctx ends; End must be called in any case.
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

// take adds a reading made at seconds after the begin. It is compared with the one before, if there is one, of the same process.
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
	// A percentile of the few observations between the last two readings would stand in the series like one of a whole second.
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

const (
	readTimeout = 2 * time.Second // more than the interval, so that a slow gateway is still heard; a later reading is of no use
	maxBody     = 8 << 20         // a gateway says some tens of kilobytes
)

// reading is what a gateway said of itself at one moment, by name and labels.
type reading map[string]float64

// Read reads a page. It keeps no connection, which would be a further goroutine of the gateway. A page that was cut off counts for nothing.
func (p Pages) Read(ctx context.Context, url string) (map[string]float64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	maps.Copy(req.Header, p.Header)
	req.Header.Set("Accept", string(expfmt.NewFormat(expfmt.TypeTextPlain)))
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true, TLSClientConfig: p.TLS}
	res, err := (&http.Client{Transport: transport, Timeout: readTimeout}).Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	switch {
	case res.StatusCode == http.StatusUnauthorized:
		return nil, fmt.Errorf("answered %s; --admin-key must be that of the gateway", res.Status)
	case res.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("answered %s", res.Status)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(io.LimitReader(res.Body, maxBody))
	if err != nil {
		return nil, fmt.Errorf("not Prometheus text: %w", err)
	}
	samples, err := expfmt.ExtractSamples(new(expfmt.DecodeOptions), slices.Collect(maps.Values(families))...)
	if err == nil && len(samples) == 0 {
		err = errors.New("answered no figures")
	}
	r := make(map[string]float64, len(samples))
	for _, s := range samples {
		if v := float64(s.Value); !math.IsNaN(v) && !math.IsInf(v, 0) {
			r[s.Metric.String()] = v
		}
	}
	return r, err
}

// bucket is how many observations of a classic histogram were at most a bound, in seconds. The last bound is +Inf.
type bucket struct{ bound, n float64 }

type histogram []bucket

// histogram is one without labels.
func (r reading) histogram(metric string) (h histogram) {
	for name, n := range r {
		rest, ok := strings.CutPrefix(name, metric+`_bucket{le="`)
		if bound, err := strconv.ParseFloat(strings.TrimSuffix(rest, `"}`), 64); ok && err == nil {
			h = append(h, bucket{bound, n})
		}
	}
	slices.SortFunc(h, func(a, b bucket) int { return cmp.Compare(a.bound, b.bound) })
	return h
}

func (h histogram) count() float64 {
	if len(h) == 0 {
		return 0
	}
	return h[len(h)-1].n
}

// quantile is the q-th quantile (above 0, up to 1) in seconds, as by Prometheus' histogram_quantile. It is 0 where nothing was observed.
func (h histogram) quantile(q float64) float64 {
	rank, lower, below := q*h.count(), 0.0, 0.0
	for _, b := range h {
		switch {
		case rank == 0 || math.IsInf(b.bound, 1):
			return lower
		case b.n >= rank:
			return lower + (b.bound-lower)*(rank-below)/(b.n-below)
		}
		lower, below = b.bound, b.n
	}
	return 0
}

// The margins are wide on purpose: noise must not fail a run, while a queue that really grows without end crosses them within the run.
const (
	fewestPoints   = 12  // that can tell a direction: three thirds of four
	maxPoints      = 600 // that the slope is taken over; more are joined, for it looks at every pair
	absoluteMargin = 1   // milliseconds, which nobody notices
	relativeMargin = 0.5 // of the first third
)

// GrowthOf tells whether a series in milliseconds grows steadily over a time of length elapsed.
//
// Two figures must agree. The Theil–Sen slope, the median of the slopes of all pairs of points, times the time the series spans: a spike,
// or a start that is slower or faster than the rest, moves few pairs and so hardly moves it. And the median of the last third less the
// median of the first: a saw-tooth has the same in each. A further margin is the width of the bucket that the first third lies in (bounds
// of), because within one bucket a percentile is only interpolated.
//
// A series of fewer than twelve points, or one that begins at the largest bucket, cannot tell, which is not "grows".
func GrowthOf(series []result.Point, bounds histogram, elapsed time.Duration) result.Growth {
	if len(series) < fewestPoints {
		return result.Growth{Unknown: true, Why: fmt.Sprintf("too short to tell: %d points in %.0f s, %d are needed",
			len(series), elapsed.Seconds(), fewestPoints)}
	}
	points := fold(series)
	third, perSecond := len(points)/3, slope(points)
	g := result.Growth{SlopePerMinute: 60 * perSecond, FirstThird: medianOf(points[:third]), LastThird: medianOf(points[len(points)-third:])}
	bucket, last := bounds.width(g.FirstThird)
	if last {
		g.Unknown, g.Why = true, fmt.Sprintf("cannot tell: the first third is at the largest bucket, %.3g ms", g.FirstThird)
		return g
	}
	rise, change := perSecond*(points[len(points)-1].At-points[0].At), g.LastThird-g.FirstThird
	margin := max(absoluteMargin, relativeMargin*g.FirstThird, bucket)
	g.Grows = rise > margin && change > margin
	g.Why = fmt.Sprintf("Theil–Sen slope %+.3g ms over the run, median of the last third %+.3g ms on the first's; margin of both %.3g ms",
		rise, change, margin)
	return g
}

// width is that in milliseconds of the bucket that v lies in, and whether that is the last, where every larger value looks the same.
func (h histogram) width(v float64) (width float64, last bool) {
	lower := 0.0
	for _, b := range h {
		if upper := 1000 * b.bound; !math.IsInf(upper, 1) {
			if v < upper {
				return upper - lower, false
			}
			lower = upper
		}
	}
	return 0, len(h) > 0
}

// slope is the Theil–Sen slope, in units of value a second.
func slope(points []result.Point) float64 {
	var slopes []float64
	for i, p := range points {
		for _, q := range points[i+1:] {
			if q.At > p.At {
				slopes = append(slopes, (q.Value-p.Value)/(q.At-p.At))
			}
		}
	}
	return result.Median(slopes)
}

func medianOf(points []result.Point) float64 {
	var values []float64
	for _, p := range points {
		values = append(values, p.Value)
	}
	return result.Median(values)
}

// fold joins neighbours to their median until there are at most maxPoints.
func fold(points []result.Point) (out []result.Point) {
	for part := range slices.Chunk(points, (len(points)+maxPoints-1)/maxPoints) {
		out = append(out, result.Point{At: part[0].At, Value: medianOf(part)})
	}
	return out
}
