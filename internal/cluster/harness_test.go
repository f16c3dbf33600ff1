package cluster

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/gorilla/websocket"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"noncegate/internal/events"
	"noncegate/internal/wsconn/wspeer"
	"noncegate/lease"
	"noncegate/nonce"
	"noncegate/test/lab/expect"
	"noncegate/wire"
)

// Ants starts a default pool when it is imported; what runs before the tests is
// not ours.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m, goleak.IgnoreCurrent()) }

const secret = "open sesame, please"

// world is a network of scripted nodes by host name, over pipes, so that tests run
// in the fake time of synctest; and a router, with what it tells others.
type world struct {
	*Router
	t     *testing.T
	net   *wspeer.Network
	hosts []string
	fars  map[string]chan *far // linked nodes, by name
	named map[string]string    // the node at a host, where it is called otherwise
	// version is what the nodes say of their links where it is another one; 0: it is not.
	version atomic.Int32
	back    chan *asked
	sink    *sink
	wants   events.Interest // of clients
	log     *text
}

// asked is a request that a test forwards, and what came of it.
type asked struct {
	nonce.Request
	res     nonce.Result
	verdict nonce.Verdict
	gone    atomic.Bool
	to      chan *asked
	waker   nonce.Waker
}

// Gone implements nonce.Forwarded.
func (o *asked) Gone() bool { return o.gone.Load() }

// Return implements nonce.Forwarded.
func (o *asked) Return(r *nonce.Result, v nonce.Verdict) nonce.Waker {
	o.res, o.verdict = *r, v
	o.to <- o
	return o.waker
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
		f := <-w.fars["a"]
		synctest.Wait()
		story(t, w, f)
	})
}

func newWorld(t *testing.T, cfg Config, hosts ...string) *world {
	w := &world{
		t: t, net: wspeer.New(t, hosts...), hosts: hosts, fars: make(map[string]chan *far), back: make(chan *asked, 100_000),
		sink: &sink{}, log: new(text),
	}
	cfg.Forward, cfg.Secret, cfg.NetDial = true, secret, w.net.Dial
	for _, name := range hosts {
		w.fars[name] = make(chan *far, 64)
		w.net.Host(name).Serve = http.HandlerFunc(w.far)
	}
	r, err := New("self", cfg, NewMetrics(prometheus.NewRegistry()), slog.New(slog.NewTextHandler(w.log, nil)))
	expect.Must(t, err)
	w.Router = r
	r.Serve(1, Local{Events: w.sink, Service: new(owner), Interest: func() events.Interest { return w.wants }})
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		expect.Check(t, r.Stop(ctx))
	})
	return w
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

// far is the other side of one link, of which the test says what it does.
type far struct {
	t         *testing.T
	ws        *websocket.Conn
	from      greeted
	requests  chan received
	interests chan *interest
	ended     chan error  // why reading ended; a close frame above all
	mute      atomic.Bool // it does not answer pings
	deaf      chan struct{}
}

// received is a request that came over a link.
type received struct {
	nonce.Request
	id, path, sum uint64
}

// far serves one link as whatever node was meant.
func (w *world) far(rw http.ResponseWriter, req *http.Request) {
	ws, err := new(websocket.Upgrader).Upgrade(rw, req, nil)
	if err != nil {
		return
	}
	name, _, _ := strings.Cut(req.Host, ":")
	as := &Router{cfg: w.cfg, self: cmp.Or(w.named[name], name)}
	f := &far{
		t: w.t, ws: ws, requests: make(chan received, 10_000), interests: make(chan *interest, 1000),
		ended: make(chan error, 1), deaf: make(chan struct{}, 1),
	}
	if v := w.version.Load(); v != 0 {
		_, _, _ = ws.ReadMessage()
		_ = say(ws, (&refusal{status: statusVersion, sentence: fmt.Sprint("version ", v)}).append([]byte{itRefusal}))
		ws.Close()
		return
	}
	if f.from, err = as.receive(ws); err != nil {
		w.t.Errorf("the handshake: %v", err)
		return
	}
	if err = say(ws, f.from.welcome); err != nil {
		w.t.Errorf("the welcome: %v", err)
		return
	}
	ws.SetWriteDeadline(time.Time{})
	ws.SetReadLimit(0)
	pong := ws.PingHandler()
	ws.SetPingHandler(func(s string) error {
		if f.mute.Load() {
			return nil
		}
		return pong(s)
	})
	ws.SetCloseHandler(func(int, string) error { return nil })
	w.fars[as.self] <- f
	go f.read()
}

func (f *far) read() {
	defer f.ws.Close()
	for {
		f.deaf <- struct{}{}
		<-f.deaf
		_, data, err := f.ws.ReadMessage()
		if err != nil {
			f.ended <- err
			close(f.requests)
			return
		}
		for in := (&frame{b: data}); len(in.b) > 0; {
			switch tag := in.tag(); tag {
			case itRequest:
				r := received{id: in.number(), path: in.number()}
				before := in.b
				read(in, nonce.ReadRequest, &r.Request)
				r.sum = xxhash.Sum64(before[:len(before)-len(in.b)])
				f.requests <- r
			case itInterest:
				f.interests <- in.interest()
			default:
				in.fail(errShort)
			}
			if in.err != nil {
				f.t.Errorf("a message %x: %v", data, in.err)
			}
		}
	}
}

