package client

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// reasonFailed is what the gateway is told of a nonce whose function failed. The
// error itself may hold what is nobody's business.
const reasonFailed = "handler_error"

// WithNonce allocates a nonce of signer, calls fn with it in the caller's own
// goroutine, and marks it: used with the transaction hash fn returned,
// recyclable when fn returned an error. The attempt is passed along, so that a
// mark which comes too late cannot end the next holder's hold.
//
// The context of fn ends at the hold's deadline with cause ErrHoldEnded; the
// transaction must have been sent by then. When fn cannot tell whether it was
// sent, it returns an error that matches ErrMaybeSent, and the hold is left as it
// is, to be marked later or to expire. The same holds for a panic, which passes
// through.
//
// The mark does not depend on ctx; it takes Config.MarkTimeout at most. When it
// fails, the error says so: alone, or joined to that of fn. An error from before
// fn was called is that of Allocate, or ErrHoldEnded when the answer came too
// late.
func (c *Client) WithNonce(ctx context.Context, signer string, fn func(context.Context, Allocation) (txHash string, err error)) error {
	a, err := c.Allocate(ctx, AllocateRequest{Signer: signer})
	if err != nil {
		return err
	}
	txHash, err := whileHeld(ctx, a, fn)
	if err != nil && errors.Is(err, ErrMaybeSent) {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.cfg.MarkTimeout)
	defer cancel()
	if err != nil {
		_, markErr := c.MarkRecyclable(ctx, a.Hold(), reasonFailed)
		return errors.Join(err, markErr)
	}
	if _, err = c.MarkUsed(ctx, a.Hold(), txHash); err != nil {
		return fmt.Errorf("nonce %d of %s was used: %w", a.Nonce, a.Signer, err)
	}
	return nil
}

// whileHeld calls fn with a context that ends when the hold does. A panic of fn
// passes through it, and through WithNonce, before anything is marked.
func whileHeld(ctx context.Context, a Allocation, fn func(context.Context, Allocation) (string, error)) (string, error) {
	ctx, cancel := context.WithDeadlineCause(ctx, a.Deadline, ErrHoldEnded)
	defer cancel()
	if !time.Now().Before(a.Deadline) {
		return "", fmt.Errorf("nonce %d of %s: %w", a.Nonce, a.Signer, ErrHoldEnded)
	}
	return fn(ctx, a)
}
