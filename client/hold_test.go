package client

import (
	"context"
	"errors"
	"testing"
	"time"

	"noncegate/wire"
)

func TestMarksExtensionsAndRepairsSayWhatTheirCallerSaid(t *testing.T) {
	h, none := Hold{"s", 4, 2}, int64(0)
	for want, call := range map[string]func(context.Context, *Client) error{
		`nonce_markUsed {"signer":"s","nonce":4,"txHash":"0x1","attempt":2,"guard":{"key":"k","intervalMs":500,"keep":true}}`: func(ctx context.Context, c *Client) error {
			_, err := c.MarkUsed(ctx, h, "0x1", WithGuard(wire.Guard{Key: "k", IntervalMs: 500, Keep: true}))
			return err
		},
		`nonce_markRecyclable {"signer":"s","nonce":4,"reason":"why","attempt":2,"guard":{"key":"k"}}`: func(ctx context.Context, c *Client) error {
			_, err := c.MarkRecyclable(ctx, h, "why", WithGuard(wire.Guard{Key: "k"}))
			return err
		},
		`nonce_markUsed {"signer":"s","nonce":4,"attempt":2}`: func(ctx context.Context, c *Client) error {
			_, err := c.MarkUsed(ctx, h, "")
			return err
		},
		`nonce_markSigned {"signer":"s","nonce":4,"txHash":"0x1","attempt":2,"guard":{"key":"k"}}`: func(ctx context.Context, c *Client) error {
			_, err := c.MarkSigned(ctx, h, "0x1", WithGuard(wire.Guard{Key: "k"}))
			return err
		},
		`nonce_markRecyclable {"signer":"s","nonce":4,"attempt":2,"unsent":true}`: func(ctx context.Context, c *Client) error {
			_, err := c.MarkRecyclable(ctx, h, "", Unsent())
			return err
		},
		`nonce_extend {"signer":"s","nonce":4,"holdMs":1500,"attempt":2}`: func(ctx context.Context, c *Client) error {
			_, err := c.Extend(ctx, h, 1500*time.Millisecond)
			return err
		},
		`nonce_repair {"signer":"s","requestId":"r"}`: func(ctx context.Context, c *Client) error {
			_, err := c.Repair(ctx, RepairRequest{Signer: "s", RequestID: "r"})
			return err
		},
		`nonce_repair {"signer":"s","nonce":0,"holdMs":2000,"requestId":"r"}`: func(ctx context.Context, c *Client) error {
			_, err := c.Repair(ctx, RepairRequest{Signer: "s", Nonce: &none, Hold: 2 * time.Second, RequestID: "r"})
			return err
		},
	} {
		story(t, Config{}, func(t *testing.T, _ *network, c *Client, p *peer) {
			wait := later(func() (struct{}, error) { return struct{}{}, call(t.Context(), c) })
			r := <-p.Requests
			if got := r.Method + " " + string(r.Params); got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
			p.Answer(r, wire.MarkResult{})
			finish(t, wait)
		})
	}
}

func TestExtensionsAndRepairsCountTheirDeadlineFromSending(t *testing.T) {
	story(t, Config{}, func(t *testing.T, _ *network, c *Client, p *peer) {
		sent := time.Now()
		extended := later(func() (Extension, error) { return c.Extend(t.Context(), Hold{"s", 4, 2}, time.Minute) })
		r := p.Next(wire.MethodExtend)
		time.Sleep(time.Second) // fake: the gateway takes its time
		p.Answer(r, wire.ExtendResult{Signer: "s", Nonce: 4, Attempt: 2, HoldMs: 60_000})
		if e, err := extended(); err != nil || e.Deadline.Sub(sent) != time.Minute {
			t.Errorf("got %+v, %v", e, err)
		}
		sent = time.Now()
		repaired := later(func() (Repair, error) { return c.Repair(t.Context(), RepairRequest{Signer: "s"}) })
		r = p.Next(wire.MethodRepair)
		time.Sleep(time.Second)
		p.Answer(r, wire.RepairResult{Signer: "s", Nonce: 3, Attempt: 5, HoldMs: 9000, Was: &wire.Was{Status: wire.StatusUnknown, Attempt: 4}})
		if got, err := repaired(); err != nil || got.Deadline.Sub(sent) != 9*time.Second || got.Hold() != (Hold{"s", 3, 5}) || got.Was.Attempt != 4 {
			t.Errorf("got %+v, %v", got, err)
		}
	})
}

func TestARepairIsRepeatedWithItsRequestIDAndNotWithoutOne(t *testing.T) {
	story(t, Config{}, func(t *testing.T, n *network, c *Client, p *peer) {
		wait := later(func() (Repair, error) { return c.Repair(t.Context(), RepairRequest{Signer: "s"}) })
		first := p.Next(wire.MethodRepair)
		p.Cut()
		p = <-n.Host("a").Peers
		again := p.Next(wire.MethodRepair)
		if id := requestID(t, first); id == "" || requestID(t, again) != id {
			t.Errorf("repeated with the request id %q, first was %q", requestID(t, again), id)
		}
		p.Answer(again, wire.RepairResult{Signer: "s", Nonce: 3, Attempt: 5})
		if r, err := wait(); err != nil || r.Was != nil || r.RequestID != requestID(t, first) {
			t.Errorf("got %+v, %v", r, err)
		}
	})
	story(t, Config{NoRequestIDs: true}, func(t *testing.T, _ *network, c *Client, p *peer) {
		wait := later(func() (Repair, error) { return c.Repair(t.Context(), RepairRequest{Signer: "s"}) })
		busy(p, p.Next(wire.MethodRepair), 0) // nothing happened, and it is tried again
		p.Next(wire.MethodRepair)
		p.Cut() // a second repair would hand the nonce out once more
		_, err := wait()
		wantUnknown(t, err)
	})
}

func TestAWindowIsAHoldLimitWithTheLowestNonce(t *testing.T) {
	for cause, window := range map[string]bool{"": false, "other": false, wire.CauseWindow: true} {
		story(t, Config{}, func(t *testing.T, _ *network, c *Client, p *peer) {
			wait := allocate(t, c, AllocateRequest{})
			lowest := int64(7)
			p.Reject(p.Next(wire.MethodAllocate), wire.CodeHoldLimit, "hold_limit", wire.ErrorData{Cause: cause, Nonce: &lowest, Limit: 16})
			_, err := wait()
			if !errors.Is(err, ErrHoldLimit) || errors.Is(err, ErrWindow) != window {
				t.Errorf("cause %q: got %v", cause, err)
			}
			if e, ok := errors.AsType[*wire.Error](err); !ok || *e.Data.Nonce != 7 || e.Data.Limit != 16 {
				t.Errorf("error %v has no data", err)
			}
		})
	}
}
