package client

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"noncegate/wire"
)

// AllocateRequest asks for nonces of a signer.
type AllocateRequest struct {
	Signer string
	// Count is how many, 0 for one.
	Count int
	// RequestID makes the call idempotent: with the same one it is answered the
	// same. When it is empty one is made, unless Config.NoRequestIDs is set.
	RequestID string
	// Hold is how long to hold them, in whole milliseconds; 0 for the gateway's
	// default.
	Hold time.Duration
	// Guard names the submission, so that the gateway refuses another with the
	// same key while this one runs, or with Keep for the whole interval
	// (ErrDuplicateSubmit); nil for none. A RequestID that is known is answered
	// nevertheless.
	Guard *wire.Guard
	// RecordFirst promises that no transaction is sent before MarkSigned has recorded its
	// hash. A hold that ends without one was then not used, which is known and not
	// guessed: the nonce is handed out again at once.
	RecordFirst bool
}

// Allocation is what Allocate got: nonces held for the caller, and no one else.
type Allocation struct {
	wire.AllocateResult
	// RequestID is the one it was made with, "" when there was none.
	RequestID string
	// Deadline is when the hold ends, at the earliest, by the local monotonic
	// clock: HoldMs after the try that was answered was sent.
	Deadline time.Time
}

// Hold names one nonce in one attempt, which is what marks are about.
type Hold struct {
	Signer  string
	Nonce   int64
	Attempt int64 // from 1; 0 stands for 1
}

// Hold returns the hold of the lowest nonce.
func (a *Allocation) Hold() Hold { return Hold{a.Signer, a.Nonce, a.Attempt} }

// Holds returns the holds of all nonces, in ascending order.
func (a *Allocation) Holds() []Hold {
	if len(a.Nonces) == 0 {
		return []Hold{a.Hold()}
	}
	holds := make([]Hold, len(a.Nonces))
	for i, n := range a.Nonces {
		holds[i] = Hold{a.Signer, n.Nonce, n.Attempt}
	}
	return holds
}

// Allocate takes the lowest free nonces of a signer. After an
// UnknownOutcomeError, call it again with the RequestID of the error.
func (c *Client) Allocate(ctx context.Context, r AllocateRequest) (a Allocation, err error) {
	a.RequestID = c.requestID(r.RequestID)
	sentAt, err := c.handOut(ctx, wire.MethodAllocate, r.Signer, a.RequestID, &wire.AllocateParams{
		Signer: r.Signer, Count: int64(r.Count), RequestID: a.RequestID,
		HoldMs: r.Hold.Milliseconds(), Guard: r.Guard, RecordFirst: r.RecordFirst,
	}, &a.AllocateResult)
	a.Deadline = deadline(sentAt, a.HoldMs)
	return a, err
}

// requestID is the one given, or a new one.
func (c *Client) requestID(given string) string {
	if given == "" && !c.cfg.NoRequestIDs {
		return rand.Text()
	}
	return given
}

// handOut makes a call that takes nonces, which only a request id allows to repeat.
func (c *Client) handOut(ctx context.Context, method, signer, requestID string, params, result any) (sentAt time.Time, err error) {
	o := &op{method: method, params: params, signer: signer, requestID: requestID}
	if requestID != "" {
		o.repeat = repeatSafe
	}
	return c.ask(ctx, o, result)
}

// deadline is when a hold ends, at the earliest, that was said to last for holdMs.
func deadline(sentAt time.Time, holdMs int64) time.Time {
	return sentAt.Add(time.Duration(holdMs) * time.Millisecond)
}

// MarkOption changes one mark.
type MarkOption func(*markOptions)

type markOptions struct {
	guard  *wire.Guard
	unsent bool
}

// WithGuard names the submission, as AllocateRequest.Guard does for an allocation.
func WithGuard(g wire.Guard) MarkOption { return func(o *markOptions) { o.guard = &g } }

// Unsent says, of a nonce that is given back although a hash was recorded for it, that
// no node has that transaction: none was given it, or each that was has refused it for
// good. For other marks it means nothing.
func Unsent() MarkOption { return func(o *markOptions) { o.unsent = true } }

