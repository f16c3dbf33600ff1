package client

import (
	"errors"
	"fmt"
	"time"

	"github.com/gorilla/websocket"

	"noncegate/wire"
)

// readLoop is the connection's reader.
func (c *conn) readLoop() {
	for {
		c.extend()
		_, data, err := c.ws.ReadMessage()
		if err == nil {
			err = c.receive(data)
		}
		if err != nil {
			c.fail(c.endOf(err))
			return
		}
	}
}

// extend moves the read deadline. When the writer gave up it is left alone: what
// has arrived is still read, the close frame with its code above all.
func (c *conn) extend() {
	if c.cfg.ReadTimeout <= 0 || c.broken.Load() {
		return
	}
	c.ws.SetReadDeadline(time.Now().Add(c.cfg.ReadTimeout))
	if c.broken.Load() { // it gave up between the two
		c.ws.SetReadDeadline(time.Now().Add(lastWords))
	}
}

// endOf is the error of a connection whose reader met err.
func (c *conn) endOf(err error) error {
	if ce, ok := errors.AsType[*websocket.CloseError](err); ok && ce.Code != websocket.CloseAbnormalClosure {
		return &CloseError{Code: ce.Code, Reason: ce.Text}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.writeErr != nil {
		err = c.writeErr
	}
	return fmt.Errorf("%w: %w", ErrConnectionLost, err)
}

// frame is anything the gateway sends.
type frame struct {
	ID     *uint64     `json:"id"`
	Method string      `json:"method"`
	Params wire.Raw    `json:"params"`
	Result wire.Raw    `json:"result"`
	Error  *wire.Error `json:"error"`
}

// receive handles one message. An error ends the connection: what cannot be
// understood might be somebody's answer.
func (c *conn) receive(data []byte) error {
	var f frame
	if err := wire.Unmarshal(data, &f); err != nil {
		return fmt.Errorf("message of the gateway: %w", err)
	}
	switch {
	case f.ID != nil:
		return c.deliver(*f.ID, &f)
	case f.Method == wire.MethodSubscription:
		return c.event(f.Params)
	case f.Error != nil:
		return fmt.Errorf("the gateway could not read a request: %v", f.Error) // %v: it refuses no call we know
	}
	return nil
}

func (c *conn) deliver(id uint64, f *frame) error {
	c.mu.Lock()
	t := c.pending[id]
	c.mu.Unlock()
	switch {
	case t == nil:
		return nil // its caller has gone
	case t.state.Load() != sent:
		return fmt.Errorf("answer to request %d, which was not sent", id)
	case c.remove(id) == nil:
		return nil // its caller goes at this very moment
	}
	if f.Error != nil {
		t.done <- arrival{err: refused(f.Error)}
		return nil
	}
	a := answer{result: f.Result, sentAt: t.sentAt}
	if t.live != nil {
		t.live(c, a)
	}
	t.done <- arrival{answer: a}
	return nil
}

// notification is what an event comes in.
type notification struct {
	Subscription string     `json:"subscription"`
	Result       wire.Event `json:"result"`
}

func (c *conn) event(params []byte) error {
	var n notification
	if err := wire.Unmarshal(params, &n); err != nil {
		return fmt.Errorf("event of the gateway: %w", err)
	}
	c.mu.Lock()
	s := c.subs[n.Subscription]
	c.mu.Unlock()
	if s != nil {
		s.offer(Event{Event: n.Result})
	} else if time.Since(c.unsubscribedAt) >= unsubscribeEvery { // an unsubscribe found no room, or is under way
		c.unsubscribedAt = time.Now()
		c.unsubscribe(n.Subscription)
	}
	return nil
}
