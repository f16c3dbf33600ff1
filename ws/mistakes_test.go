package ws

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/gorilla/websocket"
	"github.com/prometheus/client_golang/prometheus"

	"noncegate/internal/access"
	"noncegate/test/lab/inprocess"
	"noncegate/test/lab/wait"
	"noncegate/wire"
)

// slowDoor is an Authenticator that takes its time.
type slowDoor struct {
	*inprocess.People
	asked chan struct{}
	let   chan struct{}
}

func (d slowDoor) Authenticate(r *http.Request) (*access.Session, error) {
	close(d.asked)
	<-d.let
	return d.People.Authenticate(r)
}

func TestNobodyComesInBehindADrainOrAStopThatHasReturned(t *testing.T) {
	for name, leave := range map[string]func(*Server, context.Context) error{"Drain": (*Server).Drain, "Stop": (*Server).Stop} {
		t.Run(name, func(t *testing.T) {
			door := slowDoor{known("ada"), make(chan struct{}), make(chan struct{})}
			g := guardedGateway(t, door.People, func(s *setup) { s.ws.Auth = door })
			answered := make(chan *http.Response, 1)
			go func() {
				response, _ := g.knock(inprocess.As("ada"))
				answered <- response
			}()
			wait.For(t, door.asked, "the question who it is")
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			must(t, leave(g.srv, ctx))
			close(door.let)
			response := wait.For(t, answered, "the answer to the upgrade")
			if response.StatusCode != http.StatusServiceUnavailable || response.Header.Get("Retry-After") == "" {
				t.Errorf("got %v, want 503 with Retry-After", response)
			}
			g.WantMetrics(map[string]float64{"upgrade_refused_total{draining}": 1, "connections_opened_total": 0})
		})
	}
}

// slipOnce makes the first Submit panic, at another place than the service's own.
func (g *gateway) slipOnce() {
	var slipped atomic.Bool
	g.onSubmit(func(s *submission) {
		if slipped.CompareAndSwap(false, true) {
			panic("a mistake")
		}
		g.submit(s)
	})
}

// Wherever a mistake is met, on the read goroutine, in an array, or in line: its connection
// ends, no other one does, and what its requests held is free again.
func TestAMistakeEndsItsConnectionOnlyAndGivesItsPlacesBack(t *testing.T) {
	ask := func(id, method, params string) string {
		return `{"jsonrpc":"2.0","id":"` + id + `","method":"` + method + `","params":` + params + `}`
	}
	plain := func(id string) string { return ask(id, "nonce_allocate", `["a"]`) }
	locked := func(id string) string { return ask(id, "nonce_allocate", guarded("a", `{"key":"`+id+`"}`)) }
	slip := ask("s", "slip", `[]`)
	const atReserve, atSubmit = true, false
	for name, c := range map[string]struct {
		frames  []string
		reserve bool
		wait    int  // so many requests wait for a lock
		unknown bool // the outcome is told
	}{
		"in a method":           {[]string{slip}, atSubmit, 0, false},
		"in a method, an array": {[]string{"[" + plain("1") + "," + slip + "]"}, atReserve, 0, false},
		"at a reservation":      {[]string{"[" + plain("1") + "," + ask("2", "nonce_status", `["b"]`) + "]"}, atReserve, 0, false},
		"alone":                 {[]string{plain("1")}, atSubmit, 0, true},
		"in an array":           {[]string{"[" + plain("1") + "," + plain("2") + "]"}, atSubmit, 0, true},
		"in line":               {[]string{locked("1"), locked("2"), plain("3")}, atSubmit, 3, false}, // the lock is given back first
		"in line, an array":     {[]string{"[" + locked("1") + "," + locked("2") + "," + plain("3") + "]"}, atSubmit, 3, false},
	} {
		t.Run(name, func(t *testing.T) {
			locks := newLocksmith()
			open := locks.close()
			defer open()
			g := startGateway(t, withLocks(locks))
			sound := g.dial()
			sound.Ask("1", "nonce_subscribe", `["events",{"signers":["a"]}]`)
			slips := noMethod
			slips.prepare = func(_ *conn, r *request, _ []byte) *wire.Error {
				r.act = func() (any, *wire.Error) { panic("a mistake") }
				return nil
			}
			g.srv.endpoints["slip"] = endpoint{&slips, g.srv.nowhere.asked}
			if c.reserve {
				g.srv.service = panicking{g.Service}
			} else {
				g.slipOnce()
			}
			client := g.dial()
			client.settle()
			for _, frame := range c.frames {
				client.Send(frame)
			}
			if c.wait > 0 {
				g.awaitInflight(c.wait)
			}
			open()
			client.WantClosed(websocket.CloseInternalServerErr)
			if told := show(client.Replies) + show(client.Batches); c.unknown && !strings.Contains(told, `"outcome":"unknown"`) {
				t.Errorf("got %s, want an unknown outcome", told)
			}
			wait.Until(t, "every slot and lock", func() bool {
				used, _ := g.Service.Queued()
				return g.srv.clients.inflight.Used()+used+g.PostDB.Reserved()+locks.Len() == 0
			})
			if n := g.srv.Panics(); n != 1 {
				t.Errorf("%d panics counted, want 1", n)
			}
			sound.Ask("2", "gateway_info", `[]`)
			must(t, client.Conn.Close()) // a client that is still there is waited for
			wait.Until(t, "the end of its connection", func() bool { return g.srv.conns.len() == 1 })
			g.WantMetrics(map[string]float64{"connections_closed_total{internal}": 1})
		})
	}
}

func TestAWrongSettingLeavesNoMetricsBehind(t *testing.T) {
	g, reg, cfg := startGateway(t), prometheus.NewRegistry(), defaults().ws
	wrong := cfg
	wrong.MaxBatch = 0
	if _, err := New(g.Service, g.Hub, g.Encode, wrong, g.Set, reg, g.Logger); err == nil {
		t.Fatal("a batch of none is accepted")
	}
	s, err := New(g.Service, g.Hub, g.Encode, cfg, g.Set, reg, g.Logger)
	must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	must(t, s.Stop(ctx))
}
