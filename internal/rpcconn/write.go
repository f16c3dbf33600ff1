package rpcconn

import (
	"time"

	"github.com/gorilla/websocket"
)

const (
	burstBytes = 64 << 10    // one write to the network takes at most about this much
	lastWords  = time.Second // how long the reader goes on after the writer gave up
)

// writeLoop is the connection's writer.
func (c *Conn) writeLoop() {
	var pings <-chan time.Time
	if c.cfg.PingEvery > 0 {
		tick := time.NewTicker(c.cfg.PingEvery)
		defer tick.Stop()
		pings = tick.C
	}
	for {
		var err error
		select {
		case t := <-c.queue:
			err = c.writeBurst(t)
		case data := <-c.pongs:
			err = c.ws.WriteControl(websocket.PongMessage, data, time.Now().Add(c.cfg.WriteTimeout))
		case <-pings:
			err = c.ws.WriteControl(websocket.PingMessage, nil, time.Now().Add(c.cfg.WriteTimeout))
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
func (c *Conn) writeBurst(t *exchange) error {
	now := time.Now()
	deadline := now.Add(c.cfg.WriteTimeout)
	c.ws.SetWriteDeadline(deadline)
	c.cork.Hold()
	for bytes := 0; t != nil; {
		t.sentAt = now
		if t.state.CompareAndSwap(queued, sent) { // else it was withdrawn
			if err := c.ws.WriteMessage(websocket.TextMessage, t.frame); err != nil {
				return err
			}
			bytes += len(t.frame)
		}
		t = nil
		if bytes < burstBytes {
			select {
			case t = <-c.queue:
			default:
			}
		}
	}
	return c.cork.Release(deadline)
}

// breakOff leaves the end to the reader: the other side may have said why it closed, and
// that decides whether to come back.
func (c *Conn) breakOff(err error) {
	c.mu.Lock()
	c.writeErr = err
	c.mu.Unlock()
	c.broken.Store(true)
	c.ws.SetReadDeadline(time.Now().Add(lastWords))
}
