package admin

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"noncegate/internal/access/audit"
	"noncegate/internal/metrics"
	"noncegate/lease"
	"noncegate/nonce"
	"noncegate/test/lab/expect"
	"noncegate/wire"
)

func TestTheAdminSideAnswers(t *testing.T) {
	reg := prometheus.NewRegistry()
	metrics.New(reg)
	var sentence error
	h := New(Config{Metrics: reg, Ready: func() error { return sentence }, Profiles: true}).Handler()
	without := New(Config{Metrics: reg}).Handler()
	w := httptest.NewRecorder()
	if without.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "http://localhost/debug/pprof/", nil)); w.Code != http.StatusNotFound {
		t.Errorf("without profiles: %d", w.Code)
	}
	for _, tt := range []struct {
		path string
		err  error
		code int
		body string // contained
	}{
		{"/healthz", nil, 200, "alive\n"},
		{"/healthz", errors.New("draining"), 200, "alive\n"},
		{"/readyz", nil, 200, "ready\n"},
		{"/readyz", errors.New("the store does not answer"), 503, "the store does not answer\n"},
		{"/metrics", nil, 200, "noncegate_rejected_total{stage=\"worker\"} 0\n"},
		{"/debug/pprof/", nil, 200, "goroutine"},
		{"/debug/pprof/goroutine?debug=1", nil, 200, "goroutine profile"},
		{"/debug/pprof/cmdline", nil, 404, "not found"}, // it may hold a password
		{"/nothing", nil, 404, ""},
	} {
		sentence = tt.err
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "http://localhost"+tt.path, nil))
		if w.Code != tt.code || !strings.Contains(w.Body.String(), tt.body) {
			t.Errorf("%s with %v: %d %q, want %d with %q", tt.path, tt.err, w.Code, w.Body.String(), tt.code, tt.body)
		}
	}
}

// Whoever reaches the private side may ask whether the gateway is ready, as often as he
// likes. That must cost the store no more than a load balancer does.
func TestAnyNumberOfQuestionsWhetherItIsReadyAreOneToTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var looks atomic.Int64
		ready := Readiness(func() error { looks.Add(1); return nil })
		for round := int64(1); round <= 3; round++ {
			var all sync.WaitGroup
			for range 500 {
				all.Go(func() { expect.Check(t, ready()) })
			}
			all.Wait()
			if n := looks.Load(); n != round {
				t.Errorf("500 questions, %d times, were %d looks", round, n)
			}
			time.Sleep(readyFor)
		}
	})
}

