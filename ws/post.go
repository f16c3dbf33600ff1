package ws

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"

	"noncegate/backpressure"
	"noncegate/wire"
)

// post answers a request, or an array of them, that came by POST. While it is answered it
// counts as a connection: of its principal, and among those that there may be.
func (t *dialect) post(w http.ResponseWriter, r *http.Request) {
	s := t.srv
	if !s.cors(w, r) {
		return
	}
	if s.refuseLeaving(w) {
		return
	}
	g, ok := s.admitKnown(w, r, func(*identity) bool { // its socket is counted once
		socket, known := r.Context().Value(socketKey{}).(net.Conn)
		return !known || s.preAuth.enter(socket)
	})
	if !ok {
		return
	}
	defer g.leave()
	g.replaces = asksReplace(r)
	if !s.reserve(w, false) {
		return
	}
	defer s.conns.cancel(false)
	s.met(&g)
	s.auditPost(r, &g)
	body, received, status := t.readBody(w, r, &g)
	defer received.drop()
	switch {
	case status == http.StatusServiceUnavailable:
		unavailable(w, retryFull, errReceiving.Error())
		return
	case status != 0:
		http.Error(w, http.StatusText(status), status)
		return
	case body == nil:
		return
	}
	p := &posted{of: t, identity: g, request: r, long: t.longShare()}
	p.answer(body)
	p.write(w)
}

// cors says who may ask, as pages of browsers have to know it. false: it was answered.
func (s *Server) cors(w http.ResponseWriter, r *http.Request) bool {
	w.Header().Add("Vary", "Origin")
	if !s.cfg.Origins.Allow(r) {
		s.refuseClient(w, http.StatusForbidden, upgradeOrigin, "pages of this origin may not connect")
		return false
	}
	if origin := r.Header.Get("Origin"); origin != "" {
		w.Header().Set("Access-Control-Allow-Origin", origin)
		w.Header().Set("Access-Control-Allow-Methods", http.MethodPost)
		w.Header().Set("Access-Control-Allow-Headers", "Authorization, Content-Type, "+ReplaceHeader)
	}
	if r.Method == http.MethodOptions { // what a browser asks first
		w.WriteHeader(http.StatusNoContent)
		return false
	}
	return true
}

// readBody reads the body. nil: there is none to be answered, and status is what to say.
// What is read took its time from the server's; the answer has a time of its own.
func (t *dialect) readBody(w http.ResponseWriter, r *http.Request, g *identity) (body []byte, received *receipt, status int) {
	body, received, err := t.srv.receiving.body(w, r, g.asker(), t.cfg.MaxMessageBytes)
	if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
		return nil, received, http.StatusRequestEntityTooLarge
	}
	if errors.Is(err, errReceiving) {
		return nil, received, http.StatusServiceUnavailable
	}
	if err != nil {
		return nil, received, 0 // whoever sent it is gone, or too slow
	}
	// Not every ResponseWriter has deadlines; those of tests have no times either.
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
	return body, received, 0
}

// posted is what one POST asks for.
type posted struct {
	of       *dialect
	identity identity
	request  *http.Request

	batch bool
	calls []*postedCall
	long  *backpressure.Share // of dialect.waiting
	err   *wire.Error         // of the body as a whole
}

// postedCall is one call of it.
type postedCall struct {
	*Call
	post *posted
	id   []byte // raw JSON; empty: a notification
	err  *wire.Error
	held int
}

