package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"noncegate/wire"
)

// reasonFailed is what the gateway is told of a nonce whose function failed. The
// error itself may hold what the gateway need not know.
const reasonFailed = "handler_error"

// NonceOptions say how WithNonce takes its nonce; see AllocateRequest.
type NonceOptions struct {
	Hold  time.Duration
	Guard *wire.Guard
	// With the RequestID of a call that ended without a word, such as in a process that was
	// killed, the same hold is found again as long as it runs: look what was sent with it
	// before you send, and return ErrNotSent only where no call before has sent either.
	RequestID string
	// RecordFirst promises that the function sends nothing before HeldNonce.Signed has
	// returned nil. A nonce is then never lost to a crash, nor taken for free while a
	// node has its transaction.
	RecordFirst bool
}

// HeldNonce is the nonce that WithNonce's function has.
type HeldNonce struct {
	Allocation

	c      *Client
	mu     sync.Mutex // guards what follows
	signed bool       // Signed was called
	hash   string     // the latest that it has recorded
}

// Signed records the hash of a transaction that is about to be sent with the nonce:
// "0x" and 64 hex digits. It must return nil before the transaction is sent; with an
// error, do not send it. From the call on, WithNonce takes it for one that may have been
// sent. It may be called again with the hash of a replacement.
func (n *HeldNonce) Signed(ctx context.Context, txHash string) error {
	n.mu.Lock()
	n.signed = true
	n.mu.Unlock()
	if _, err := n.c.MarkSigned(ctx, n.Hold(), txHash); err != nil {
		return fmt.Errorf("record the hash of nonce %d of %s: %w", n.Nonce, n.Signer, err)
	}
	n.mu.Lock()
	n.hash = txHash
	n.mu.Unlock()
	return nil
}

// WithNonce allocates a nonce of signer, calls fn with it in the caller's own
// goroutine, and says what became of it. The attempt is passed along, so that a mark
// which comes too late cannot end the next holder's hold.
//
//	fn                                                  the nonce is
//	returns no error                                    marked used: with the hash it returned, else that of Signed, else without one
//	returns an error that matches ErrNotSent            given back
//	returns another, with RecordFirst, before Signed    given back
//	returns any other, or panics                        left as it is
//
// What is left as it is may have been sent: a node that answers late, or not at all, has
// taken the transaction as often as not. It is marked later, by the program that finds out, or
// its hold ends.
//
// The context of fn ends at the hold's deadline with cause ErrHoldEnded; the
// transaction must have been sent by then. A panic passes through.
//
// The mark does not depend on ctx; it takes Config.MarkTimeout at most. When it
// fails, the error says so: alone, or joined to that of fn. An error from before
// fn was called is that of Allocate, or ErrHoldEnded when the answer came too
// late.
func (c *Client) WithNonce(ctx context.Context, signer string, o NonceOptions, fn func(context.Context, *HeldNonce) (txHash string, err error)) error {
	a, err := c.Allocate(ctx, AllocateRequest{
		Signer: signer, Hold: o.Hold, RequestID: o.RequestID, Guard: o.Guard, RecordFirst: o.RecordFirst,
	})
	if err != nil {
		return err
	}
	n := &HeldNonce{Allocation: a, c: c}
	var txHash string
	maySend := time.Now().Before(a.Deadline)
	if maySend {
		txHash, err = n.use(ctx, fn)
	} else {
		err = fmt.Errorf("nonce %d of %s: %w", a.Nonce, a.Signer, ErrHoldEnded)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.cfg.MarkTimeout)
	defer cancel()
	signed, hash := n.recorded()
	switch {
	case err == nil:
		if _, err = c.MarkUsed(ctx, n.Hold(), cmp.Or(txHash, hash)); err != nil {
			err = fmt.Errorf("nonce %d of %s was used: %w", n.Nonce, n.Signer, err)
		}
	case errors.Is(err, ErrNotSent), o.RecordFirst && !signed, !maySend && o.RequestID == "": // with one, a call before may have sent with it
		_, failed := c.MarkRecyclable(ctx, n.Hold(), reasonFailed, func(o *markOptions) { o.unsent = signed })
		err = errors.Join(err, failed)
	}
	return err
}

// use calls fn with a context that ends when the hold does. A panic of fn passes
// through it, and through WithNonce, before anything is marked.
func (n *HeldNonce) use(ctx context.Context, fn func(context.Context, *HeldNonce) (string, error)) (string, error) {
	ctx, cancel := context.WithDeadlineCause(ctx, n.Deadline, ErrHoldEnded)
	defer cancel()
	return fn(ctx, n)
}

func (n *HeldNonce) recorded() (signed bool, hash string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.signed, n.hash
}
