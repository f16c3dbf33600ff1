package ws

import (
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"noncegate/backpressure"
	"noncegate/test/lab/wait"
	"noncegate/wire"
	"noncegate/writer"
)

func TestAConnectionThatEndedIsCountedByWhatEndedItFirst(t *testing.T) {
	for reason, end := range map[string]func(g *gateway, c *client){
		"client": func(_ *gateway, c *client) { // which may say any code
			farewell := websocket.FormatCloseMessage(wire.CloseServiceRestart, "")
			must(t, c.Conn.WriteControl(websocket.CloseMessage, farewell, time.Now().Add(patience)))
			c.Closed()
		},
		"protocol": func(_ *gateway, c *client) {
			_, err := c.Conn.NetConn().Write([]byte{0x81, 0x00}) // not masked
			must(t, err)
			c.Closed()
		},
		"restart": func(g *gateway, c *client) {
			drained := g.drain(t.Context())
			c.Closed() // it answers the close frame meanwhile
			must(t, <-drained)
		},
		"stopped": func(g *gateway, _ *client) { must(t, g.srv.Stop(t.Context())) },
		"idle":    func(g *gateway, _ *client) { g.srv.dropSilent(g.srv.conns.all()[0]) },
		"slow": func(g *gateway, _ *client) {
			g.srv.conns.all()[0].out.Kill(&writer.KickError{Reason: backpressure.KickSlow})
		},
		"policy": func(g *gateway, c *client) {
			g.srv.conns.all()[0].close(wire.ClosePolicy, "")
			c.Closed()
		},
	} {
		t.Run(reason, func(t *testing.T) {
			g := startGateway(t)
			c := g.dial()
			c.settle()
			end(g, c)
			_ = c.Conn.Close() // a client that is still there is waited for
			wait.Until(t, "the end of the connection", g.srv.conns.empty)
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
	other.Request("2", "nonce_allocate", `["b"]`)
	g.awaitInflight(2)
	g.WantMetrics(map[string]float64{"outbound_messages": 2, "outbound_bytes": 0, "outbound_largest_bytes": 0, "connections_paused": 0})
	if g.Metric("outbound_promised_bytes") == 0 {
		t.Error("nothing is promised to two requests under way")
	}
	release()
	c.WantResult("1")
	other.WantResult("2")
}
