package ws

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"go.uber.org/goleak"

	"noncegate/internal/access"
	"noncegate/internal/guard"
	"noncegate/lease"
	"noncegate/nonce"
	"noncegate/nonce/memstore"
	"noncegate/test/lab/inprocess"
	"noncegate/test/lab/wait"
	"noncegate/wire"
)

// Ants starts a default pool when it is imported; what runs before the tests is
// not ours.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m, goleak.IgnoreCurrent()) }

// patience is the safety net of every wait for something that must happen.
const patience = wait.Patience

var must, check = inprocess.Must, inprocess.Check

// setup is what a test may change before the gateway starts.
type setup struct {
	inprocess.Config
	ws      Config
	headers time.Duration // how long those of a request may take, of inBubble
	serve   func(testing.TB, *http.Server) (address string, stop func())
	locks   guard.Locks // nil: there is no guard
	guard   guard.Config
}

func defaults() setup {
	return setup{
		Config: inprocess.Defaults(),
		serve:  inprocess.Serve,
		ws: Config{
			Bounds:         Bounds{MaxInflight: 256, MaxInflightTotal: 10_000, MaxMessageBytes: 64 << 10},
			MaxConnections: 1000, MaxBatch: 100, MaxSubscriptions: 4,
			MinHold: time.Second, MaxHold: 10 * time.Minute,
			PingInterval: time.Minute,
			Info: func() wire.InfoResult {
				return wire.InfoResult{Node: "n1", Incarnation: 1, Version: "test", Engine: wire.EngineReliable, Store: "memory", Mode: "worker-queue",
					Limits: wire.Limits{MaxCount: nonce.MaxCount, MaxBatch: 100}}
			},
			Writer: inprocess.Writer(),
		},
		guard: guard.Config{Slots: 1000, Workers: 2, KeptEach: 100, Timeout: patience},
	}
}

// gateway is a server on a real socket with the real service on a store in
// memory.
type gateway struct {
	*inprocess.Core
	srv     *Server
	guard   *guard.Guard // nil: there is none
	address string
}

func startGateway(t testing.TB, changes ...func(*setup)) *gateway {
	t.Helper()
	s := defaults()
	for _, change := range changes {
		change(&s)
	}
	g := &gateway{Core: inprocess.Start(t, s.Config)}
	var err error
	if s.locks != nil {
		g.guard, err = guard.New(s.locks, s.guard, g.Metrics, g.Logger)
		must(t, err)
		s.ws.Guard = g.guard
	}
	g.srv, err = New(g.Service, g.Hub, g.Encode, s.ws, g.Set, g.Metrics, g.Logger)
	must(t, err)
	var stopHTTP func()
	g.address, stopHTTP = s.serve(t, &http.Server{Handler: g.srv, ConnState: g.srv.ConnState})
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		g.Store.SetHooks(memstore.Hooks{})
		check(t, g.srv.Stop(ctx))
		if g.guard != nil {
			check(t, g.guard.Stop(ctx))
		}
		g.Stop(ctx)
		stopHTTP()
		g.WantNoSlots()
		if used, _ := g.srv.clients.used(); used != 0 {
			t.Errorf("left behind: %d requests of clients", used)
		}
		if s := g.srv.receiving.shares; s.Taken() != 0 || s.Waits() != 0 {
			t.Errorf("left behind: %d bytes that are received, %d messages that wait for that", s.Taken(), s.Waits())
		}
	})
	return g
}

// next is the signer's cursor in the store: what was written.
func (g *gateway) next(signer string) int64 {
	g.Helper()
	l, err := g.Store.Load(g.Context(), []nonce.SignerNeed{{Signer: signer}})
	must(g.TB, err)
	return l.Signers[0].Signer.Next
}

// moves gives the shard of a signer to another node, and returns once the service knows.
func (g *gateway) moves(signer, node string) (by lease.Holder, term lease.ShardTerm) {
	g.Helper()
	by, err := g.Store.Register(context.Background(), lease.Presence{Node: node, URL: "ws://" + node + ".example/ws", Mode: "worker-queue"})
	must(g.TB, err)
	_, err = g.Store.Renew(context.Background(), by, time.Hour)
	must(g.TB, err)
	shard := nonce.ShardOf(signer, g.Store.Shards())
	for taken := false; !taken; {
		owners, err := g.Store.Owners(context.Background())
		must(g.TB, err)
		if row := owners.Shards[shard]; row.Owner == g.Holder {
			_, err = g.Store.Release(context.Background(), g.Holder, []lease.ShardTerm{row.Term()})
			must(g.TB, err)
		}
		rows, err := g.Store.Acquire(context.Background(), by, []int{shard})
		must(g.TB, err)
		taken, term = rows[0].Taken, rows[0].Term()
	}
	wait.Until(g, "the service to know the owner", func() bool {
		v := g.Service.Shards()[shard]
		return v.Owner == node && !v.Mine // it reads the row first, and gives up the shard then
	})
	return by, term
}

