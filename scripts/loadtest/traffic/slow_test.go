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

// slow starts clients that misbehave at once, on one signer.
func slow(t *testing.T, url string, s Slow) *slowClients {
	t.Helper()
	g, err := startSlow(t.Context(), Load{URLs: []string{url}, Slow: s, Signers: Signers{Count: 1}})
	expect.Must(t, err)
	t.Cleanup(func() { g.stop() })
	close(g.begun)
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
	all := Load{URLs: []string{url}, Connections: 15, Rate: 1500, Signers: Signers{Base: 7, Count: 1}}.Beside(0.2, StopReading)
	g, err := startSlow(t.Context(), all)
	expect.Must(t, err)
	defer g.stop()
	if text := first.Load(); text != nil {
		t.Errorf("%s was sent before", *text)
	}
	close(g.begun)
	got := <-requests
	if !strings.Contains(got, `"nonce_allocate"`) || !strings.Contains(got, Signers{Base: 7}.Name(0)) {
		t.Errorf("request %s, want an allocate of the signer", got)
	}
	if text := first.Load(); !isSubscribe([]byte(*text)) {
		t.Errorf("the first message is %s, want a subscription", *text)
	}
	if got := g.stop(); got.Clients != 3 || got.Kicked != 0 || len(got.Ended) != 0 || got.Reconnects != 0 {
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
			g := slow(t, url, Slow{Clients: 1, Behaviour: behaviour, Rate: 100})
			<-back
			got := g.stop()
			if got.Kicked != 1 || got.Reconnects != 1 || got.Ended["closed by the server: 4001 slow_consumer"] != 1 || got.Missed != 41 {
				t.Errorf("%+v; want one that was kicked, came back, and missed the 41 it was told of", got)
			}
		})
	}
}

func TestAClientThatIsNotLetInAgainKeepsTrying(t *testing.T) {
	g := startGateway(t)
	s := slow(t, g.URL, Slow{Clients: 1, Behaviour: Trickle, Rate: 10})
	expect.Check(t, g.Kill())
	wait.Until(t, "it has tried", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return strings.Contains(fmt.Sprint(s.counts.Ended), "not let in again: ")
	})
	if got := s.stop(); got.Reconnects != 0 {
		t.Errorf("%+v, want no reconnect", got)
	}
}
