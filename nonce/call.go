package nonce

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// waiter is the Completion of a synchronous call.
type waiter struct {
	ctx  context.Context
	done chan struct{}
}

// Done implements Completion.
func (w *waiter) Done(*Op) Waker { close(w.done); return nil }

// Gone implements Completion.
func (w *waiter) Gone() bool { return w.ctx.Err() != nil }

// Do runs op and waits for its end: Reserve, Submit and Done in one, for programs
// that embed the service. When ctx ends first the error is an UnavailableError
// with outcome Unknown, and op must not be touched again.
func (s *Service) Do(ctx context.Context, op *Op) error {
	place, ok := s.Reserve(op.Signer, op.Principal)
	if !ok {
		return ErrBusy
	}
	w := &waiter{ctx: ctx, done: make(chan struct{})}
	op.Completion = w
	s.Submit(place, op)
	select {
	case <-w.done:
		return op.Err
	case <-ctx.Done():
	}
	select {
	case <-w.done: // both: what is known is said
		return op.Err
	default:
		return &UnavailableError{Outcome: Unknown, Err: context.Cause(ctx)}
	}
}

// Hold is an allocation of one nonce, as its holder has it.
type Hold struct {
	Signer    string
	Nonce     int64
	Attempt   int64
	Token     int64
	HeldUntil time.Time // store clock
	Deadline  time.Time // monotonic, counted from before the request
}

// ErrMaybeSent marks an error of a WithNonce function after which the
// transaction may be on its way: the hold is left as it is.
var ErrMaybeSent = errors.New("the transaction may have been sent")

// WithNonce allocates a nonce of signer, runs fn with it in the caller's own
// goroutine, and marks it used when fn returns a transaction hash, recyclable
// when fn returns an error. A panic, or an error that is ErrMaybeSent, leaves the
// hold to its deadline. fn may call the service again, for the same signer too:
// no worker waits for it. Its context ends with the hold.
func (s *Service) WithNonce(ctx context.Context, signer string, fn func(context.Context, Hold) (TxHash, error)) error {
	sent := time.Now()
	op := &Op{Kind: KindAllocate, Signer: signer, Count: 1}
	if err := s.Do(ctx, op); err != nil {
		return fmt.Errorf("allocate: %w", err)
	}
	h := Hold{
		Signer: signer, Nonce: op.Nonces[0], Attempt: op.Attempts[0], Token: op.Token,
		HeldUntil: op.HeldUntil, Deadline: sent.Add(op.HoldLeft),
	}
	held, cancel := context.WithDeadline(ctx, h.Deadline)
	defer cancel()
	hash, err := fn(held, h)
	if errors.Is(err, ErrMaybeSent) {
		return err
	}
	mark := &Op{Kind: KindMarkUsed, Signer: signer, Nonce: h.Nonce, Attempt: h.Attempt, TxHash: hash}
	if err != nil {
		mark = &Op{Kind: KindMarkRecyclable, Signer: signer, Nonce: h.Nonce, Attempt: h.Attempt, Reason: "handler_error"}
	}
	after, cancelMark := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.StoreTimeout)
	defer cancelMark()
	if markErr := s.Do(after, mark); markErr != nil {
		err = errors.Join(err, fmt.Errorf("mark: %w", markErr))
	}
	return err
}
