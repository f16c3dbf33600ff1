package ws

import (
	"encoding/json"
	"fmt"
	"net"
	"sync"
	"testing"

	"github.com/gorilla/websocket"

	"noncegate/wire"
)

// dialTight connects with a small receive buffer, so that not reading shows soon.
func (g *gateway) dialTight() *client {
	g.Helper()
	return g.dialBy(&websocket.Dialer{NetDial: func(network, address string) (net.Conn, error) {
		c, err := net.Dial(network, address)
		if err == nil {
			err = c.(*net.TCPConn).SetReadBuffer(4096)
		}
		return c, err
	}}, nil)
}

func TestAClientThatStopsReadingHarmsNobodyAndMissesEventsOnly(t *testing.T) {
	g := startGateway(t, func(s *setup) {
		s.ws.SendBuffer = 4096
		s.ws.Writer.Marks.High, s.ws.Writer.Marks.Low = 2048, 1024
	})
	slow := g.dialTight()
	slow.Call("sub", "nonce_subscribe", `["events"]`)

	const clients, each = 100, 20
	var others sync.WaitGroup
	for i := range clients {
		c := g.dial()
		others.Go(func() {
			for n := range each {
				if r := c.Call(fmt.Sprint(n), "nonce_allocate", fmt.Sprintf(`["signer-%d"]`, i)); r["error"] != nil {
					t.Errorf("client %d: %v", i, r)
				}
			}
		})
	}
	others.Wait()

	c, got, missed := g.dial(), 0, 0
	for tick := 1; got+missed < clients*each; tick++ {
		// Reading makes room again; each event that comes shows what was missed.
		c.Call("1", "nonce_setFloor", fmt.Sprintf(`["tick",%d]`, tick))
		event := slow.event()
		if event["type"] != wire.EventFloor {
			got++
		}
		if n, ok := event["missed"].(json.Number); ok {
			m, _ := n.Int64()
			missed += int(m)
		}
	}
	if missed == 0 {
		t.Error("nothing was missed: the client was not slow")
	}
}

func TestAHangingPostDBTaskDoesNotTouchReplies(t *testing.T) {
	g := startGateway(t)
	g.hangPostDB("a")
	c := g.dial()
	for i := range 300 {
		c.Ask(fmt.Sprint(i), "nonce_setFloor", fmt.Sprintf(`["a",%d]`, i))
	}
}
