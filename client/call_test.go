package client

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"noncegate/test/lab/expect"
	"noncegate/wire"
)

func TestAllocateIsAnsweredWithItsDeadlineCountedFromSending(t *testing.T) {
	story(t, Config{}, func(t *testing.T, _ *network, c *Client, p *peer) {
		sent := time.Now()
		wait := allocate(t, c, AllocateRequest{Count: 2, Hold: 5 * time.Second, Guard: &wire.Guard{Key: "k", Keep: true}})
		r := p.Next(wire.MethodAllocate)
		var params map[string]any
		json.Unmarshal(r.Params, &params)
		if params["count"] != 2.0 || params["holdMs"] != 5000.0 || params["guard"].(map[string]any)["keep"] != true {
			t.Errorf("got params %s", r.Params)
		}
		time.Sleep(time.Second) // fake: the gateway takes its time
		p.Send(`{"jsonrpc":"2.0","id":%s,"result":{"signer":"s","nonce":4,"attempt":2,"fencingToken":7,`+
			`"heldUntil":"2026-11-20T18:33:56.123Z","holdMs":4500,"nonces":[{"nonce":4,"attempt":2},{"nonce":9,"attempt":1}]}}`, r.ID)
		a, err := wait()
		expect.Must(t, err)
		if got, want := a.Deadline.Sub(sent), 4500*time.Millisecond; got != want {
			t.Errorf("deadline %v after sending, want %v", got, want)
		}
		if a.RequestID == "" || a.RequestID != requestID(t, r) {
			t.Errorf("got request id %q, sent was %q", a.RequestID, requestID(t, r))
		}
		holds := a.Holds()
		if len(holds) != 2 || holds[0] != (Hold{"s", 4, 2}) || holds[1] != (Hold{"s", 9, 1}) {
			t.Errorf("got holds %v", holds)
		}
	})
}

func TestRefusalsThatPassAreRepeatedWithTheSameRequestID(t *testing.T) {
	passing := map[string]struct {
		code int
		data wire.ErrorData
	}{
		"server_busy": {wire.CodeServerBusy, wire.ErrorData{}},
		"fenced":      {wire.CodeFenced, wire.ErrorData{}},
		"not_owner":   {wire.CodeNotOwner, wire.ErrorData{}},
		"unavailable": {wire.CodeUnavailable, wire.ErrorData{Outcome: wire.OutcomeNone}},
		"hold_limit":  {wire.CodeHoldLimit, wire.ErrorData{Cause: wire.CauseWindow, RetryAfterMs: 4000}}, // until the chain has moved on
	}
	for reason, refusal := range passing {
		for _, without := range []bool{false, true} {
			story(t, Config{NoRequestIDs: without}, func(t *testing.T, _ *network, c *Client, p *peer) {
				wait := allocate(t, c, AllocateRequest{})
				first := p.Next(wire.MethodAllocate)
				p.Reject(first, refusal.code, reason, refusal.data)
				second := p.Next(wire.MethodAllocate)
				if got, want := requestID(t, second), requestID(t, first); got != want || (got == "") != without {
					t.Errorf("%s: repeated with request id %q, first was %q", reason, got, want)
				}
				p.Answer(second, held(3))
				if a, err := wait(); err != nil || a.Nonce != 3 {
					t.Errorf("%s: got %v, %v", reason, a, err)
				}
			})
		}
	}
}

func TestRefusalsThatStayAreReturnedAtOnce(t *testing.T) {
	for code, sentinel := range reasons {
		if (&history{}).passes(&refusal{reason: sentinel, wire: &wire.Error{Code: code}}) {
			continue
		}
		story(t, Config{}, func(t *testing.T, _ *network, c *Client, p *peer) {
			wait := allocate(t, c, AllocateRequest{})
			nonce := int64(5)
			p.Reject(p.Next(wire.MethodAllocate), code, sentinel.Error(), wire.ErrorData{Nonce: &nonce})
			_, err := wait()
			if !errors.Is(err, sentinel) {
				t.Errorf("got error %v, want %v", err, sentinel)
			}
			if e, ok := errors.AsType[*wire.Error](err); !ok || *e.Data.Nonce != 5 {
				t.Errorf("error %v has no data", err)
			}
			if _, ok := errors.AsType[*UnknownOutcomeError](err); ok {
				t.Errorf("%v is unknown", err)
			}
		})
	}
}