// A page of a browser has a form, which sends no JSON, and an origin; and it can have its own name lead to 127.0.0.1, and
// would read who signs here.
func TestAPageOfABrowserDoesAndReadsNothing(t *testing.T) {
	const key = "0123456789abcdef"
	ask := func(route, host, key, shown string, headers ...string) (status int, body string) {
		method, path, _ := strings.Cut(route, " ")
		r := httptest.NewRequest(method, "http://127.0.0.1"+path, strings.NewReader("{}"))
		r.Host = host
		r.Header.Set("Content-Type", "application/json")
		if shown != "" {
			r.Header.Set("Authorization", "Bearer "+shown)
		}
		for i := 0; i < len(headers); i += 2 {
			r.Header.Set(headers[i], headers[i+1])
		}
		w := httptest.NewRecorder()
		New(Config{
			Key: key, Hosts: []string{"gateway-1.internal", "gateway-2"}, Profiles: true, Metrics: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler),
			Nodes: func() []lease.Node { return nil }, NodeInfos: func([]lease.Node) []wire.NodeInfo { return nil },
		}).Handler().ServeHTTP(w, r)
		return w.Code, w.Body.String()
	}
	routes := []string{
		"GET /metrics", "GET /healthz", "GET /readyz", "GET /debug/pprof/", "GET /debug/pprof/goroutine", "GET /debug/pprof/cmdline",
		"GET /debug/pprof/profile?seconds=1", "GET /debug/pprof/symbol", "GET /debug/pprof/trace?seconds=1", "GET /nothing", "GET /admin/v1/openapi.yaml", "GET /", "GET /console.js",
		"GET /console.css", "GET /ws", "GET /admin/v1/nothing",
	}
	for _, o := range operations {
		d := o.(interface{ describe() described }).describe()
		routes = append(routes, strings.ToUpper(d.Method)+" "+d.Path)
	}
	for _, route := range routes {
		for _, key := range []string{"", key} {
			if status, body := ask(route, "page.example:8081", key, key); status != http.StatusForbidden || !strings.Contains(body, "--admin-hosts") {
				t.Errorf("%s with the key %q: %d %.100s", route, key, status, body)
			}
		}
	}
	for host, want := range map[string]int{
		"evil.example": 403, "127.0.0.1.evil.example": 403, "localhost.evil.example:8081": 403, "gateway-1.internal.evil.example": 403,
		"127.0.0.1:8081": 200, "[::1]:8081": 200, "[::1]": 200, "localhost:8081": 200, "10.0.0.7": 200, "": 200, "gateway-1.internal:8081": 200, "GATEWAY-2": 200,
	} {
		if status, _ := ask("GET /admin/v1/nodes", host, "", ""); status != want {
			t.Errorf("by %q: %d, want %d", host, status, want)
		}
		if status, _ := ask("GET /admin/v1/nodes", host, key, key); status != want {
			t.Errorf("by %q with the key: %d, want %d", host, status, want)
		}
	}
	const move = "POST /admin/v1/shard/move"
	for _, c := range []struct {
		headers []string
		status  int
	}{
		{[]string{"Origin", "https://page.example"}, 403},
		{[]string{"Sec-Fetch-Site", "cross-site"}, 403},
		{[]string{"Content-Type", "application/x-www-form-urlencoded"}, 415},
		{[]string{"Content-Type", "text/plain"}, 415},
		{[]string{"Origin", "http://127.0.0.1:8081", "Sec-Fetch-Site", "same-origin"}, 400}, // a page of the gateway's own
	} {
		if status, body := ask(move, "127.0.0.1:8081", "", "", c.headers...); status != c.status {
			t.Errorf("with %q: %d %s", c.headers, status, body)
		}
	}
}

func TestAnActThatTheStoreDidNotDoSaysWhatHappened(t *testing.T) {
	cause := errors.New("it is away")
	for outcome, want := range map[nonce.Outcome][3]string{
		nonce.NotSent: {"", "the shard was not moved", "the engine was not switched"},
		nonce.Aborted: {"", "the shard was not moved", "the engine was not switched"},
		nonce.Unknown: {
			"unknown", "whether the shard was moved is unknown, and to move it again does no harm",
			"whether the engine was switched is unknown: look at its status",
		},
	} {
		err := &nonce.StoreError{Outcome: outcome, Err: cause}
		for i, err := range []error{moveError(err), switchError(err)} {
			code, said := refusalOf(err)
			if code != http.StatusServiceUnavailable || said.Outcome != want[0] || !strings.HasSuffix(said.Error, "it is away; "+want[1+i]) {
				t.Errorf("%v: %d %+v", outcome, code, said)
			}
		}
	}
}

func TestAnActThatPanicsIsInTheAudit(t *testing.T) {
	var log expect.Buffer
	lines, err := audit.New(slog.NewTextHandler(&log, nil), audit.Config{Level: audit.Refusals, Queue: 1, LoginsRefused: 1, CallsRefused: 1})
	expect.Must(t, err)
	act := act("act", 0, func(*Server, context.Context, Because) (None, error) { panic("a bug") })
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the server is not told of the panic")
			}
		}()
		r := httptest.NewRequest(act.Method, act.Path, strings.NewReader(`{"reason":"tidy"}`))
		r.Header.Set("Content-Type", "application/json")
		_, _ = act.answer(New(Config{Audit: lines}), r)
	}()
	expect.Must(t, lines.Stop(t.Context()))
	if want := `method="POST /admin/v1/act" outcome=unknown why=tidy`; !strings.Contains(log.String(), want) {
		t.Errorf("no line has %s:\n%s", want, log.String())
	}
}
