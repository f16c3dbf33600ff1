package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorilla/websocket"
	"go.uber.org/goleak"

	"noncegate/internal/testenv/inprocess"
	"noncegate/lease"
	"noncegate/nonce"
	"noncegate/wire"
)

// Ants starts a default pool when it is imported; what runs before the tests is
// not ours.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m, goleak.IgnoreCurrent()) }

// world is a network of scripted nodes by host name, over pipes, so that tests run
// in the fake time of synctest; and a router, with what it tells others.
type world struct {
	*Router
	t     *testing.T
	hosts map[string]*host
	svc   *service
	sink  *sink
	log   *inprocess.Buffer

	mu      sync.Mutex
	dialled []string
	results map[Result]int
}

// host is where one scripted node listens.
type host struct {
	conns  chan net.Conn // dialled, to be served
	far    chan *far     // upgraded, for the test
	status atomic.Int64  // what is answered in place of an upgrade; 0: the upgrade
	hung   atomic.Bool   // dials stay without an answer
	wrap   func(net.Conn) net.Conn
}

// tell runs a story in fake time: self is node "self", and the hosts are nodes of
// mode worker-queue that live at their names.
func tell(t *testing.T, cfg Config, hosts []string, story func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, cfg, hosts...)
		w.Nodes(w.nodes())
		story(t, w)
	})
}

// linked is a story that begins when there is a link to node "a".
func linked(t *testing.T, cfg Config, story func(t *testing.T, w *world, f *far)) {
	t.Helper()
	tell(t, cfg, []string{"a"}, func(t *testing.T, w *world) {
		f := <-w.hosts["a"].far
		synctest.Wait()
		story(t, w, f)
	})
}

func newWorld(t *testing.T, cfg Config, hosts ...string) *world {
	w := &world{
		t: t, hosts: make(map[string]*host), svc: &service{back: make(chan back, 100_000)},
		sink: &sink{}, log: new(inprocess.Buffer), results: make(map[Result]int),
	}
	for _, name := range hosts {
		h := &host{conns: make(chan net.Conn, 64), far: make(chan *far, 64)}
		w.hosts[name] = h
		srv := &http.Server{Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { h.upgrade(t, rw, r) })}
		var serving sync.WaitGroup
		serving.Go(func() { srv.Serve(listener{h.conns}) })
		t.Cleanup(func() { close(h.conns); srv.Close(); serving.Wait() })
	}
	cfg.Forward = true
	if cfg.Secret == "" {
		cfg.Secret = "sesame"
	}
	w.serve(cfg)
	return w
}

// serve makes the router.
func (w *world) serve(cfg Config) {
	w.t.Helper()
	cfg.NetDial = w.dial
	log := slog.New(slog.NewTextHandler(w.log, nil))
	r, err := New(cfg, "self", log, w)
	if err != nil {
		w.t.Fatal(err)
	}
	w.Router = r
	r.Serve(w.svc, w.sink)
	w.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := r.Stop(ctx); err != nil {
			w.t.Error(err)
		}
	})
}

// Forwarded implements Metrics.
func (w *world) Forwarded(result Result, _ time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.results[result]++
}

// nodes is a registry in which every host lives, and self.
func (w *world) nodes() []lease.Node {
	list := []lease.Node{node("self", 1)}
	for name := range w.hosts {
		list = append(list, node(name, 1))
	}
	return list
}

func node(id string, incarnation int64) lease.Node {
	return lease.Node{
		Holder: lease.Holder{Node: id, Incarnation: incarnation},
		URL:    "ws://" + id + "/ws", Mode: "worker-queue", Live: true,
	}
}

func (w *world) dial(ctx context.Context, _, addr string) (net.Conn, error) {
	name, _, _ := strings.Cut(addr, ":")
	w.mu.Lock()
	w.dialled = append(w.dialled, name)
	w.mu.Unlock()
	h := w.hosts[name]
	if h == nil {
		return nil, errors.New("no such host")
	}
	here, there := net.Pipe()
	if h.hung.Load() {
		context.AfterFunc(ctx, func() { there.Close() })
		return here, nil
	}
	h.conns <- there
	if h.wrap != nil {
		return h.wrap(here), nil
	}
	return here, nil
}

