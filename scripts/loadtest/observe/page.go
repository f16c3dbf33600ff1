package observe

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

const (
	// A reading that takes longer than this is given up: a gateway that is busy enough to need it
	// has no figures to offer for that second. It is more than the interval, so that a slow but
	// living gateway is still heard.
	readTimeout = 2 * time.Second
	// A gateway says some tens of kilobytes. More than this is something else.
	maxBody = 8 << 20
)

// reading is what a gateway said of itself at one moment. Counters and gauges are by name and labels,
// as Prometheus writes them.
type reading struct {
	counters, gauges map[string]float64
	buckets          buckets // of histograms without labels
}

// reader reads a /metrics page once, and gives up when ctx ends.
type reader func(ctx context.Context, url string) (*reading, error)

// Gauges reads a page that asks for no key, and returns its gauges. It keeps no connection, which
// would be a further goroutine of the gateway.
func Gauges(ctx context.Context, url string) (map[string]float64, error) {
	r, err := read(ctx, &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}, nil, url)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", url, err)
	}
	return r.gauges, nil
}

// read reads a page with a client, and shows header. A page that was cut off counts for nothing.
func read(ctx context.Context, client *http.Client, header http.Header, url string) (*reading, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, readTimeout, fmt.Errorf("no answer within %v", readTimeout))
	defer cancel()
	families, err := fetch(ctx, client, header, url)
	if err != nil {
		return nil, cmp.Or(context.Cause(ctx), err)
	}
	r := &reading{map[string]float64{}, map[string]float64{}, buckets{}}
	for name, f := range families {
		for _, m := range f.GetMetric() {
			r.take(name, f.GetType(), m)
		}
	}
	return r, nil
}

func fetch(ctx context.Context, client *http.Client, header http.Header, url string) (map[string]*dto.MetricFamily, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	maps.Copy(req.Header, header)
	req.Header.Set("Accept", string(expfmt.NewFormat(expfmt.TypeTextPlain)))
	res, err := client.Do(req)
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
	switch {
	case err != nil:
		return nil, fmt.Errorf("not Prometheus text: %w", err)
	case len(families) == 0:
		return nil, errors.New("answered no figures")
	}
	return families, nil
}

// take keeps what is of use. A figure that is no number is none.
func (r *reading) take(name string, kind dto.MetricType, m *dto.Metric) {
	var labels []string
	for _, l := range m.GetLabel() {
		labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
	}
	keep := func(in map[string]float64, name string, v float64) {
		if len(labels) > 0 {
			name += "{" + strings.Join(labels, ",") + "}"
		}
		if !math.IsNaN(v) && !math.IsInf(v, 0) {
			in[name] = v
		}
	}
	switch kind {
	case dto.MetricType_COUNTER:
		keep(r.counters, name, m.GetCounter().GetValue())
	case dto.MetricType_GAUGE:
		keep(r.gauges, name, m.GetGauge().GetValue())
	case dto.MetricType_HISTOGRAM:
		h := m.GetHistogram()
		keep(r.counters, name+"_count", float64(h.GetSampleCount()))
		keep(r.counters, name+"_sum", h.GetSampleSum())
		if len(labels) > 0 {
			return
		}
		for _, b := range h.GetBucket() {
			r.buckets[bucket{name, b.GetUpperBound()}] = float64(b.GetCumulativeCount())
		}
		r.buckets[bucket{name, math.Inf(1)}] = float64(h.GetSampleCount())
	}
}

// bucket is one of a histogram, with its upper bound in seconds.
type bucket struct {
	metric string
	bound  float64
}

// buckets are how many observations were at most a bound.
type buckets map[bucket]float64

// add adds what was observed between two readings of one process.
func (b buckets) add(now, before buckets) {
	for key, n := range now {
		b[key] += n - before[key]
	}
}

// histogram are the buckets of a metric, their bounds rising.
func (b buckets) histogram(metric string) (h histogram) {
	for key, n := range b {
		if key.metric == metric {
			h = append(h, struct{ bound, n float64 }{key.bound, n})
		}
	}
	slices.SortFunc(h, func(a, b struct{ bound, n float64 }) int { return cmp.Compare(a.bound, b.bound) })
	return h
}

// histogram is a classic one, whose last bound is +Inf.
type histogram []struct{ bound, n float64 }

func (h histogram) bounds() (all []float64) {
	for _, b := range h {
		all = append(all, b.bound)
	}
	return all
}

func (h histogram) count() float64 {
	if len(h) == 0 {
		return 0
	}
	return h[len(h)-1].n
}

// quantile is the q-th quantile (above 0, up to 1) in seconds, found as Prometheus'
// histogram_quantile does: by a straight line through the bucket it falls in, and the largest finite
// bound for what lies above it. It is 0 where nothing was observed.
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
