package ws

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"

	"noncegate/backpressure"
	"noncegate/wire"
)

// Posted is a request that came by POST, with its body. While it is answered it counts as a
// connection: of its principal, and among those that there may be.
type Posted struct {
	Visitor
	Body []byte
	Ctx  context.Context // ends when nobody waits for the answer any more, or the gateway stops

	room     *Room
	share    *backpressure.Share
	took     reservation
	received *receipt
	cancel   func()
}

// Post lets a POST in and reads its body. nil: it was answered, or there is nobody to answer. Else
// Done must be called when it is answered.
func (t *Room) Post(w http.ResponseWriter, r *http.Request) *Posted {
	s := t.srv
	if !s.cors(w, r) || s.refuseLeaving(w) {
		return nil
	}
	g, ok := s.admitKnown(w, r, func(*identity) bool { // its socket is counted once
		socket, known := r.Context().Value(socketKey{}).(net.Conn)
		return !known || s.preAuth.enter(socket)
	})
	if !ok {
		return nil
	}
	g.replaces = asksReplace(r)
	if !s.reserve(w, &g) {
		return nil
	}
	s.auditPost(r, &g)
	ctx, cancel := context.WithCancelCause(r.Context())
	p := &Posted{Ctx: ctx, room: t, share: backpressure.NewShare(t.bounds.MaxInflight),
		Visitor: Visitor{identity: g, srv: s, address: r.RemoteAddr, gone: func() bool { return ctx.Err() != nil }}}
	stop := context.AfterFunc(s.life, func() { cancel(errStopped) })
	p.cancel = func() { stop(); cancel(nil) }
	if p.read(w, r) {
		return p
	}
	p.Done()
	return nil
}

// read reads the body. false: there is none to be answered. What is read took its time from the
// server's; the answer has a time of its own.
func (p *Posted) read(w http.ResponseWriter, r *http.Request) bool {
	var err error
	p.Body, p.received, err = p.srv.receiving.body(w, r, p.asker(), p.room.bounds.MaxMessageBytes)
	if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
		http.Error(w, http.StatusText(http.StatusRequestEntityTooLarge), http.StatusRequestEntityTooLarge)
		return false
	}
	if errors.Is(err, errReceiving) {
		unavailable(w, retryFull, errReceiving.Error())
		return false
	}
	// Not every ResponseWriter has deadlines; those of tests have no times either.
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
	return err == nil // else whoever sent it is gone, or too slow
}

// Done gives back what the request counts for.
func (p *Posted) Done() {
	p.cancel()
	p.Leave()
	p.received.drop()
	p.srv.conns.cancel()
	p.leave()
}

// Count counts n requests, also against the quota of the caller.
func (p *Posted) Count(n int) *wire.Error {
	for range n {
		p.srv.elsewhere.asked.Inc()
	}
	_, err := p.charge(n, time.Now())
	return err
}

// Enter counts all calls of the request as in flight, until Leave or Done.
func (p *Posted) Enter(calls int) *wire.Error {
	err := p.room.enter(p.share, p.asker(), calls)
	if err == nil {
		p.took = reservation{srv: p.srv, inflight: calls, room: p.room, share: p.share, asker: p.asker()}
	}
	return err
}

// Leave ends what Enter began: the calls have run, and their answers may take as long as the client
// reads them. It may be called again.
func (p *Posted) Leave() { p.took.giveBack() }

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
