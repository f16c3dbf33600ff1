package ws

import (
	"context"
	"sync"
	"time"

	"noncegate/internal/access"
	"noncegate/internal/access/audit"
	"noncegate/nonce"
	"noncegate/wire"
)

// Call is one call of a Dialect, with its caller. Its methods belong to the goroutine that
// runs it, until Answer has returned.
type Call struct {
	Method string
	Params []byte // JSON, an array or an object; nil: none. It must not be changed

	of     *dialect
	who    visitor
	order  callOrder
	answer Answer
	bytes  *receipt // of its frame; nil: by POST

	subscription *subscription // that the call has opened

	// What the audit says of it.
	signer   string
	nonce    int64
	hasNonce bool
}

// visitor is the caller: a connection of a dialect, or a request by POST.
type visitor struct {
	identity
	address string
	conn    *conn       // nil: by POST
	gone    func() bool // nobody waits for the answer any more
}

// May reports whether the caller has a right on a signer.
func (c *Call) May(right access.Right, signer string) bool { return c.who.session.May(right, signer) }

// MayLater is May for when the call has ended: it keeps nothing of the call.
func (c *Call) MayLater() func(right access.Right, signer string) bool { return c.who.session.May }

// Principal is the caller, as holds know it; 0: without authentication all are one.
func (c *Call) Principal() nonce.Principal { return c.who.asker() }

// MaxOpen is how many holds the caller may have open; 0: no limit. See nonce.Request.
func (c *Call) MaxOpen() int { return c.who.session.Quota().OpenHolds }

// Replaces reports whether the caller says that its transactions may replace others of their
// nonces, whatever these pay.
func (c *Call) Replaces() bool { return c.who.replaces }

// About records, for the audit, the signer and the nonce that the call changes.
func (c *Call) About(signer string, n int64) { c.signer, c.nonce, c.hasNonce = signer, n, true }

// Forbidden is the error for a caller that lacks the right on the signer.
func (c *Call) Forbidden(right access.Right) *wire.Error { return forbidden(right) }

// Charge counts the call against the quota of a signer; reads: against that of what only reads.
// What does not only read may be the first use of the signer, and counts as such.
func (c *Call) Charge(signer string, reads bool) *wire.Error {
	now := time.Now()
	if c.of.srv.signers != nil {
		if _, err := c.of.srv.chargeSigner(signer, reads, now); err != nil {
			return err
		}
	}
	if reads {
		return nil
	}
	_, err := c.of.srv.chargeNew(&c.who.identity, signer, now)
	return err
}

// ChargeMore counts n requests more against the quota of the caller, for a call that costs as
// much as these: all that there may be at once, where that is fewer.
func (c *Call) ChargeMore(n int) *wire.Error {
	if c.who.account == nil {
		return nil
	}
	if q := c.who.session.Quota(); q.RequestsPerSecond > 0 {
		n = min(n, q.Burst)
	}
	_, err := c.who.charge(n, time.Now())
	return err
}

// Do runs a request for the caller and waits until it has ended, so that its outcome is known.
// How long that takes is bounded by the service. Nothing happens if the caller is gone
// before the commit.
func (c *Call) Do(q *nonce.Request) (nonce.Result, *wire.Error) { return c.do(q, c.who.gone) }

// Finish is Do for what must be done although the caller may be gone.
func (c *Call) Finish(q *nonce.Request) (nonce.Result, *wire.Error) {
	return c.do(q, func() bool { return false })
}

func (c *Call) do(q *nonce.Request, gone func() bool) (nonce.Result, *wire.Error) {
	q.Principal = c.Principal()
	w := &waiter{took: reservation{srv: c.of.srv}, gone: gone, done: make(chan struct{})}
	defer w.took.giveBack()
	if err := w.took.reserveWork(q, false); err != nil {
		return nonce.Result{}, err
	}
	w.took.submit(nil, q, &w.res, w)
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

// Done implements nonce.Completion.
func (w *waiter) Done(*nonce.Result) nonce.Waker {
	close(w.done)
	return nil
}

// Gone implements nonce.Completion.
func (w *waiter) Gone() bool { return w.gone() }

// Pass lets the next ordered call be begun. It may be called again.
func (c *Call) Pass() { c.order.pass() }

// callOrder makes an ordered call wait for the one before it. The zero callOrder is that
// of a call without order.
type callOrder struct {
	previous <-chan struct{} // closed when the call before has passed; nil: there is none
	passed   chan struct{}   // closed when the next one may be begun
	once     sync.Once
}

// queue puts the call behind the last one, which it becomes.
func (o *callOrder) queue(last *<-chan struct{}) {
	o.previous, o.passed = *last, make(chan struct{})
	*last = o.passed
}

func (o *callOrder) await(ctx context.Context) bool {
	if o.previous == nil {
		return true
	}
	select {
	case <-o.previous:
		return true
	case <-ctx.Done():
		return false
	}
}

func (o *callOrder) pass() {
	if o.passed != nil {
		o.once.Do(func() { close(o.passed) })
	}
}

// errPanicked is the answer of a call that a mistake of ours has ended.
func (c *Call) errPanicked() *wire.Error {
	if c.hasNonce {
		return errUnknown("the gateway met an error of its own")
	}
	return errOurs()
}

// errNoRoom is the answer of a call for whose own answer there was no room, which err says.
// It may have changed something all the same: then it is no refusal.
func (c *Call) errNoRoom(err *wire.Error) *wire.Error {
	if !c.hasNonce {
		return err
	}
	return with(wire.Errorf(wire.CodeUnavailable, "there is no room for the answer, and it may have happened; send the very same again"),
		wire.ErrorData{Outcome: wire.OutcomeUnknown, RetryAfterMs: retryUnavailable.Milliseconds()})
}

// maxMethod bounds the name of a method in the audit: a client may say anything.
const maxMethod = 64

// audit says what was asked for and what came of it, if that is wanted.
func (c *Call) audit(err *wire.Error) {
	level := audit.All
	switch {
	case refusedForRights(err):
		level = audit.Refusals
	case c.hasNonce:
		level = audit.Changes
	}
	if !c.of.srv.cfg.Audit.Wants(level) {
		return
	}
	e := entryOf(audit.Call, c.who.session, c.who.address)
	e.Method, e.Signer, e.Nonce, e.HasNonce = clipTo(c.Method, maxMethod), c.signer, c.nonce, c.hasNonce
	done := "ok"
	if c.answer.Foreign != nil {
		done = "refused_elsewhere"
	}
	c.of.srv.auditCall(e, done, err)
}
