package main

import (
	"bytes"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

func TestThePrivateSideAsksForItsKey(t *testing.T) {
	const key = "0123456789abcdef"
	var log bytes.Buffer
	var refused refusedAdmins
	unwell := errors.New(`PostgreSQL is away: dial 10.0.0.7 as user "noncegate"`)
	var sentence error
	h := adminGuard{key: key, refused: &refused, log: slog.New(slog.NewTextHandler(&log, nil))}.guard(adminHandler(prometheus.NewRegistry(), func() error { return sentence }, true,
		func(mux *http.ServeMux) {
			mux.HandleFunc("POST /engine/switch", func(http.ResponseWriter, *http.Request) {})
		}))
	for _, c := range []struct {
		method, path, authorization string
		err                         error
		status                      int
		body                        string
	}{
		{"GET", "/metrics", "", nil, 401, "the admin key is needed\n"},
		{"GET", "/metrics", "Bearer 0123456789abcdeX", nil, 401, "the admin key is needed\n"},
		{"GET", "/metrics", key, nil, 401, "the admin key is needed\n"},
		{"GET", "/metrics", "Basic " + key, nil, 401, "the admin key is needed\n"},
		{"GET", "/metrics", "Bearer ", nil, 401, "the admin key is needed\n"},
		{"GET", "/metrics", "Bearer " + key, nil, 200, ""},
		{"GET", "/debug/pprof/symbol", "", nil, 401, "the admin key is needed\n"},
		{"GET", "/debug/pprof/symbol", "Bearer " + key, nil, 200, ""},
		{"POST", "/engine/switch", "", nil, 401, "the admin key is needed\n"},
		{"POST", "/engine/switch", "Bearer " + key, nil, 200, ""},
		{"GET", "//healthz", "", nil, 401, "the admin key is needed\n"},
		{"GET", "/nothing", "", nil, 401, "the admin key is needed\n"},
		{"GET", "/healthz", "", nil, 200, "ok\n"},
		{"GET", "/readyz", "", nil, 200, "ok\n"},
		{"GET", "/readyz", "", unwell, 503, "not ready\n"},
		{"GET", "/readyz", "Bearer " + key, unwell, 503, unwell.Error() + "\n"},
	} {
		sentence = c.err
		r := httptest.NewRequest(c.method, "http://127.0.0.1:8081"+c.path, nil)
		if c.authorization != "" {
			r.Header.Set("Authorization", c.authorization)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != c.status || c.body != "" && w.Body.String() != c.body {
			t.Errorf("%s %s with %q: %d %q, want %d %q", c.method, c.path, c.authorization, w.Code, w.Body, c.status, c.body)
		}
	}
	if refused.count() != 9 || strings.Count(log.String(), "refused at the admin address") != 1 || strings.Contains(log.String(), "0123456789") {
		t.Errorf("%v were refused, the log says %s", refused.count(), log.String())
	}
}

// A page can have its own name lead to 127.0.0.1: it would read who signs here, and switch
// engines.
func TestNoRouteOfThePrivateSideIsServedByAForeignHost(t *testing.T) {
	const key = "0123456789abcdef"
	a := sharded(t)
	a.cfg.AdminHosts = "gateway-1.internal,Gateway-2"
	private := adminHandler(prometheus.NewRegistry(), func() error { return nil }, true, a.engineHandlers, a.signerHandlers, a.shardHandlers)
	routes := []string{
		"GET /metrics", "GET /healthz", "GET /readyz", "GET /debug/pprof/", "GET /debug/pprof/goroutine", "GET /debug/pprof/cmdline",
		"GET /debug/pprof/profile?seconds=1", "GET /debug/pprof/symbol", "GET /debug/pprof/trace?seconds=1", "GET /engine", "POST /engine/switch",
		"POST /engine/reconcile", "POST /engine/replay", "GET /signers", "GET /shards", "POST /shards/1/move", "GET /nothing",
	}
	ask := func(route, host, key, shown string) (status int, body string) {
		method, path, _ := strings.Cut(route, " ")
		r := httptest.NewRequest(method, "http://127.0.0.1"+path, strings.NewReader("{}"))
		r.Host = host
		if shown != "" {
			r.Header.Set("Authorization", "Bearer "+shown)
		}
		a.cfg.AdminKey = key
		w := httptest.NewRecorder()
		a.adminGuard().guard(private).ServeHTTP(w, r)
		return w.Code, w.Body.String()
	}
	for _, route := range routes {
		for _, key := range []string{"", key} {
			if status, body := ask(route, "page.example:8081", key, ""); status != http.StatusForbidden || !strings.Contains(body, "--admin-hosts") {
				t.Errorf("%s with the key %q: %d %.100s", route, key, status, body)
			}
		}
	}
	for host, want := range map[string]int{
		"evil.example": 403, "127.0.0.1.evil.example": 403, "localhost.evil.example:8081": 403, "gateway-1.internal.evil.example": 403,
		"127.0.0.1:8081": 200, "[::1]:8081": 200, "[::1]": 200, "localhost:8081": 200, "10.0.0.7": 200, "": 200, "gateway-1.internal:8081": 200, "GATEWAY-2": 200,
	} {
		if status, _ := ask("GET /shards", host, "", ""); status != want {
			t.Errorf("by %q: %d, want %d", host, status, want)
		}
		if status, _ := ask("GET /shards", host, key, key); status != http.StatusOK {
			t.Errorf("by %q with the key: %d", host, status)
		}
	}
}