func optionsOf(options []MarkOption) (o markOptions) {
	for _, set := range options {
		set(&o)
	}
	return o
}

// MarkUsed says that a transaction with this nonce was sent. txHash is "0x" and
// 64 hex digits, or "" when it is not known; it can be said later. Another hash of
// the same hold is that of a replacement, and is recorded beside the first. A conflict
// after a lost try tells the state the nonce is in now, whoever brought it there.
func (c *Client) MarkUsed(ctx context.Context, h Hold, txHash string, options ...MarkOption) (wire.MarkResult, error) {
	params := wire.MarkUsedParams{Signer: h.Signer, Nonce: h.Nonce, Attempt: h.Attempt, TxHash: txHash, Guard: optionsOf(options).guard}
	return write[wire.MarkResult](ctx, c, wire.MethodMarkUsed, h.Signer, &params)
}

// MarkSigned records the hash of a transaction before it is sent. Send it only after
// this has returned without an error: a refusal says that another holder may have the
// nonce by now. From then on the nonce is not handed out for want of a mark. It may be
// called again with the hash of a replacement.
func (c *Client) MarkSigned(ctx context.Context, h Hold, txHash string, options ...MarkOption) (wire.MarkResult, error) {
	params := wire.MarkSignedParams{Signer: h.Signer, Nonce: h.Nonce, Attempt: h.Attempt, TxHash: txHash, Guard: optionsOf(options).guard}
	return write[wire.MarkResult](ctx, c, wire.MethodMarkSigned, h.Signer, &params)
}

// MarkRecyclable gives a nonce back that was not used, to be handed out again; reason
// is for people and may be empty. Where a hash was recorded it needs Unsent. A conflict
// after a lost try tells the state the nonce is in now, whoever brought it there.
func (c *Client) MarkRecyclable(ctx context.Context, h Hold, reason string, options ...MarkOption) (wire.MarkResult, error) {
	o := optionsOf(options)
	params := wire.MarkRecyclableParams{Signer: h.Signer, Nonce: h.Nonce, Attempt: h.Attempt, Reason: reason, Guard: o.guard, Unsent: o.unsent}
	return write[wire.MarkResult](ctx, c, wire.MethodMarkRecyclable, h.Signer, &params)
}

// Extension is what Extend got.
type Extension struct {
	wire.ExtendResult
	// Deadline is as Allocation.Deadline.
	Deadline time.Time
}

// Extend gives a hold that runs a new deadline: hold from now on, in whole
// milliseconds, which may also be sooner than the old one.
func (c *Client) Extend(ctx context.Context, h Hold, hold time.Duration) (e Extension, err error) {
	params := wire.ExtendParams{Signer: h.Signer, Nonce: h.Nonce, Attempt: h.Attempt, HoldMs: hold.Milliseconds()}
	sentAt, err := c.ask(ctx, &op{method: wire.MethodExtend, params: &params, signer: h.Signer, repeat: repeatSafe}, &e.ExtendResult)
	e.Deadline = deadline(sentAt, e.HoldMs)
	return e, err
}

// RepairRequest asks for the nonce of a signer that blocks those above it.
type RepairRequest struct {
	Signer string
	// Nonce is which one; nil for the lowest that the chain has not used, which only a
	// gateway that asks the signer's chain knows.
	Nonce *int64
	// Hold and RequestID are as in AllocateRequest.
	Hold      time.Duration
	RequestID string
}

// Repair is what Client.Repair got: the nonce, what it was before, and what is known
// of the transactions that were sent with it. Was is nil when the request id was known.
type Repair struct {
	wire.RepairResult
	// RequestID is the one it was made with, "" when there was none.
	RequestID string
	// Deadline is as Allocation.Deadline.
	Deadline time.Time
}

// Hold returns the hold of the nonce.
func (r *Repair) Hold() Hold { return Hold{r.Signer, r.Nonce, r.Attempt} }

