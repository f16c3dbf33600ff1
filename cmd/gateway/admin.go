package main

import (
	"fmt"
	"net/http"
	"net/http/pprof"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// readyFor is how long an answer of /readyz is good.
const readyFor = 250 * time.Millisecond

// readiness asks look once for all who want to know within readyFor: /readyz needs no
// key, and however often it is asked must not take the store's connections from those
// who work.
type readiness struct {
	look func() error

	mu  sync.Mutex // guards what follows, and is held while it is looked
	at  time.Time  // when that ended
	err error
}

func (r *readiness) get() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.at.IsZero() || time.Since(r.at) >= readyFor {
		r.err, r.at = r.look(), time.Now()
	}
	return r.err
}

// adminHandler serves the private side: /metrics from metrics, /healthz, which
// says only that the process answers, /readyz, which is 503 with the sentence of
// ready's error while there is one, and with profiles /debug/pprof/. ready is asked
// at each request and must answer soon. more adds what else there is.
func adminHandler(metrics prometheus.Gatherer, ready func() error, profiles bool, more ...func(*http.ServeMux)) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "alive")
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if err := ready(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ready")
	})
	if profiles {
		mux.HandleFunc("/debug/pprof/", pprof.Index)
		mux.Handle("/debug/pprof/cmdline", http.NotFoundHandler()) // the command line may hold a password
		mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	}
	for _, add := range more {
		add(mux)
	}
	return mux
}
