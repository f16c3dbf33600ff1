package ws

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"noncegate/backpressure"
	"noncegate/encodepool"
	"noncegate/internal/events"
	"noncegate/internal/guard"
	"noncegate/internal/metrics"
	"noncegate/lease"
	"noncegate/nonce"
	"noncegate/nonce/memstore"
	"noncegate/nonce/noncetest"
	"noncegate/nonce/rules"
	"noncegate/nonce/service"
	"noncegate/postdb"
	"noncegate/wire"
	"noncegate/writer"
)

// Ants starts a default pool when it is imported; what runs before the tests is
// not ours.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m, goleak.IgnoreCurrent()) }

// patience is the safety net of every wait for something that must happen.
const patience = 20 * time.Second

// setup is what a test may change before the gateway starts.
type setup struct {
	ws     Config
	nonce  service.Config
	encode encodepool.Config
	postdb postdb.Config
	log    slog.Handler

	headers time.Duration // how long those of a request may take, of startRaw

	node  string          // its id
	store *memstore.Store // nil: one of its own
	locks guard.Locks     // nil: there is no guard
	guard guard.Config
}

func defaults() setup {
	return setup{
		log: slog.DiscardHandler,
		ws: Config{
			MaxConnections: 1000, MaxInflight: 256, MaxInflightTotal: 10_000,
			MaxMessageBytes: 64 << 10, MaxBatch: 100, MaxSubscriptions: 4,
			MinHold: time.Second, MaxHold: 10 * time.Minute,
			PingInterval: time.Minute,
			Nodes:        NodeConfig{ID: "n1", MaxInflight: 4096},
			Info: func() wire.InfoResult {
				return wire.InfoResult{Node: "n1", Incarnation: 1, Version: "test", Engine: wire.EngineReliable, Store: "memory", Mode: "worker-queue",
					Limits: wire.Limits{MaxCount: nonce.MaxCount, MaxBatch: 100}}
			},
			Writer: writer.Config{
				Marks:       backpressure.Marks{High: 64 << 10, Low: 16 << 10, Max: 1 << 20, SlowAfter: time.Minute, Pause: true, Drop: true, Kick: true},
				MaxMessages: 1024, Share: 512, WriteTimeout: patience, CloseTimeout: patience,
				KickCode: wire.CloseSlowConsumer, KickText: "slow_consumer",
			},
		},
		nonce: service.Config{
			Mode: nonce.WorkerQueue, Workers: 4, QueueCapacity: 4096, Reject: nonce.FailFast,
			LeaseTTL: 10 * time.Second, WatchEvery: 10 * time.Millisecond, Rules: rules.Rules{DefaultHold: time.Minute, MaxLive: 1024},
			MaxHold: 10 * time.Minute, SweepInterval: time.Hour,
		},
		encode: encodepool.Config{Workers: 2, Queue: 10_000},
		postdb: postdb.Config{Workers: 2, Queue: 10_000, QueueShare: 5_000},
		node:   "n1",
		guard:  guard.Config{Places: 1000, Workers: 2, Timeout: patience},
	}
}

// gateway is a server on a real socket with the real service on a store in
// memory.
type gateway struct {
	testing.TB
	srv     *Server
	hub     *events.Hub
	service *service.Service
	encode  *encodepool.Pool
	store   *memstore.Store
	holder  lease.Holder
	metrics *prometheus.Registry
	guard   *guard.Guard // nil: there is none
	address string
	leaky   bool // the test makes places leak
}