// Repair hands out a nonce whatever its state is, so that its transaction can be
// replaced or cancelled; marks of its holder before are refused from then on. After an
// UnknownOutcomeError, call it again with the RequestID of the error.
func (c *Client) Repair(ctx context.Context, r RepairRequest) (a Repair, err error) {
	a.RequestID = c.requestID(r.RequestID)
	sentAt, err := c.handOut(ctx, wire.MethodRepair, r.Signer, a.RequestID,
		&wire.RepairParams{Signer: r.Signer, Nonce: r.Nonce, HoldMs: r.Hold.Milliseconds(), RequestID: a.RequestID}, &a.RepairResult)
	a.Deadline = deadline(sentAt, a.HoldMs)
	return a, err
}

// SetFloor raises the lowest nonce of a signer that may be handed out; it never
// lowers it. The result holds the floor in force.
func (c *Client) SetFloor(ctx context.Context, signer string, floor int64) (wire.FloorResult, error) {
	return write[wire.FloorResult](ctx, c, wire.MethodSetFloor, signer, &wire.SetFloorParams{Signer: signer, Floor: floor})
}

// Status returns a signer's state in figures.
func (c *Client) Status(ctx context.Context, signer string) (wire.StatusResult, error) {
	return read[wire.StatusResult](ctx, c, wire.MethodStatus, signer, &wire.StatusParams{Signer: signer})
}

// List returns one page of a signer's allocations, in order of nonce. The next
// one begins at NextFrom, which is nil on the last page.
func (c *Client) List(ctx context.Context, p wire.ListParams) (wire.ListResult, error) {
	return read[wire.ListResult](ctx, c, wire.MethodList, p.Signer, &p)
}

// Info says who the gateway is and what its limits are.
func (c *Client) Info(ctx context.Context) (wire.InfoResult, error) {
	return read[wire.InfoResult](ctx, c, wire.MethodInfo, "", nil)
}

// Stats returns the gateway's figures of the last interval.
func (c *Client) Stats(ctx context.Context) (wire.StatsResult, error) {
	return read[wire.StatsResult](ctx, c, wire.MethodStats, "", nil)
}

// Call calls any method but the subscribing ones. Params is what
// encoding/json would take, by name or positional, nil for none; result is a
// pointer to decode into, nil when it does not matter. Reads, marks, extensions and
// floors are repeated as their methods above are; anything else, allocations included,
// only while it is certain that nothing happened.
func (c *Client) Call(ctx context.Context, method string, params, result any) error {
	o := op{method: method, params: params}
	switch method {
	case wire.MethodStatus, wire.MethodList, wire.MethodInfo, wire.MethodStats:
		o.repeat = repeatRead
	case wire.MethodMarkUsed, wire.MethodMarkSigned, wire.MethodMarkRecyclable, wire.MethodExtend, wire.MethodSetFloor:
		o.repeat = repeatSafe
	case wire.MethodSubscribe, wire.MethodEthSubscribe:
		return fmt.Errorf("%s: use Subscribe", method)
	}
	_, err := c.ask(ctx, &o, result)
	return err
}

func write[T any](ctx context.Context, c *Client, method, signer string, params any) (result T, err error) {
	_, err = c.ask(ctx, &op{method: method, params: params, signer: signer, repeat: repeatSafe}, &result)
	return result, err
}

func read[T any](ctx context.Context, c *Client, method, signer string, params any) (result T, err error) {
	_, err = c.ask(ctx, &op{method: method, params: params, signer: signer, repeat: repeatRead}, &result)
	return result, err
}

// ask makes a call and reads its result, nil: which does not matter. A write whose result
// cannot be read has happened, and how is unknown.
func (c *Client) ask(ctx context.Context, o *op, result any) (sentAt time.Time, err error) {
	a, err := c.do(ctx, o)
	if err != nil || result == nil {
		return a.SentAt, err
	}
	err = wire.Unmarshal(a.Messages[0].Result, result)
	switch {
	case err == nil:
		return a.SentAt, nil
	case o.repeat == repeatRead:
		return a.SentAt, fmt.Errorf("%s: result: %w", o.method, err)
	}
	return a.SentAt, &UnknownOutcomeError{Method: o.method, RequestID: o.requestID, Err: fmt.Errorf("result: %w", err)}
}
