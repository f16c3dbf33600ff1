// Package wsconn has what the connections of this module that are dialled over WebSocket
// (of the client, between nodes, to nodes of a chain) need beneath gorilla/websocket: a
// dial that ends with its context, several frames in one write, and answers to pings by
// the only writer.
//
// It does not know what is sent, does not dial again, and starts no goroutine.
package wsconn

import (
	"context"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorilla/websocket"
)

// Dial is d.DialContext with a d.NetDialContext that is not nil, and ends with ctx at any
// time: gorilla looks at the context only while it opens the connection beneath.
func Dial(ctx context.Context, d websocket.Dialer, url string, header http.Header) (*websocket.Conn, *http.Response, error) {
	unwatch := func() bool { return true }
	dial := d.NetDialContext
	d.NetDialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err == nil {
			unwatch = context.AfterFunc(ctx, func() { conn.Close() })
		}
		return conn, err
	}
	ws, resp, err := d.DialContext(ctx, url, header)
	if !unwatch() && err == nil {
		ws.Close()
		err = context.Cause(ctx)
	}
	return ws, resp, err
}

// keptBytes is what a Cork keeps of the memory of one write for the next.
const keptBytes = 128 << 10

// Cork is a connection that joins writes: what is written between Hold and Release goes
// out as one. It lies beneath TLS and gorilla, which make one write of each frame.
type Cork struct {
	net.Conn
	held atomic.Bool

	mu  sync.Mutex // guards buf, and is the order of writes
	buf []byte
}

// Write keeps p while writes are held, and passes it on otherwise.
func (c *Cork) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held.Load() {
		c.buf = append(c.buf, p...)
		return len(p), nil
	}
	return c.Conn.Write(p)
}

// SetWriteDeadline is for writes that are not held: Release has its own.
func (c *Cork) SetWriteDeadline(at time.Time) error {
	if c.held.Load() {
		return nil
	}
	return c.Conn.SetWriteDeadline(at)
}

// Hold begins to keep what is written. One goroutine calls Hold and Release.
func (c *Cork) Hold() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held.Store(true)
}

// Release writes what was held, until the deadline. Other writers, of a close frame, wait
// meanwhile, so that nothing is overtaken; the deadline that they have set ends a write
// early that is stuck.
func (c *Cork) Release(deadline time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held.Store(false)
	if len(c.buf) == 0 {
		return nil
	}
	c.Conn.SetWriteDeadline(deadline)
	_, err := c.Conn.Write(c.buf)
	c.buf = c.buf[:0]
	if cap(c.buf) > keptBytes {
		c.buf = nil
	}
	return err
}

// Pongs are the answers to pings on their way from the reader to the writer.
type Pongs chan []byte

// NewPongs returns an empty channel, which holds the latest only.
func NewPongs() Pongs { return make(Pongs, 1) }

// Put takes a ping's data. It does not block: when the writer is behind, only the latest
// counts.
func (p Pongs) Put(data string) {
	for {
		select {
		case p <- []byte(data):
			return
		default:
		}
		select {
		case <-p:
		default:
		}
	}
}
