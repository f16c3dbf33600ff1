package observe

import (
	"bytes"
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
	// A reading that takes longer than this is given up: a gateway that is busy enough to need
	// it has no figures to offer for that second. It is more than the interval, so that a slow
	// but living gateway is still heard.
	readTimeout = 2 * time.Second
	// A gateway says some tens of kilobytes. More than this is something else.
	maxBody = 8 << 20
)

// reading is what a gateway said of itself at one moment.
type reading struct {
	counters   map[string]float64    // by name and labels, as Prometheus writes them
	gauges     map[string]float64    // in the same way
	histograms map[string]cumulative // by name
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

// read reads a page with a client, and shows header. The whole body is read before any of it
// counts, so that one that was cut off counts for nothing.
func read(ctx context.Context, client *http.Client, header http.Header, url string) (*reading, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, readTimeout, fmt.Errorf("no answer within %v", readTimeout))
	defer cancel()
	page, err := fetch(ctx, client, header, url)
	if cause := context.Cause(ctx); err != nil && cause != nil {
		return nil, cause
	}
	if err != nil {
		return nil, err
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(page))
	switch {
	case err != nil:
		return nil, fmt.Errorf("not Prometheus text: %w", err)
	case len(families) == 0:
		return nil, errors.New("answered no figures")
	}
	r := &reading{map[string]float64{}, map[string]float64{}, map[string]cumulative{}}
	for name, f := range families {
		for _, m := range f.GetMetric() {
			r.take(name, f.GetType(), m)
		}
	}
	return r, nil
}

func fetch(ctx context.Context, client *http.Client, header http.Header, url string) ([]byte, error) {
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
	page, err := io.ReadAll(io.LimitReader(res.Body, maxBody+1))
	if err == nil && len(page) > maxBody {
		err = fmt.Errorf("answered more than %d bytes", maxBody)
	}
	return page, err
}

// take keeps what is of use. A figure that is no number is none.
func (r *reading) take(name string, kind dto.MetricType, m *dto.Metric) {
	keep := func(in map[string]float64, name string, v float64) {
		if !math.IsNaN(v) && !math.IsInf(v, 0) {
			in[series(name, m.GetLabel())] = v
		}
	}
	switch kind {
	case dto.MetricType_COUNTER:
		keep(r.counters, name, m.GetCounter().GetValue())
	case dto.MetricType_GAUGE:
		keep(r.gauges, name, m.GetGauge().GetValue())
	case dto.MetricType_HISTOGRAM:
		if len(m.GetLabel()) == 0 {
			r.histograms[name] = cumulativeOf(m.GetHistogram())
		}
		keep(r.counters, name+"_count", float64(m.GetHistogram().GetSampleCount()))
		keep(r.counters, name+"_sum", m.GetHistogram().GetSampleSum())
	}
}

// series writes a name and its labels as Prometheus does.
func series(name string, labels []*dto.LabelPair) string {
	var parts []string
	for _, l := range labels {
		parts = append(parts, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
	}
	if len(parts) == 0 {
		return name
	}
	return name + "{" + strings.Join(parts, ",") + "}"
}

// cumulative is a classic histogram: counts[i] observations were at most bounds[i], the last bound
// is +Inf. Without bounds it is nothing at all.
type cumulative struct {
	bounds []float64 // seconds, rising
	counts []uint64
}

func cumulativeOf(h *dto.Histogram) (c cumulative) {
	for _, b := range h.GetBucket() {
		if !math.IsInf(b.GetUpperBound(), 1) {
			c.bounds, c.counts = append(c.bounds, b.GetUpperBound()), append(c.counts, b.GetCumulativeCount())
		}
	}
	return cumulative{append(c.bounds, math.Inf(1)), append(c.counts, h.GetSampleCount())}
}

// since is what was observed after earlier, a reading of the same process or none.
func (c cumulative) since(earlier cumulative) cumulative {
	if len(earlier.counts) != len(c.counts) {
		return c
	}
	passed := cumulative{c.bounds, slices.Clone(c.counts)}
	for i, n := range earlier.counts {
		passed.counts[i] -= n
	}
	return passed
}

// and joins what was observed in two times that follow each other.
func (c cumulative) and(next cumulative) cumulative {
	if len(c.counts) != len(next.counts) {
		if len(next.counts) > 0 {
			return next
		}
		return c
	}
	sum := cumulative{c.bounds, slices.Clone(c.counts)}
	for i, n := range next.counts {
		sum.counts[i] += n
	}
	return sum
}

func (c cumulative) count() int64 {
	if len(c.counts) == 0 {
		return 0
	}
	return int64(c.counts[len(c.counts)-1])
}

// quantile is the q-th quantile (above 0, up to 1) in seconds, found as Prometheus'
// histogram_quantile does: by a straight line through the bucket it falls in, and the largest
// finite bound for what lies above it. It is 0 where nothing was observed.
func (c cumulative) quantile(q float64) float64 {
	rank := q * float64(c.count())
	if rank == 0 {
		return 0
	}
	i := slices.IndexFunc(c.counts, func(n uint64) bool { return float64(n) >= rank })
	if i < 0 || i == len(c.counts)-1 {
		return c.bounds[max(0, len(c.bounds)-2)]
	}
	lower, below := 0.0, 0.0
	if i > 0 {
		lower, below = c.bounds[i-1], float64(c.counts[i-1])
	}
	return lower + (c.bounds[i]-lower)*(rank-below)/(float64(c.counts[i])-below)
}
