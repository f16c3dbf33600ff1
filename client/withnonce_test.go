package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"noncegate/wire"
)

var errBoom = errors.New("boom")

// withNonce runs WithNonce and grants it nonce 4, attempt 2, for a minute.
func withNonce(ctx context.Context, t *testing.T, c *Client, p *peer, fn func(context.Context, Allocation) (string, error)) func() (struct{}, error) {
	t.Helper()
	wait := later(func() (struct{}, error) { return struct{}{}, c.WithNonce(ctx, "s", fn) })
	p.answer(p.next(wire.MethodAllocate), wire.AllocateResult{Signer: "s", Nonce: 4, Attempt: 2, HoldMs: 60_000})
	return wait
}

// decode reads the params of a request.
func decode[T any](t *testing.T, r received) (params T) {
	t.Helper()
	if err := json.Unmarshal(r.Params, &params); err != nil {
		t.Fatal(err)
	}
	return params
}

// wantUnmarked asserts that the gateway is told nothing.
func wantUnmarked(t *testing.T, p *peer) {
	t.Helper()
	synctest.Wait()
	if len(p.requests) != 0 {
		t.Error("the hold was marked")
	}
}

func TestWithNonceMarksUsedWithTheAttempt(t *testing.T) {
	story(t, Config{}, func(t *testing.T, _ *network, c *Client, p *peer) {
		ctx, cancel := context.WithCancel(t.Context())
		wait := withNonce(ctx, t, c, p, func(ctx context.Context, a Allocation) (string, error) {
			if d, ok := ctx.Deadline(); !ok || !d.Equal(a.Deadline) {
				t.Errorf("the context ends at %v, the hold at %v", d, a.Deadline)
			}
			cancel() // the caller goes; what was sent is marked all the same
			return "0xabc", nil
		})
		r := p.next(wire.MethodMarkUsed)
		if got, want := decode[wire.MarkUsedParams](t, r), (wire.MarkUsedParams{Signer: "s", Nonce: 4, Attempt: 2, TxHash: "0xabc"}); got != want {
			t.Errorf("got mark %+v, want %+v", got, want)
		}
		p.answer(r, wire.MarkResult{})
		if _, err := wait(); err != nil {
			t.Error(err)
		}
	})
}

func TestWithNonceGivesTheNonceBackOnError(t *testing.T) {
	story(t, Config{}, func(t *testing.T, _ *network, c *Client, p *peer) {
		fail := func(context.Context, Allocation) (string, error) { return "", errBoom }
		wait := withNonce(t.Context(), t, c, p, fail)
		r := p.next(wire.MethodMarkRecyclable)
		if got, want := decode[wire.MarkRecyclableParams](t, r), (wire.MarkRecyclableParams{Signer: "s", Nonce: 4, Attempt: 2, Reason: "handler_error"}); got != want {
			t.Errorf("got mark %+v, want %+v", got, want)
		}
		p.answer(r, wire.MarkResult{})
		if _, err := wait(); !errors.Is(err, errBoom) {
			t.Errorf("got error %v", err)
		}
		wait = withNonce(t.Context(), t, c, p, fail)
		p.refuse(p.next(wire.MethodMarkRecyclable), wire.CodeConflict, "conflict", wire.ErrorData{})
		if _, err := wait(); !errors.Is(err, errBoom) || !errors.Is(err, ErrConflict) {
			t.Errorf("got error %v, want both", err)
		}
	})
}

func TestWithNonceLeavesTheHoldWhenItMayHaveBeenSent(t *testing.T) {
	story(t, Config{}, func(t *testing.T, _ *network, c *Client, p *peer) {
		wait := withNonce(t.Context(), t, c, p, func(context.Context, Allocation) (string, error) {
			return "", fmt.Errorf("%w: %w", ErrMaybeSent, errBoom)
		})
		if _, err := wait(); !errors.Is(err, ErrMaybeSent) || !errors.Is(err, errBoom) {
			t.Errorf("got error %v", err)
		}
		wantUnmarked(t, p)
	})
}

