package main

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"noncegate/internal/metrics"
	"noncegate/test/lab/expect"
)

func TestTheAdminSideAnswers(t *testing.T) {
	reg := prometheus.NewRegistry()
	metrics.New(reg)
	var sentence error
	h := adminGuard{}.guard(adminHandler(reg, func() error { return sentence }, true))
	without := adminGuard{}.guard(adminHandler(reg, func() error { return nil }, false))
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
		ready := readiness{look: func() error { looks.Add(1); return nil }}
		for round := int64(1); round <= 3; round++ {
			var all sync.WaitGroup
			for range 500 {
				all.Go(func() { expect.Check(t, ready.get()) })
			}
			all.Wait()
			if n := looks.Load(); n != round {
				t.Errorf("500 questions, %d times, were %d looks", round, n)
			}
			time.Sleep(readyFor)
		}
	})
}
