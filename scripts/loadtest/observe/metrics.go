package observe

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
)

// metricsTimeout is for one reading.
const metricsTimeout = 5 * time.Second

// Metrics are what a gateway says of itself at one moment: counters and gauges,
// those with labels under name{value of the first one}, and how many a histogram
// has counted under its name.
type Metrics map[string]float64

// Read reads a gateway's /metrics once. It keeps no connection, which would be a
// further goroutine of the gateway.
func Read(ctx context.Context, url string) (Metrics, error) {
	ctx, cancel := context.WithTimeout(ctx, metricsTimeout)
	defer cancel()
	client := &http.Client{Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true}}
	page, format, err := fetch(ctx, client, url)
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
