package main

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"noncegate/perf"
)

func TestTheAdminSideAnswers(t *testing.T) {
	reg := prometheus.NewRegistry()
	perf.New(reg)
	var sentence error
	h := adminHandler(reg, func() error { return sentence }, true)
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
		{"/debug/pprof/cmdline", nil, 200, "test"},
		{"/nothing", nil, 404, ""},
	} {
		sentence = tt.err
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, tt.path, nil))
		if w.Code != tt.code || !strings.Contains(w.Body.String(), tt.body) {
			t.Errorf("%s with %v: %d %q, want %d with %q", tt.path, tt.err, w.Code, w.Body.String(), tt.code, tt.body)
		}
	}
}
