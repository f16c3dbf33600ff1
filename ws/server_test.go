package ws

import (
	"context"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/gorilla/websocket"

	"noncegate/internal/access/audit"
	"noncegate/internal/socket"
	"noncegate/nonce"
)

func (g *gateway) wantUnavailable() {
	g.Helper()
	if response, _ := g.wantRefused(nil, http.StatusServiceUnavailable); response.Header.Get("Retry-After") == "" {
		g.Errorf("no Retry-After in %v", response)
	}
}

func TestAThousandBadFramesInARowEndTheConnectionAndNobodyElses(t *testing.T) {
	g := startGateway(t)
	bad, good := g.dial(), g.dial()
	for _, run := range []int{maxBadFrames - 1, maxBadFrames} {
		for i := range run {
			bad.Send([]string{`{`, `[]`, `{"jsonrpc":"2.0","id":1,"method":"no"}`, `{"jsonrpc":"2.0","id":1,"method":"nonce_status"}`}[i%4])
			bad.Reply()
		}
		good.Ask("1", "nonce_allocate", `["a"]`)
		if run < maxBadFrames {
			bad.Request("good", "nonce_status", `["a"]`) // the count starts again
			bad.WantResult("good")
		}
	}
	bad.WantClosed(websocket.ClosePolicyViolation)
	good.Ask("2", "nonce_allocate", `["a"]`)
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
	c = g.srv.clients.newConn(new(websocket.Conn), socket.New(pipe), identity{})
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

func TestEveryMethodIsDescribedWhole(t *testing.T) {
	for name, m := range methods {
		ofSigner, audited := m.right != 0, m.level != audit.All
		if m.name != name || m.prepare == nil || ofSigner != (m.reply != nil) || audited != (m.audited != nil) {
			t.Errorf("%s is described by halves: %+v", name, m)
		}
	}
}

// TestEveryCloseReasonIsExplained where an operator meets it.
func TestEveryCloseReasonIsExplained(t *testing.T) {
	for path, marks := range map[string]string{"../docs/metrics.md": "`", "../dashboards/connections.json": ""} {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, reason := range closeReasons {
			if !strings.Contains(string(text), marks+string(reason)+marks) {
				t.Errorf("%s does not explain the close reason %s", path, reason)
			}
		}
	}
}
