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

	"noncegate/scripts/loadtest/result"
)

const (
	// A reading that takes longer is given up: a gateway that is so busy has no figures to offer for that second. It is more than the
	// interval, so that a slow but living gateway is still heard.
	readTimeout = 2 * time.Second
	maxBody     = 8 << 20 // a gateway says some tens of kilobytes
)

// reading is what a gateway said of itself at one moment, by name and labels.
type reading map[string]float64

// Read reads a page. It keeps no connection, which would be a further goroutine of the gateway. A page that was cut off counts for nothing.
func (p Pages) Read(ctx context.Context, url string) (map[string]float64, error) {
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

// quantile is the q-th quantile (above 0, up to 1) in seconds, found as Prometheus' histogram_quantile does: by a straight line through the
// bucket it falls in, and the largest finite bound for what lies above it. It is 0 where nothing was observed.
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

// Both figures of GrowthOf must exceed the largest of these margins. They are wide on purpose: a verdict fails a run, so noise must not
// reach it, while a queue that really grows without end crosses them within the run.
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

// width is that in milliseconds of the bucket that v lies in, and whether v is at or beyond the largest finite bound, where every larger
// value looks the same.
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
