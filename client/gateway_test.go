package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorilla/websocket"
	"go.uber.org/goleak"

	"noncegate/wire"
)

func TestMain(m *testing.M) {
	os.Unsetenv("HTTP_PROXY") // the names of the tests' network are not for a proxy
	os.Unsetenv("http_proxy")
	goleak.VerifyTestMain(m)
}

// network is a little world of gateways by host name, over pipes, so that tests
// run in the fake time of synctest.
type network struct {
	t  *testing.T
	mu sync.Mutex
	// dialled are the hosts in the order they were tried.
	dialled []string
	hosts   map[string]*gateway
}

// gateway is a scripted one: it accepts, and the test plays its part.
type gateway struct {
	conns  chan net.Conn // dialled, to be served
	peers  chan *peer    // upgraded, for the test
	closed atomic.Pointer[closed]
}

// closed is what a gateway answers in place of an upgrade.
type closed struct {
	status     int
	retryAfter string
	says       string
}

// peer is the gateway's side of one connection.
type peer struct {
	t        *testing.T
	ws       *websocket.Conn
	raw      net.Conn
	requests chan received
	pongs    chan string
	ended    chan error    // why reading ended; a close frame above all
	deaf     chan struct{} // the peer reads no further while there is a token in it
}

type received struct {
	ID     json.RawMessage
	Method string
	Params json.RawMessage
}

func newNetwork(t *testing.T, hosts ...string) *network {
	n := &network{t: t, hosts: make(map[string]*gateway)}
	for _, host := range hosts {
		g := &gateway{conns: make(chan net.Conn, 64), peers: make(chan *peer, 64)}
		n.hosts[host] = g
		srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { g.upgrade(t, w, r) })}
		var serving sync.WaitGroup
		serving.Go(func() { srv.Serve(listener{g.conns}) })
		t.Cleanup(func() { close(g.conns); srv.Close(); serving.Wait() })
	}
	return n
}

func (n *network) dial(_ context.Context, _, addr string) (net.Conn, error) {
	host, _, _ := strings.Cut(addr, ":")
	n.mu.Lock()
	defer n.mu.Unlock()
	n.dialled = append(n.dialled, host)
	g := n.hosts[host]
	if g == nil {
		return nil, errors.New("no such host")
	}
	here, there := net.Pipe()
	g.conns <- there
	return here, nil
}

func (n *network) dials() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return append([]string(nil), n.dialled...)
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

func (g *gateway) upgrade(t *testing.T, w http.ResponseWriter, r *http.Request) {
	if no := g.closed.Load(); no != nil {
		w.Header().Set("Retry-After", no.retryAfter)
		w.WriteHeader(no.status)
		fmt.Fprint(w, no.says)
		return
	}
	ws, err := new(websocket.Upgrader).Upgrade(w, r, nil)
	if err != nil {
		t.Error(err)
		return
	}
	p := &peer{
		t: t, ws: ws, raw: ws.NetConn(),
		requests: make(chan received, 4096), pongs: make(chan string, 16), ended: make(chan error, 1),
		deaf: make(chan struct{}, 1),
	}
	ws.SetPongHandler(func(s string) error { p.pongs <- s; return nil })
	ws.SetCloseHandler(func(int, string) error { return nil })
	g.peers <- p
	go p.read()
}

func (p *peer) read() {
	defer p.ws.Close()
	for {
		p.deaf <- struct{}{}
		<-p.deaf
		_, data, err := p.ws.ReadMessage()
		if err != nil {
			p.ended <- err
			close(p.requests)
			return
		}
		var r received
		if err := json.Unmarshal(data, &r); err != nil {
			p.t.Errorf("request %s: %v", data, err)
		}
		p.requests <- r
	}
}

// next is the next request, which must be of method.
func (p *peer) next(method string) received {
	p.t.Helper()
	r, ok := <-p.requests
	if !ok {
		p.t.Fatalf("the connection ended, want a request %s", method)
	}
	if r.Method != method {
		p.t.Fatalf("got a request %s %s, want %s", r.Method, r.Params, method)
	}
	return r
}

func (p *peer) send(format string, args ...any) {
	p.t.Helper()
	if err := p.ws.WriteMessage(websocket.TextMessage, fmt.Appendf(nil, format, args...)); err != nil {
		p.t.Errorf("gateway writes: %v", err)
	}
}

func (p *peer) answer(r received, result any) {
	p.t.Helper()
	data, err := json.Marshal(result)
	if err != nil {
		p.t.Fatal(err)
	}
	p.send(`{"jsonrpc":"2.0","id":%s,"result":%s}`, r.ID, data)
}

func (p *peer) refuse(r received, code int, reason string, data wire.ErrorData) {
	p.t.Helper()
	data.Reason = reason
	e, err := json.Marshal(wire.Error{Code: code, Message: reason + ": so it is", Data: &data})
	if err != nil {
		p.t.Fatal(err)
	}
	p.send(`{"jsonrpc":"2.0","id":%s,"error":%s}`, r.ID, e)
}

func (p *peer) busy(r received, retryAfterMs int64) {
	p.t.Helper()
	p.refuse(r, wire.CodeServerBusy, "server_busy", wire.ErrorData{Stage: wire.StageWorker, RetryAfterMs: retryAfterMs})
}

// cut ends the connection without a word.
func (p *peer) cut() { p.raw.Close() }

func (p *peer) closeWith(code int) {
	p.ws.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(code, "as the test says"), time.Now().Add(time.Second))
	p.raw.Close()
}

// story runs a test in fake time with a client of host "a", whose first
// connection is p.
func story(t *testing.T, cfg Config, tell func(t *testing.T, n *network, c *Client, p *peer)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, "a", "b")
		cfg.NetDial = n.dial
		c, err := Dial(t.Context(), "ws://a", cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		tell(t, n, c, <-n.hosts["a"].peers)
	})
}

// later runs a call in a goroutine; the function it returns waits for its end.
func later[T any](call func() (T, error)) func() (T, error) {
	type end struct {
		result T
		err    error
	}
	done := make(chan end, 1)
	go func() {
		result, err := call()
		done <- end{result, err}
	}()
	return func() (T, error) {
		e := <-done
		return e.result, e.err
	}
}

func allocate(t *testing.T, c *Client, r AllocateRequest) func() (Allocation, error) {
	if r.Signer == "" {
		r.Signer = "s"
	}
	return later(func() (Allocation, error) { return c.Allocate(t.Context(), r) })
}

func held(nonce int64) wire.AllocateResult {
	return wire.AllocateResult{Signer: "s", Nonce: nonce, Attempt: 1, FencingToken: 7, HoldMs: 60_000}
}

// requestID is the one of a request to allocate.
func (r received) requestID(t *testing.T) string {
	t.Helper()
	return decode[wire.AllocateParams](t, r).RequestID
}

// wantUnknown asserts that err says the outcome is unknown, and nothing else.
func wantUnknown(t *testing.T, err error) *UnknownOutcomeError {
	t.Helper()
	u, ok := errors.AsType[*UnknownOutcomeError](err)
	if !ok {
		t.Fatalf("got error %v, want an unknown outcome", err)
	}
	if _, ok := errors.AsType[*NotSentError](err); ok {
		t.Fatalf("error %v is unknown and says that nothing happened", err)
	}
	return u
}

// wantNotSent asserts that err says that nothing was sent, because of target.
func wantNotSent(t *testing.T, err, target error) {
	t.Helper()
	if _, ok := errors.AsType[*NotSentError](err); !ok || !errors.Is(err, target) {
		t.Fatalf("got error %v, want not sent because of %v", err, target)
	}
}