// hang sends a request, and returns when its write waits, with what lets it go on.
func (g *gateway) hang(c *client, id, method, params string) (release func()) {
	g.Helper()
	waiting, release := g.holdWrites()
	c.Request(id, method, params)
	wait.For(g, waiting, "the write")
	return release
}

// submitting is a service whose ops a test takes.
type submitting struct {
	Service
	submit func(*submission)
}

// submission is what a gateway hands to its service.
type submission struct {
	*nonce.Request
	slot *nonce.Slot
	res  *nonce.Result
	done nonce.Completion
}

// submit hands it on.
func (g *gateway) submit(s *submission) { g.Service.Submit(s.slot, s.Request, s.res, s.done) }

func (s submitting) Submit(slot *nonce.Slot, q *nonce.Request, r *nonce.Result, done nonce.Completion) {
	s.submit(&submission{q, slot, r, done})
}

// onSubmit has the gateway hand its requests to the test.
func (g *gateway) onSubmit(submit func(*submission)) {
	g.srv.service = submitting{g.Service, submit}
}

// ops makes the gateway tell of each request before it runs.
func (g *gateway) ops() <-chan nonce.Request {
	ops := make(chan nonce.Request, 10_000)
	g.onSubmit(func(s *submission) { ops <- *s.Request; g.submit(s) })
	return ops
}

// awaitInflight returns when n requests are admitted.
func (g *gateway) awaitInflight(n int) {
	g.Helper()
	wait.Until(g, fmt.Sprintf("%d requests in flight", n), func() bool { used, _ := g.srv.clients.used(); return used == n })
}

// holdWrites makes the store's writes wait, in either mode, and returns a channel
// with one entry for each that does, and what lets all of them go on.
func (g *gateway) holdWrites() (waiting chan struct{}, release func()) {
	waiting, let := make(chan struct{}, 1000), make(chan struct{})
	g.Store.SetHooks(memstore.Hooks{Before: func(c memstore.Call) error {
		if c.Op == memstore.OpCommit || c.Op == memstore.OpLocked {
			waiting <- struct{}{}
			<-let
		}
		return nil
	}})
	release = sync.OnceFunc(func() { g.Store.SetHooks(memstore.Hooks{}); close(let) })
	g.Cleanup(release)
	return waiting, release
}

// client is one connection as a client sees it.
type client struct {
	*inprocess.Client
	ended bool // the test has read its end
}

func (g *gateway) dial() *client {
	g.Helper()
	return g.dialWith(nil)
}

// dialWith is dial with headers.
func (g *gateway) dialWith(h http.Header) *client {
	g.Helper()
	return g.dialBy(websocket.DefaultDialer, h)
}

// dialBy is dialWith by a dialer of the test's own.
func (g *gateway) dialBy(d *websocket.Dialer, h http.Header) *client {
	g.Helper()
	return &client{Client: inprocess.Dial(g.TB, d, "ws://"+g.address+"/ws", h)}
}

// knock tries to connect, and returns the answer, and what was said where that was no.
func (g *gateway) knock(h http.Header) (response *http.Response, says string) {
	g.Helper()
	conn, response, err := websocket.DefaultDialer.Dial("ws://"+g.address+"/ws", h)
	if err == nil {
		must(g.TB, conn.Close())
		return response, ""
	}
	if response == nil {
		g.Fatal(err)
	}
	body := make([]byte, 1024) // gorilla keeps so much
	n, _ := response.Body.Read(body)
	return response, strings.TrimSpace(string(body[:n]))
}

// wantRefused fails unless an upgrade is answered with the status; it returns the answer.
func (g *gateway) wantRefused(h http.Header, status int) (response *http.Response, says string) {
	g.Helper()
	if response, says = g.knock(h); response.StatusCode != status {
		g.Fatalf("got %v, want %d", response, status)
	}
	return response, says
}

// settle waits until the gateway has made this a connection of its own: the answer
// to the upgrade leaves before it is registered and counted, its first reply after.
func (c *client) settle() {
	c.Helper()
	c.Ask("settle", "gateway_info", `[]`)
}

// known are people with every right.
func known(names ...string) *inprocess.People {
	p := new(inprocess.People)
	for _, name := range names {
		p.Grant(name, "*", inprocess.EveryRight)
	}
	return p
}

// letIn makes a gateway ask who its clients are, and let these in with every right.
func letIn(names ...string) func(*setup) { return func(s *setup) { s.ws.Auth = known(names...) } }

// limited is letIn of one with a quota.
func limited(name string, q access.Quota) func(*setup) {
	p := known(name)
	p.Limit(name, q)
	return func(s *setup) { s.ws.Auth = p }
}

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
