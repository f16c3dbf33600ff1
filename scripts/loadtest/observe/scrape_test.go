package observe

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"noncegate/internal/metrics"
	"noncegate/scripts/loadtest/access"
	"noncegate/wire"
)

func readOnce(t *testing.T, timeout time.Duration, handler http.HandlerFunc) (*reading, error) {
	t.Helper()
	server := httptest.NewServer(handler)
	defer server.Close()
	return overHTTP(server.Client(), nil, timeout)(t.Context(), server.URL)
}

func text(page string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		fmt.Fprint(w, page)
	}
}

func TestTheStagesOfAGatewayAreFoundUnderTheirMillisecondNames(t *testing.T) {
	reg := prometheus.NewRegistry()
	reg.MustRegister(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	set := metrics.New(reg)
	handler := promhttp.HandlerFor(reg, promhttp.HandlerOpts{}).ServeHTTP

	n := newNode("")
	before, err := readOnce(t, time.Minute, handler)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []*metrics.Stage{set.EncodeQueue, set.PostDBQueue, set.WriteQueue, set.WorkerQueue, set.Commit} {
		s.ObserveN(3*time.Millisecond, 10)
	}
	set.Rejected(wire.StageWorker, 7)
	set.BatchSize.Observe(5)
	after, err := readOnce(t, time.Minute, handler)
	if err != nil {
		t.Fatal(err)
	}
	n.take(before, 0)
	n.take(after, 1)

	got := n.result(time.Second)
	var names []string
	for _, s := range got.Stages {
		names = append(names, s.Name)
		if s.Count != 10 || s.P50 < 2.5 || s.P99 > 5 || len(s.Second) != 1 {
			t.Errorf("%s: %+v, want ten of 3 ms in one second", s.Name, s)
		}
	}
	if want := "workerQueueMs commitMs encodeQueueMs writeQueueMs postDbQueueMs"; strings.Join(names, " ") != want {
		t.Errorf("stages %q, want %q", names, want)
	}
	for series, want := range map[string]float64{
		`noncegate_rejected_total{stage="worker"}`: 7,
		`noncegate_commit_batch_size_count`:        1,
		`noncegate_commit_batch_size_sum`:          5,
	} {
		if got.Counters[series] != want {
			t.Errorf("%s = %v, want %v", series, got.Counters[series], want)
		}
	}
	for series, v := range got.Counters {
		if v <= 0 {
			t.Errorf("%s = %v is listed, though it did not move", series, v)
		}
	}
	if len(got.Memory) != 2 || got.Memory[0].Value < 1<<20 {
		t.Errorf("memory %v, want two readings of a process", got.Memory)
	}
	if got.Missing != "" || got.Restarts != 0 {
		t.Errorf("missing %q, %d restarts; want none", got.Missing, got.Restarts)
	}
}

func TestWhatIsNoMetricsPageIsAnErrorThatSaysWhy(t *testing.T) {
	for _, c := range []struct {
		name, want string
		handler    http.HandlerFunc
	}{
		{"not found", "404", http.NotFound},
		{"a web page", "which is not Prometheus text", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "<html></html>") }},
		{"prose", "not Prometheus text", text("Hello, who is there?\n")},
		{"nothing", "no figures", text("")},
		{"half a line", "not Prometheus text", text("# TYPE a_total counter\na_total 1\nb_tot")},
		{"half a body", "read body: unexpected EOF", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", "1000")
			text("# TYPE a_total counter\na_total 1\n")(w, r)
		}},
		{"a connection cut", "read body: unexpected EOF", func(w http.ResponseWriter, r *http.Request) {
			text("# TYPE a_total counter\na_total 1\n")(w, r)
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}},
		{"more than anyone says", "more than", text(strings.Repeat("a_total 1\n", maxBody/10+1))},
	} {
		_, err := readOnce(t, time.Minute, c.handler)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q in it", c.name, err, c.want)
		}
	}
}