func TestRetryAfterIsObeyed(t *testing.T) {
	story(t, Config{}, func(t *testing.T, _ *network, c *Client, p *peer) {
		wait := allocate(t, c, AllocateRequest{})
		busy(p, p.Next(wire.MethodAllocate), 4000)
		refused := time.Now()
		r := p.Next(wire.MethodAllocate)
		if pause := time.Since(refused); pause < 4*time.Second || pause > 5*time.Second+time.Millisecond {
			t.Errorf("came back after %v, asked was 4 s", pause)
		}
		p.Answer(r, held(1))
		wait()
	})
}

func TestPausesGrowAndAreSpread(t *testing.T) {
	story(t, Config{BackoffMin: 100 * time.Millisecond, RetryMax: 400 * time.Millisecond}, func(t *testing.T, _ *network, c *Client, p *peer) {
		wait := allocate(t, c, AllocateRequest{})
		r := p.Next(wire.MethodAllocate)
		for _, base := range []time.Duration{100, 200, 400, 400} {
			busy(p, r, 0)
			refused := time.Now()
			r = p.Next(wire.MethodAllocate)
			base *= time.Millisecond
			if pause := time.Since(refused); pause < base/2 || pause > base*3/2+1 {
				t.Errorf("pause %v, want %v give or take a half", pause, base)
			}
		}
		p.Answer(r, held(1))
		wait()
	})
}

func TestMaxElapsedEndsTheTriesAndSaysThatNothingHappened(t *testing.T) {
	story(t, Config{MaxElapsed: 3 * time.Second}, func(t *testing.T, _ *network, c *Client, p *peer) {
		began := time.Now()
		wait := allocate(t, c, AllocateRequest{})
		go func() {
			for r := range p.Requests {
				busy(p, r, 0)
			}
		}()
		_, err := wait()
		if !errors.Is(err, ErrServerBusy) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got error %v, want busy and out of time", err)
		}
		if _, ok := errors.AsType[*UnknownOutcomeError](err); ok {
			t.Errorf("%v is unknown", err)
		}
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("took %v", took)
		}
	})
}

func TestAPauseLongerThanTheTimeLeftIsNotWaitedFor(t *testing.T) {
	story(t, Config{MaxElapsed: 3 * time.Second}, func(t *testing.T, _ *network, c *Client, p *peer) {
		began := time.Now()
		wait := allocate(t, c, AllocateRequest{})
		busy(p, p.Next(wire.MethodAllocate), 10_000)
		if _, err := wait(); !errors.Is(err, ErrServerBusy) || time.Since(began) != 0 {
			t.Errorf("got error %v after %v", err, time.Since(began))
		}
	})
}

func TestALostAnswerIsAskedForAgainOnTheNextConnection(t *testing.T) {
	story(t, Config{}, func(t *testing.T, n *network, c *Client, p *peer) {
		wait := allocate(t, c, AllocateRequest{})
		first := p.Next(wire.MethodAllocate)
		p.Cut()
		p = <-n.Host("a").Peers
		second := p.Next(wire.MethodAllocate)
		if requestID(t, first) != requestID(t, second) {
			t.Errorf("request ids %q and %q", requestID(t, first), requestID(t, second))
		}
		again := time.Now()
		p.Answer(second, held(8))
		a, err := wait()
		if err != nil || a.Nonce != 8 {
			t.Fatalf("got %v, %v", a, err)
		}
		if got := a.Deadline.Sub(again); got != time.Minute {
			t.Errorf("deadline %v after the try that was answered, want the hold", got)
		}
	})
}

// Once a try is unknown, no refusal but conflict may hide it.
func TestRefusalsAfterALostAnswerDoNotSettleIt(t *testing.T) {
	nothing := map[string]int{
		"server_busy": wire.CodeServerBusy, "fenced": wire.CodeFenced,
		"not_found": wire.CodeNotFound, "hold_limit": wire.CodeHoldLimit, "duplicate_submit": wire.CodeDuplicateSubmit,
	}
	for reason, code := range nothing {
		story(t, Config{MaxElapsed: 5 * time.Second}, func(t *testing.T, n *network, c *Client, p *peer) {
			wait := allocate(t, c, AllocateRequest{RequestID: "mine"})
			p.Next(wire.MethodAllocate)
			p.Cut()
			p = <-n.Host("a").Peers
			go func() {
				for r := range p.Requests {
					p.Reject(r, code, reason, wire.ErrorData{})
				}
			}()
			_, err := wait()
			u := wantUnknown(t, err)
			if u.RequestID != "mine" || u.Last == nil || !errors.Is(u.Last, reasons[code]) {
				t.Errorf("%s: got %+v", reason, u)
			}
			if errors.Is(err, reasons[code]) || !errors.Is(err, ErrConnectionLost) {
				t.Errorf("%s: error %v matches a refusal that settles nothing", reason, err)
			}
		})
	}
}

