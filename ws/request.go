package ws

import (
	"cmp"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"

	"noncegate/internal/guard"
	"noncegate/internal/nearest"
	"noncegate/nonce"
	"noncegate/wire"
	"noncegate/writer"
)

// op is what a call asks of the service, and what came of it.
type op struct {
	nonce.Request
	nonce.Result

	// The memory of the replies that most requests have.
	allocated wire.AllocateResult
	marked    wire.MarkResult
}

// request is one call on its way: from the read goroutine that decodes it,
// through the service as a nonce.Completion, to the encode pool as a
// writer.Message. It has one owner at a time, in this order, and is used again
// after Release.
type request struct {
	op   op
	conn *conn

	method *method // noMethod: none of the protocol's

	id    []byte // raw JSON to be echoed; empty: a notification, answered by nothing
	batch *batch // the array it came in; nil: it came alone
	bytes int64  // worst case of its reply

	err    *wire.Error // the answer, when it is known without the service
	act    func() (any, *wire.Error)
	result any // of act

	call     Call     // of a Room; nil: none
	received *receipt // of the frame of a call

	lock      *guard.Lock // it is to take before it begins, or has; nil: none
	undecided int         // what it waits for in line: its lock, its chain; guarded by lines.mu
	tells     bool        // what its signer's chain says is to be added to its result; it counts in Server.lined
	unless    *wire.Error // the answer unless its request id is known, once the lock was refused

	took reservation

	sight *sight // for a wait for its signer's chain; kept from use to use, nil while one has it

	// subscription goes live once the reply is queued.
	subscription *subscription

	done *atomic.Uint32 // how often Done was called, in all uses; kept from use to use
}

var (
	_ nonce.Completion = (*request)(nil)
	_ writer.Written   = (*request)(nil)
)

var requests = sync.Pool{New: func() any { return &request{done: new(atomic.Uint32)} }}

// newRequest takes over a decoded call; nothing of it is referred to afterwards.
func (c *conn) newRequest(call *wire.Call) *request {
	r := requests.Get().(*request)
	r.conn = c
	r.id = append(r.id[:0], call.ID...)
	r.bytes = smallReplyBytes
	r.err = c.parse(r, call)
	if r.op.Kind != 0 {
		r.bytes = r.method.replyBytes(&r.op.Request)
	}
	r.bytes += int64(len(r.id))
	if r.err == nil && r.bytes > c.room.maxAnswer() {
		r.err = invalidParams(cmp.Or(r.method.sizedBy, "id"), "the reply could be larger than what may wait for a connection; ask for less")
	}
	if r.err != nil {
		r.refuse(r.err)
	}
	return r
}

func (c *conn) parse(r *request, call *wire.Call) *wire.Error {
	m, known := c.srv.endpoints[string(call.Method)]
	switch {
	case c.speaker != nil:
		m = c.srv.elsewhere
	case !known:
		m = c.srv.nowhere
	}
	m.asked.Inc()
	r.method = m.method
	if err := ErrOfID(call.ID); err != nil {
		r.id = append(r.id[:0], "null"...)
		return err
	}
	if call.Err != nil {
		return call.Err
	}
	if c.speaker != nil {
		r.call, r.received = c.speaker.Take(call), c.receipt.keep()
		return nil
	}
	if !known {
		return noSuchMethod(string(call.Method))
	}
	if err := m.prepare(c, r, call.Params); err != nil {
		return err
	}
	return c.authorize(r)
}

func noSuchMethod(name string) *wire.Error {
	said := clip(strconv.Quote(name))
	if meant := cmp.Or(nearest.Word(name, methodNames), nearest.Word("nonce_"+name, methodNames)); meant != "" {
		return wire.Errorf(wire.CodeMethodNotFound, "there is no method %s; did you mean %s?", said, meant)
	}
	return wire.Errorf(wire.CodeMethodNotFound, "there is no method %s", said)
}

func (r *request) answerBytes() int64 {
	if len(r.id) == 0 {
		return 0
	}
	return r.bytes
}

// refuse makes err the answer of a request that was not admitted.
func (r *request) refuse(err *wire.Error) {
	r.err = err
	r.bytes = smallReplyBytes + int64(len(r.id))
}

// start does an admitted request. The caller does not touch it afterwards.
func (r *request) start() {
	if r.err == nil && r.call != nil {
		r.call.Start(r)
		return
	}
	if r.err == nil && r.act == nil {
		if !r.conn.lineUp(r) {
			r.submit()
		}
		return
	}
	defer r.conclude()
	if r.err == nil {
		r.err = ErrOurs() // what a panic leaves
		r.result, r.err = r.act()
	}
}

// submit hands an admitted request to the service. If that panics the request ends here,
// unless it has ended already: then its memory may be another request's by now.
func (r *request) submit() {
	if r.tells = r.conn.srv.cfg.Chain != nil && r.op.Kind.WithChain(); r.tells {
		r.conn.srv.lined.Add(1)
	}
	done, submitted := r.done, false
	before := done.Load()
	defer func() {
		if !submitted && done.Load() == before {
			r.abandon()
		}
	}()
	r.took.submit(&r.op.Request, &r.op.Result, r)
	submitted = true
}

