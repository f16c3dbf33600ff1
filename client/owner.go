package client

import (
	"context"
	"strings"
	"sync"

	lru "github.com/hashicorp/golang-lru/v2"

	"noncegate/internal/rpcconn"
	"noncegate/wire"
)

// maxRoutes bounds what is remembered of who owns which signer. A route that
// was forgotten costs one not_owner.
const maxRoutes = 4096

// owners are the gateways beyond the main connection's that not_owner led to, or
// unavailable where the gateway does not reach the owner.
// Their connections are opened when a call needs them and are not kept up: when
// one is lost, the next call opens it again or goes to the main connection.
type owners struct {
	c      *Client
	secure bool

	routes *lru.Cache[string, string] // signer to URL, at most maxRoutes

	mu    sync.Mutex       // guards lines
	lines map[string]*line // by URL, at most Config.OwnerConnections
}

// line is one owner's connection, from the first dial to its end.
type line struct {
	ready chan struct{} // closed when the dial has ended
	conn  *rpcconn.Conn // set before ready is closed; nil when the dial failed
}

func newOwners(c *Client) *owners {
	routes, _ := lru.New[string, string](maxRoutes) // fails for a size below 1
	return &owners{c: c, secure: c.cfg.secure(), routes: routes, lines: make(map[string]*line)}
}

// learn takes in what not_owner said, and reports whether it can be followed.
func (w *owners) learn(o *op, said *wire.ErrorData) bool {
	url := w.named(said)
	if url == "" {
		w.forget(o)
		return false
	}
	w.remember(o, url)
	return true
}

// named is the owner's URL in a refusal, "" where there is none that may be followed.
func (w *owners) named(said *wire.ErrorData) string {
	if said == nil || said.OwnerURL == "" || w.c.cfg.OwnerConnections < 0 {
		return ""
	}
	url, err := ownerURL(said.OwnerURL)
	if err != nil || w.secure && !strings.HasPrefix(url, "wss:") {
		return ""
	}
	return url
}

// try opens a connection to the owner that an unavailable names, whom the gateway
// does not reach, beside the call: the owner is likely dead, and the call must not
// wait for that. When the connection is there, the next try goes to it.
func (w *owners) try(o *op, said *wire.ErrorData) {
	if o.hint = w.named(said); o.hint != "" {
		w.line(o.hint)
	}
}

// take makes the way that was tried the call's, if it is open by now.
func (w *owners) take(o *op) {
	if o.hint == "" {
		return
	}
	w.mu.Lock()
	l := w.lines[o.hint]
	w.mu.Unlock()
	if l.live() != nil {
		w.remember(o, o.hint)
	}
	o.hint = ""
}

// live is the connection if it is there by now, else nil.
func (l *line) live() *rpcconn.Conn {
	if l == nil {
		return nil
	}
	select {
	case <-l.ready:
		if l.conn != nil && l.conn.Alive() {
			return l.conn
		}
	default: // being dialled
	}
	return nil
}

// remember sends the call, and later ones for its signer, to url.
func (w *owners) remember(o *op, url string) {
	o.owner = url
	if o.signer != "" {
		w.routes.Add(o.signer, url)
	}
}

// route returns the URL of the gateway to ask, "" for the main connection.
func (w *owners) route(o *op) string {
	if o.owner != "" || o.signer == "" {
		return o.owner
	}
	url, _ := w.routes.Get(o.signer)
	return url
}

// forget sends the call and later ones for its signer to the main connection.
func (w *owners) forget(o *op) {
	o.owner = ""
	w.routes.Remove(o.signer)
}

// reach returns a live connection to url, dialling when there is none, or nil
// when it cannot be had.
func (w *owners) reach(ctx context.Context, url string) *rpcconn.Conn {
	if main := w.c.main.Latest(); main.URL == url && main.Alive() {
		return main
	}
	l := w.line(url)
	if l == nil {
		return nil
	}
	select {
	case <-l.ready:
	case <-ctx.Done():
	}
	return l.live()
}

// line returns the line to url, a new one when there is none and room for it.
func (w *owners) line(url string) *line {
	w.mu.Lock()
	defer w.mu.Unlock()
	if l := w.lines[url]; l != nil {
		return l
	}
	if len(w.lines) >= w.c.cfg.OwnerConnections && !w.evictLocked() {
		return nil
	}
	l := &line{ready: make(chan struct{})}
	if !w.c.spawn(func() { w.serve(url, l) }) {
		return nil
	}
	w.lines[url] = l
	return l
}

// evictLocked ends a line that no call uses.
func (w *owners) evictLocked() bool {
	for url, l := range w.lines {
		if conn := l.live(); conn != nil && conn.Idle() {
			delete(w.lines, url)
			conn.Leave()
			return true
		}
	}
	return false
}

// serve is a line's goroutine: it dials, runs the connection, and clears up when that has
// ended or is to be left. A line that was told not to come back stays, dead, so that
// nobody does.
func (w *owners) serve(url string, l *line) {
	conn, err := w.c.rpc.Dial(w.c.ctx, url)
	if err != nil {
		w.c.cfg.Logger.Info("owner not reached", "url", url, "error", err)
		close(l.ready)
		w.drop(url, l)
		return
	}
	l.conn = conn
	close(l.ready)
	w.c.spawn(func() { // else it is closed at once
		select {
		case <-conn.Leaving():
			w.drop(url, l)
			conn.Retire()
		case <-conn.Dead():
		}
	})
	if !final(conn.Run(w.c.ctx, ErrClosed)) {
		w.drop(url, l)
	}
}

func (w *owners) drop(url string, l *line) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.lines[url] == l {
		delete(w.lines, url)
	}
}
