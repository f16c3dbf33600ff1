package relay

import (
	"context"
	"net/http"
	"sync"
	"time"

	"noncegate/backpressure"
	"noncegate/wire"
	"noncegate/ws"
)

// post answers a request, or an array of them, that came by POST.
func (s *Server) post(w http.ResponseWriter, r *http.Request) {
	body := s.room.Post(w, r)
	if body == nil {
		return
	}
	defer body.Done()
	p := &posted{of: s, Posted: body, long: s.longShare()}
	p.answer()
	p.write(w)
}

// posted is what one POST asks for.
type posted struct {
	*ws.Posted
	of    *Server
	batch bool
	calls []*postedCall
	long  *backpressure.Share // of Server.waiting
	err   *wire.Error         // of the body as a whole
}

// postedCall is one call of it.
type postedCall struct {
	*Call
	post *posted
	id   []byte // raw JSON; empty: a notification
	err  *wire.Error
}

// answer decodes the body and runs what it asks for.
func (p *posted) answer() {
	maxBatch, _ := p.of.room.Limits()
	frame := wire.Frame{MaxBatch: maxBatch}
	if p.err = frame.Decode(p.Body); p.err != nil {
		if err := p.Count(1); err != nil {
			p.CountBusy(err, 1)
			p.err = err
		}
		return
	}
	p.batch = frame.Batch
	for i := range frame.Calls {
		call := &frame.Calls[i]
		c := &postedCall{Call: newCall(call, &p.Visitor), post: p, id: call.ID, err: call.Err}
		if err := ws.ErrOfID(c.id); err != nil {
			c.id, c.err = []byte("null"), err
		}
		p.calls = append(p.calls, c)
	}
	err := p.Count(len(p.calls))
	if err == nil {
		err = p.Enter(len(p.calls))
	}
	if err != nil {
		p.refuse(err)
		return
	}
	p.run(p.Ctx)
	p.Leave()
}

func (p *posted) refuse(err *wire.Error) {
	p.CountBusy(err, len(p.calls))
	for _, c := range p.calls {
		c.err = err
		c.Audit(err)
	}
}

// run runs all calls and waits for them.
func (p *posted) run(ctx context.Context) {
	var all sync.WaitGroup
	var last <-chan struct{}
	for _, c := range p.calls {
		if c.err != nil {
			c.Audit(c.err)
			continue
		}
		if p.of.Ordered(c.Method) {
			c.order.queue(&last)
		}
		all.Go(func() {
			if err := c.guarded(func() { c.answered(p.of.run(ctx, c.Call)) }); err != nil {
				c.err = err
			}
		})
	}
	all.Wait()
}

// answered keeps an answer, if it is not too large, nor with those that wait elsewhere.
func (c *postedCall) answered(a Answer) {
	if bytes := a.bytes(); a.Err == nil && bytes > ws.ErrorBytes {
		var full *wire.Error
		if c.held, full = c.post.of.hold(c.post.long, c.Principal(), bytes, bytes); full != nil {
			a.Err = c.errNoRoom(full)
		}
	}
	if c.err = a.Err; a.Err != nil {
		c.CountBusy(a.Err, 1)
	} else {
		c.answer = a
	}
	c.Audit(c.err)
}

// write sends the answers, in the order of the calls.
func (p *posted) write(w http.ResponseWriter) {
	defer p.release()
	rc := http.NewResponseController(w)
	_, timeout := p.of.room.Limits()
	out := &bodyWriter{w: w, extend: func() { _ = rc.SetWriteDeadline(time.Now().Add(timeout)) }}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	if p.err != nil {
		p.CountRefusal(p.err)
		out.write(wire.AppendError(nil, []byte("null"), p.err))
		return
	}
	n := 0
	for _, c := range p.calls {
		if len(c.id) == 0 {
			continue
		}
		switch {
		case n > 0:
			out.write([]byte(","))
		case p.batch:
			out.write([]byte("["))
		}
		out.write(c.append(nil))
		c.release()
		n++
	}
	switch {
	case n == 0:
		out.extend()
		w.WriteHeader(http.StatusNoContent)
	case p.batch:
		out.write([]byte("]"))
	}
}

func (c *postedCall) append(dst []byte) []byte {
	if c.err != nil {
		c.CountRefusal(c.err)
		return wire.AppendError(dst, c.id, c.err)
	}
	return c.Append(dst, c.id)
}

func (p *posted) release() {
	for _, c := range p.calls {
		c.release()
	}
}

func (c *postedCall) release() {
	c.held.giveBack()
	c.answer = Answer{}
}

// bodyWriter writes piece by piece, each with a deadline of its own.
type bodyWriter struct {
	w      http.ResponseWriter
	extend func()
	failed bool
}

const pieceBytes = 1 << 20

func (b *bodyWriter) write(p []byte) {
	for len(p) > 0 && !b.failed {
		n := min(len(p), pieceBytes)
		b.extend()
		_, err := b.w.Write(p[:n])
		b.failed, p = err != nil, p[n:]
	}
}
