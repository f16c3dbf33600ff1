package ws

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"noncegate/backpressure"
	"noncegate/test/lab/wait"
	"noncegate/wire"
	"noncegate/writer"
)

func TestARefusedUpgradeIsCountedByItsReason(t *testing.T) {
	g := startGateway(t, func(s *setup) { s.ws.MaxConnections = 1 })
	g.wantRefused(http.Header{"Origin": {"https://evil.example"}}, http.StatusForbidden)
	response, err := http.Get("http://" + g.address + "/ws")
	must(t, err)
	must(t, response.Body.Close())
	http.DefaultClient.CloseIdleConnections()
	if response.StatusCode != http.StatusBadRequest || response.Header.Get("Sec-Websocket-Version") != "13" {
		t.Errorf("no handshake: %v, %v", response.Status, response.Header)
	}
	g.dial().settle()
	g.wantUnavailable()
	g.srv.conns.setLeaving()
	g.wantUnavailable()
	g.WantMetrics(map[string]float64{
		"upgrade_refused_total{origin}": 1, "upgrade_refused_total{bad_request}": 1,
		"upgrade_refused_total{full}": 1, "upgrade_refused_total{draining}": 1, "upgrade_refused_total{broken}": 0,
		"connections_opened_total": 1, "connections": 1,
	})
}

func TestAConnectionThatEndedIsCountedByWhatEndedItFirst(t *testing.T) {
	farewell := func(code int) func(*gateway, *client) {
		return func(_ *gateway, c *client) {
			must(t, c.conn.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(code, ""), time.Now().Add(patience)))
			c.closed()
		}
	}
	for reason, end := range map[string]func(g *gateway, c *client){
		"client": farewell(wire.CloseServiceRestart), // a client may say any code
		"lost":   func(_ *gateway, c *client) { must(t, c.conn.Close()) },
		"unsupported": func(_ *gateway, c *client) {
			must(t, c.conn.WriteMessage(websocket.BinaryMessage, nil))
			c.closed()
		},
		"too_large": func(_ *gateway, c *client) {
			c.send(strings.Repeat(" ", 65<<10))
			c.closed()
		},
		"protocol": func(_ *gateway, c *client) {
			_, err := c.conn.NetConn().Write([]byte{0x81, 0x00}) // not masked
			must(t, err)
			c.closed()
		},
		"restart": func(g *gateway, c *client) {
			drained := g.drain(t.Context())
			c.closed() // it answers the close frame meanwhile
			must(t, <-drained)
		},
		"stopped": func(g *gateway, _ *client) { must(t, g.srv.Stop(t.Context())) },
		"idle":    func(g *gateway, _ *client) { g.srv.dropSilent(g.srv.conns.all()[0]) },
		"slow": func(g *gateway, _ *client) {
			g.srv.conns.all()[0].out.Kill(&writer.KickError{Reason: backpressure.KickSlow})
		},
		"policy": func(g *gateway, c *client) {
			g.srv.conns.all()[0].close(wire.ClosePolicy, "")
			c.closed()
		},
		"internal": func(g *gateway, c *client) {
			g.srv.service = panicking{g.Service}
			c.request("1", "nonce_status", `["b"]`)
			c.closed()
		},
	} {
		t.Run(reason, func(t *testing.T) {
			g := startGateway(t)
			c := g.dial()
			c.settle()
			end(g, c)
			_ = c.conn.Close() // a client that is still there is waited for
			wait.For(t, g.srv.conns.whenEmpty(), "the end of the connection")
			g.WantMetrics(map[string]float64{
				"connections_closed_total{" + reason + "}": 1, "connections_opened_total": 1, "connections": 0,
			})
		})
	}
}

func TestWhatWaitsForClientsIsSummedOverTheConnections(t *testing.T) {
	g := startGateway(t)
	c, other := g.dial(), g.dial()
	release := g.hang(c, "1", "nonce_allocate", `["a"]`)
	other.request("2", "nonce_allocate", `["b"]`)
	g.awaitInflight(2)
	g.WantMetrics(map[string]float64{"outbound_messages": 2, "outbound_bytes": 0, "outbound_largest_bytes": 0, "connections_paused": 0})
	if g.Metric("outbound_promised_bytes") == 0 {
		t.Error("nothing is promised to two requests under way")
	}
	release()
	c.wantResult("1")
	other.wantResult("2")
}
