//go:build unix

package traffic

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"noncegate/test/lab/expect"
	"noncegate/test/lab/wait"
)

func slow(t *testing.T, s Slow) *SlowClients {
	t.Helper()
	g, err := s.Start(t.Context())
	expect.Must(t, err)
	t.Cleanup(func() { g.Stop() })
	g.Misbehave()
	return g
}

func isSubscribe(message []byte) bool { return strings.Contains(string(message), "nonce_subscribe") }

func subscribed(t testing.TB, message []byte) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":"0x1"}`, id(t, message))
}

func TestSlowClientsSubscribeAndSendOnceTheyAreToldTo(t *testing.T) {
	var first atomic.Pointer[string]
	requests := make(chan string, 1000)
	url := serve(t, func(c *conn, n int, message []byte) error {
		text := string(message)
		first.CompareAndSwap(nil, &text)
		if isSubscribe(message) {
			return c.reply(subscribed(t, message))
		}
		select {
		case requests <- text:
		default:
		}
		return nil
	})
	g, err := Slow{URLs: []string{url}, Clients: 3, Behaviour: StopReading, Rate: 300, Signers: Signers{Base: 7, Count: 1}}.Start(t.Context())
	expect.Must(t, err)
	defer g.Stop()
	if text := first.Load(); text != nil {
		t.Errorf("%s was sent before", *text)
	}
	g.Misbehave()
	got := <-requests
	if !strings.Contains(got, `"nonce_allocate"`) || !strings.Contains(got, Signers{Base: 7}.Name(0)) {
		t.Errorf("request %s, want an allocate of the signer", got)
	}
	if text := first.Load(); !isSubscribe([]byte(*text)) {
		t.Errorf("the first message is %s, want a subscription", *text)
	}
	if got := g.Stop(); got.Clients != 3 || got.Kicked != 0 || len(got.Ended) != 0 || got.Reconnects != 0 {
		t.Errorf("%+v; want three clients and nothing else", got)
	}
}

func TestAClientThatIsKickedIsCountedAndComesBack(t *testing.T) {
	for _, behaviour := range []Behaviour{StopReading, Trickle} {
		t.Run(string(behaviour), func(t *testing.T) {
			back := make(chan struct{}, 100)
			url := serve(t, func(c *conn, n int, message []byte) error {
				if isSubscribe(message) {
					if c.number > 0 {
						back <- struct{}{}
					}
					return c.reply(subscribed(t, message))
				}
				if c.number > 0 {
					return nil
				}
				if err := c.reply(`{"jsonrpc":"2.0","method":"nonce_subscription","params":{"subscription":"0x1","result":` +
					`{"type":"allocated","signer":"s","nonce":1,"attempt":1,"version":1,"at":"x","missed":41}}}`); err != nil {
					return err
				}
				c.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(4001, "slow_consumer"), time.Now().Add(patience))
				return errors.New("kicked")
			})
			g := slow(t, Slow{URLs: []string{url}, Clients: 1, Behaviour: behaviour, Rate: 100, Signers: Signers{Count: 1}})
			<-back
			got := g.Stop()
			if got.Kicked != 1 || got.Reconnects != 1 || got.Ended["closed by the server: 4001 slow_consumer"] != 1 || got.Missed != 41 {
				t.Errorf("%+v; want one that was kicked, came back, and missed the 41 it was told of", got)
			}
		})
	}
}

func TestAClientThatIsNotLetInAgainKeepsTrying(t *testing.T) {
	g := startGateway(t)
	s := slow(t, Slow{URLs: []string{g.URL}, Clients: 1, Behaviour: Trickle, Rate: 10, Signers: Signers{Count: 1}})
	expect.Check(t, g.Kill())
	wait.Until(t, "it has tried", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return strings.Contains(fmt.Sprint(s.counts.Ended), "not let in again: ")
	})
	if got := s.Stop(); got.Reconnects != 0 {
		t.Errorf("%+v, want no reconnect", got)
	}
}
