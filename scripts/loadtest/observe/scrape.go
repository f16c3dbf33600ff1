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
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
)

const (
	// A reading that takes longer than this is given up: a gateway that is busy
	// enough to need it has no figures to offer for that second. It is more than
	// the interval, so that a slow but living gateway is still heard.
	readTimeout = 2 * time.Second
	// A gateway says some tens of kilobytes. More than this is something else.
	maxBody = 8 << 20
)

// reading is what a gateway said of itself at one moment.
type reading struct {
	counters   map[string]float64    // by name and labels
	histograms map[string]cumulative // the stages' ones, by name
	memory     float64               // resident bytes, 0 when not said
	started    float64               // of the process, Unix seconds, 0 when not said
}

// reader reads a /metrics page once, and gives up when ctx ends.
type reader func(ctx context.Context, url string) (*reading, error)

// overHTTP reads with client, shows header, and waits no longer than timeout. The whole body is read before any of it counts, so
// that one that was cut off counts for nothing.
func overHTTP(client *http.Client, header http.Header, timeout time.Duration) reader {
	return func(ctx context.Context, url string) (*reading, error) {
		ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("no answer within %v", timeout))
		defer cancel()
		page, format, err := fetch(ctx, client, header, url)
		if err != nil {
			if cause := context.Cause(ctx); cause != nil {
				return nil, cause
			}
			return nil, err
		}
		return parse(page, format)
	}
}

func fetch(ctx context.Context, client *http.Client, header http.Header, url string) (page []byte, format expfmt.Format, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, "", err
	}
	maps.Copy(req.Header, header)
	req.Header.Set("Accept", string(expfmt.NewFormat(expfmt.TypeTextPlain)))
	res, err := client.Do(req)
	if err != nil {
		return nil, "", err
	}
	defer res.Body.Close()
	if res.StatusCode == http.StatusUnauthorized {
		return nil, "", fmt.Errorf("answered %s; --admin-key must be that of the gateway", res.Status)
	}
	if res.StatusCode != http.StatusOK {
		return nil, "", fmt.Errorf("answered %s", res.Status)
	}
	format = expfmt.ResponseFormat(res.Header)
	if format.FormatType() != expfmt.TypeTextPlain {
		return nil, "", fmt.Errorf("answered %q, which is not Prometheus text", res.Header.Get("Content-Type"))
	}
	page, err = io.ReadAll(io.LimitReader(res.Body, maxBody+1))
	if err != nil {
		return nil, "", fmt.Errorf("read body: %w", err)
	}
	if len(page) > maxBody {
		return nil, "", fmt.Errorf("answered more than %d bytes", maxBody)
	}
	return page, format, nil
}

// errNoFigures is for a page that is read well and says nothing.
var errNoFigures = errors.New("answered no figures")

func parse(page []byte, format expfmt.Format) (*reading, error) {
	r := &reading{counters: map[string]float64{}, histograms: map[string]cumulative{}}
	if err := eachFamily(page, format, r.take); err != nil {
		return nil, err
	}
	return r, nil
}

// eachFamily calls take for every family of a page, which must have one at least.
func eachFamily(page []byte, format expfmt.Format, take func(*dto.MetricFamily)) error {
	decoder := expfmt.NewDecoder(bytes.NewReader(page), format)
	for families := 0; ; families++ {
		var f dto.MetricFamily
		err := decoder.Decode(&f)
		switch {
		case errors.Is(err, io.EOF) && families == 0:
			return errNoFigures
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("not Prometheus text: %w", err)
		}
		take(&f)
	}
}

// take keeps what is of use in one family.
func (r *reading) take(f *dto.MetricFamily) {
	name := f.GetName()
	switch name {
	case "process_resident_memory_bytes":
		r.memory = gauge(f)
	case "process_start_time_seconds":
		r.started = gauge(f)
	}
	for _, m := range f.GetMetric() {
		switch f.GetType() {
		case dto.MetricType_COUNTER:
			r.count(name, m, m.GetCounter().GetValue())
		case dto.MetricType_SUMMARY:
			r.count(name+"_count", m, float64(m.GetSummary().GetSampleCount()))
			r.count(name+"_sum", m, m.GetSummary().GetSampleSum())
		case dto.MetricType_HISTOGRAM:
			if isStage(name) {
				r.histograms[name] = r.histograms[name].plus(m.GetHistogram())
				continue
			}
			r.count(name+"_count", m, float64(m.GetHistogram().GetSampleCount()))
			r.count(name+"_sum", m, m.GetHistogram().GetSampleSum())
		}
	}
}

// count keeps a counter. One that is no number, or below zero, cannot be one.
func (r *reading) count(name string, m *dto.Metric, v float64) {
	if v >= 0 && !math.IsInf(v, 0) {
		r.counters[series(name, m.GetLabel())] = v
	}
}

func gauge(f *dto.MetricFamily) float64 {
	for _, m := range f.GetMetric() {
		if v := m.GetGauge().GetValue(); v > 0 && !math.IsInf(v, 0) {
			return v
		}
	}
	return 0
}

// series writes a name and its labels as Prometheus does.
func series(name string, labels []*dto.LabelPair) string {
	if len(labels) == 0 {
		return name
	}
	var b strings.Builder
	b.WriteString(name)
	for i, l := range labels {
		b.WriteByte("{,"[min(i, 1)])
		fmt.Fprintf(&b, `%s="%s"`, l.GetName(), escapeLabel.Replace(l.GetValue()))
	}
	b.WriteByte('}')
	return b.String()
}

var escapeLabel = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)

// metricsTimeout is for one reading.
const metricsTimeout = 5 * time.Second

// Metrics are what a gateway says of itself at one moment: counters and gauges,
// those with labels under name{value of the first one}, and how many a histogram
// has counted under its name.
type Metrics map[string]float64

// Read is Pages.Read of a page that asks for no key.
func Read(ctx context.Context, url string) (Metrics, error) { return Pages{}.Read(ctx, url) }

// Read reads one page once. It keeps no connection, which would be a further goroutine
// of the gateway.
func (p Pages) Read(ctx context.Context, url string) (Metrics, error) {
	ctx, cancel := context.WithTimeout(ctx, metricsTimeout)
	defer cancel()
	client := &http.Client{Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true, TLSClientConfig: p.Access.TLS}}
	page, format, err := fetch(ctx, client, p.Access.Header, url)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", url, err)
	}
	is := make(Metrics)
	if err := eachFamily(page, format, is.take); err != nil {
		return nil, fmt.Errorf("read %s: %w", url, err)
	}
	return is, nil
}

func (f Metrics) take(family *dto.MetricFamily) {
	for _, m := range family.GetMetric() {
		name := family.GetName()
		if len(m.GetLabel()) > 0 {
			name += "{" + m.GetLabel()[0].GetValue() + "}"
		}
		f[name] += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
	}
}

// Since is by how much each has grown.
func (f Metrics) Since(earlier Metrics) Metrics {
	grown := make(Metrics, len(f))
	for name, v := range f {
		grown[name] = v - earlier[name]
	}
	return grown
}

// All is the sum over all values of a name's first label.
func (f Metrics) All(name string) (sum float64) {
	for key, v := range f {
		if strings.HasPrefix(key, name+"{") {
			sum += v
		}
	}
	return sum
}
