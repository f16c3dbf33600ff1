package relay

import (
	"context"
	"sync"

	"noncegate/internal/access"
	"noncegate/internal/access/audit"
	"noncegate/wire"
	"noncegate/ws"
)

// Call is one call, with its caller. Its methods belong to the goroutine that
// runs it, until Answer has returned.
type Call struct {
	*ws.Visitor
	Method string
	Params []byte // JSON, an array or an object; nil: none. It must not be changed

	order  callOrder
	answer Answer
	held   held
	stream *Stream // that the call has opened

	// What the audit says of it.
	signer   string
	nonce    int64
	hasNonce bool
}

// newCall makes a call of what was decoded; nothing of that is referred to afterwards.
func newCall(call *wire.Call, v *ws.Visitor) *Call {
	return &Call{Visitor: v, Method: string(call.Method), Params: append([]byte(nil), call.Params...)}
}

// MayLater is May for when the call has ended: it keeps nothing of the call.
func (c *Call) MayLater() func(right access.Right, signer string) bool { return c.Visitor.May }

// About records, for the audit, the signer and the nonce that the call changes.
func (c *Call) About(signer string, n int64) { c.signer, c.nonce, c.hasNonce = signer, n, true }

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

// guarded does a part of a call, and makes an answer of a panic.
func (c *Call) guarded(do func()) (err *wire.Error) {
	defer func() {
		if v := recover(); v != nil {
			c.Panicked("a call", v, c.Method)
			err = c.errPanicked()
		}
	}()
	do()
	return nil
}

// errPanicked is the answer of a call that a mistake of ours has ended.
func (c *Call) errPanicked() *wire.Error {
	if c.hasNonce {
		return ws.ErrUnknown("the gateway met an error of its own")
	}
	return ws.ErrOurs()
}

// retryUnavailable is how long a client had better wait before it sends the same again.
const retryUnavailable = 500 // milliseconds

// errNoRoom is the answer of a call for whose own answer there was no room, which err says.
// It may have changed something all the same: then it is no refusal.
func (c *Call) errNoRoom(err *wire.Error) *wire.Error {
	if !c.hasNonce {
		return err
	}
	unknown := wire.Errorf(wire.CodeUnavailable, "there is no room for the answer, and it may have happened; send the very same again")
	unknown.Data.Outcome, unknown.Data.RetryAfterMs = wire.OutcomeUnknown, retryUnavailable
	return unknown
}

// Append appends the answer, which is not kept beside its encoded copy.
func (c *Call) Append(dst, id []byte) []byte {
	dst = c.answer.append(dst, id)
	c.answer = Answer{}
	return dst
}

// Audit says what was asked for and what came of it.
func (c *Call) Audit(err *wire.Error) {
	done := "ok"
	if c.answer.Foreign != nil {
		done = "refused_elsewhere"
	}
	c.Visitor.Audit(c.Method, audit.Entry{Signer: c.signer, Nonce: c.nonce, HasNonce: c.hasNonce}, done, err)
}
