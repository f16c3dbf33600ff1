package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"noncegate/internal/rpcconn"
	"noncegate/wire"
)

// repeat says what may be done with a call whose answer was lost.
type repeat uint8

const (
	repeatNever repeat = iota // a write that might happen twice
	repeatSafe                // a write that is answered the same when repeated
	repeatRead                // changes nothing: its outcome is never unknown
)

// op is one call, of as many tries as it takes.
type op struct {
	method    string
	params    any
	requestID string // only to be named in errors
	signer    string // for the route to its owner, "" when not known
	repeat    repeat
	patient   bool        // not bounded by MaxElapsed
	sub       rpcconn.Sub // what it opens a subscription for, or nil

	owner    string // where not_owner sent this call
	hint     *line  // to where unavailable says the owner is; see owners.try
	followed bool   // it was sent there at once, which happens once a call
}

// do makes tries until one is answered, or none is allowed any more.
func (c *Client) do(ctx context.Context, o *op) (rpcconn.Answer, error) {
	if c.cfg.MaxElapsed > 0 && !o.patient {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, c.cfg.MaxElapsed, errElapsed)
		defer cancel()
	}
	h := history{op: o}
	pace := rpcconn.Pace(c.cfg.BackoffMin, c.cfg.RetryMax)
	for {
		a, via, err := c.try(ctx, o)
		if err == nil {
			return a, nil
		}
		if !h.add(err) {
			return a, h.end(nil)
		}
		wait := c.react(o, via, err)
		if wait >= 0 {
			wait = max(wait, pace.NextBackOff())
		}
		if err := c.pause(ctx, wait); err != nil {
			return a, h.end(err)
		}
		c.cfg.Logger.Debug("trying again", "method", o.method, "reason", reasonOf(err), "error", err)
	}
}

// try sends the call once, over the connection it returns. An error that is neither a
// *NotSentError nor a *refusal says that the call was sent, or may have been, and no answer came.
func (c *Client) try(ctx context.Context, o *op) (rpcconn.Answer, *rpcconn.Conn, error) {
	via, err := c.pick(ctx, o)
	if err != nil {
		return rpcconn.Answer{}, nil, &NotSentError{Err: err}
	}
	a, err := via.Do(ctx, o.sub, rpcconn.Call{Method: o.method, Params: o.params})
	if _, unsent := errors.AsType[*NotSentError](err); unsent {
		return a, via, err
	}
	if err == nil && a.Messages[0].Failed() {
		refused := &refusal{new(wire.Error)}
		if err = wire.Unmarshal(a.Messages[0].Error, refused.wireError); err == nil {
			refused.Data = cmp.Or(refused.Data, new(wire.ErrorData))
			return a, via, refused
		}
		err = fmt.Errorf("refusal: %w", err)
	}
	if err != nil {
		err = fmt.Errorf("no answer: %w", err)
	}
	return a, via, err
}

// pick returns the connection to the owner of the call's signer where one is
// known and reached, else the main one, waiting for it to be up.
func (c *Client) pick(ctx context.Context, o *op) (*rpcconn.Conn, error) {
	c.owners.take(o)
	if url := c.owners.route(o); url != "" {
		if via := c.owners.reach(ctx, url); via != nil {
			return via, nil
		}
		c.owners.send(o, "")
	}
	if c.ctx.Err() != nil { // the connection may not know yet
		return nil, ErrClosed
	}
	return c.main.Acquire(ctx)
}

// atOnce is the pause before a try that needs none.
const atOnce = -1

// react does what an error asks for, and returns how long the next try must wait at least.
func (c *Client) react(o *op, via *rpcconn.Conn, err error) time.Duration {
	r, ok := errors.AsType[*refusal](err)
	if !ok {
		return 0
	}
	switch r.Code {
	case wire.CodeDraining:
		via.Leave()
		c.owners.leave(via)
		c.owners.send(o, "")
	case wire.CodeUnavailable:
		if !r.outcomeUnknown() {
			c.owners.try(o, r.Data)
		}
	case wire.CodeNotOwner:
		if c.owners.learn(o, r.Data) && !o.followed {
			o.followed = true
			return atOnce
		}
	}
	after := time.Duration(r.Data.RetryAfterMs) * time.Millisecond
	// Clients that were refused together shall not come back together.
	return after + rand.N(after/4+1) // #nosec G404 -- spreads what comes together; guessing it gains nothing
}

// pause waits for d, when there is that much time.
func (c *Client) pause(ctx context.Context, d time.Duration) error {
	if ctx.Err() != nil {
		return rpcconn.Why(ctx)
	}
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) <= d {
		return errNoTime
	}
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return rpcconn.Why(ctx)
	case <-c.ctx.Done():
		return ErrClosed
	}
}

var (
	errElapsed = fmt.Errorf("Config.MaxElapsed is over: %w", context.DeadlineExceeded)
	errNoTime  = fmt.Errorf("no time for another try: %w", context.DeadlineExceeded)
)

// history is what the tries of one call have shown: once one is unknown, only an answer or a
// conflict settles it.
type history struct {
	op      *op
	unknown error // the first try whose outcome is unknown
	before  error // the refusal of the try before that one; nil: it was the first
	last    error // the last try
}

// add takes in the error of a try, and reports whether another one is allowed.
func (h *history) add(err error) bool {
	last := h.last
	h.last = err
	if n, ok := errors.AsType[*NotSentError](err); ok {
		return n.Again || (h.unknown != nil || h.op.patient) && errors.Is(err, ErrQueueFull)
	}
	r, ok := errors.AsType[*refusal](err)
	if ok && !r.outcomeUnknown() {
		return h.passes(r)
	}
	if h.op.repeat != repeatRead && h.unknown == nil {
		h.unknown, h.before = err, last
	}
	return h.op.repeat != repeatNever
}

// passes reports whether a refusal, by which nothing happened, may be another
// answer the next time.
func (h *history) passes(r *refusal) bool {
	switch r.Code {
	case wire.CodeServerBusy, wire.CodeFenced, wire.CodeNotOwner, wire.CodeUnavailable, wire.CodeDraining:
		return true
	case wire.CodeHoldLimit: // the window moves on with the chain; room among the holds is up to their holders
		return errors.Is(r, ErrWindow) && r.Data.RetryAfterMs > 0
	case wire.CodeDuplicateSubmit:
		return h.unknown != nil // it may be the lost try of this call that runs
	}
	return false
}

// end is the error of the call. stopped is why no further try was made although
// one was allowed, else nil.
func (h *history) end(stopped error) error {
	if h.unknown == nil || errors.Is(h.last, ErrConflict) {
		return fmt.Errorf("%s: %w", h.op.method, gaveUp(h.last, stopped))
	}
	u := &UnknownOutcomeError{Method: h.op.method, RequestID: h.op.requestID}
	if n, ok := errors.AsType[*NotSentError](h.last); ok {
		stopped = n.Err // NotSentError itself would say that nothing happened
	} else if h.last != h.unknown {
		u.Last = h.last
	}
	u.Err = gaveUp(h.unknown, stopped)
	if h.before != nil {
		u.Err = fmt.Errorf("%w; the try before was told: %v", u.Err, h.before)
	}
	return u
}

// gaveUp is err, and why there was no further try unless err says so.
func gaveUp(err, stopped error) error {
	if stopped == nil || errors.Is(err, stopped) {
		return err
	}
	return fmt.Errorf("%w; gave up: %w", err, stopped)
}