func TestWithNoncePassesAPanicOnAndLeavesTheHold(t *testing.T) {
	story(t, Config{}, func(t *testing.T, _ *network, c *Client, p *peer) {
		panicked := make(chan any)
		go func() {
			defer func() { panicked <- recover() }()
			c.WithNonce(t.Context(), "s", func(context.Context, Allocation) (string, error) { panic(errBoom) })
		}()
		p.answer(p.next(wire.MethodAllocate), held(4))
		if got := <-panicked; got != errBoom {
			t.Errorf("recovered %v", got)
		}
		wantUnmarked(t, p)
	})
}

func TestWithNonceEndsTheContextWithTheHold(t *testing.T) {
	story(t, Config{}, func(t *testing.T, _ *network, c *Client, p *peer) {
		wait := withNonce(t.Context(), t, c, p, func(ctx context.Context, _ Allocation) (string, error) {
			began := time.Now()
			<-ctx.Done()
			if took := time.Since(began); took != time.Minute {
				t.Errorf("the context ended after %v, the hold is a minute", took)
			}
			return "", context.Cause(ctx)
		})
		p.answer(p.next(wire.MethodMarkRecyclable), wire.MarkResult{})
		if _, err := wait(); !errors.Is(err, ErrHoldEnded) {
			t.Errorf("got error %v", err)
		}
	})
}

func TestWithNonceDoesNotBeginWhenTheHoldIsOver(t *testing.T) {
	story(t, Config{}, func(t *testing.T, _ *network, c *Client, p *peer) {
		wait := later(func() (struct{}, error) {
			return struct{}{}, c.WithNonce(t.Context(), "s", func(context.Context, Allocation) (string, error) {
				t.Error("called without a hold")
				return "", nil
			})
		})
		r := p.next(wire.MethodAllocate)
		time.Sleep(2 * time.Second)
		p.answer(r, wire.AllocateResult{Signer: "s", Nonce: 4, Attempt: 2, HoldMs: 1000})
		p.answer(p.next(wire.MethodMarkRecyclable), wire.MarkResult{})
		if _, err := wait(); !errors.Is(err, ErrHoldEnded) {
			t.Errorf("got error %v", err)
		}
	})
}

func TestWithNonceSaysWhenTheMarkIsUnknown(t *testing.T) {
	story(t, Config{MarkTimeout: 3 * time.Second}, func(t *testing.T, _ *network, c *Client, p *peer) {
		began := time.Now()
		wait := withNonce(t.Context(), t, c, p, func(context.Context, Allocation) (string, error) { return "0xabc", nil })
		p.next(wire.MethodMarkUsed) // never answered
		_, err := wait()
		wantUnknown(t, err)
		if took := time.Since(began); took != 3*time.Second {
			t.Errorf("took %v, want MarkTimeout", took)
		}
	})
}

func TestWithNonceReturnsTheErrorOfAllocate(t *testing.T) {
	story(t, Config{}, func(t *testing.T, _ *network, c *Client, p *peer) {
		wait := later(func() (struct{}, error) { return struct{}{}, c.WithNonce(t.Context(), "s", nil) })
		p.refuse(p.next(wire.MethodAllocate), wire.CodeHoldLimit, "hold_limit", wire.ErrorData{Limit: 5})
		if _, err := wait(); !errors.Is(err, ErrHoldLimit) {
			t.Errorf("got error %v", err)
		}
	})
}

// Calling the client from inside the function cannot deadlock.
func TestWithNonceMayCallTheClient(t *testing.T) {
	story(t, Config{MaxInflight: 1}, func(t *testing.T, _ *network, c *Client, p *peer) {
		wait := withNonce(t.Context(), t, c, p, func(ctx context.Context, _ Allocation) (string, error) {
			_, err := c.Status(ctx, "s")
			return "0xabc", err
		})
		p.answer(p.next(wire.MethodStatus), wire.StatusResult{})
		p.answer(p.next(wire.MethodMarkUsed), wire.MarkResult{})
		if _, err := wait(); err != nil {
			t.Error(err)
		}
	})
}
