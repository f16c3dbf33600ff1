// Package admin is the private side of a gateway: what is served at --admin-listen, to
// operators, their commands and the tools that watch the gateway.
//
// It promises:
//   - Each operation is a row of one table (api.go), which commands ask by the same types;
//     openapi.yaml documents them, and a test compares both.
//   - The guard is in front of every route: who came by a host that a page of a browser can
//     have made lead here, or shows no key, is refused; a page of another origin changes
//     nothing.
//   - What an operator does to a signer is a call of that principal at the clients' side,
//     with its rights, quotas, order, forwarding and audit.
//   - Each act is a line of the audit, also when its code panics.
//
// It knows the gateway by Config and starts no goroutine; whoever serves Handler and Inside
// ends them.
//
// Read server.go, listener.go (the guard), then api.go.
package admin

import (
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"noncegate/chain"
	"noncegate/internal/access"
	"noncegate/internal/access/audit"
	"noncegate/internal/redisdb"
	"noncegate/lease"
	"noncegate/nonce"
	"noncegate/nonce/performance"
	"noncegate/nonce/service"
	"noncegate/wire"
)

// Config is what the private side needs of the gateway.
type Config struct {
	Node     string
	Key      string   // the admin key; "": none is asked for
	Hosts    []string // the names by which it may be asked, in lower case
	Profiles bool     // serve /debug/pprof/
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
	Nodes     func() []lease.Node
	NodeInfos func([]lease.Node) []wire.NodeInfo
}

// Server is the private side.
type Server struct {
	cfg     Config
	inside  *inside
	refused refusedAdmins
}

// New makes it. What the clients' side needs of it is Authenticator and Inside.
func New(cfg Config) *Server {
	a := &Server{cfg: cfg, inside: newInside()}
	a.refused.said.Interval = sayAdminRefused
	return a
}

// Handler serves the private side.
func (a *Server) Handler() http.Handler {
	return a.guard(adminHandler(a.cfg.Metrics, a.cfg.Ready, a.cfg.Profiles, a.serveAPI))
}

// Refused is how many requests showed no key, or a wrong one.
func (a *Server) Refused() float64 { return float64(a.refused.total.Load()) }
