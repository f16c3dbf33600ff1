package ws

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"

	"noncegate/backpressure"
	"noncegate/internal/access"
	"noncegate/internal/access/audit"
	"noncegate/nonce"
	"noncegate/wire"
)

// Protocol is JSON-RPC with other methods than those of nonces, on connections and POSTs of a path of
// its own (Room). Whom a Server lets in, what it bounds, how it closes and what it counts and
// writes down is the same for both.
type Protocol interface {
	// Join is told of a connection before anything of it is read.
	Join(v *Visitor) Speaker
}

// Speaker is a Protocol's side of one connection. The goroutine that reads calls it.
type Speaker interface {
	Take(call *wire.Call) Call // nothing of call is referred to afterwards
	Leave()                    // the connection has ended
}

// Call is one call on a connection, on its way.
type Call interface {
	Method() string
	Start(r *Request)             // it is admitted; it is answered by Request.Go
	Append(dst, id []byte) []byte // the answer, once
	Audit(err *wire.Error)        // what it came to, before the answer is queued
	// Written is asked for once the answer is encoded or thrown away, and what it returns is
	// called when the bytes are on the wire or thrown away too; nil: nothing. Until then a
	// client that does not read keeps what that refers to. Asked again, it is nil.
	Written() func()
}

// Request is a Call as its connection has it.
type Request = request

// Subscription is one of a connection.
type Subscription = subscription

// Feed is where the events of a Subscription come from. It offers them by Subscription.Offer.
type Feed interface {
	Announce()             // the reply that names the subscription is about to be queued
	Start()                // it is queued: no event can overtake it
	Close() (missed int64) // missed are events of which the subscriber was not told
}

// Go runs an admitted call in a goroutine, for which Stop waits, and answers the request: with what
// run returns, or nil: with the answer of the call.
func (r *request) Go(run func() *wire.Error) {
	c := r.conn
	c.srv.lined.Add(1)
	go func() {
		defer c.srv.lined.Done()
		defer c.recovered("the end of a call")
		defer r.conclude()
		if err := run(); err != nil {
			r.fail(err)
		}
	}()
}

// Announce has a subscription go live with the answer.
func (r *request) Announce(s *Subscription) { r.subscription = s }

// Missing is how many bytes an answer of so many, without its id, needs beyond those that are reserved.
func (r *request) Missing(bytes int64) int64 {
	if len(r.id) == 0 {
		return 0
	}
	return max(0, bytes+int64(len(r.id))-r.bytes)
}

// roomTime bounds how long an answer waits for room behind others that the client does
// not read, or that wait for the rest of their batch.
const roomTime = 10 * time.Second

// Grow reserves so many bytes more for the answer in the connection's queue, and waits for them. A
// refusal needs no more than was reserved.
func (r *request) Grow(more int64) *wire.Error {
	c := r.conn
	if r.batch != nil && r.batch.took.answer+r.batch.grown.Add(more) > c.room.writer.Marks.Max {
		r.batch.grown.Add(-more)
		return wire.Errorf(wire.CodeAnswerTooLarge,
			"the answers to this batch are larger than what may wait for a connection; send it in parts")
	}
	enough := time.NewTimer(roomTime)
	defer enough.Stop()
	if !c.awaitRoom(func() bool { return c.out.Grow(more) }, enough.C) {
		if r.batch != nil {
			r.batch.grown.Add(-more)
		}
		return Busy(wire.StageConnection)
	}
	r.bytes += more
	if r.batch == nil {
		r.took.answer += more
	}
	return nil
}

// Visitor is the caller of calls: a connection of a Room, or a request by POST.
type Visitor struct {
	identity
	srv     *Server
	address string
	conn    *conn       // nil: by POST
	gone    func() bool // the client does not wait for the answer any more
}

// May reports whether the caller has a right on a signer.
func (v *Visitor) May(right access.Right, signer string) bool { return v.session.May(right, signer) }

// Life ends when the Server stops.
func (v *Visitor) Life() context.Context { return v.srv.life }

// Principal is the caller, as holds know it; 0: without authentication all are one.
func (v *Visitor) Principal() nonce.Principal { return v.asker() }

// MaxOpen is how many holds the caller may have open; 0: no limit. See nonce.Request.
func (v *Visitor) MaxOpen() int { return v.session.Quota().OpenHolds }

// Replaces reports whether the caller says that its transactions may replace others of their
// nonces, whatever these pay.
func (v *Visitor) Replaces() bool { return v.replaces }

// Forbidden is the error for a caller that lacks the right on the signer.
func (v *Visitor) Forbidden(right access.Right) *wire.Error { return forbidden(right) }

// Charge counts a call against the quota of a signer; reads: against that of what only reads.
// What does not only read may be the first use of the signer, and counts as such.
func (v *Visitor) Charge(signer string, reads bool) *wire.Error {
	_, err := v.srv.chargeSigner(&v.identity, signer, reads, !reads, time.Now())
	return err
}

// ChargeMore counts n requests more against the quota of the caller, for a call that costs as
// much as these: all that there may be at once, where that is fewer.
func (v *Visitor) ChargeMore(n int) *wire.Error {
	if q := v.session.Quota(); q.RequestsPerSecond > 0 {
		n = min(n, q.Burst)
	}
	_, err := v.charge(n, time.Now())
	return err
}

