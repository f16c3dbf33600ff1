package chaintest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/gorilla/websocket"
)

// Endpoint is what a Proxy stands in front of: a Sim, an Anvil, another Proxy.
type Endpoint interface {
	URL() string
	WS() string
}

// Proxy is a node's address on which calls go wrong as a test wants it: HTTP POST and
// WebSockets with subscriptions, on a port of its own. It starts by forwarding. What a
// method changes holds for open connections too, from the next call or notification on.
// Its methods may be called from any goroutine.
//
// It reads every call and writes it, and every answer, anew; what is not JSON-RPC it
// refuses itself. A Proxy owns the goroutines of its connections and one for each message
// that is delayed; Close ends them all and waits.
type Proxy struct {
	t      T
	target Endpoint
	ln     net.Listener
	server *http.Server
	post   *http.Client
	ctx    context.Context // ends with Close
	close  func()
	wg     sync.WaitGroup

	mu       sync.Mutex // guards what follows; no I/O is done under it
	rules    []*Rule
	changed  chan struct{} // closed when a call has met a rule
	requests map[string]int
	messages int
	conns    map[net.Conn]struct{}
	refusing bool
	isClosed bool
	muted    bool
	view     *view // of a node that lags; nil: as it is
	sockets  map[*socket]struct{}
}

// StartProxy starts a proxy, which ends with the test.
func StartProxy(t T, target Endpoint) *Proxy {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("proxy: %v", err)
	}
	// Not the test's context, which ends before the cleanups: clients that are closed by
	// those may wait for an answer.
	ctx, cancel := context.WithCancel(context.Background())
	p := &Proxy{
		t: t, target: target, ctx: ctx, changed: make(chan struct{}), requests: make(map[string]int),
		conns: make(map[net.Conn]struct{}), sockets: make(map[*socket]struct{}),
		// Its own connections, and redirects of the node are not followed but passed on.
		post: &http.Client{Transport: &http.Transport{}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
	}
	p.ln = &gate{Listener: ln, p: p}
	p.server = &http.Server{Handler: http.HandlerFunc(p.serve), ReadHeaderTimeout: time.Minute}
	p.close = sync.OnceFunc(func() {
		p.mu.Lock()
		p.isClosed = true
		p.mu.Unlock()
		cancel()
		p.server.Close()
		p.Refuse() // WebSockets are not the server's any more
		p.wg.Wait()
		p.post.CloseIdleConnections()
	})
	p.wg.Go(func() {
		if err := p.server.Serve(p.ln); !errors.Is(err, http.ErrServerClosed) {
			t.Logf("proxy: %v", err)
		}
	})
	t.Cleanup(p.close)
	return p
}

// Close ends all connections and waits. It may be called twice, and is called by itself
// at the end of the test.
func (p *Proxy) Close() { p.close() }

// URL is the proxy's address for HTTP.
func (p *Proxy) URL() string { return "http://" + p.ln.Addr().String() }

// WS is the proxy's address for WebSockets.
func (p *Proxy) WS() string { return "ws://" + p.ln.Addr().String() }

// Requests is how many calls of each method have come since the start or ResetCounts, those
// in batches and those that were not forwarded too; Upgrade is a method of it.
func (p *Proxy) Requests() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.requests)
}

// Messages is how many HTTP requests and WebSocket messages with calls have come since the
// start or ResetCounts; a batch is one.
func (p *Proxy) Messages() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.messages
}

// notified says what becomes of a notification.
func (p *Proxy) notified() (muted, lagging bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.muted, p.view != nil
}

// await waits until count, which is called under mu, is n at least.
func (p *Proxy) await(what string, count func() int, n int) {
	p.t.Helper()
	timer := time.NewTimer(pollDeadline)
	defer timer.Stop()
	for {
		p.mu.Lock()
		now, changed := count(), p.changed
		p.mu.Unlock()
		if now >= n {
			return
		}
		select {
		case <-changed:
		case <-timer.C:
			p.t.Fatalf("within %v %d came of: %s", pollDeadline, now, what)
		}
	}
}

// tellLocked wakes those that wait.
func (p *Proxy) tellLocked() {
	close(p.changed)
	p.changed = make(chan struct{})
}

// ResetCounts sets what Requests and Messages count to zero.
func (p *Proxy) ResetCounts() {
	p.mu.Lock()
	defer p.mu.Unlock()
	clear(p.requests)
	p.messages = 0
}

// Refuse closes every connection and, until Accept, every new one at once: a node that is
// away.
func (p *Proxy) Refuse() {
	p.mu.Lock()
	p.refusing = true
	p.mu.Unlock()
	p.Disconnect()
}

// Accept ends Refuse.
func (p *Proxy) Accept() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refusing = false
}

// Disconnect closes every connection; new ones are taken.
func (p *Proxy) Disconnect() {
	p.mu.Lock()
	conns := maps.Clone(p.conns)
	p.mu.Unlock()
	for c := range conns {
		c.Close()
	}
}