func startGateway(t testing.TB, changes ...func(*setup)) *gateway {
	t.Helper()
	s := defaults()
	for _, change := range changes {
		change(&s)
	}
	s.postdb.Queues = s.nonce.Workers
	log := slog.New(s.log)
	after, err := postdb.New(s.postdb, log)
	must(t, err)
	encode, err := encodepool.New(s.encode, log)
	must(t, err)
	if s.store == nil {
		s.store = memstore.New(4, time.Now)
	}
	g := &gateway{TB: t, store: s.store, hub: events.New(after, func(int) {}), encode: encode, metrics: prometheus.NewRegistry()}
	g.holder, err = g.store.Register(t.Context(), lease.Presence{Node: s.node, Mode: "worker-queue"})
	must(t, err)
	g.service, err = service.New(t.Context(), g.store, g.holder, noncetest.Unmeasured{}, g.hub, log, nil, s.nonce)
	must(t, err)
	set := metrics.New(g.metrics)
	if s.locks != nil {
		g.guard, err = guard.New(s.locks, guardMetrics{set}, log, s.guard)
		must(t, err)
		s.ws.Guard = g.guard
	}
	g.srv, err = New(g.service, g.hub, encode, set, log, s.ws)
	must(t, err)
	stopHTTP := g.serve()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		g.store.SetHooks(memstore.Hooks{})
		check(t, g.srv.Stop(ctx))
		g.service.Stop()
		if g.guard != nil {
			check(t, g.guard.Stop(ctx))
		}
		check(t, after.Stop(ctx))
		check(t, encode.Stop(ctx))
		stopHTTP()
		g.wantMetrics(map[string]float64{"undeclared_labels_total": 0})
		if queued, _ := g.service.Queued(); queued != 0 {
			t.Errorf("left behind: %d places of the worker queues", queued)
		}
		used, _ := g.srv.Inflight()
		ofNodes, _ := g.srv.NodeInflight()
		if used += ofNodes; !g.leaky && (used != 0 || after.Reserved() != 0 || encode.Reserved() != 0) {
			t.Errorf("left behind: %d in flight, %d post-DB and %d encode places", used, after.Reserved(), encode.Reserved())
		}
	})
	return g
}

// serve listens and returns what stops listening.
func (g *gateway) serve() (stop func()) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(g.TB, err)
	g.address = l.Addr().String()
	web := &http.Server{Handler: g.srv}
	var served sync.WaitGroup
	served.Go(func() {
		if err := web.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			g.Error(err)
		}
	})
	return func() { check(g.TB, web.Close()); served.Wait() }
}

// next is the signer's cursor in the store: what was written.
func (g *gateway) next(signer string) int64 {
	g.Helper()
	l, err := g.store.Load(g.Context(), []nonce.SignerNeed{{Signer: signer}})
	must(g.TB, err)
	return l.Signers[0].Signer.Next
}

// ownSigner returns a name, made from the given one, of a signer that the node owns.
func (g *gateway) ownSigner(name string) string {
	for i := 0; ; i++ {
		signer := fmt.Sprintf("%s-%d", name, i)
		if g.service.Owned() == 0 || g.service.Shards()[nonce.ShardOf(signer, g.store.Shards())].Mine {
			return signer
		}
	}
}

// moves gives the shard of a signer to another node, and returns once the service knows.
func (g *gateway) moves(signer, node string) (by lease.Holder, term lease.ShardTerm) {
	g.Helper()
	by, err := g.store.Register(context.Background(), lease.Presence{Node: node, URL: "ws://" + node + ".example/ws", Mode: "worker-queue"})
	must(g.TB, err)
	_, err = g.store.Renew(context.Background(), by, time.Hour)
	must(g.TB, err)
	shard := nonce.ShardOf(signer, g.store.Shards())
	for taken := false; !taken; {
		owners, err := g.store.Owners(context.Background())
		must(g.TB, err)
		if row := owners.Shards[shard]; row.Owner == g.holder {
			_, err = g.store.Release(context.Background(), g.holder, []lease.ShardTerm{row.Term()})
			must(g.TB, err)
		}
		rows, err := g.store.Acquire(context.Background(), by, []int{shard})
		must(g.TB, err)
		taken, term = rows[0].Taken, rows[0].Term()
	}
	for g.service.Shards()[shard].Owner != node {
		runtime.Gosched()
	}
	return by, term
}

// awaitInflight returns when n requests are admitted.
func (g *gateway) awaitInflight(n int) {
	g.Helper()
	for began := time.Now(); ; runtime.Gosched() {
		if used, _ := g.srv.Inflight(); used == n {
			return
		}
		if time.Since(began) > patience {
			g.Fatalf("never %d requests in flight", n)
		}
	}
}

// holdCommits makes the store's commits wait and returns a channel with one entry for
// each that does, and what lets all of them go on.
func (g *gateway) holdCommits() (waiting chan struct{}, release func()) {
	waiting, let := make(chan struct{}, 1000), make(chan struct{})
	g.store.SetHooks(memstore.Hooks{Before: func(c memstore.Call) error {
		if c.Op == memstore.OpCommit {
			waiting <- struct{}{}
			<-let
		}
		return nil
	}})
	release = sync.OnceFunc(func() { close(let) })
	g.Cleanup(release)
	return waiting, release
}

