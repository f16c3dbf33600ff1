package main

import (
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"noncegate/wire"
)

// maxLatency is the longest that is told apart.
const maxLatency = time.Minute

// meter counts what comes between begin and end. The clients share its shards,
// few enough that five thousand clients need no histogram each.
type meter struct {
	shards         []shard
	measuring      atomic.Bool
	started, ended time.Time // set by begin and end
}

// shard counts for some of the clients.
type shard struct {
	meter *meter

	mu      sync.Mutex              // guards what follows
	latency *hdrhistogram.Histogram // microseconds
	refused map[string]int64        // by reason
}

func newMeter() *meter {
	m := &meter{shards: make([]shard, 2*runtime.GOMAXPROCS(0))}
	for i := range m.shards {
		m.shards[i] = shard{meter: m, latency: newHistogram(), refused: make(map[string]int64)}
	}
	return m
}

func newHistogram() *hdrhistogram.Histogram {
	return hdrhistogram.New(1, maxLatency.Microseconds(), 3)
}

// shard is where the i-th client counts.
func (m *meter) shard(i int) *shard { return &m.shards[i%len(m.shards)] }

func (m *meter) begin() {
	m.started = time.Now()
	m.measuring.Store(true)
}

func (m *meter) end() {
	m.measuring.Store(false)
	m.ended = time.Now()
}

// acknowledge counts n results of the same age.
func (s *shard) acknowledge(age time.Duration, n int) {
	if n == 0 || !s.meter.measuring.Load() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	// The value is within the histogram's range, the only error there is.
	s.latency.RecordValues(min(max(age, time.Microsecond), maxLatency).Microseconds(), int64(n))
}

// refuse counts an error reply.
func (s *shard) refuse(reason string) {
	if !s.meter.measuring.Load() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refused[reason]++
}

// report is the outcome of one load. Acknowledged are results; replies that are
// errors are in Errors by their reason, connections that ended early in Lost.
type report struct {
	Connections  int              `json:"connections"`
	Inflight     int              `json:"inflight"`
	Signers      int              `json:"signers"`
	Rate         float64          `json:"rate,omitempty"`
	Seconds      float64          `json:"seconds"`
	Acknowledged int64            `json:"acknowledged"`
	PerSecond    float64          `json:"perSecond"`
	LatencyMs    wire.Figure      `json:"latencyMs"`
	Errors       map[string]int64 `json:"errors,omitempty"`
	Lost         []string         `json:"lost,omitempty"`
}

// report sums up, after end.
func (m *meter) report(l load, lost []string) report {
	latency, refused := newHistogram(), make(map[string]int64)
	for i := range m.shards {
		m.shards[i].addTo(latency, refused)
	}
	ms := func(micros int64) float64 { return float64(micros) / 1000 }
	r := report{
		Connections: l.connections, Inflight: l.inflight, Signers: l.signers, Rate: l.rate,
		Seconds:      m.ended.Sub(m.started).Seconds(),
		Acknowledged: latency.TotalCount(),
		LatencyMs: wire.Figure{
			Count: latency.TotalCount(),
			P50:   ms(latency.ValueAtQuantile(50)),
			P95:   ms(latency.ValueAtQuantile(95)),
			P99:   ms(latency.ValueAtQuantile(99)),
			Max:   ms(latency.Max()),
		},
		Errors: refused,
		Lost:   lost,
	}
	r.PerSecond = float64(r.Acknowledged) / r.Seconds
	return r
}

func (s *shard) addTo(latency *hdrhistogram.Histogram, refused map[string]int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	latency.Merge(s.latency)
	for reason, n := range s.refused {
		refused[reason] += n
	}
}

// String is the report for people.
func (r report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d connections, bursts of %d, %d signers: %.0f acknowledged/s (%d in %.2f s)\n",
		r.Connections, r.Inflight, r.Signers, r.PerSecond, r.Acknowledged, r.Seconds)
	fmt.Fprintf(&b, "latency ms: p50 %.2f  p95 %.2f  p99 %.2f  max %.2f\n",
		r.LatencyMs.P50, r.LatencyMs.P95, r.LatencyMs.P99, r.LatencyMs.Max)
	for _, reason := range slices.Sorted(maps.Keys(r.Errors)) {
		fmt.Fprintf(&b, "errors: %s %d\n", reason, r.Errors[reason])
	}
	if n := len(r.Lost); n > 0 {
		fmt.Fprintf(&b, "lost connections: %d, the first: %s\n", n, r.Lost[0])
	}
	return b.String()
}
