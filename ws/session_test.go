package ws

import (
	"net/http"
	"slices"
	"testing"
	"time"

	"noncegate/internal/access"
	"noncegate/test/lab/inprocess"
	"noncegate/test/lab/wait"
	"noncegate/wire"
)

// What each refusal says is internal/access's to show.
func TestWithoutAGoodCredentialThereIsNoUpgrade(t *testing.T) {
	p := known("ada")
	g := guardedGateway(t, p)
	response, says := g.wantRefused(nil, http.StatusUnauthorized)
	if says != "no credential was given" || response.Header.Get("WWW-Authenticate") == "" || !response.Close {
		t.Errorf("it says %q, with %v", says, response.Header)
	}
	p.Refuse(access.ErrUnavailable)
	if response, _ = g.wantRefused(inprocess.As("ada"), http.StatusServiceUnavailable); response.Header.Get("Retry-After") == "" || !response.Close {
		t.Errorf("got %v", response.Header)
	}
	g.WantMetrics(map[string]float64{"upgrade_refused_total{unauthorized}": 1, "upgrade_refused_total{unchecked}": 1, "connections_opened_total": 0})
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
	g.onSubmit(func(s *submission) {
		if s.Signer != "slow" {
			g.submit(s)
			return
		}
		go func() { <-let; g.submit(s) }()
	})
	ada, bob := g.as("ada"), g.as("bob")
	for _, c := range []*client{ada, bob} {
		c.Call("sub", "nonce_subscribe", `["events"]`)
	}
	ada.Request("slow", "nonce_allocate", `["slow"]`)
	bob.Request("1", "nonce_allocate", `["seen"]`)
	ada.Notification()
	bob.Notification()
	p.End("ada", access.ErrRevoked)
	g.awaitExpired()
	for range 2 { // with the second event the first has been offered to everybody
		bob.Request("2", "nonce_allocate", `["unseen"]`)
		bob.Notification()
	}
	close(let)
	ada.WantResult("slow")
	ada.WantClosed(wire.CloseRevoked)
	if len(ada.Notifications) > 0 {
		t.Errorf("it was sent %v", ada.Notifications)
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
	ada.WantClosed(wire.CloseExpired) // the first end counts
}
