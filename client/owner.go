package client

import (
	"context"
	"strings"
	"sync"

	lru "github.com/hashicorp/golang-lru/v2"

	"noncegate/internal/rpcconn"
	"noncegate/wire"
)

// maxRoutes bounds the remembered owners of signers. A route that was forgotten
// costs one not_owner.
const maxRoutes = 4096

// owners are the gateways beyond the main connection's that not_owner led to, or
// unavailable where the gateway does not reach the owner. Their connections are opened when
// a call needs them, and not kept up.
type owners struct {
	c      *Client
	secure bool

	routes *lru.Cache[string, string] // signer to URL, at most maxRoutes

	mu    sync.Mutex       // guards lines
	lines map[string]*line // by URL, at most Config.OwnerConnections
}

// line is one owner's connection, from the first dial to its end.
type line struct {
	url   string
	ready chan struct{} // closed when the dial has ended
	conn  *rpcconn.Conn // set before ready is closed; nil when the dial failed
}

func newOwners(c *Client) *owners {
	routes, _ := lru.New[string, string](maxRoutes) // never fails
	return &owners{c: c, secure: c.cfg.secure(), routes: routes, lines: make(map[string]*line)}
}

// learn takes in what not_owner said, and reports whether it can be followed.
func (w *owners) learn(o *op, said *wire.ErrorData) bool {
	w.send(o, w.named(said))
	return o.owner != ""
}

// named is the owner's URL in a refusal, "" where there is none that may be followed.
func (w *owners) named(said *wire.ErrorData) string {
	if said.OwnerURL == "" || w.c.cfg.OwnerConnections < 0 {
		return ""
	}
	url, err := ownerURL(said.OwnerURL)
	if err != nil || w.secure && !strings.HasPrefix(url, "wss:") {
		return ""
	}
	return url
}

// try opens a connection to the owner that an unavailable names, which the gateway
// does not reach, beside the call: the owner is likely dead, and the call must not
// wait for that. When the connection is there, the next try goes to it.
func (w *owners) try(o *op, said *wire.ErrorData) {
	if url := w.named(said); url != "" {
		o.hint = w.line(url)
	}
}

// take makes the way that was tried the call's, if it is open by now.
func (w *owners) take(o *op) {
	if o.hint.live() != nil {
		w.send(o, o.hint.url)
	}
	o.hint = nil
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

// send has the call, and later ones for its signer, go to url; "": to the main connection.
func (w *owners) send(o *op, url string) {
	o.owner = url
	switch {
	case url == "":
		w.routes.Remove(o.signer)
	case o.signer != "":
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
	unused := func(l *line) bool { conn := l.live(); return conn != nil && conn.Idle() }
	if len(w.lines) >= w.c.cfg.OwnerConnections && !w.dropLocked(unused) {
		return nil
	}
	l := &line{url: url, ready: make(chan struct{})}
	if !w.c.spawn(func() { w.serve(l) }) {
		return nil
	}
	w.lines[url] = l
	return l
}

// serve is a line's goroutine: it dials, runs the connection, and clears up when that has
// ended. A line that was told not to come back stays, dead, so that no call does.
func (w *owners) serve(l *line) {
	conn, err := w.c.rpc.Dial(w.c.ctx, l.url)
	if err == nil {
		l.conn = conn
	} else {
		w.c.cfg.Logger.Info("owner not reached", "url", l.url, "error", err)
	}
	close(l.ready)
	if err == nil && final(conn.Run(w.c.ctx, ErrClosed)) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dropLocked(func(of *line) bool { return of == l })
}

// leave lets the calls of an owner's connection end, and opens another for the next one.
func (w *owners) leave(conn *rpcconn.Conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dropLocked(func(l *line) bool { return l.live() == conn })
}

// dropLocked forgets one of the lines that are meant, and lets the calls of its connection end.
func (w *owners) dropLocked(meant func(*line) bool) bool {
	for url, l := range w.lines {
		if meant(l) {
			delete(w.lines, url)
			if conn := l.live(); conn != nil {
				w.c.spawn(conn.Retire) // else it is closed at once
			}
			return true
		}
	}
	return false
}
