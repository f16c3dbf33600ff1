package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"noncegate/internal/wsconn/wspeer"
	"noncegate/test/lab/expect"
	"noncegate/wire"
)

var errBoom = errors.New("boom")

// withNonce runs WithNonce and grants it nonce 4, attempt 2, for a minute.
func withNonce(ctx context.Context, t *testing.T, c *Client, p *peer, o NonceOptions, fn func(context.Context, *HeldNonce) (string, error)) func() (struct{}, error) {
	t.Helper()
	wait := later(func() (struct{}, error) { return struct{}{}, c.WithNonce(ctx, "s", o, fn) })
	p.Answer(p.Next(wire.MethodAllocate), wire.AllocateResult{Signer: "s", Nonce: 4, Attempt: 2, HoldMs: 60_000})
	return wait
}

// wantUnmarked asserts that the gateway is told nothing.
func wantUnmarked(t *testing.T, p *peer) {
	t.Helper()
	synctest.Wait()
	if len(p.Requests) != 0 {
		t.Error("the hold was marked")
	}
}

func TestWithNonceMarksUsedWithTheAttempt(t *testing.T) {
	story(t, Config{}, func(t *testing.T, _ *network, c *Client, p *peer) {
		ctx, cancel := context.WithCancel(t.Context())
		wait := withNonce(ctx, t, c, p, NonceOptions{}, func(ctx context.Context, n *HeldNonce) (string, error) {
			if d, ok := ctx.Deadline(); !ok || !d.Equal(n.Deadline) {
				t.Errorf("the context ends at %v, the hold at %v", d, n.Deadline)
			}
			cancel() // the caller goes; what was sent is marked all the same
			return "0xabc", nil
		})
		r := p.Next(wire.MethodMarkUsed)
		if got, want := wspeer.Decode[wire.MarkUsedParams](t, r), (wire.MarkUsedParams{Signer: "s", Nonce: 4, Attempt: 2, TxHash: "0xabc"}); got != want {
			t.Errorf("got mark %+v, want %+v", got, want)
		}
		p.Answer(r, wire.MarkResult{})
		finish(t, wait)
	})
}

func TestWithNoncePassesItsOptionsOn(t *testing.T) {
	story(t, Config{}, func(t *testing.T, _ *network, c *Client, p *peer) {
		o := NonceOptions{Hold: 5 * time.Second, RequestID: "payment", Guard: &wire.Guard{Key: "k"}, RecordFirst: true}
		wait := later(func() (struct{}, error) { return struct{}{}, c.WithNonce(t.Context(), "s", o, nil) })
		r := p.Next(wire.MethodAllocate)
		got := wspeer.Decode[wire.AllocateParams](t, r)
		if got.HoldMs != 5000 || got.RequestID != "payment" || got.Guard == nil || got.Guard.Key != "k" || !got.RecordFirst {
			t.Errorf("got params %s", r.Params)
		}
		p.Reject(r, wire.CodeHoldLimit, "hold_limit", wire.ErrorData{})
		if _, err := wait(); !errors.Is(err, ErrHoldLimit) {
			t.Errorf("got error %v", err)
		}
	})
}

// lastMark is what the gateway is told at the end, in a few words; "": nothing.
func lastMark(t *testing.T, p *peer) string {
	t.Helper()
	synctest.Wait()
	if len(p.Requests) == 0 {
		return ""
	}
	r := <-p.Requests
	var params struct {
		Nonce, Attempt int64
		TxHash, Reason string
		Unsent         bool
	}
	expect.Must(t, json.Unmarshal(r.Params, &params))
	p.Answer(r, wire.MarkResult{})
	return fmt.Sprintf("%s %d#%d %s%s %t", r.Method, params.Nonce, params.Attempt, params.TxHash, params.Reason, params.Unsent)
}

func TestWithNonceGivesBackOnlyWhatIsKnownNotToBeSent(t *testing.T) {
	unsent := fmt.Errorf("%w: %w", ErrNotSent, errBoom)
	const signs, fails = true, true
	for name, test := range map[string]struct {
		recordFirst, signs, fails bool // it calls Signed, which fails
		hash                      string
		err                       error
		mark                      string
	}{
		"used, and nobody knows the hash":            {false, false, false, "", nil, "nonce_markUsed 4#2  false"},
		"the hash that was recorded":                 {true, signs, false, "", nil, "nonce_markUsed 4#2 0x5 false"},
		"another hash than was recorded":             {true, signs, false, "0x7", nil, "nonce_markUsed 4#2 0x7 false"},
		"an error without a promise":                 {false, false, false, "", errBoom, ""},
		"an error after the hash":                    {false, signs, false, "", errBoom, ""},
		"an error before the hash, with the promise": {true, false, false, "", errBoom, "nonce_markRecyclable 4#2 handler_error false"},
		"an error after the hash, with the promise":  {true, signs, false, "", errBoom, ""},
		"a context that was cancelled":               {false, false, false, "", context.Canceled, ""},
		"a hash that could not be recorded":          {true, signs, fails, "", errBoom, ""},
		"not sent":                                   {false, false, false, "", unsent, "nonce_markRecyclable 4#2 handler_error false"},
		"not sent, though the hash was recorded":     {true, signs, false, "", unsent, "nonce_markRecyclable 4#2 handler_error true"},
		"a call that was not sent is another thing":  {false, false, false, "", &NotSentError{Err: errBoom}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			story(t, Config{}, func(t *testing.T, _ *network, c *Client, p *peer) {
				wait := withNonce(t.Context(), t, c, p, NonceOptions{RecordFirst: test.recordFirst}, func(ctx context.Context, n *HeldNonce) (string, error) {
					if !test.signs {
						return test.hash, test.err
					}
					if err := n.Signed(ctx, "0x5"); (err != nil) != test.fails {
						t.Errorf("got %v", err)
					}
					return test.hash, test.err
				})
				if test.signs {
					r := p.Next(wire.MethodMarkSigned)
					if got, want := wspeer.Decode[wire.MarkSignedParams](t, r), (wire.MarkSignedParams{Signer: "s", Nonce: 4, Attempt: 2, TxHash: "0x5"}); got != want {
						t.Errorf("got %+v, want %+v", got, want)
					}
					if test.fails {
						p.Reject(r, wire.CodeConflict, "conflict", wire.ErrorData{})
					} else {
						p.Answer(r, wire.MarkResult{})
					}
				}
				if got := lastMark(t, p); got != test.mark {
					t.Errorf("the gateway was told %q, want %q", got, test.mark)
				}
				if _, err := wait(); !errors.Is(err, test.err) {
					t.Errorf("got error %v, want %v", err, test.err)
				}
			})
		})
	}
}

