package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"noncegate/internal/wsconn/wspeer"
	"noncegate/lease"
	"noncegate/nonce"
	"noncegate/test/lab/expect"
	"noncegate/test/lab/inprocess"
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
	net   *wspeer.Network
	hosts []string
	svc   *service
	sink  *sink
	log   *inprocess.Buffer
}

type (
	far      = wspeer.Peer
	received = wspeer.Request
)

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
		f := <-w.net.Host("a").Peers
		synctest.Wait()
		story(t, w, f)
	})
}

func newWorld(t *testing.T, cfg Config, hosts ...string) *world {
	w := &world{
		t: t, net: wspeer.New(t, hosts...), hosts: hosts, svc: &service{back: make(chan back, 100_000)},
		sink: &sink{}, log: new(inprocess.Buffer),
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
	cfg.NetDial = w.net.Dial
	log := slog.New(slog.NewTextHandler(w.log, nil))
	r, err := New("self", cfg, NewMetrics(prometheus.NewRegistry()), log)
	expect.Must(w.t, err)
	w.Router = r
	r.Serve(1, w.sink)
	w.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		expect.Check(w.t, r.Stop(ctx))
	})
}

// nodes is a registry in which every host lives, and self.
func (w *world) nodes() []lease.Node {
	list := []lease.Node{node("self", 1)}
	for _, name := range w.hosts {
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

func (w *world) dials() int { return len(w.net.Dials()) }

// grant answers an allocate of one nonce.
func grant(f *far, r received, n int64) {
	f.T.Helper()
	f.Answer(r, held(wspeer.Decode[wire.AllocateParams](f.T, r).Signer, n))
}

// refuseUpgrades makes a host answer upgrades by a status; 0: by the upgrade.
func (w *world) refuseUpgrades(name string, status int) {
	if status == 0 {
		w.net.Host(name).Refuse.Store(nil)
		return
	}
	w.net.Host(name).Refuse.Store(&wspeer.Refusal{Status: status, Text: "so it\nis"})
}

func closeWith(f *far, code int) {
	why := "as the test says"
	if code == wire.CloseServiceRestart {
		why = wire.CloseTextRestart
	}
	f.Close(code, why)
}

func held(signer string, n int64) wire.AllocateResult {
	return wire.AllocateResult{
		Signer: signer, Nonce: n, Attempt: 1, FencingToken: 7,
		HeldUntil: wire.Time(time.Date(2026, 11, 20, 18, 0, 0, 0, time.UTC)), HoldMs: 59_321,
	}
}

// service records what comes back.
type service struct {
	back  chan back
	waker nonce.Waker
}

type back struct {
	op      *op
	verdict nonce.Verdict
}

func (s *service) Return(op *op, v nonce.Verdict) nonce.Waker {
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

// returner is told of ops that are back.
type returner interface {
	Return(op *op, v nonce.Verdict) nonce.Waker
}

// caller is whose op it is.
type caller struct {
	returner
	op   *op
	gone atomic.Bool
}

func (c *caller) Gone() bool { return c.gone.Load() }
func (c *caller) Return(_ *nonce.Result, v nonce.Verdict) nonce.Waker {
	return c.returner.Return(c.op, v)
}

// forwardTo forwards an op which then comes back to svc.
func forwardTo(r *Router, svc returner, node, url string, op *op) error {
	c, _ := op.of.(*caller)
	if c == nil {
		c = new(caller)
		op.of = c
	}
	c.returner, c.op = svc, op
	return r.take(node, url, op)
}

func allocation(signer string) *op {
	return &op{Request: &nonce.Request{Kind: nonce.KindAllocate, Signer: signer, Count: 1}, of: new(caller)}
}

// forward hands op over to node.
func (w *world) forward(node string, op *op) {
	w.t.Helper()
	if err := forwardTo(w.Router, w.svc, node, "", op); err != nil {
		w.t.Fatalf("forward to %s: %v", node, err)
	}
}

// wantBack asserts what the next op is that comes back.
func (w *world) wantBack(op *op, v nonce.Verdict, err error) {
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

// logged is how often a word is in the log.
func (w *world) logged(word string) int { return strings.Count(w.log.String(), word) }
