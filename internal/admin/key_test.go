package admin

import (
	"bytes"
	"errors"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

func TestThePrivateSideAsksForItsKey(t *testing.T) {
	const key = "0123456789abcdef"
	var log bytes.Buffer
	unwell := errors.New(`PostgreSQL is away: dial 10.0.0.7 as user "noncegate"`)
	var sentence error
	h := New(Config{
		Key: key, Log: slog.New(slog.NewTextHandler(&log, nil)), Metrics: prometheus.NewRegistry(), Ready: func() error { return sentence }, Profiles: true,
	})
	served := h.Handler()
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
		{"POST", "/admin/v1/shard/move", "", nil, 401, `{"error":"the admin key is needed"}` + "\n"},
		{"POST", "/admin/v1/shard/move", "Bearer " + key, nil, 415, ""},
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
		served.ServeHTTP(w, r)
		if w.Code != c.status || c.body != "" && w.Body.String() != c.body {
			t.Errorf("%s %s with %q: %d %q, want %d %q", c.method, c.path, c.authorization, w.Code, w.Body, c.status, c.body)
		}
	}
	if h.Refused() != 9 || strings.Count(log.String(), "refused at the admin address") != 1 || strings.Contains(log.String(), "0123456789") {
		t.Errorf("%v were refused, the log says %s", h.Refused(), log.String())
	}
}