// Do runs a request for the caller and waits until it has ended, so that its outcome is known.
// How long that takes is bounded by the service. Nothing happens if the caller is gone
// before the commit.
func (v *Visitor) Do(q *nonce.Request) (nonce.Result, *wire.Error) { return v.do(q, v.gone) }

// Finish is Do for what must be done although the caller may be gone.
func (v *Visitor) Finish(q *nonce.Request) (nonce.Result, *wire.Error) {
	return v.do(q, func() bool { return false })
}

func (v *Visitor) do(q *nonce.Request, gone func() bool) (nonce.Result, *wire.Error) {
	q.Principal = v.Principal()
	w := &waiter{took: reservation{srv: v.srv}, gone: gone, done: make(chan struct{})}
	defer w.took.giveBack()
	if err := w.took.reserveWork(q, false); err != nil {
		return nonce.Result{}, err
	}
	w.took.submit(q, &w.res, w)
	<-w.done
	if w.res.Err != nil {
		return w.res, errorOf(w.res.Err, q.Signer, 1)
	}
	return w.res, nil
}

// waiter is the Completion of a request that a goroutine waits for.
type waiter struct {
	res  nonce.Result
	took reservation
	gone func() bool
	done chan struct{}
}

func (w *waiter) Done(*nonce.Result) nonce.Waker { close(w.done); return nil }
func (w *waiter) Gone() bool                     { return w.gone() }

// Subscribe gives the caller's connection a subscription to what feed offers, with notifications of
// the given method. By POST there are none.
func (v *Visitor) Subscribe(method string, feed Feed) (*Subscription, *wire.Error) {
	if v.conn == nil {
		return nil, wire.Errorf(wire.CodeMethodNotFound, "notifications not supported: subscriptions need a WebSocket")
	}
	s := &subscription{method: method, write: wire.AppendNotification, feed: feed}
	return s, v.conn.addSubscription(s)
}

// Unsubscribe ends a subscription of the caller's connection. false: it has none of this id.
func (v *Visitor) Unsubscribe(id string) bool { return v.conn != nil && v.conn.removeSubscription(id) }

// Panicked counts and logs a mistake of ours in a call. The function that has recovered from it calls
// this, while it is still deferred.
func (v *Visitor) Panicked(what string, panicked any, method string) {
	v.srv.panicked(what, v.address, panicked, "method", clip(method))
}

// maxMethod bounds the name of a method in the audit: a client may say anything.
const maxMethod = 64

// Audit says what was called and what came of it, if that is wanted: e has the signer and the nonce
// that the call changed. done is the word for what is no error of ours.
func (v *Visitor) Audit(method string, e audit.Entry, done string, err *wire.Error) {
	level := audit.All
	switch {
	case refusedForRights(err):
		level = audit.Refusals
	case e.HasNonce:
		level = audit.Changes
	}
	if !v.srv.cfg.Audit.Wants(level) {
		return
	}
	line := entryOf(audit.Call, v.session, v.address)
	line.Method, line.Signer, line.Nonce, line.HasNonce = clipTo(method, maxMethod), e.Signer, e.Nonce, e.HasNonce
	v.srv.auditCall(line, done, err)
}

// CountBusy counts n calls that were refused with err, if for want of a slot.
func (v *Visitor) CountBusy(err *wire.Error, n int) { v.srv.countBusy(err, n) }

// CountRefusal counts an error that the caller is told.
func (v *Visitor) CountRefusal(err *wire.Error) { v.srv.countRefusal(err.Data) }

// ID is the subscription's, which the answer of the call that made it must be.
func (s *subscription) ID() string { return s.id }

// Muted reports whether its client is owed answers and no events any more.
func (s *subscription) Muted() bool { return s.conn.expired.Load() != 0 }

// Lost ends the connection: events of the subscription are lost for good, and the
// client that waits for them has to know.
func (s *subscription) Lost(why string) { s.conn.close(wire.CloseSubscriptionLost, why) }

// ErrEnded answers a call whose client has left, or whose gateway stops.
func ErrEnded() *wire.Error {
	return with(wire.Errorf(wire.CodeUnavailable, "the gateway stops; nothing happened"), wire.ErrorData{Outcome: wire.OutcomeNone})
}

// ErrOfID refuses what has an id that is not echoed; nil: it is.
func ErrOfID(id []byte) *wire.Error {
	if len(id) <= maxIDBytes {
		return nil
	}
	return with(wire.Errorf(wire.CodeInvalidRequest, "id: must be at most %d bytes", maxIDBytes), wire.ErrorData{Field: "id"})
}

// ErrorBytes is at least what an error takes without its id.
const ErrorBytes = smallReplyBytes

// Posted is a request that came by POST, with its body. While it is answered it counts as a
// connection: of its principal, and among those that there may be.
type Posted struct {
	Visitor
	Body []byte
	Ctx  context.Context // ends when the client does not wait any more, or the gateway stops

	room     *Room
	share    *backpressure.Share
	took     reservation
	received *receipt
	cancel   func()
}

// Post lets a POST in and reads its body. nil: it was answered, or the client is gone. Else
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
	return err == nil // else the client is gone, or too slow
}

// Done gives back what the request counts for.
func (p *Posted) Done() {
	p.cancel()
	p.Leave()
	p.received.drop()
	p.srv.conns.release(nil)
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

// cors sets the headers that tell a browser which pages may ask. false: it was answered.
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
