package metrics

import (
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/prometheus/client_golang/prometheus"

	"noncegate/wire"
)

// The interval histograms keep two significant digits, which makes a percentile
// exact to one per cent and a histogram about 20 KiB. Durations are kept in
// nanoseconds in steps of 100 or a little more, up to a minute.
const (
	digits  = 2
	minSpan = 100 * time.Nanosecond
	maxSpan = time.Minute
	maxSize = 1 << 20
)

var secondsBuckets = []float64{
	50e-6, 100e-6, 250e-6, 500e-6,
	1e-3, 2.5e-3, 5e-3, 10e-3, 25e-3, 50e-3, 100e-3, 250e-3, 500e-3,
	1, 2.5, 5, 10,
}

// Stage is the distribution of the time spent at one stage.
type Stage struct{ spread }

// Observe counts one item that spent d at the stage. A negative d counts as 0;
// above a minute, only the maximum of the interval stays exact.
func (s *Stage) Observe(d time.Duration) { s.ObserveN(d, 1) }

// ObserveN counts n items that spent d each.
func (s *Stage) ObserveN(d time.Duration, n int) {
	d = max(d, 0)
	for range n {
		s.total.Observe(d.Seconds())
	}
	s.record(int64(d), int64(n))
}

func newStage(reg prometheus.Registerer, name, help string) *Stage {
	return &Stage{newSpread(reg, name, help, secondsBuckets, int64(minSpan), int64(maxSpan))}
}

// Sizes is the distribution of a number of things.
type Sizes struct{ spread }

// Observe counts one group of n things.
func (s *Sizes) Observe(n int) {
	s.total.Observe(float64(n))
	s.record(int64(n), 1)
}

func newSizes(reg prometheus.Registerer, name, help string) *Sizes {
	return &Sizes{newSpread(reg, name, help, prometheus.ExponentialBuckets(1, 2, 13), 1, maxSize)}
}

// spread is a distribution seen twice: in total by Prometheus, and over the
// current interval by ws_perf.
type spread struct {
	total prometheus.Histogram
	most  int64 // more than this is recorded as this

	mu   sync.Mutex // held for a few nanoseconds; guards the next two
	live *hdrhistogram.Histogram
	max  int64 // exact, of the current interval

	spare *hdrhistogram.Histogram // empty; used by cut alone
}

func newSpread(reg prometheus.Registerer, name, help string, buckets []float64, least, most int64) spread {
	total := prometheus.NewHistogram(prometheus.HistogramOpts{
		Namespace: namespace, Name: name, Help: help, Buckets: buckets,
	})
	reg.MustRegister(total)
	return spread{
		total: total, most: most,
		live:  hdrhistogram.New(least, most, digits),
		spare: hdrhistogram.New(least, most, digits),
	}
}

func (s *spread) record(v, n int64) {
	s.mu.Lock()
	s.max = max(s.max, v)
	// It cannot fail: the value is within the histogram's range, and an interval
	// never sees 2^63 of them.
	_ = s.live.RecordValues(min(v, s.most), n)
	s.mu.Unlock()
}

// cut ends the interval and returns its percentiles, values divided by unit. One
// caller at a time.
func (s *spread) cut(unit float64) wire.Figure {
	s.mu.Lock()
	done, most := s.live, s.max
	s.live, s.max = s.spare, 0
	s.mu.Unlock()

	at := func(q float64) float64 { return float64(min(done.ValueAtQuantile(q), most)) / unit }
	f := wire.Figure{
		Count: done.TotalCount(),
		P50:   at(50), P95: at(95), P99: at(99),
		Max: float64(most) / unit,
	}
	done.Reset()
	s.spare = done
	return f
}
