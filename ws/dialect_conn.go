package ws

import (
	"context"
	"time"

	"noncegate/backpressure"
	"noncegate/wire"
)

// dialectConn is what a connection of a dialect has that others do not.
type dialectConn struct {
	of   *dialect
	life context.Context // ends with the connection
	end  context.CancelCauseFunc

	last <-chan struct{} // the read goroutine's: passed of the last ordered call; nil: none yet

	long *backpressure.Share // of dialect.waiting
}

func newDialectConn(life context.Context, d *dialect) *dialectConn {
	t := &dialectConn{of: d, long: d.longShare()}
	t.life, t.end = context.WithCancelCause(life)
	return t
}

func (t *dialectConn) callOf(c *conn, call *wire.Call) *Call {
	made := t.of.callOf(call, visitor{identity: c.identity, address: c.ws.RemoteAddr().String(), conn: c, gone: c.gone.Load})
	made.bytes = c.receipt.keep()
	return made
}

// begin runs an admitted call in a goroutine of its own.
func (t *dialectConn) begin(r *request) {
	if t.of.Ordered(r.call.Method) {
		r.call.order.queue(&t.last)
	}
	r.conn.srv.lined.Add(1)
	go func() {
		defer t.of.srv.lined.Done()
		defer r.conn.recovered("the end of a call of a dialect")
		defer r.conclude()
		if err := t.of.guarded(r.call, func() { r.answered(t.of.run(t.life, r.call)) }); err != nil {
			r.err = err
		}
	}()
}

// answered makes a the answer of the request, if there is room for it.
func (r *request) answered(a Answer) {
	if a.Err == nil {
		if full := r.conn.makeRoom(r, a.bytes()+int64(len(r.id))); full != nil {
			a.Err = r.call.errNoRoom(full)
		}
	}
	if a.Err != nil || a.Foreign != nil {
		r.call.Drop()
	}
	if a.Err != nil {
		r.fail(a.Err)
		return
	}
	r.call.answer, r.subscription = a, r.call.subscription
}

// roomTime bounds how long an answer waits for room behind others that the client does
// not read, or that wait for the rest of their batch.
const roomTime = 10 * time.Second

// makeRoom reserves what the answer of a request needs beyond what was reserved when it
// was admitted. It waits for it, with the bytes of the answer counted among those of all
// answers that wait.
func (c *conn) makeRoom(r *request, bytes int64) *wire.Error {
	more := bytes - r.bytes
	if more <= 0 || len(r.id) == 0 {
		return nil
	}
	t := c.dialect.of
	if err := t.hold(c.dialect.long, c.asker, bytes, more); err != nil {
		return err
	}
	r.held = int(more)
	if err := c.grow(r, more); err != nil { // an error needs no more than was reserved
		t.unhold(c.dialect.long, c.asker, more)
		r.held = 0
		return err
	}
	r.bytes = bytes
	if r.batch == nil {
		r.took.answer += more
	}
	return nil
}

// grow reserves so many bytes more for the answer of a request in the connection's queue.
func (c *conn) grow(r *request, more int64) *wire.Error {
	if r.batch != nil && r.batch.took.answer+r.batch.grown.Add(more) > c.class.writer.Marks.Max {
		r.batch.grown.Add(-more)
		return errBatchTooLarge()
	}
	enough := time.NewTimer(roomTime)
	defer enough.Stop()
	if !c.awaitRoom(func() bool { return c.out.Grow(more) }, enough.C) {
		if r.batch != nil {
			r.batch.grown.Add(-more)
		}
		return busy(wire.StageConnection)
	}
	return nil
}

// errBatchTooLarge refuses the answer with which those to a batch would be too large.
func errBatchTooLarge() *wire.Error {
	return wire.Errorf(wire.CodeAnswerTooLarge,
		"the answers to this batch are larger than what may wait for a connection; send it in parts")
}
