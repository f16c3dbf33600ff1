// Package wspeer is for tests of what dials WebSockets: a network of hosts over pipes, so
// that tests run in the fake time of testing/synctest, in which the test itself says what
// the other side of each connection does.
package wspeer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"noncegate/wire"
)

// Network has hosts by name.
type Network struct {
	mu    sync.Mutex // guards what follows
	hosts map[string]*Host
	dials []string
}

// Host is where connections arrive.
type Host struct {
	Peers  chan *Peer                      // upgraded connections, for the test
	Refuse atomic.Pointer[Refusal]         // instead of upgrades; nil: none
	Hung   atomic.Bool                     // dials stay without an answer
	Wrap   func(dialled net.Conn) net.Conn // nil: as it is
	Serve  http.Handler                    // serves what is no refusal in place of a Peer; nil: nothing does
	conns  chan net.Conn
}

// Refusal is an answer of HTTP instead of an upgrade.
type Refusal struct {
	Status     int
	RetryAfter string
	Text       string
}

// New makes a network that ends with the test.
func New(t *testing.T, names ...string) *Network {
	n := &Network{hosts: make(map[string]*Host)}
	for _, name := range names {
		h := &Host{Peers: make(chan *Peer, 64), conns: make(chan net.Conn, 64)}
		n.hosts[name] = h
		srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h.upgrade(t, w, r) })}
		var serving sync.WaitGroup
		serving.Go(func() { _ = srv.Serve(listener{h.conns}) })
		t.Cleanup(func() {
			close(h.conns)
			_ = srv.Close()
			serving.Wait()
		})
	}
	return n
}

// Host returns the host of a name; nil: there is none.
func (n *Network) Host(name string) *Host {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.hosts[name]
}

// Add gives a host another name.
func (n *Network) Add(name string, h *Host) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.hosts[name] = h
}

// AddSilent adds a host that takes connections and says nothing.
func (n *Network) AddSilent(name string) {
	h := new(Host)
	h.Hung.Store(true)
	n.Add(name, h)
}

// Dial opens a connection, as a net.Dialer does.
func (n *Network) Dial(ctx context.Context, _, addr string) (net.Conn, error) {
	name, _, _ := strings.Cut(addr, ":")
	n.mu.Lock()
	n.dials = append(n.dials, name)
	h := n.hosts[name]
	n.mu.Unlock()
	if h == nil {
		return nil, errors.New("no such host")
	}
	here, there := net.Pipe()
	if h.Hung.Load() {
		context.AfterFunc(ctx, func() { there.Close() })
		return here, nil
	}
	h.conns <- there
	if h.Wrap != nil {
		return h.Wrap(here), nil
	}
	return here, nil
}

// Dials are the names that were dialled so far, in order.
func (n *Network) Dials() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.dials)
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

func (h *Host) upgrade(t *testing.T, w http.ResponseWriter, r *http.Request) {
	if no := h.Refuse.Load(); no != nil {
		w.Header().Set("Retry-After", no.RetryAfter)
		w.WriteHeader(no.Status)
		fmt.Fprint(w, no.Text)
		return
	}
	if h.Serve != nil {
		h.Serve.ServeHTTP(w, r)
		return
	}
	ws, err := new(websocket.Upgrader).Upgrade(w, r, nil)
	if err != nil {
		t.Error(err)
		return
	}
	p := &Peer{
		T: t, WS: ws, Raw: ws.NetConn(), Header: r.Header,
		Requests: make(chan Request, 10_000), Pongs: make(chan string, 16), Ended: make(chan error, 1), deaf: make(chan struct{}, 1),
	}
	pong := ws.PingHandler()
	ws.SetPingHandler(func(s string) error {
		if p.Mute.Load() {
			return nil
		}
		return pong(s)
	})
	ws.SetPongHandler(func(s string) error {
		select {
		case p.Pongs <- s:
		default: // the test does not look
		}
		return nil
	})
	ws.SetCloseHandler(func(int, string) error { return nil })
	h.Peers <- p
	go p.read()
}

// Peer is the other side of one connection.
type Peer struct {
	T        *testing.T
	WS       *websocket.Conn
	Raw      net.Conn
	Header   http.Header // of the upgrade
	Requests chan Request
	Pongs    chan string
	Ended    chan error  // why reading ended; a close frame above all
	Mute     atomic.Bool // it does not answer pings

	deaf chan struct{} // it reads no further while there is a token in it
}

// Request is one that came.
type Request struct {
	ID     json.RawMessage
	Method string
	Params json.RawMessage
}

// Decode reads the params of a request.
func Decode[T any](t *testing.T, r Request) (params T) {
	t.Helper()
	if err := json.Unmarshal(r.Params, &params); err != nil {
		t.Fatalf("params %s: %v", r.Params, err)
	}
	return params
}

func (p *Peer) read() {
	defer p.WS.Close()
	for {
		p.deaf <- struct{}{}
		<-p.deaf
		_, data, err := p.WS.ReadMessage()
		if err != nil {
			p.Ended <- err
			close(p.Requests)
			return
		}
		var r Request
		if err := json.Unmarshal(data, &r); err != nil {
			p.T.Errorf("request %s: %v", data, err)
		}
		p.Requests <- r
	}
}

// StopReading makes the peer take nothing more off the wire, after the message that it
// waits for, until the function it returns is called.
func (p *Peer) StopReading() (readOn func()) {
	p.deaf <- struct{}{}
	readOn = sync.OnceFunc(func() { <-p.deaf })
	p.T.Cleanup(readOn)
	return readOn
}

// Next is the next request, which must be of method.
func (p *Peer) Next(method string) Request {
	p.T.Helper()
	r, ok := <-p.Requests
	if !ok {
		p.T.Fatalf("the connection ended, want a request %s", method)
	}
	if r.Method != method {
		p.T.Fatalf("got a request %s %s, want %s", r.Method, r.Params, method)
	}
	return r
}

// Send sends a message.
func (p *Peer) Send(format string, args ...any) {
	p.T.Helper()
	if err := p.WS.WriteMessage(websocket.TextMessage, fmt.Appendf(nil, format, args...)); err != nil {
		p.T.Errorf("the peer writes: %v", err)
	}
}

// Answer answers a request.
func (p *Peer) Answer(r Request, result any) {
	p.T.Helper()
	data, err := json.Marshal(result)
	if err != nil {
		p.T.Fatal(err)
	}
	p.Send(`{"jsonrpc":"2.0","id":%s,"result":%s}`, r.ID, data)
}

// Reject answers a request by an error.
func (p *Peer) Reject(r Request, code int, reason string, data wire.ErrorData) {
	p.T.Helper()
	data.Reason = reason
	e, err := json.Marshal(wire.Error{Code: code, Message: reason + ": so it is", Data: &data})
	if err != nil {
		p.T.Fatal(err)
	}
	p.Send(`{"jsonrpc":"2.0","id":%s,"error":%s}`, r.ID, e)
}

// Cut ends the connection without a word.
func (p *Peer) Cut() { p.Raw.Close() }

// Close ends the connection with a close frame.
func (p *Peer) Close(code int, text string) {
	_ = p.WS.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(code, text), time.Now().Add(time.Second))
	p.Raw.Close()
}
