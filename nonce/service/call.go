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

func (w *waiter) Done(*nonce.Result) nonce.Waker { close(w.done); return nil }

func (w *waiter) Gone() bool { return w.ctx.Err() != nil }

// Do runs a request and waits for its end: Reserve, Submit and Done in one, for programs
// that embed the service. The error is that of the result. When ctx ends first it is a
// nonce.UnavailableError with outcome nonce.Unknown, and q must not be touched again.
func (s *Service) Do(ctx context.Context, q *nonce.Request) (nonce.Result, error) {
	slot, ok := s.Reserve(q.Signer, q.Principal)
	if !ok {
		return nonce.Result{Err: nonce.ErrBusy}, nonce.ErrBusy
	}
	w, r := &waiter{ctx: ctx, done: make(chan struct{})}, new(nonce.Result)
	s.Submit(&slot, q, r, w)
	select {
	case <-w.done:
	case <-ctx.Done():
	}
	if isClosed(w.done) { // both: what is known is said
		return *r, r.Err
	}
	err := &nonce.UnavailableError{Outcome: nonce.Unknown, Err: context.Cause(ctx)}
	return nonce.Result{Err: err}, err
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
	// RequestID finds the same hold again; "": none. See nonce.Request. nonce.ErrNotSent must then be true
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
	_, err := h.svc.Do(ctx, &nonce.Request{Kind: nonce.KindMarkSigned, Signer: h.Signer, Nonce: h.Nonce, Attempt: h.Attempt, TxHash: hash})
	if err != nil {
		return fmt.Errorf("record the hash of nonce %d of %s: %w", h.Nonce, h.Signer, err)
	}
	h.hash.Store(&hash)
	return nil
}

// NonceFunc does something with a nonce, and returns the hash of the transaction that it sent with it,
// if it knows it.
type NonceFunc func(context.Context, *Hold) (nonce.TxHash, error)

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
func (s *Service) WithNonce(ctx context.Context, signer string, o NonceOptions, fn NonceFunc) error {
	sent := time.Now()
	got, err := s.Do(ctx, &nonce.Request{
		Kind: nonce.KindAllocate, Signer: signer, Count: 1, Hold: o.Hold, RequestID: o.RequestID, RecordFirst: o.RecordFirst,
	})
	if err != nil {
		return fmt.Errorf("allocate: %w", err)
	}
	h := &Hold{
		Signer: signer, Nonce: got.Nonces[0], Attempt: got.Attempts[0], Token: got.Token,
		HeldUntil: got.HeldUntil, Deadline: sent.Add(got.HoldLeft), svc: s,
	}
	if len(got.Earlier) > 0 {
		h.Earlier = got.Earlier[0]
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
	if _, markErr := s.Do(after, mark); markErr != nil {
		err = errors.Join(err, fmt.Errorf("mark: %w", markErr))
	}
	return err
}

// end is the mark that follows from what a function returned; nil: none, because
// nobody knows whether the nonce was used.
func (h *Hold) end(hash nonce.TxHash, err error, recordFirst bool) *nonce.Request {
	signed := h.signed.Load()
	mark := &nonce.Request{Kind: nonce.KindMarkUsed, Signer: h.Signer, Nonce: h.Nonce, Attempt: h.Attempt, TxHash: hash}
	switch {
	case err == nil:
		if recorded := h.hash.Load(); hash == (nonce.TxHash{}) && recorded != nil {
			mark.TxHash = *recorded
		}
		return mark
	case errors.Is(err, nonce.ErrNotSent), recordFirst && !signed:
		mark.Kind, mark.TxHash, mark.Reason, mark.Unsent = nonce.KindMarkRecyclable, nonce.TxHash{}, "handler_error", signed
		return mark
	}
	return nil
}
