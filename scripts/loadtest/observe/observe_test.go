package observe

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.uber.org/goleak"

	"noncegate/internal/metrics"
	"noncegate/scripts/loadtest/result"
	"noncegate/test/lab/expect"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// page is what a process says that started at a time, has counted so much, and has made so many commits of up to 1 ms and of up to 10 ms.
func page(started, counted, fast, all float64) reading {
	const commits = `noncegate_commit_seconds_bucket{le="`
	return reading{
		"noncegate_x_total": counted, "process_start_time_seconds": started, "process_resident_memory_bytes": 7,
		commits + `0.001"}`: fast, commits + `0.01"}`: all, commits + `+Inf"}`: all,
	}
}

// observed are the figures of a gateway that says one page a second from when the measured time begins, or an error where there is none,
// and is then read a last time.
func observed(t *testing.T, pages ...reading) (n result.Node) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		i := 0
		o := start(t.Context(), []string{"url"}, func(context.Context, string) (map[string]float64, error) {
			i++
			if p := pages[min(i, len(pages))-1]; p != nil {
				return p, nil
			}
			return nil, errors.New("away")
		})
		o.Begin()
		time.Sleep(time.Duration(len(pages)-1)*time.Second - time.Second/2)
		n = o.End()[0]
		if again := o.End(); i != len(pages) || len(again) != 1 {
			t.Errorf("read %d times, want %d", i, len(pages))
		}
	})
	return n
}

func TestAnObserverCountsWhatPassedInEachSecond(t *testing.T) {
	n := observed(t, page(1, 100, 5, 5), page(1, 103, 5, 15), page(1, 110, 105, 115))
	if n.Counters["noncegate_x_total"] != 10 || n.Missing != "" || len(n.Memory) != 3 || len(n.Stages) != 1 {
		t.Fatalf("%+v; want what was counted since the first reading", n)
	}
	s := n.Stages[0]
	if s.Name != "commitMs" || s.Count != 110 || s.P50 > 1 || s.P99 < 8 || len(s.Second) != 2 || s.Second[0].Value < 9 ||
		s.Second[1].Value > 1 {
		t.Errorf("%+v; want ten commits of up to 10 ms, and then a hundred of up to 1 ms", s)
	}
}

func TestAGatewayThatRestartsIsCountedOnFromZero(t *testing.T) {
	n := observed(t, page(1, 100, 5, 5), page(1, 103, 5, 15), page(2, 4, 2, 2), page(2, 6, 3, 3))
	if n.Counters["noncegate_x_total"] != 9 || n.Restarts != 1 || n.Stages[0].Count != 13 || !strings.HasPrefix(n.Missing, "restarted;") {
		t.Errorf("%+v; want 3 of the first process and 6 of the second", n)
	}
}

func TestReadingsThatFailAreSaidAndBridged(t *testing.T) {
	n := observed(t, page(1, 100, 5, 5), nil, page(1, 110, 5, 5))
	if n.Counters["noncegate_x_total"] != 10 || n.Missing != "1 of 3 readings failed, the last one: away" {
		t.Errorf("%+v", n)
	}
	for want, pages := range map[string][]reading{
		"could not be read: away": {nil, nil}, "1 of 2 readings failed, the last one: away": {page(1, 1, 1, 1), nil},
	} {
		if n := observed(t, pages...); n.Missing != want || len(n.Stages) != 0 {
			t.Errorf("%+v; want %q", n, want)
		}
	}
}

func TestAnEndBeforeTheBeginHasNoFiguresAndSaysSo(t *testing.T) {
	o := start(t.Context(), []string{"url"}, func(context.Context, string) (map[string]float64, error) { return page(1, 1, 1, 1), nil })
	if n := o.End(); len(n) != 1 || n[0].Missing != "was not read within the measured time" {
		t.Errorf("%+v", n)
	}
}

