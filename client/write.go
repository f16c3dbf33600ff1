package client

import (
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
	c.cork.Hold()
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
	return c.cork.Release(deadline)
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
	c.pongs.Put(data)
	return nil
}
