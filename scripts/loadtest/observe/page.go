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
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

const (
	// A reading that takes longer is given up: a gateway that is so busy has no figures to offer for that second. It is more than the
	// interval, so that a slow but living gateway is still heard.
	readTimeout = 2 * time.Second
	maxBody     = 8 << 20 // a gateway says some tens of kilobytes
)

// reading is what a gateway said of itself at one moment, by name and labels.
type reading map[string]float64

// reader reads a /metrics page once, and gives up when ctx ends.
type reader func(ctx context.Context, url string) (reading, error)

// Read reads a page that asks for no key.
func Read(ctx context.Context, url string) (map[string]float64, error) {
	r, err := Pages{}.read(ctx, url)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", url, err)
	}
	return r, nil
}

// read reads a page. It keeps no connection, which would be a further goroutine of the gateway. A page that was cut off counts for
// nothing.
func (p Pages) read(ctx context.Context, url string) (reading, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	text := expfmt.NewFormat(expfmt.TypeTextPlain)
	maps.Copy(req.Header, p.Header)
	req.Header.Set("Accept", string(text))
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
	r := reading{}
	samples := expfmt.SampleDecoder{Dec: expfmt.NewDecoder(io.LimitReader(res.Body, maxBody), text), Opts: new(expfmt.DecodeOptions)}
	for {
		var family model.Vector
		err := samples.Decode(&family)
		switch {
		case err == io.EOF && len(r) > 0:
			return r, nil
		case err == io.EOF:
			return nil, errors.New("answered no figures")
		case err != nil:
			return nil, fmt.Errorf("not Prometheus text: %w", err)
		}
		for _, s := range family {
			if v := float64(s.Value); !math.IsNaN(v) && !math.IsInf(v, 0) {
				r[s.Metric.String()] = v
			}
		}
	}
}

// histogram is a classic one without labels: so many observations were at most a bound, in seconds. The last bound is +Inf.
type histogram []struct{ bound, n float64 }

// histogram are the buckets of a metric.
func (r reading) histogram(metric string) (h histogram) {
	for name, n := range r {
		rest, ok := strings.CutPrefix(name, metric+`_bucket{le="`)
		if bound, err := strconv.ParseFloat(strings.TrimSuffix(rest, `"}`), 64); ok && err == nil {
			h = append(h, struct{ bound, n float64 }{bound, n})
		}
	}
	slices.SortFunc(h, func(a, b struct{ bound, n float64 }) int { return cmp.Compare(a.bound, b.bound) })
	return h
}

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

// quantile is the q-th quantile (above 0, up to 1) in seconds, found as Prometheus' histogram_quantile does: by a straight line through
// the bucket it falls in, and the largest finite bound for what lies above it. It is 0 where nothing was observed.
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