func TestWithNonceSaysWhenTheNonceCouldNotBeGivenBack(t *testing.T) {
	story(t, Config{}, func(t *testing.T, _ *network, c *Client, p *peer) {
		fail := func(context.Context, *HeldNonce) (string, error) {
			return "", fmt.Errorf("%w: %w", ErrNotSent, errBoom)
		}
		wait := withNonce(t.Context(), t, c, p, NonceOptions{}, fail)
		p.Reject(p.Next(wire.MethodMarkRecyclable), wire.CodeConflict, "conflict", wire.ErrorData{})
		if _, err := wait(); !errors.Is(err, errBoom) || !errors.Is(err, ErrConflict) {
			t.Errorf("got error %v, want both", err)
		}
	})
}

func TestWithNoncePassesAPanicOnAndLeavesTheHold(t *testing.T) {
	for _, o := range []NonceOptions{{}, {RecordFirst: true}} {
		story(t, Config{}, func(t *testing.T, _ *network, c *Client, p *peer) {
			panicked := make(chan any)
			go func() {
				defer func() { panicked <- recover() }()
				c.WithNonce(t.Context(), "s", o, func(context.Context, *HeldNonce) (string, error) { panic(errBoom) })
			}()
			p.Answer(p.Next(wire.MethodAllocate), held(4))
			if got := <-panicked; got != errBoom {
				t.Errorf("recovered %v", got)
			}
			wantUnmarked(t, p)
		})
	}
}

func TestWithNonceEndsTheContextWithTheHold(t *testing.T) {
	story(t, Config{}, func(t *testing.T, _ *network, c *Client, p *peer) {
		wait := withNonce(t.Context(), t, c, p, NonceOptions{}, func(ctx context.Context, _ *HeldNonce) (string, error) {
			began := time.Now()
			<-ctx.Done()
			if took := time.Since(began); took != time.Minute {
				t.Errorf("the context ended after %v, the hold is a minute", took)
			}
			return "", context.Cause(ctx)
		})
		if _, err := wait(); !errors.Is(err, ErrHoldEnded) {
			t.Errorf("got error %v", err)
		}
		wantUnmarked(t, p) // it may be on its way
	})
}

func TestWithNonceDoesNotBeginWhenTheHoldIsOver(t *testing.T) {
	for o, back := range map[NonceOptions]bool{
		{}:                                  true,
		{RequestID: "r"}:                    false, // a call before this one may have sent with it
		{RequestID: "r", RecordFirst: true}: true,  // the gateway knows better
	} {
		story(t, Config{}, func(t *testing.T, _ *network, c *Client, p *peer) {
			wait := later(func() (struct{}, error) {
				return struct{}{}, c.WithNonce(t.Context(), "s", o, func(context.Context, *HeldNonce) (string, error) {
					t.Error("called without a hold")
					return "", nil
				})
			})
			r := p.Next(wire.MethodAllocate)
			time.Sleep(2 * time.Second)
			p.Answer(r, wire.AllocateResult{Signer: "s", Nonce: 4, Attempt: 2, HoldMs: 1000})
			if got := lastMark(t, p); (got != "") != back {
				t.Errorf("%+v: the gateway was told %q", o, got)
			}
			if _, err := wait(); !errors.Is(err, ErrHoldEnded) {
				t.Errorf("got error %v", err)
			}
		})
	}
}

func TestWithNonceSaysWhenTheMarkIsUnknown(t *testing.T) {
	story(t, Config{MarkTimeout: 3 * time.Second}, func(t *testing.T, _ *network, c *Client, p *peer) {
		began := time.Now()
		wait := withNonce(t.Context(), t, c, p, NonceOptions{}, func(context.Context, *HeldNonce) (string, error) { return "0xabc", nil })
		p.Next(wire.MethodMarkUsed) // never answered
		_, err := wait()
		wantUnknown(t, err)
		if took := time.Since(began); took != 3*time.Second {
			t.Errorf("took %v, want MarkTimeout", took)
		}
	})
}

// Calling the client from inside the function cannot deadlock.
func TestWithNonceMayCallTheClient(t *testing.T) {
	story(t, Config{MaxInflight: 1}, func(t *testing.T, _ *network, c *Client, p *peer) {
		wait := withNonce(t.Context(), t, c, p, NonceOptions{}, func(ctx context.Context, _ *HeldNonce) (string, error) {
			_, err := c.Status(ctx, "s")
			return "0xabc", err
		})
		p.Answer(p.Next(wire.MethodStatus), wire.StatusResult{})
		p.Answer(p.Next(wire.MethodMarkUsed), wire.MarkResult{})
		finish(t, wait)
	})
}
