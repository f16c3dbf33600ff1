package client

import (
	"net"
	"sync"
	"time"

	"github.com/gorilla/websocket"

	"noncegate/wire"
)

const (
	burstBytes = 64 << 10    // one write to the network takes at most about this much
	lastWords  = time.Second // how long the reader goes on after the writer gave up
)

// request is a call as it is written. Without id it is answered by nothing.
type request struct {
	JSONRPC string `json:"jsonrpc"`
	ID      uint64 `json:"id,omitempty"`
	Method  string `json:"method"`
	Params  any    `json:"params,omitempty"`
}

func encode(id uint64, method string, params any) ([]byte, error) {
	return wire.Marshal(&request{JSONRPC: "2.0", ID: id, Method: method, Params: params})
}

// writeLoop is the connection's writer.
func (c *conn) writeLoop() {
	for {
		var err error
		select {
		case t := <-c.queue:
			err = c.writeBurst(t)
		case data := <-c.pongs:
			err = c.ws.WriteControl(websocket.PongMessage, data, time.Now().Add(c.cfg.WriteTimeout))
		case <-c.dead:
			return
		}
		if err != nil {
			c.breakOff(err)
			return
		}
	}
}

// writeBurst sends t and what is queued behind it in one write.
func (c *conn) writeBurst(t *exchange) error {
	now := time.Now()
	deadline := now.Add(c.cfg.WriteTimeout)
	c.ws.SetWriteDeadline(deadline)
	c.cork.hold()
	for bytes := 0; t != nil; t = c.nextExchange(bytes) {
		t.sentAt = now
		if !t.state.CompareAndSwap(queued, sent) {
			continue // withdrawn
		}
		if err := c.ws.WriteMessage(websocket.TextMessage, t.frame); err != nil {
			return err
		}
		bytes += len(t.frame)
	}
	return c.cork.release(deadline)
}

// nextExchange takes the next request of a burst that has bytes so far.
func (c *conn) nextExchange(bytes int) *exchange {
	if bytes >= burstBytes {
		return nil
	}
	select {
	case t := <-c.queue:
		return t
	default:
		return nil
	}
}

// breakOff leaves the end to the reader: the gateway may have said why it
// closed, and that decides whether to come back.
func (c *conn) breakOff(err error) {
	c.mu.Lock()
	c.writeErr = err
	c.mu.Unlock()
	c.broken.Store(true)
	c.ws.SetReadDeadline(time.Now().Add(lastWords))
}

// ping hands the answer to the writer. It runs in the reader.
func (c *conn) ping(data string) error {
	c.extend()
	for {
		select {
		case c.pongs <- []byte(data):
			return nil
		default: // the writer is behind: only the latest counts
		}
		select {
		case <-c.pongs:
		default:
		}
	}
}

// corkedConn joins writes: what is written between hold and release goes out as
// one. It lies beneath TLS and gorilla, which make one write of each frame.
type corkedConn struct {
	net.Conn

	mu   sync.Mutex // guards what follows, and is the order of writes
	held bool
	buf  []byte
}

// Write keeps p when writes are held, and passes it on otherwise.
func (c *corkedConn) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held {
		c.buf = append(c.buf, p...)
		return len(p), nil
	}
	return c.Conn.Write(p)
}

func (c *corkedConn) hold() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held = true
}

// release writes what was held. The lock stays taken meanwhile: a close frame
// must not overtake. Who brings one has set its own deadline, which ends this
// write early when it is stuck.
func (c *corkedConn) release(deadline time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held = false
	c.Conn.SetWriteDeadline(deadline)
	_, err := c.Conn.Write(c.buf)
	c.buf = c.buf[:0]
	if cap(c.buf) > 2*burstBytes {
		c.buf = nil
	}
	return err
}