func TestConflictSettlesALostAnswer(t *testing.T) {
	story(t, Config{}, func(t *testing.T, n *network, c *Client, p *peer) {
		wait := allocate(t, c, AllocateRequest{})
		p.Next(wire.MethodAllocate)
		p.Cut()
		p = <-n.Host("a").Peers
		p.Reject(p.Next(wire.MethodAllocate), wire.CodeConflict, "conflict",
			wire.ErrorData{Nonces: []wire.HoldState{{Nonce: 4, Attempt: 1, Status: wire.StatusReleased}}})
		_, err := wait()
		if _, ok := errors.AsType[*UnknownOutcomeError](err); ok || !errors.Is(err, ErrConflict) {
			t.Fatalf("got error %v, want a conflict", err)
		}
		if e, _ := errors.AsType[*wire.Error](err); e.Data.Nonces[0].Nonce != 4 {
			t.Errorf("got data %+v", e.Data)
		}
	})
}

func TestDuplicateSubmitOfTheLostTryIsWaitedFor(t *testing.T) {
	story(t, Config{}, func(t *testing.T, n *network, c *Client, p *peer) {
		wait := allocate(t, c, AllocateRequest{Guard: &wire.Guard{Key: "k"}})
		p.Next(wire.MethodAllocate)
		p.Cut()
		p = <-n.Host("a").Peers
		p.Reject(p.Next(wire.MethodAllocate), wire.CodeDuplicateSubmit, "duplicate_submit", wire.ErrorData{RetryAfterMs: 500})
		p.Answer(p.Next(wire.MethodAllocate), held(2))
		if a, err := wait(); err != nil || a.Nonce != 2 {
			t.Errorf("got %v, %v", a, err)
		}
	})
}

func TestUnavailableWithUnknownOutcomeIsRepeatedOnlyWithARequestID(t *testing.T) {
	unknown := wire.ErrorData{Outcome: wire.OutcomeUnknown}
	story(t, Config{}, func(t *testing.T, _ *network, c *Client, p *peer) {
		wait := allocate(t, c, AllocateRequest{})
		p.Reject(p.Next(wire.MethodAllocate), wire.CodeUnavailable, "unavailable", unknown)
		busy(p, p.Next(wire.MethodAllocate), 0)
		p.Answer(p.Next(wire.MethodAllocate), held(2))
		if a, err := wait(); err != nil || a.Nonce != 2 {
			t.Errorf("got %v, %v", a, err)
		}
	})
	story(t, Config{NoRequestIDs: true}, func(t *testing.T, _ *network, c *Client, p *peer) {
		wait := allocate(t, c, AllocateRequest{})
		p.Reject(p.Next(wire.MethodAllocate), wire.CodeUnavailable, "unavailable", unknown)
		_, err := wait()
		if u := wantUnknown(t, err); u.RequestID != "" || !errors.Is(err, ErrUnavailable) {
			t.Errorf("got %+v", u)
		}
	})
}

func TestWithoutRequestIDALostAnswerIsUnknownAndNotRepeated(t *testing.T) {
	story(t, Config{NoRequestIDs: true}, func(t *testing.T, n *network, c *Client, p *peer) {
		wait := allocate(t, c, AllocateRequest{})
		p.Next(wire.MethodAllocate)
		p.Cut()
		_, err := wait()
		wantUnknown(t, err)
		p = <-n.Host("a").Peers
		synctest.Wait()
		if len(p.Requests) != 0 {
			t.Error("it was repeated")
		}
	})
}