func TestAPageThatHangsIsGivenUp(t *testing.T) {
	for name, first := range map[string]string{"before the answer": "", "within the body": "a_total 1\n"} {
		hang := func(w http.ResponseWriter, r *http.Request) {
			if first != "" {
				text(first)(w, r)
				w.(http.Flusher).Flush()
			}
			<-r.Context().Done()
		}
		_, err := readOnce(t, 50*time.Millisecond, hang)
		if err == nil || err.Error() != "no answer within 50ms" {
			t.Errorf("%s: error %v, want that there was no answer", name, err)
		}
	}
}

func TestAReadingEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		cancel()
		<-r.Context().Done()
	}))
	defer server.Close()
	if _, err := overHTTP(server.Client(), nil, time.Minute)(ctx, server.URL); err == nil {
		t.Error("a cancelled reading succeeded")
	}
}

func TestLabelsAreWrittenAsPrometheusWritesThem(t *testing.T) {
	r, err := parse([]byte("# TYPE a_total counter\na_total{x=\"1\",y=\"a\\\"b\\\\c\\nd\"} 2\n# TYPE nan_total counter\nnan_total NaN\n"), "text/plain; version=0.0.4")
	if err != nil {
		t.Fatal(err)
	}
	if got := r.counters[`a_total{x="1",y="a\"b\\c\nd"}`]; got != 2 || len(r.counters) != 1 {
		t.Errorf("counters %v, want the one with escaped labels, and none that is no number", r.counters)
	}
}

func TestMetricsAreReadByTheirFirstLabel(t *testing.T) {
	server := httptest.NewServer(text("# TYPE a_total counter\na_total{how=\"x\",why=\"1\"} 2\na_total{how=\"x\",why=\"2\"} 3\na_total{how=\"y\",why=\"1\"} 4\n" +
		"# TYPE b gauge\nb 5\n# TYPE c_seconds histogram\nc_seconds_bucket{le=\"+Inf\"} 6\nc_seconds_sum 7\nc_seconds_count 6\n"))
	defer server.Close()
	is, err := Read(t.Context(), server.URL)
	if err != nil || is["a_total{x}"] != 5 || is["a_total{y}"] != 4 || is["b"] != 5 || is["c_seconds"] != 6 || is.All("a_total") != 9 {
		t.Errorf("%v, %v; want 5, 4, 5 and 6, and 9 of all", is, err)
	}
	if grown := is.Since(Metrics{"b": 2}); grown["b"] != 3 || grown["a_total{y}"] != 4 {
		t.Errorf("grown by %v, want 3 and 4", grown)
	}
	nothing := httptest.NewServer(text(""))
	defer nothing.Close()
	if _, err := Read(t.Context(), nothing.URL); !errors.Is(err, errNoFigures) || !strings.Contains(err.Error(), nothing.URL) {
		t.Errorf("an empty page: %v, want its address and that it is empty", err)
	}
}

func TestAPageBehindAKeyIsReadWithIt(t *testing.T) {
	const key = "Bearer 0123456789abcdef"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != key {
			http.Error(w, "no key was given", http.StatusUnauthorized)
			return
		}
		text("# TYPE a_total counter\na_total 1\n")(w, r)
	}))
	defer server.Close()
	page := Pages{URLs: []string{server.URL}, Access: access.Access{Header: http.Header{"Authorization": {key}}}}
	if is, err := page.Read(t.Context(), server.URL); err != nil || is["a_total"] != 1 {
		t.Errorf("%v, %v; want the figure", is, err)
	}
	o := page.Start(t.Context())
	o.Begin()
	if n := o.End()[0]; n.Missing != "" && strings.Contains(n.Missing, "401") {
		t.Errorf("missing: %s", n.Missing)
	}
	if _, err := Read(t.Context(), server.URL); err == nil || !strings.Contains(err.Error(), "--admin-key") {
		t.Errorf("without the key: %v, want a sentence with --admin-key", err)
	}
}