func (w *world) dials() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.dialled)
}

type listener struct{ conns chan net.Conn }

func (l listener) Accept() (net.Conn, error) {
	if c, ok := <-l.conns; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}
func (l listener) Close() error   { return nil }
func (l listener) Addr() net.Addr { return &net.TCPAddr{} }

func (h *host) upgrade(t *testing.T, w http.ResponseWriter, r *http.Request) {
	if status := h.status.Load(); status != 0 {
		http.Error(w, "so it\nis", int(status))
		return
	}
	ws, err := new(websocket.Upgrader).Upgrade(w, r, nil)
	if err != nil {
		t.Error(err)
		return
	}
	f := &far{
		t: t, ws: ws, raw: ws.NetConn(), header: r.Header,
		requests: make(chan received, 10_000), ended: make(chan error, 1), deaf: make(chan struct{}, 1),
	}
	pong := ws.PingHandler()
	ws.SetPingHandler(func(s string) error {
		if f.mute.Load() {
			return nil
		}
		return pong(s)
	})
	ws.SetCloseHandler(func(int, string) error { return nil })
	h.far <- f
	go f.read()
}

// service records what comes back.
type service struct {
	back  chan back
	waker nonce.Waker
}

type back struct {
	op      *nonce.Op
	verdict nonce.Verdict
}

func (s *service) Return(op *nonce.Op, v nonce.Verdict) nonce.Waker {
	s.back <- back{op, v}
	return s.waker
}

// sink records events.
type sink struct {
	mu     sync.Mutex
	events []string // as "signer/nonce"
	bodies []string
	missed []int64
	lost   int
	heard  chan struct{} // receives with each event; nil: nobody listens
}

func (s *sink) Remote(signer string, event []byte, missed int64) {
	var e wire.Event
	if err := json.Unmarshal(event, &e); err != nil {
		panic(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events = append(s.events, fmt.Sprintf("%s/%d", signer, e.Nonce))
	s.bodies, s.missed = append(s.bodies, string(event)), append(s.missed, missed)
	if s.heard != nil {
		s.heard <- struct{}{}
	}
}

func (s *sink) Lost() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lost++
}

func (s *sink) losses() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lost
}

func (s *sink) got() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.events, " ")
}

// caller is the Completion of an op.
type caller struct{ gone atomic.Bool }

func (c *caller) Done(*nonce.Op) nonce.Waker { return nil }
func (c *caller) Gone() bool                 { return c.gone.Load() }

func allocation(signer string) *nonce.Op {
	return &nonce.Op{Kind: nonce.KindAllocate, Signer: signer, Count: 1, Completion: new(caller)}
}

// forward hands op over to node.
func (w *world) forward(node string, op *nonce.Op) {
	w.t.Helper()
	if err := w.Forward(node, "", op); err != nil {
		w.t.Fatalf("forward to %s: %v", node, err)
	}
}

// wantBack asserts what the next op is that comes back.
func (w *world) wantBack(op *nonce.Op, v nonce.Verdict, err error) {
	w.t.Helper()
	b := <-w.svc.back
	if b.op != op || b.verdict != v {
		w.t.Fatalf("got %s back with verdict %d, %v; want %s with %d", b.op.Signer, b.verdict, b.op.Err, op.Signer, v)
	}
	if err != nil && !errors.Is(op.Err, err) {
		w.t.Fatalf("%s came back with %v, want %v", op.Signer, op.Err, err)
	}
}

// state is how the router sees a node.
func (w *world) state(node string) State {
	synctest.Wait()
	for _, p := range w.Peers() {
		if p.Node == node {
			return p.State
		}
	}
	return ""
}

func (w *world) wantState(node string, want State) {
	w.t.Helper()
	if got := w.state(node); got != want {
		w.t.Fatalf("node %s is %s, want %s", node, got, want)
	}
}

// logged is how often a word is in the log.
func (w *world) logged(word string) int { return strings.Count(w.log.String(), word) }
