package ws

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"noncegate/internal/testenv/inprocess"

	"github.com/gorilla/websocket"
)

// guardedGateway is a gateway that lets in whom people knows, and looks at its
// sessions often.
func guardedGateway(t testing.TB, p *inprocess.People, changes ...func(*setup)) *gateway {
	t.Helper()
	return startGateway(t, append([]func(*setup){func(s *setup) {
		s.ws.Auth = p
		s.ws.PingInterval = time.Second // looked at 16 times as often
	}}, changes...)...)
}

// as connects under a name.
func (g *gateway) as(name string) *client {
	g.Helper()
	return g.dialWith(inprocess.As(name))
}

// wantRefused fails unless an upgrade is answered with the status; it returns the
// answer, whose body is what was said.
func (g *gateway) wantRefused(h http.Header, status int) (*http.Response, string) {
	g.Helper()
	conn, response, err := websocket.DefaultDialer.Dial("ws://"+g.address+"/ws", h)
	if err == nil {
		conn.Close()
		g.Fatal("let in")
	}
	if response == nil || response.StatusCode != status {
		g.Fatalf("got %v and %v, want %d", response, err, status)
	}
	body := make([]byte, 1024) // gorilla keeps so much
	n, _ := response.Body.Read(body)
	return response, strings.TrimSpace(string(body[:n]))
}

func signersOf(events []map[string]any) []string {
	var signers []string
	for _, e := range events {
		result := e["params"].(map[string]any)["result"].(map[string]any)
		signers = append(signers, result["signer"].(string))
	}
	return slices.Compact(signers)
}
