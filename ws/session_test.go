package ws

import (
	"net/http"
	"slices"
	"testing"
	"time"

	"noncegate/internal/access"
	"noncegate/nonce"
	"noncegate/test/lab/wait"
	"noncegate/wire"
)

func TestWithoutAGoodCredentialThereIsNoUpgrade(t *testing.T) {
	p := known("ada")
	g := guardedGateway(t, p)
	for name, c := range map[string]struct {
		refuse error
		header http.Header
		status int
		says   string
	}{
		"none":        {nil, nil, 401, "no credential was given"},
		"unknown":     {nil, http.Header{"Authorization": {"Bearer eve"}}, 401, "the credential is not valid"},
		"expired":     {access.ErrExpired, nil, 401, "the credential has expired"},
		"revoked":     {access.ErrRevoked, nil, 401, "the credential was revoked"},
		"unavailable": {access.ErrUnavailable, nil, 503, "the credential cannot be checked now"},
		"nobody's":    {http.ErrBodyNotAllowed, nil, 503, "the credential cannot be checked now"},
	} {
		p.Refuse(c.refuse)
		response, says := g.wantRefused(c.header, c.status)
		if says != c.says {
			t.Errorf("%s: it says %q, want %q", name, says, c.says)
		}
		if c.status == http.StatusServiceUnavailable && response.Header.Get("Retry-After") == "" {
			t.Errorf("%s: no Retry-After", name)
		}
		if c.status == http.StatusUnauthorized && response.Header.Get("WWW-Authenticate") == "" {
			t.Errorf("%s: nothing says how to authenticate", name)
		}
		if !response.Close {
			t.Errorf("%s: its connection may go on", name)
		}
	}
	g.WantMetrics(map[string]float64{
		"upgrade_refused_total{unauthorized}": 4, "upgrade_refused_total{unchecked}": 2, "connections_opened_total": 0,
	})
	if g.srv.conns.len() != 0 {
		t.Error("a refused client has a connection")
	}
}

// awaitExpired returns when the gateway knows that somebody's session has ended.
func (g *gateway) awaitExpired() {
	g.Helper()
	wait.Until(g, "the end of a session", func() bool {
		return slices.ContainsFunc(g.srv.conns.all(), func(c *conn) bool { return c.expired.Load() != 0 })
	})
}

// Whoever has something in flight keeps its connection for a while, but is told
// nothing more of what others do.
func TestASessionThatHasEndedGetsNoEvents(t *testing.T) {
	p := known("ada", "bob")
	g := guardedGateway(t, p, func(s *setup) { s.Service.Workers, s.PostDB.QueueShare = 1, s.PostDB.Queue })
	let := make(chan struct{})
	g.onSubmit(func(p nonce.Slot, op *nonce.Op) {
		if op.Signer != "slow" {
			g.Service.Submit(p, op)
			return
		}
		go func() { <-let; g.Service.Submit(p, op) }()
	})
	ada, bob := g.as("ada"), g.as("bob")
	for _, c := range []*client{ada, bob} {
		c.call("sub", "nonce_subscribe", `["events"]`)
	}
	ada.request("slow", "nonce_allocate", `["slow"]`)
	bob.request("1", "nonce_allocate", `["seen"]`)
	ada.notification()
	bob.notification()
	p.End("ada", access.ErrRevoked)
	g.awaitExpired()
	for range 2 { // with the second event the first has been offered to everybody
		bob.request("2", "nonce_allocate", `["unseen"]`)
		bob.notification()
	}
	close(let)
	ada.wantResult("slow")
	ada.wantClosed(wire.CloseRevoked)
	if len(ada.notifications) > 0 {
		t.Errorf("it was sent %v", ada.notifications)
	}
}

// By the clock: what does not come to an end does not keep the connection.
func TestAnAnswerThatDoesNotComeDoesNotKeepASessionOpen(t *testing.T) {
	p := known("ada")
	g := guardedGateway(t, p, func(s *setup) { s.ws.PingInterval = time.Hour })
	ada := g.as("ada")
	g.hang(ada, "1", "nonce_allocate", `["a"]`)
	c := g.srv.conns.all()[0]
	now := time.Now()
	c.expireSession(now, access.ErrExpired)
	c.expireSession(now.Add(expiryTimeout-time.Second), access.ErrExpired)
	if c.isClosing() {
		t.Fatal("closed before its time was over")
	}
	c.expireSession(now.Add(expiryTimeout), access.ErrRevoked)
	ada.wantClosed(wire.CloseExpired) // the first end counts
}