func TestALostAnswerDoesNotHideTheRefusalBefore(t *testing.T) {
	story(t, Config{NoRequestIDs: true}, func(t *testing.T, n *network, c *Client, p *peer) {
		wait := allocate(t, c, AllocateRequest{})
		p.Reject(p.Next(wire.MethodAllocate), wire.CodeUnavailable, "unavailable", wire.ErrorData{Outcome: wire.OutcomeNone})
		p.Next(wire.MethodAllocate)
		p.Cut()
		_, err := wait()
		if wantUnknown(t, err); errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "the try before was told: unavailable") {
			t.Errorf("got %v", err)
		}
	})
}

func TestMarksFloorsAndReadsAreRepeated(t *testing.T) {
	calls := map[string]func(ctx context.Context, c *Client) error{
		wire.MethodMarkUsed: func(ctx context.Context, c *Client) error {
			_, err := c.MarkUsed(ctx, Hold{"s", 1, 1}, "0x1")
			return err
		},
		wire.MethodMarkRecyclable: func(ctx context.Context, c *Client) error {
			_, err := c.MarkRecyclable(ctx, Hold{"s", 1, 1}, "")
			return err
		},
		wire.MethodSetFloor: func(ctx context.Context, c *Client) error { _, err := c.SetFloor(ctx, "s", 9); return err },
		wire.MethodStatus:   func(ctx context.Context, c *Client) error { _, err := c.Status(ctx, "s"); return err },
		wire.MethodList: func(ctx context.Context, c *Client) error {
			_, err := c.List(ctx, wire.ListParams{Signer: "s"})
			return err
		},
		wire.MethodInfo:  func(ctx context.Context, c *Client) error { _, err := c.Info(ctx); return err },
		wire.MethodStats: func(ctx context.Context, c *Client) error { _, err := c.Stats(ctx); return err },
	}
	for method, call := range calls {
		story(t, Config{}, func(t *testing.T, n *network, c *Client, p *peer) {
			wait := later(func() (struct{}, error) { return struct{}{}, call(t.Context(), c) })
			first := p.Next(method)
			p.Cut()
			p = <-n.Host("a").Peers
			second := p.Next(method)
			if string(first.Params) != string(second.Params) {
				t.Errorf("%s: repeated with %s, first was %s", method, second.Params, first.Params)
			}
			p.Answer(second, struct{}{})
			if _, err := wait(); err != nil {
				t.Errorf("%s: %v", method, err)
			}
		})
	}
}

func TestAReadIsNeverUnknown(t *testing.T) {
	story(t, Config{MaxElapsed: time.Second}, func(t *testing.T, _ *network, c *Client, p *peer) {
		_, err := c.Status(t.Context(), "s") // never answered
		if _, ok := errors.AsType[*UnknownOutcomeError](err); ok || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got error %v", err)
		}
	})
}

func TestCallDecodesAndDoesNotRepeatWhatItDoesNotKnow(t *testing.T) {
	story(t, Config{}, func(t *testing.T, n *network, c *Client, p *peer) {
		var result struct {
			Nonce int64 `json:"nonce"`
		}
		params := []any{"s"}
		wait := later(func() (int64, error) {
			err := c.Call(t.Context(), wire.MethodAllocate, params, &result)
			return result.Nonce, err
		})
		r := p.Next(wire.MethodAllocate)
		if string(r.Params) != `["s"]` {
			t.Errorf("got params %s", r.Params)
		}
		p.Answer(r, held(6))
		if nonce, err := wait(); err != nil || nonce != 6 {
			t.Errorf("got %d, %v", nonce, err)
		}
		wait = later(func() (int64, error) { return 0, c.Call(t.Context(), "x_write", nil, nil) })
		p.Next("x_write")
		p.Cut()
		_, err := wait()
		wantUnknown(t, err)
		if err := c.Call(t.Context(), wire.MethodSubscribe, nil, nil); err == nil {
			t.Error("Call subscribed")
		}
		err = c.Call(t.Context(), "x_write", make(chan int), nil)
		if _, ok := errors.AsType[*NotSentError](err); !ok {
			t.Errorf("got error %v for what JSON cannot say", err)
		}
	})
}

func TestAResultThatCannotBeReadIsNoRefusal(t *testing.T) {
	story(t, Config{}, func(t *testing.T, _ *network, c *Client, p *peer) {
		wait := allocate(t, c, AllocateRequest{})
		p.Answer(p.Next(wire.MethodAllocate), "what?")
		_, err := wait()
		wantUnknown(t, err)
	})
}
