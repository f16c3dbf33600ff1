package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"noncegate/chain/ethereum/endpoint"
	"noncegate/internal/access"
	"noncegate/internal/access/audit"
	"noncegate/internal/access/jwt"
	"noncegate/internal/access/rights"
	"noncegate/internal/admin"
	"noncegate/internal/metrics"
)

// openAudit comes early, so that its end comes late: what the connections say last is
// still written.
func (a *app) openAudit(context.Context) (err error) {
	a.audit, err = audit.New(a.log.Handler(), audit.Config{
		Level: a.cfg.auditLevel(), Queue: auditQueue, LoginsRefused: auditedLogins, CallsRefused: auditedRefusals,
	})
	if err != nil || a.audit == nil {
		return err
	}
	a.onStop("audit", a.audit.Stop)
	metrics.Counter(a.registry, "audit_lines_total", "Lines of the audit that were written.", a.audit.Written)
	metrics.Counter(a.registry, "audit_dropped_total", "Lines of the audit that were left out: the log did not keep up, "+
		"or more was refused in a second than is written.",
		a.audit.Dropped)
	return nil
}

// openGate opens what authenticates clients, where that is configured.
func (a *app) openGate(ctx context.Context) (err error) {
	if !a.cfg.Authenticated() {
		access.WithoutRights(a.registry)
		return nil
	}
	store, ok := a.store.(access.Store)
	if !ok {
		return fmt.Errorf("the store %s keeps no credentials", a.store.Name())
	}
	if err := rightsUsable(ctx, a.cfg.Rights); err != nil {
		return err
	}
	cfg := a.cfg.gate()
	cfg.Certificates, cfg.CertificatePrefix = a.cfg.TLSClientCA != "", a.cfg.TLSClientPrefix
	cfg.Audit = a.audit
	cfg.Metrics, cfg.Log = a.registry, a.log.With("component", "auth")
	a.gate, err = access.New(ctx, store, cfg)
	if wrong, ok := errors.AsType[*jwt.KeysError](err); ok {
		return settingErrorf("jwt-keys", "cannot be used: %s", sentenceOf(wrong))
	}
	if err != nil {
		return fmt.Errorf("authentication: %w", err)
	}
	a.onStop("authentication", func(context.Context) error { a.gate.Stop(); return nil })
	return nil
}

// rightsUsable says of a rights file that is wrong which setting names it.
func rightsUsable(ctx context.Context, path string) error {
	f, err := rights.Open(ctx, path, rights.Config{})
	if err != nil {
		return settingErrorf("rights", "cannot be used: %s", sentenceOf(err))
	}
	f.Stop()
	return nil
}

// authenticator is nil without authentication.
func (a *app) authenticator() access.Authenticator {
	if a.gate == nil {
		return nil
	}
	return admin.Authenticator(a.gate)
}

// public serves the clients' side: gateway, the chains on /eth/, with authentication
// tickets on /ticket, and the links of other nodes on /node.
func (a *app) public() http.Handler {
	mux := http.NewServeMux()
	if a.gate != nil {
		mux.Handle("/ticket", http.MaxBytesHandler(a.gate.TicketHandler(), maxTicketBody))
	}
	mux.Handle(endpoint.Prefix, a.endpoints)
	if a.router != nil {
		mux.Handle("GET /node", a.router)
	}
	mux.Handle("/", clientHandler(a.server))
	return mux
}

// maxTicketBody bounds what may come with a request for a ticket, which needs nothing.
const maxTicketBody = 1024

// requestTimeout bounds the reading of an HTTP request, and the writing of its answer.
// Connections that were upgraded are not under it.
const requestTimeout = 10 * time.Second

// hardenAdmin bounds what a client without a key can make a socket of the private side cost: all
// of it but the answers, because a profile takes as long as it was asked to. Without it
// sockets that say nothing more after /healthz would be kept for ever.
func (a *app) hardenAdmin(srv *http.Server) {
	srv.MaxHeaderBytes = a.cfg.MaxHeaderBytes
	srv.ReadTimeout, srv.IdleTimeout = requestTimeout, adminIdle
}

// adminIdle is longer than the usual time between two readings of the metrics, so that
// they need no new socket each.
const adminIdle = time.Minute

// harden bounds what a socket may cost before its client is let in.
func (a *app) harden(srv *http.Server) {
	srv.ConnState, srv.ConnContext = a.server.ConnState, a.server.ConnContext
	srv.MaxHeaderBytes = a.cfg.MaxHeaderBytes
	srv.ReadTimeout, srv.WriteTimeout, srv.IdleTimeout = requestTimeout, requestTimeout, headerTimeout
}