// answer decodes a body and runs what it asks for.
func (p *posted) answer(body []byte) {
	frame := wire.Frame{MaxBatch: p.of.srv.cfg.MaxBatch}
	if p.err = frame.Decode(body); p.err != nil {
		p.of.srv.elsewhere.asked.Inc()
		if err := p.charge(1); err != nil {
			p.of.srv.countBusy(err, 1)
			p.err = err
		}
		return
	}
	p.batch = frame.Batch
	ctx, cancel := context.WithCancelCause(p.request.Context())
	defer cancel(nil)
	defer context.AfterFunc(p.of.srv.life, func() { cancel(errStopped) })()
	for i := range frame.Calls {
		p.calls = append(p.calls, p.callOf(&frame.Calls[i], func() bool { return ctx.Err() != nil }))
	}
	share := backpressure.NewShare(p.of.class.maxInflight)
	if err := p.admit(share); err != nil {
		p.refuse(err)
		return
	}
	defer p.of.class.leave(share, p.identity.asker(), len(p.calls))
	p.run(ctx)
}

func (p *posted) callOf(call *wire.Call, gone func() bool) *postedCall {
	p.of.srv.elsewhere.asked.Inc()
	who := visitor{identity: p.identity, address: p.request.RemoteAddr, gone: gone}
	c := &postedCall{post: p, id: append([]byte(nil), call.ID...), err: call.Err, Call: p.of.callOf(call, who)}
	if len(call.ID) > maxIDBytes {
		c.id, c.err = []byte("null"), errLongID()
	}
	return c
}

// admit counts all calls against the quota of who asks, and as in flight.
func (p *posted) admit(share *backpressure.Share) *wire.Error {
	if err := p.charge(len(p.calls)); err != nil {
		return err
	}
	return p.of.class.enter(share, p.identity.asker(), len(p.calls), &p.of.srv.draining)
}

// charge counts n requests against the quota of who asks.
func (p *posted) charge(n int) *wire.Error {
	if p.identity.account == nil {
		return nil
	}
	_, err := p.identity.charge(n, time.Now())
	return err
}

func (p *posted) refuse(err *wire.Error) {
	p.of.srv.countBusy(err, len(p.calls))
	for _, c := range p.calls {
		c.err = err
		c.audit(err)
	}
}

// run runs all calls and waits for them.
func (p *posted) run(ctx context.Context) {
	var all sync.WaitGroup
	var last <-chan struct{}
	for _, c := range p.calls {
		if c.err != nil {
			c.audit(c.err)
			continue
		}
		if p.of.Ordered(c.Method) {
			c.order.queue(&last)
		}
		all.Go(func() {
			if err := p.of.guarded(c.Call, func() { c.answered(p.of.run(ctx, c.Call)) }); err != nil {
				c.err = err
			}
		})
	}
	all.Wait()
}

// answered keeps an answer, if it is not too large, nor with those that wait elsewhere.
func (c *postedCall) answered(a Answer) {
	if bytes := a.bytes(); a.Err == nil && bytes > smallReplyBytes {
		if full := c.of.hold(c.post.long, c.who.asker(), bytes, bytes); full != nil {
			a.Err = c.errNoRoom(full)
		} else {
			c.held = int(bytes)
		}
	}
	if c.err = a.Err; a.Err != nil {
		c.of.srv.countBusy(a.Err, 1)
	} else {
		c.answer = a
	}
	c.audit(c.err)
}

// write sends the answers, in the order of the calls.
func (p *posted) write(w http.ResponseWriter) {
	defer p.release()
	rc := http.NewResponseController(w)
	out := &bodyWriter{w: w, extend: func() { _ = rc.SetWriteDeadline(time.Now().Add(p.of.srv.cfg.Writer.WriteTimeout)) }}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	if p.err != nil {
		p.of.srv.countRefusal(p.err.Data, false)
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
		c.of.srv.countRefusal(c.err.Data, false)
		return wire.AppendError(dst, c.id, c.err)
	}
	return c.Call.answer.append(dst, c.id)
}

func (p *posted) release() {
	for _, c := range p.calls {
		c.release()
	}
}

func (c *postedCall) release() {
	if c.held > 0 {
		c.of.unhold(c.post.long, c.who.asker(), int64(c.held))
		c.held, c.Call.answer = 0, Answer{}
	}
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