// stopReading makes the node take nothing more off the wire, after the message that it
// waits for, until the function it returns is called.
func (f *far) stopReading() (readOn func()) {
	f.deaf <- struct{}{}
	readOn = sync.OnceFunc(func() { <-f.deaf })
	f.t.Cleanup(readOn)
	return readOn
}

// next is the next request, which must be of a kind.
func (f *far) next(kind nonce.Kind) received {
	f.t.Helper()
	r, ok := <-f.requests
	if !ok || r.Kind != kind {
		f.t.Fatalf("got %+v, and the link has ended: %t; want %v", r.Request, !ok, kind)
	}
	return r
}

func (f *far) send(message []byte) {
	f.t.Helper()
	if err := f.ws.WriteMessage(websocket.BinaryMessage, message); err != nil {
		f.t.Errorf("the node writes: %v", err)
	}
}

// answer answers a request.
func (f *far) answer(r received, a nonce.Result) { f.t.Helper(); f.send(answerTo(r, a)) }

func answerTo(r received, a nonce.Result) []byte {
	b := binary.BigEndian.AppendUint64(binary.AppendUvarint([]byte{itResult}, r.id), r.sum)
	return nonce.AppendResult(b, &a)
}

// grant answers an allocate of one nonce.
func (f *far) grant(r received, n int64) { f.t.Helper(); f.answer(r, held(n)) }

func held(n int64) nonce.Result {
	return nonce.Result{
		Nonces: []int64{n}, Attempts: []int64{1}, Token: 7,
		HeldUntil: time.Date(2026, 11, 20, 18, 0, 0, 0, time.UTC), HoldLeft: 59_321 * time.Millisecond,
	}
}

// have says that an interest is served.
func (f *far) have(seq uint64) { f.send(binary.AppendUvarint([]byte{itHave}, seq)) }

// event tells of a hand-out.
func (f *far) event(signer string, n, missed int64) {
	e := nonce.Event{Type: nonce.EventAllocated, Signer: signer, Nonce: n, Attempt: 1, Version: n, At: time.UnixMilli(7)}
	f.send(nonce.AppendEvent(binary.AppendUvarint([]byte{itEvent}, uint64(missed)), &e))
}

// cut ends the link without a word.
func (f *far) cut() { f.ws.NetConn().Close() }

func (f *far) close(code int, text string) {
	_ = f.ws.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(code, text), time.Now().Add(time.Second))
	f.cut()
}

// refuseUpgrades makes a host answer upgrades by a status; 0: by the upgrade.
func (w *world) refuseUpgrades(name string, status int) {
	if status == 0 {
		w.net.Host(name).Refuse.Store(nil)
		return
	}
	w.net.Host(name).Refuse.Store(&wspeer.Refusal{Status: status, Text: "so it\nis"})
}

// sink records events.
type sink struct {
	mu     sync.Mutex
	events []string // as "signer/nonce"
	lost   int
	heard  chan struct{} // receives with each event; nil: nobody listens
}

func (s *sink) Remote(_ int, e nonce.Event, missed int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	told := fmt.Sprintf("%s/%d", e.Signer, e.Nonce)
	if missed > 0 {
		told += fmt.Sprintf(", %d missed", missed)
	}
	if s.events = append(s.events, told); s.heard != nil {
		s.heard <- struct{}{}
	}
}

func (s *sink) Lost() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lost++
}

func (w *world) allocation(signer string) *asked {
	return &asked{Request: nonce.Request{Kind: nonce.KindAllocate, Signer: signer, Count: 1}, to: w.back}
}

// forward hands a request over to node "a".
func (w *world) forward(o *asked) {
	w.t.Helper()
	if err := w.Forward("a", "", &o.Request, 5, o); err != nil {
		w.t.Fatalf("forward: %v", err)
	}
}

// wantBack asserts what the next op is that comes back.
func (w *world) wantBack(want *asked, v nonce.Verdict, err error) {
	w.t.Helper()
	o := <-w.back
	if o != want || o.verdict != v {
		w.t.Fatalf("got %s back with verdict %d, %v; want %s with %d", o.Signer, o.verdict, o.res.Err, want.Signer, v)
	}
	if err != nil && !errors.Is(o.res.Err, err) {
		w.t.Fatalf("%s came back with %v, want %v", o.Signer, o.res.Err, err)
	}
}

// state is how the router sees a node.
func (w *world) state(node string) string {
	synctest.Wait()
	p := w.known()[node]
	if p == nil {
		return ""
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.leaving:
		return "leaving"
	case p.up:
		return "up"
	case !p.node.Live:
		return "silent"
	case p.suspect:
		return "suspect"
	case p.inflight.order.Len() > 0 || w.cfg.Forward && p.node.Mode == modeWorkerQueue:
		return "dialling"
	}
	return "unlinked"
}

// logged is how often a word is in the log.
func (w *world) logged(word string) int { return strings.Count(w.log.String(), word) }

// want makes clients want the events of signers, or all when none is named.
func (w *world) want(signers ...string) {
	slices.Sort(signers)
	w.wants = events.Interest{All: len(signers) == 0, Signers: slices.Compact(signers)}
	w.InterestChanged()
}

var closeTexts = map[int]string{wire.CloseServiceRestart: wire.CloseTextRestart}

type counting struct {
	net.Conn
	writes *atomic.Int64
}

func (c counting) Write(p []byte) (int, error) {
	c.writes.Add(1)
	return c.Conn.Write(p)
}

// text is what is written, also from several goroutines.
type text struct {
	mu sync.Mutex
	b  strings.Builder
}

func (t *text) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.b.Write(p)
}

func (t *text) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.b.String()
}
