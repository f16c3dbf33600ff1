package ws

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/gorilla/websocket"
	"github.com/prometheus/client_golang/prometheus"

	"noncegate/internal/access"
	"noncegate/internal/access/audit"
	"noncegate/nonce"
	"noncegate/test/lab/inprocess"
	"noncegate/test/lab/wait"
	"noncegate/wire"
)

func TestAMistakeAtTheEndOfAStreamEndsNothingElse(t *testing.T) {
	p := newParrot()
	g := startGateway(t)
	at := g.speak(p)
	c, other := at.dial(), at.dial()
	for _, method := range []string{"watch", "trip", "watch", "watch"} {
		c.call("1", method, `[]`)
	}
	must(t, c.conn.Close())
	wait.Until(t, "the end of the other streams", func() bool { return p.ended.Load() == 3 })
	wait.Until(t, "the end of the connection", func() bool { return g.srv.conns.len() == 1 })
	if n := g.srv.Panics(); n != 1 {
		t.Errorf("%d panics counted, want 1", n)
	}
	other.ask("1", "say", `[]`)
}

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
	g.onSubmit(func(p nonce.Slot, op *nonce.Op) {
		if slipped.CompareAndSwap(false, true) {
			panic("a mistake")
		}
		g.Service.Submit(p, op)
	})
}

// Whatever the way to the service is: on the read goroutine, in an array, or from a line. What
// the requests hold is looked at when the gateway stops, too.
func TestWhatAMistakeInASubmitEndsGivesItsPlacesBack(t *testing.T) {
	plain := func(id string) string {
		return `{"jsonrpc":"2.0","id":"` + id + `","method":"nonce_allocate","params":["a"]}`
	}
	locked := func(id string) string {
		return `{"jsonrpc":"2.0","id":"` + id + `","method":"nonce_allocate","params":` + guarded("a", `{"key":"`+id+`"}`) + `}`
	}
	for name, frames := range map[string][]string{
		"alone":             {plain("1")},
		"in an array":       {"[" + plain("1") + "," + plain("2") + "]"},
		"in line":           {locked("1"), locked("2"), plain("3")},
		"in line, an array": {"[" + locked("1") + "," + locked("2") + "," + plain("3") + "]"},
	} {
		t.Run(name, func(t *testing.T) {
			locks := newLocksmith()
			open := locks.close()
			defer open()
			g := startGateway(t, withLocks(locks))
			g.dial().ask("1", "nonce_subscribe", `["events",{"signers":["a"]}]`)
			g.slipOnce()
			c := g.dial()
			for _, frame := range frames {
				c.send(frame)
			}
			if strings.Contains(frames[0], "guard") {
				g.awaitInflight(max(len(frames), strings.Count(frames[0], "jsonrpc")))
			}
			open()
			c.wantClosed(websocket.CloseInternalServerErr)
			inTime := !strings.Contains(frames[0], "guard") // else the lock is given back first
			if inTime && !strings.Contains(show(c.replies)+show(c.batches), `"outcome":"unknown"`) {
				t.Errorf("got %v %v, want an unknown outcome", c.replies, c.batches)
			}
			wait.Until(t, "every slot", func() bool {
				used, _ := g.Service.Queued()
				return g.srv.clients.inflight.Used()+used+g.PostDB.Reserved() == 0
			})
			wait.Until(t, "every lock", func() bool { return locks.Len() == 0 })
			if n := g.srv.Panics(); n != 1 {
				t.Errorf("%d panics counted, want 1", n)
			}
		})
	}
}

// What another node brings has a path, which is of nobody when the request has ended.
func TestAMistakeInASubmitEndsTheRequestOfAnotherNodeToo(t *testing.T) {
	g := startGateway(t)
	g.slipOnce()
	c := g.dialWith(asNode("n2"))
	c.send(`{"jsonrpc":"2.0","id":"1","path":7,"method":"nonce_allocate","params":["a"]}`)
	peer := g.anyConn().peer
	c.wantClosed(websocket.CloseInternalServerErr)
	wait.Until(t, "every slot", func() bool { return g.srv.nodes.inflight.Used() == 0 })
	peer.mu.Lock()
	defer peer.mu.Unlock()
	if len(peer.streams) != 0 {
		t.Errorf("%d streams are left", len(peer.streams))
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

// talker answers wait as a parrot does, and everything else at length.
type talker struct {
	longWinded
	parrot *parrot
}

func (d talker) Answer(ctx context.Context, c *Call) Answer {
	if c.Method == "wait" {
		return d.parrot.Answer(ctx, c)
	}
	return d.longWinded.Answer(ctx, c)
}

// An array waits for its last answer. Meanwhile those that had no room take none.
func TestAnAnswerWithoutRoomIsNotCountedAmongThoseThatWait(t *testing.T) {
	p := newParrot()
	g := startGateway(t)
	d := g.dialect(talker{parrot: p})
	c := g.speakOf(d).dial()
	const calls = 12 // of which two have room
	c.send("[" + strings.Repeat(`{"jsonrpc":"2.0","id":1,"method":"talk"},`, calls) + `{"jsonrpc":"2.0","id":2,"method":"wait"}]`)
	wait.Until(t, "all answers but one", func() bool { return p.waiting.Load() == 1 && d.class.inflight.Used() == 1 })
	if waits, limit := d.waiting.Used(), d.class.writer.Marks.Max; waits == 0 || int64(waits) > limit {
		t.Errorf("%d bytes of answers wait, of at most %d that a connection may have", waits, limit)
	}
	close(p.let)
	if answers := c.batch(); len(answers) != calls+1 {
		t.Errorf("%d answers", len(answers))
	}
}

func TestACallHasOneStream(t *testing.T) {
	p := newParrot()
	g := startGateway(t)
	c := g.speak(p).dial()
	c.askRefused("1", "twice", `[]`, "internal")
	if n := p.ended.Load(); n != 1 {
		t.Errorf("%d streams have ended, want the first", n)
	}
	if g.anyConn().subscribed() {
		t.Error("a stream is left")
	}
}

func TestAMistakeBehindTheAnswerOfACallEndsItsConnectionOnly(t *testing.T) {
	log, err := audit.New(slog.DiscardHandler, audit.Config{Level: audit.All, Queue: 100, LoginsRefused: 1, CallsRefused: 1})
	must(t, err)
	g := startGateway(t, func(s *setup) { s.ws.Audit = log })
	t.Cleanup(func() { check(t, log.Stop(context.Background())) })
	at := g.speak(newParrot())
	other, c := at.dial(), at.dial()
	c.ask("1", "blunder", `[]`)
	c.wantClosed(wire.CloseInternal)
	other.ask("1", "say", `[]`)
	if n := g.srv.Panics(); n != 1 {
		t.Errorf("%d panics counted, want 1", n)
	}
}