// client is one connection as a client sees it. Replies and notifications are
// read in order within their kind.
type client struct {
	testing.TB
	conn          *websocket.Conn
	replies       []map[string]any
	batches       [][]any
	notifications []map[string]any
}

func (g *gateway) dial() *client {
	g.Helper()
	return g.dialWith(nil)
}

// dialWith is dial with headers.
func (g *gateway) dialWith(h http.Header) *client {
	g.Helper()
	conn, response, err := websocket.DefaultDialer.Dial("ws://"+g.address+"/ws", h)
	must(g.TB, err)
	must(g.TB, response.Body.Close())
	g.Cleanup(func() { _ = conn.Close() })
	return &client{TB: g.TB, conn: conn}
}

// settle waits until the gateway has made this a connection of its own: the answer
// to the upgrade leaves before it is registered and counted, its first reply after.
func (c *client) settle() {
	c.Helper()
	c.request("settle", "gateway_info", `[]`)
	c.wantResult("settle")
}

func (c *client) send(text string) {
	c.Helper()
	must(c.TB, c.conn.WriteMessage(websocket.TextMessage, []byte(text)))
}

// request sends a request with positional params that are all given as JSON.
func (c *client) request(id, method, params string) {
	c.Helper()
	c.send(`{"jsonrpc":"2.0","id":"` + id + `","method":"` + method + `","params":` + params + `}`)
}

// read reads one frame into its kind.
func (c *client) read() error {
	_ = c.conn.SetReadDeadline(time.Now().Add(patience))
	_, frame, err := c.conn.ReadMessage()
	if err != nil {
		return err
	}
	d := json.NewDecoder(strings.NewReader(string(frame)))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return err
	}
	switch v := v.(type) {
	case []any:
		c.batches = append(c.batches, v)
	case map[string]any:
		if _, ok := v["method"]; ok {
			c.notifications = append(c.notifications, v)
		} else {
			c.replies = append(c.replies, v)
		}
	}
	return nil
}

func take[T any](c *client, from *[]T) T {
	c.Helper()
	for len(*from) == 0 {
		must(c.TB, c.read())
	}
	first := (*from)[0]
	*from = (*from)[1:]
	return first
}

// reply returns the next reply.
func (c *client) reply() map[string]any { c.Helper(); return take(c, &c.replies) }

// batch returns the next reply to an array.
func (c *client) batch() []any { c.Helper(); return take(c, &c.batches) }

// notification returns the next notification.
func (c *client) notification() map[string]any { c.Helper(); return take(c, &c.notifications) }

// closed reads until the connection ends and returns its close code, 0 for none.
func (c *client) closed() int {
	c.Helper()
	for {
		err := c.read()
		if ce, ok := errors.AsType[*websocket.CloseError](err); ok {
			return ce.Code
		}
		if ne, ok := errors.AsType[net.Error](err); ok && ne.Timeout() {
			c.Fatal("the connection did not end")
		}
		if err != nil {
			return 0
		}
	}
}

// wantResult fails unless the reply has the id and a result.
func (c *client) wantResult(id string) map[string]any {
	c.Helper()
	r := c.reply()
	if r["id"] != id || r["error"] != nil {
		c.Fatalf("got %v, want a result for %s", r, id)
	}
	result, _ := r["result"].(map[string]any)
	return result
}

// wantError fails unless the reply has the id and the reason; it returns data.
func (c *client) wantError(id, reason string) map[string]any {
	c.Helper()
	return wantError(c.TB, c.reply(), id, reason)
}

func wantError(t testing.TB, r map[string]any, id, reason string) map[string]any {
	t.Helper()
	e, _ := r["error"].(map[string]any)
	data, _ := e["data"].(map[string]any)
	if r["id"] != id || data["reason"] != reason {
		t.Fatalf("got %v, want %s for %s", r, reason, id)
	}
	return data
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

// await waits for a signal that must come.
func await[T any](t testing.TB, c <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		t.Fatal("timed out waiting for " + what)
		panic("unreachable")
	}
}