// TestAPageOfAGatewayIsRead: its stages are under the names that the gateway gives them, behind its key.
func TestAPageOfAGatewayIsRead(t *testing.T) {
	registry := prometheus.NewRegistry()
	set := metrics.New(registry)
	set.Commit.Observe(2 * time.Millisecond)
	const key = "Bearer 0123456789abcdef"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != key {
			http.Error(w, "no key was given", http.StatusUnauthorized)
			return
		}
		promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(w, r)
	}))
	defer server.Close()
	header := http.Header{"Authorization": {key}}
	read, err := Pages{Header: header}.Read(t.Context(), server.URL)
	expect.Must(t, err)
	r := reading(read)
	for _, s := range stages {
		if len(r.histogram(s.metric)) < 3 {
			t.Errorf("there is no %s", s.metric)
		}
	}
	if h := r.histogram("noncegate_commit_seconds"); h.count() != 1 || h.quantile(0.5) <= 0 || h.quantile(0.5) > 0.01 {
		t.Errorf("commits %+v", h)
	}
	o := Pages{URLs: []string{server.URL}, Header: header}.Start(t.Context())
	o.Begin()
	if n := o.End()[0]; strings.Contains(n.Missing, "401") {
		t.Errorf("missing: %s", n.Missing)
	}
	if _, err := (Pages{}).Read(t.Context(), server.URL); err == nil || !strings.Contains(err.Error(), "--admin-key") {
		t.Errorf("without the key: %v, want a sentence with --admin-key", err)
	}
}

func TestWhatIsNoMetricsPageIsAnErrorThatSaysWhy(t *testing.T) {
	for text, want := range map[string]string{"": "no figures", "<html>": "not Prometheus text", "x_total 1\n": ""} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, text) }))
		if _, err := (Pages{}).Read(t.Context(), server.URL); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
		server.Close()
	}
}

func TestAQuantileLiesOnTheLineThroughItsBucket(t *testing.T) {
	h := histogram{{1, 0}, {2, 10}, {4, 30}, {math.Inf(1), 40}}
	for q, want := range map[float64]float64{0.125: 1.5, 0.25: 2, 0.5: 3, 0.75: 4, 0.99: 4} {
		if got := h.quantile(q); math.Abs(got-want) > 1e-9 {
			t.Errorf("%v: %v, want %v", q, got, want)
		}
	}
	if got := (histogram{}).quantile(0.5); got != 0 {
		t.Errorf("%v of nothing", got)
	}
}

// series are n points a second.
func points(n int, value func(i float64) float64) (out []result.Point) {
	for i := range n {
		out = append(out, result.Point{At: float64(i), Value: value(float64(i))})
	}
	return out
}

func TestOnlyASeriesThatRisesAllAlongGrows(t *testing.T) {
	bounds := histogram{{bound: 0.001}, {bound: 0.005}, {bound: 0.05}, {bound: 0.1}, {bound: 0.2}, {bound: 10}, {bound: math.Inf(1)}}
	for name, test := range map[string]struct {
		series         []result.Point
		grows, unknown bool
	}{
		"steady rise":       {points(30, func(i float64) float64 { return 5 + 3*i }), true, false},
		"very long rise":    {points(5000, func(i float64) float64 { return 5 + i/10 }), true, false},
		"flat":              {points(30, func(float64) float64 { return 20 }), false, false},
		"fall":              {points(30, func(i float64) float64 { return 200 - 3*i }), false, false},
		"one spike":         {points(30, func(i float64) float64 { return 5 + 1000*math.Max(0, i-28) }), false, false},
		"slow start":        {points(30, func(i float64) float64 { return 5 + 100*math.Max(0, 3-i) }), false, false},
		"saw-tooth":         {points(30, func(i float64) float64 { return 5 + 20*math.Mod(i, 5) }), false, false},
		"within one bucket": {points(30, func(i float64) float64 { return 6 + i }), false, false},
		"what nobody sees":  {points(30, func(i float64) float64 { return i / 60 }), false, false},
		"short":             {points(11, func(i float64) float64 { return 50 * i }), false, true},
		"off the scale":     {points(30, func(i float64) float64 { return 10_000 + i }), false, true},
	} {
		if g := GrowthOf(test.series, bounds, time.Minute); g.Grows != test.grows || g.Unknown != test.unknown || g.Why == "" {
			t.Errorf("%s: %+v", name, g)
		}
	}
	g := GrowthOf(points(30, func(i float64) float64 { return 2 * i }), nil, time.Minute)
	if math.Abs(g.SlopePerMinute-120) > 1e-9 || g.FirstThird != 9 || g.LastThird != 49 {
		t.Errorf("%+v; want 2 ms a second, from 9 to 49", g)
	}
}
