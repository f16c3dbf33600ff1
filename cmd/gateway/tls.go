package main

import (
	"context"
	"crypto/tls"
	"net"
	"net/netip"
	"slices"

	"noncegate/internal/metrics"
	"noncegate/internal/tlsfiles"
)

// encryption is the files of TLS, as far as there are any.
type encryption struct {
	server *tlsfiles.Server      // nil: without --tls-cert
	nodes  *tlsfiles.Authorities // nil: other nodes are trusted by the authorities of the system
}

// openTLS reads the files of TLS, and again when they change.
func (a *app) openTLS(context.Context) (err error) {
	c, log := &a.cfg.TLSConfig, a.log.With("component", "tls")
	if c.TLSCert != "" {
		a.tls.server, err = tlsfiles.Open(tlsfiles.Config{
			Cert: c.TLSCert, Key: c.TLSKey, ClientCA: c.TLSClientCA, RequireClient: c.TLSClientAuth == "require",
		}, log)
		if err != nil {
			return settingErrorf("tls-cert", "cannot be used: %v", err)
		}
		a.onStop("TLS files", func(context.Context) error { a.tls.server.Stop(); return nil })
	}
	if c.NodeCA != "" {
		if a.tls.nodes, err = tlsfiles.OpenAuthorities(c.NodeCA, 0, log); err != nil {
			return settingErrorf("node-ca", "cannot be used: %v", err)
		}
		a.onStop("authorities of nodes", func(context.Context) error { a.tls.nodes.Stop(); return nil })
	}
	return nil
}

// reload has everything that is read again by the clock read now.
func (a *app) reload() {
	a.log.Info("reading rights, keys and TLS files again")
	if a.gate != nil {
		a.gate.Reload()
	}
	for _, f := range a.tls.files() {
		f.Soon()
	}
}

// protect puts TLS before the addresses that were bound. The private side has it
// beyond loopback only, where tools of this host would have to know its authority
// for nothing, and asks clients for no certificate: it has a key.
func (a *app) protect() error {
	listen, admin := boundAddr{a.listener.Addr()}, boundAddr{a.admin.Addr()}
	if err := a.cfg.checkExposure(listen, admin); err != nil {
		return err
	}
	if a.tls.server == nil {
		return nil
	}
	a.listener = tls.NewListener(a.listener, a.tls.server.TLS())
	if !admin.loopback() {
		a.admin = tls.NewListener(a.admin, a.tls.server.Plain())
	}
	return nil
}

// boundAddr is the address of a listener.
type boundAddr struct{ net.Addr }

func (b boundAddr) loopback() bool {
	at, err := netip.ParseAddrPort(b.String())
	return err == nil && at.Addr().Unmap().IsLoopback()
}

// nodeTLS is how other nodes are reached over wss.
func (a *app) nodeTLS() *tls.Config {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if a.tls.nodes != nil {
		c.RootCAs = a.tls.nodes.Pool()
	}
	if a.tls.server != nil {
		c.GetClientCertificate = a.tls.server.ClientCertificate
	}
	return c
}

// webSchemes are those of the URLs of the two addresses.
func (a *app) webSchemes() (client, admin string) {
	client, admin = "ws", "http"
	if a.tls.server != nil {
		client = "wss"
		if !(boundAddr{a.admin.Addr()}).loopback() {
			admin = "https"
		}
	}
	return client, admin
}

// watched is what the files of TLS have in common.
type watched interface {
	Soon()
	Stale() bool
	Reloads() int64
	Failures() int64
}

func (e *encryption) files() (all []watched) {
	if e.server != nil {
		all = append(all, e.server)
	}
	if e.nodes != nil {
		all = append(all, e.nodes)
	}
	return all
}

func (e *encryption) sum(of func(watched) int64) func() float64 {
	return func() (total float64) {
		for _, f := range e.files() {
			total += float64(of(f))
		}
		return total
	}
}

// openTLSMetrics registers what becomes of the files; it is there without TLS too.
func (a *app) openTLSMetrics() {
	metrics.Gauge(a.registry, "tls_files_stale", "1 while files of TLS have changed to something that cannot be used, "+
		"and what was read before is in force.", func() float64 { return oneIf(slices.ContainsFunc(a.tls.files(), watched.Stale)) })
	metrics.Gauge(a.registry, "tls_certificate_expires_timestamp_seconds",
		"When the certificate in force ends, in Unix time. 0 without --tls-cert.", func() int64 {
			if a.tls.server == nil {
				return 0
			}
			return a.tls.server.NotAfter().Unix()
		})
	metrics.Counter(a.registry, "tls_reloads_total", "Changes of the files of TLS that were taken.", a.tls.sum(watched.Reloads))
	metrics.Counter(a.registry, "tls_reload_failures_total", "Changes of the files of TLS that could not be used.",
		a.tls.sum(watched.Failures))
	metrics.Counter(a.registry, "admin_refused_total", "Requests to the private side without the right key.", a.operators.Refused)
}