// abandon ends a request of which the service lost hold, and gives back what it has. What it
// was to change may have been changed.
func (r *request) abandon() {
	r.op.Err = nonce.ErrInternal
	if r.op.Kind.Writes() {
		r.op.Err = &nonce.UnavailableError{Outcome: nonce.Unknown, Err: errors.New("the gateway met an error of its own")}
	}
	if w := r.Done(&r.op.Result); w != nil {
		w.Wake()
	}
}

// Done implements nonce.Completion.
func (r *request) Done(res *nonce.Result) nonce.Waker {
	r.done.Add(1)
	if r.tells && r.tellChain() {
		return nil // it is answered when the chain was asked
	}
	if r.unless != nil && errors.Is(res.Err, nonce.ErrNotFound) {
		r.fail(r.unless)
	}
	if r.lock != nil && r.conn.srv.cfg.Guard.End(r.lock, keepsLock(res.Err)) {
		return nil // it is answered when the lock is free
	}
	return r.finish()
}

// tellChain has what the signer's chain says added to the result, for which another node may have to be
// asked: by a goroutine, of which there are at most as many as requests in flight. false: the request
// has failed.
func (r *request) tellChain() bool {
	c := r.conn
	if r.tells = false; r.op.Err != nil {
		c.srv.lined.Done()
		return false
	}
	go func() {
		defer c.srv.lined.Done()
		defer c.recovered("asking what a chain says of a signer")
		defer r.conclude()
		c.srv.cfg.Chain.Tell(&r.op.Request, &r.op.Result)
	}()
	return true
}

// Gone implements nonce.Completion.
func (r *request) Gone() bool { return r.conn.gone.Load() }

// finish queues the answer and gives back what else was reserved, in this order, so
// that a connection without requests in flight has all answers in its queue. It does so
// also after a mistake in the audit.
func (r *request) finish() (w nonce.Waker) {
	took := r.took
	took.answer = 0 // that is for queue
	defer took.giveBack()
	defer func() { w = r.queue() }()
	r.audit()
	return nil
}

// queue queues the answer, or ends an element of a batch. The request is not touched afterwards.
func (r *request) queue() nonce.Waker {
	c := r.conn
	if r.batch != nil {
		return r.batch.finish()
	}
	s := r.subscription
	if s != nil {
		s.feed.Announce() // the client may have the reply before Start
	}
	if len(r.id) > 0 {
		r.took.push(r)
	} else {
		r.Release()
	}
	if s != nil {
		s.feed.Start() // one that ended meanwhile stays silent
	}
	return c.out
}

// conclude is finish where the caller has to wake the queue.
func (r *request) conclude() {
	if w := r.finish(); w != nil {
		w.Wake()
	}
}

// Append implements writer.Message: it encodes the reply.
func (r *request) Append(dst []byte) ([]byte, error) {
	if r.err != nil {
		return r.appendError(dst, r.err), nil
	}
	if r.op.Err != nil {
		if errors.Is(r.op.Err, nonce.ErrForwardBusy) {
			r.conn.srv.rejected(wire.StageForward, 1)
		}
		return r.appendError(dst, errorOf(r.op.Err, r.op.Signer, r.op.Count)), nil
	}
	if r.call != nil {
		return r.call.Append(dst, r.id), nil
	}
	if r.act != nil {
		return wire.AppendResult(dst, r.id, r.result)
	}
	result := r.method.reply(r.conn, &r.op)
	if page, ok := result.(*wire.ListResult); ok {
		return wire.AppendPage(dst, r.id, page, int(r.bytes))
	}
	return wire.AppendResult(dst, r.id, result)
}

// appendError encodes an error reply, and counts it, once.
func (r *request) appendError(dst []byte, err *wire.Error) []byte {
	r.conn.srv.countRefusal(err.Data)
	return wire.AppendError(dst, r.id, err)
}

// errorReply is what is sent when the reply could not be encoded. The work may well have happened,
// so it is that its outcome is unknown, never internal.
func (r *request) errorReply() []byte { return wire.AppendError(nil, r.id, errNotEncoded()) }

// name is the method that was called.
func (r *request) name() string {
	if r.call != nil {
		return r.call.Method()
	}
	return r.method.name
}

// OnWritten implements writer.Written.
func (r *request) OnWritten() func() {
	if r.call == nil {
		return nil
	}
	return r.call.Written()
}

// Release implements writer.Message: the request is done with.
func (r *request) Release() {
	if written := r.OnWritten(); written != nil { // there was nothing to be written
		written()
	}
	r.received.drop()
	*r = request{id: r.id[:0], sight: r.sight, done: r.done}
	requests.Put(r)
}
