package service

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"noncegate/nonce"
)

// waiter is the Completion of a synchronous call.
type waiter struct {
	ctx  context.Context
	done chan struct{}
}

// Done implements Completion.
func (w *waiter) Done(*nonce.Op) nonce.Waker { close(w.done); return nil }

// Gone implements Completion.
func (w *waiter) Gone() bool { return w.ctx.Err() != nil }

// Do runs op and waits for its end: Reserve, Submit and Done in one, for programs
// that embed the service. When ctx ends first the error is an nonce.UnavailableError
// with outcome nonce.Unknown, and op must not be touched again.
func (s *Service) Do(ctx context.Context, op *nonce.Op) error {
	slot, ok := s.Reserve(op.Signer, op.Principal)
	if !ok {
		return nonce.ErrBusy
	}
	w := &waiter{ctx: ctx, done: make(chan struct{})}
	op.Completion = w
	s.Submit(slot, op)
	select {
	case <-w.done:
	case <-ctx.Done():
	}
	if isClosed(w.done) { // both: what is known is said
		return op.Err
	}
	return &nonce.UnavailableError{Outcome: nonce.Unknown, Err: context.Cause(ctx)}
}

// Hold is an allocation of one nonce, as its holder has it.
type Hold struct {
	Signer    string
	Nonce     int64
	Attempt   int64
	Token     int64
	HeldUntil time.Time // store clock
	Deadline  time.Time // monotonic, counted from before the request
	// Earlier is a hold of the nonce that ended without anybody knowing whether it was used; nil: none.
	Earlier *nonce.Earlier

	svc    *Service
	signed atomic.Bool
	hash   atomic.Pointer[nonce.TxHash] // the latest that was recorded
}

// NonceOptions say how WithNonce takes its nonce. The zero NonceOptions are the
// service's defaults.
type NonceOptions struct {
	Hold time.Duration // 0: the default
	// RequestID finds the same hold again; "": none. See nonce.Op. nonce.ErrNotSent must then be true
	// of every call before with this id, too: one whose process ended may have sent.
	RequestID string
	// RecordFirst promises that nothing is sent before Hold.Signed has returned nil.
	RecordFirst bool
}

// Signed records the hash of a transaction that is about to be sent with the nonce. It
// must return nil before the transaction is sent: with an error, do not send it. From
// the call on WithNonce takes the transaction for one that may have been sent.
func (h *Hold) Signed(ctx context.Context, hash nonce.TxHash) error {
	if hash == (nonce.TxHash{}) {
		return fmt.Errorf("record the hash of nonce %d of %s: %w", h.Nonce, h.Signer, nonce.ErrZeroHash)
	}
	h.signed.Store(true)
	op := &nonce.Op{Request: nonce.Request{Kind: nonce.KindMarkSigned, Signer: h.Signer, Nonce: h.Nonce, Attempt: h.Attempt, TxHash: hash}}
	if err := h.svc.Do(ctx, op); err != nil {
		return fmt.Errorf("record the hash of nonce %d of %s: %w", h.Nonce, h.Signer, err)
	}
	h.hash.Store(&hash)
	return nil
}

// WithNonce allocates a nonce of signer, runs fn with it in the caller's own
// goroutine, and marks it used when fn returns no error: with the hash it returned,
// else with that which Signed recorded, else without one.
//
// After an error it gives the nonce back only where it is known that nothing was sent:
// fn says so by nonce.ErrNotSent, or, with RecordFirst, it has not called Signed. Any other
// error, that of a context included, and a panic leave the hold as it is, because
// somebody may have the transaction.
//
// fn may call the service again, for the same signer too: no worker waits for it. Its
// context ends with the hold.
func (s *Service) WithNonce(ctx context.Context, signer string, o NonceOptions, fn func(context.Context, *Hold) (nonce.TxHash, error)) error {
	sent := time.Now()
	op := &nonce.Op{Request: nonce.Request{Kind: nonce.KindAllocate, Signer: signer, Count: 1, Hold: o.Hold, RequestID: o.RequestID, RecordFirst: o.RecordFirst}}
	if err := s.Do(ctx, op); err != nil {
		return fmt.Errorf("allocate: %w", err)
	}
	h := &Hold{
		Signer: signer, Nonce: op.Nonces[0], Attempt: op.Attempts[0], Token: op.Token,
		HeldUntil: op.HeldUntil, Deadline: sent.Add(op.HoldLeft), svc: s,
	}
	if len(op.Earlier) > 0 {
		h.Earlier = op.Earlier[0]
	}
	held, cancel := context.WithDeadline(ctx, h.Deadline)
	defer cancel()
	hash, err := fn(held, h)
	mark := h.end(hash, err, o.RecordFirst)
	if mark == nil {
		return err
	}
	after, cancelMark := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.StoreTimeout)
	defer cancelMark()
	if markErr := s.Do(after, mark); markErr != nil {
		err = errors.Join(err, fmt.Errorf("mark: %w", markErr))
	}
	return err
}

// end is the mark that follows from what a function returned; nil: none, because
// nobody knows whether the nonce was used.
func (h *Hold) end(hash nonce.TxHash, err error, recordFirst bool) *nonce.Op {
	signed := h.signed.Load()
	switch {
	case err == nil:
		if recorded := h.hash.Load(); hash == (nonce.TxHash{}) && recorded != nil {
			hash = *recorded
		}
		return &nonce.Op{Request: nonce.Request{Kind: nonce.KindMarkUsed, Signer: h.Signer, Nonce: h.Nonce, Attempt: h.Attempt, TxHash: hash}}
	case errors.Is(err, nonce.ErrNotSent), recordFirst && !signed:
		return &nonce.Op{Request: nonce.Request{Kind: nonce.KindMarkRecyclable, Signer: h.Signer, Nonce: h.Nonce, Attempt: h.Attempt, Reason: "handler_error", Unsent: signed}}
	}
	return nil
}
