package ws

import (
	"context"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/gorilla/websocket"

	"noncegate/nonce"
)

func (g *gateway) wantUnavailable() {
	g.Helper()
	if response, _ := g.wantRefused(nil, http.StatusServiceUnavailable); response.Header.Get("Retry-After") == "" {
		g.Errorf("no Retry-After in %v", response)
	}
}

// A page of evil.example whose name has come to lead to this host is of the host that
// it asks, and knows the way to a gateway that asks nobody who he is.
func TestAPageWhoseNameWasMadeToLeadHereIsRefusedWhereEverybodyMayEverything(t *testing.T) {
	p := known("ada")
	open, asks := startGateway(t), guardedGateway(t, p)
	listed := startGateway(t, func(s *setup) { s.ws.Origins.Allowed = []string{"http://evil.example:8080"} })
	for _, c := range []struct {
		g      *gateway
		origin string
		status int
	}{
		{open, "http://evil.example:8080", http.StatusForbidden},
		{open, "http://localhost.evil.example:8080", http.StatusForbidden},
		{open, "http://127.0.0.1.evil.example:8080", http.StatusForbidden},
		{open, "http://127.0.0.1:8080", http.StatusSwitchingProtocols},
		{open, "http://[::1]:8080", http.StatusSwitchingProtocols},
		{open, "http://LOCALHOST:8080", http.StatusSwitchingProtocols},
		{open, "http://app.localhost:8080", http.StatusSwitchingProtocols},
		{asks, "http://evil.example:8080", http.StatusSwitchingProtocols}, // it has no credential to bring
		{listed, "http://evil.example:8080", http.StatusSwitchingProtocols},
	} {
		h := http.Header{"Origin": {c.origin}, "Host": {strings.TrimPrefix(c.origin, "http://")}, "Authorization": {"Bearer ada"}}
		if response, _ := c.g.knock(h); response.StatusCode != c.status {
			t.Errorf("%s: got %v, want %d", c.origin, response, c.status)
		}
	}
}

func TestAThousandBadFramesInARowEndTheConnectionAndNobodyElses(t *testing.T) {
	g := startGateway(t)
	bad, good := g.dial(), g.dial()
	for _, run := range []int{maxBadFrames - 1, maxBadFrames} {
		for i := range run {
			bad.send([]string{`{`, `[]`, `{"jsonrpc":"2.0","id":1,"method":"no"}`, `{"jsonrpc":"2.0","id":1,"method":"nonce_status"}`}[i%4])
			bad.reply()
		}
		good.ask("1", "nonce_allocate", `["a"]`)
		if run < maxBadFrames {
			bad.request("good", "nonce_status", `["a"]`) // the count starts again
			bad.wantResult("good")
		}
	}
	bad.wantClosed(websocket.ClosePolicyViolation)
	good.ask("2", "nonce_allocate", `["a"]`)
}

func TestDrainSaysWhatIsLeftWhenItsTimeIsUp(t *testing.T) {
	g := startGateway(t)
	c := g.dial()
	g.hang(c, "1", "nonce_allocate", `["a"]`)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := g.srv.Drain(ctx); err == nil || !strings.Contains(err.Error(), "1 connections are left, 1 requests in flight") {
		t.Errorf("got %v", err)
	}
}

// pipeConn is a connection of which nobody reads: the test has its peer, and ends it.
func (g *gateway) pipeConn() (c *conn, peer net.Conn, end func()) {
	pipe, peer := net.Pipe()
	c = g.srv.newConn(new(websocket.Conn), &transport{Conn: pipe}, "", identity{}, nil)
	return c, peer, func() {
		c.out.Kill(errStopped)
		<-c.out.Done()
		_ = peer.Close()
	}
}

// panicking is a service with a mistake in it, which all signers but a meet.
type panicking struct{ Service }

func (s panicking) Reserve(signer string, p nonce.Principal) (nonce.Slot, bool) {
	if signer != "a" {
		panic("a mistake")
	}
	return s.Service.Reserve(signer, p)
}