// Mute has subscriptions be answered as ever, and drops what they should bring until it is
// called with false.
func (p *Proxy) Mute(muted bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.muted = muted
}

// gate is the listener: it knows the open connections.
type gate struct {
	net.Listener
	p *Proxy
}

// known is a connection that says when it is closed.
type known struct {
	net.Conn
	p *Proxy
}

func (g *gate) Accept() (net.Conn, error) {
	for {
		c, err := g.Listener.Accept()
		if err != nil {
			return nil, err
		}
		k := &known{Conn: c, p: g.p}
		if g.p.take(k) {
			return k, nil
		}
		c.Close()
	}
}

func (p *Proxy) take(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.refusing {
		p.conns[c] = struct{}{}
	}
	return !p.refusing
}

func (k *known) Close() error {
	k.p.mu.Lock()
	delete(k.p.conns, k)
	k.p.mu.Unlock()
	return k.Conn.Close()
}

// enter reports whether there is something left for Close to wait for; wg.Done ends it.
func (p *Proxy) enter() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.isClosed {
		p.wg.Add(1)
	}
	return !p.isClosed
}

func (p *Proxy) serve(w http.ResponseWriter, r *http.Request) {
	if !p.enter() {
		panic(http.ErrAbortHandler)
	}
	defer p.wg.Done()
	switch {
	case websocket.IsWebSocketUpgrade(r):
		p.serveSocket(w, r)
	case r.Method == http.MethodPost:
		p.servePost(w, r)
	default:
		http.Error(w, "a node's proxy takes POST and WebSockets", http.StatusMethodNotAllowed)
	}
}

func (p *Proxy) servePost(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client has gone
	}
	ex, err := p.parse(body)
	if err != nil {
		p.writeHTTP(w, r, refusal(err))
		return
	}
	if !ex.wait(p.ctx) {
		panic(http.ErrAbortHandler)
	}
	out, local := ex.local()
	if !local {
		out = p.forwardPost(ex)
	}
	p.writeHTTP(w, r, out)
}

// forwardPost asks the node. Whether the client still waits does not matter: what it sent
// is on its way.
func (p *Proxy) forwardPost(ex *exchange) *outcome {
	var id uint64
	frame, err := ex.frame(func() uint64 { id++; return id })
	if err != nil {
		return refusal(err)
	}
	text, err := p.ask(frame)
	if err != nil {
		return &outcome{kind: status, status: http.StatusBadGateway, body: []byte(err.Error())}
	}
	answers := make(map[uint64]*answer)
	if len(bytes.TrimSpace(text)) > 0 {
		if answers, err = readAnswers(text); err != nil {
			return &outcome{kind: status, status: http.StatusBadGateway, body: []byte(err.Error())}
		}
	}
	return ex.after(answers)
}

// ask sends a message to the node over HTTP.
func (p *Proxy) ask(frame []byte) ([]byte, error) {
	r, err := http.NewRequestWithContext(p.ctx, http.MethodPost, p.target.URL(), bytes.NewReader(frame))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	resp, err := p.post.Do(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("the node answered %s: %.200s", resp.Status, text)
	}
	return text, err
}

// refusal is the answer to a message that is none.
func refusal(err error) *outcome {
	return asBody(&answer{Version: "2.0", ID: orNull(nil), Error: RPCError(-32700, "parse error: "+err.Error()).replace(&job{}).Error})
}

// writeHTTP gives a client its outcome; nil is an answer without content.
func (p *Proxy) writeHTTP(w http.ResponseWriter, r *http.Request, out *outcome) {
	if out == nil {
		out = &outcome{}
	}
	switch out.kind {
	case raw:
		w.Header().Set("Content-Type", "application/json")
		w.Write(out.body)
	case silent:
		select {
		case <-r.Context().Done(): // the client gave up
		case <-p.ctx.Done():
		}
		panic(http.ErrAbortHandler)
	case closed:
		panic(http.ErrAbortHandler)
	case status:
		if out.location != "" {
			w.Header().Set("Location", out.location)
		}
		w.WriteHeader(out.status)
		w.Write(out.body)
	case stream:
		w.Header().Set("Content-Type", "application/json")
		if !out.writeTo(w) {
			panic(http.ErrAbortHandler)
		}
	}
}

// writeTo writes a stream until its end, or until nobody reads any more, which is false.
func (o *outcome) writeTo(w io.Writer) bool {
	const tail = `"}`
	zeros := bytes.Repeat([]byte("0"), 64<<10)
	left := o.bytes - int64(len(o.body)+len(tail))
	if _, err := w.Write(o.body); err != nil {
		return false
	}
	for o.bytes < 0 || left > 0 {
		chunk := zeros
		if o.bytes >= 0 {
			chunk = zeros[:min(int64(len(zeros)), left)]
			left -= int64(len(chunk))
		}
		if _, err := w.Write(chunk); err != nil {
			return false
		}
	}
	_, err := io.WriteString(w, tail)
	return err == nil
}
