package relay

import (
	"context"
	"errors"

	"noncegate/backpressure"
	"noncegate/wire"
	"noncegate/ws"
)

// conn is a connection of a Server. It is a ws.Speaker.
type conn struct {
	of      *Server
	visitor *ws.Visitor
	life    context.Context // ends with the connection
	end     context.CancelCauseFunc

	last <-chan struct{} // the read goroutine's: passed of the last ordered call; nil: none yet

	long *backpressure.Share // of Server.waiting
}

var errGone = errors.New("the connection has ended")

// Join implements ws.Protocol.
func (s *Server) Join(v *ws.Visitor) ws.Speaker {
	c := &conn{of: s, visitor: v, long: s.longShare()}
	c.life, c.end = context.WithCancelCause(v.Life())
	return c
}

// Take implements ws.Speaker.
func (c *conn) Take(call *wire.Call) ws.Call { return &connCall{newCall(call, c.visitor), c} }

// Leave implements ws.Speaker: what is under way is cut off as far as it may be.
func (c *conn) Leave() { c.end(errGone) }

// connCall is a call on a connection. It is a ws.Call.
type connCall struct {
	*Call
	conn *conn
}

func (c *connCall) Method() string { return c.Call.Method }

// Start implements ws.Call.
func (c *connCall) Start(r *ws.Request) {
	if c.conn.of.Ordered(c.Call.Method) {
		c.order.queue(&c.conn.last)
	}
	r.Go(func() (err *wire.Error) {
		if panicked := c.guarded(func() { err = c.answered(r, c.conn.of.run(c.conn.life, c.Call)) }); panicked != nil {
			return panicked
		}
		return err
	})
}

// answered makes a the answer of the request, if there is room for it.
func (c *connCall) answered(r *ws.Request, a Answer) *wire.Error {
	if a.Err == nil {
		if full := c.makeRoom(r, a.bytes()); full != nil {
			a.Err = c.errNoRoom(full)
		}
	}
	if a.Err != nil || a.Foreign != nil {
		c.Drop()
	}
	if a.Err != nil {
		return a.Err
	}
	if c.answer = a; c.stream != nil {
		r.Announce(c.stream.Subscription)
	}
	return nil
}

// makeRoom reserves what the answer needs beyond what was reserved when the call was admitted. It
// waits for it, with the bytes of the answer counted among those of all answers that wait.
func (c *connCall) makeRoom(r *ws.Request, bytes int64) (err *wire.Error) {
	more := r.Missing(bytes)
	if more == 0 {
		return nil
	}
	if c.held, err = c.conn.of.hold(c.conn.long, c.Principal(), bytes, more); err != nil {
		return err
	}
	if err = r.Grow(more); err != nil {
		c.held.giveBack()
	}
	return err
}

// Written implements ws.Call: the bytes of a long answer are counted until it was written, by a
// func that keeps nothing of the call.
func (c *connCall) Written() func() {
	h := c.held
	if c.held = (held{}); h.bytes == 0 {
		return nil
	}
	return h.giveBack
}
