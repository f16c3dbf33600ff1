// Package admin is the private side of a gateway: what is served at --admin-listen, to
// operators, their commands and the tools that watch the gateway.
//
// It promises:
//   - Each operation is a row of one table (api.go), which commands ask by the same types;
//     openapi.yaml documents them, and a test compares both.
//   - The guard is in front of every route: who came by a host that a page of a browser can
//     have made lead here, or shows no key, is refused; a page of another origin changes
//     nothing. Only the console's files, which have no data, and whether the process is well
//     need no key.
//   - An act can be asked for as a dry run, which runs what decides of it and changes nothing.
//   - What an operator does to a signer is a call of that principal at the clients' side,
//     with its rights, quotas, order, forwarding and audit.
//   - Each act is a line of the audit, also when its code panics.
//
// Sessions, their tickets and jobs are this node's, in memory, and bounded; each bound has a
// sentence. It knows the gateway by Config. Its goroutines are those of jobs, which Stop ends.
//
// Read server.go, listener.go (the guard), then api.go.
package admin

import (
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"noncegate/chain"
	"noncegate/internal/access"
	"noncegate/internal/access/apikey"
	"noncegate/internal/access/audit"
	"noncegate/internal/redisdb"
	"noncegate/lease"
	"noncegate/nonce"
	"noncegate/nonce/performance"
	"noncegate/nonce/service"
	"noncegate/wire"
	"noncegate/ws"
)

// Config is what the private side needs of the gateway.
type Config struct {
	Node     string
	Version  string
	Mode     string
	Console  string       // on, read or off
	Pages    http.Handler // the console's files; nil: there are none
	Key      string       // the admin key; "": none is asked for
	Hosts    []string     // the names by which it may be asked, in lower case
	Profiles bool         // serve /debug/pprof/
	Metrics  prometheus.Gatherer
	Ready    func() error // why the gateway is not ready; it must answer soon
	Gate     *access.Gate // nil: clients need not say who they are
	Audit    *audit.Log   // nil: off
	Log      *slog.Logger

	Store     nonce.Store
	Service   *service.Service
	Chains    *chain.Chains       // nil: no chain is asked
	Engine    *performance.Engine // nil: NoEngine says why
	NoEngine  func() error
	Redis     *redisdb.DB   // nil: without
	Rehearsal time.Duration // of the engine
	MaxHold   time.Duration // the longest hold that may be asked for
	Nodes     func() []lease.Node
	NodeInfos func([]lease.Node) []wire.NodeInfo

	Stats    func() wire.StatsResult
	Keys     apikey.Store     // nil: the store keeps none
	Settings []Setting        // in force
	Trouble  func() []Finding // what the gateway knows of itself beside what is here; nil: nothing
	ChainsOf func() []ChainView
	Drain    func() // ends the process in order
}

// Clients are the clients' side, as far as it is looked at.
type Clients interface {
	http.Handler
	Connected() []ws.Connection
}

// Server is the private side.
type Server struct {
	cfg      Config
	begun    time.Time
	inside   *inside
	refused  refusedAdmins
	guesses  *access.Guesses
	sessions *passes
	tickets  *passes
	clients  atomic.Pointer[Clients] // nil: they are not there yet
	looked   looked
	advised  advised
	jobs     *jobs
}

// New makes it. What the clients' side needs of it is Authenticator and Inside.
func New(cfg Config) *Server {
	a := &Server{
		cfg: cfg, begun: time.Now(), inside: newInside(), guesses: access.NewGuesses(), sessions: newPasses(sessionPrefix, "sessions"),
		tickets: newPasses(ticketPrefix, "unused tickets"), jobs: newJobs(),
	}
	a.refused.said.Interval = sayAdminRefused
	return a
}

// Handler serves the private side.
func (a *Server) Handler() http.Handler {
	return a.guard(adminHandler(a.cfg.Metrics, a.cfg.Ready, a.cfg.Profiles, a.serveAPI, a.serveConsole))
}

// Serve says what the clients' side is, as soon as there is one.
func (a *Server) Serve(clients Clients) { a.clients.Store(&clients) }

// Stop ends what runs in the background, and waits for it.
func (a *Server) Stop() { a.jobs.stop() }

// ofConsole reports whether a path is one of the console's files.
func (a *Server) ofConsole(path string) bool {
	switch path {
	case "/", "/console.js", "/console.css":
		return true
	}
	return false
}

// serveConsole adds the console's files, and the clients' side for its events.
func (a *Server) serveConsole(mux *http.ServeMux) {
	pages := a.cfg.Pages
	if a.cfg.Console == "off" || pages == nil {
		pages = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "the console is off at this gateway (--console)", http.StatusNotFound)
		})
	}
	for _, path := range []string{"/{$}", "/console.js", "/console.css"} {
		mux.Handle("GET "+path, pages)
	}
	mux.HandleFunc("GET /ws", func(w http.ResponseWriter, r *http.Request) {
		clients := a.clients.Load()
		if clients == nil {
			w.Header().Set("Retry-After", "1")
			http.Error(w, "the gateway is starting", http.StatusServiceUnavailable)
			return
		}
		if origin := r.Header.Get("Origin"); origin != "" && !sameHost(origin, r.Host) {
			http.Error(w, "pages of other origins may not connect here", http.StatusForbidden)
			return
		}
		(*clients).ServeHTTP(w, r.WithContext(ws.OriginChecked(r.Context())))
	})
}

// sameHost reports whether an origin is of a page that this host has served.
func sameHost(origin, host string) bool {
	page, err := url.Parse(origin)
	return err == nil && strings.EqualFold(page.Host, host)
}

// connected are the open connections of clients.
func (a *Server) connected() []ws.Connection {
	if clients := a.clients.Load(); clients != nil {
		return (*clients).Connected()
	}
	return nil
}

// Refused is how many requests showed no key, or a wrong one.
func (a *Server) Refused() float64 { return float64(a.refused.total.Load()) }
