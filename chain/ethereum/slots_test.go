package ethereum

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"noncegate/chain"
	"noncegate/nonce"
)

const hostile, worker = nonce.Principal(1), nonce.Principal(2)

// slowCalls begins calls of a principal that the nodes answer when ctx ends, and returns when
// as many as may be under way are.
func (w *world) slowCalls(ctx context.Context, p nonce.Principal, n int) {
	for _, node := range w.nodes {
		node.On("eth_call", func(params []json.RawMessage) (any, error) {
			if len(params) > 0 && string(params[0]) == `"slow"` {
				<-ctx.Done()
			}
			return true, nil
		})
	}
	for range n {
		go func() {
			_, _, _ = w.Call(ForPrincipal(ctx, p), "eth_call", json.RawMessage(`["slow"]`))
		}()
	}
	synctest.Wait()
}

func TestSlowCallsOfOnePrincipalHoldUpNobodyElse(t *testing.T) {
	withNodes(2, func(cfg *Config) { cfg.Timeout = time.Minute }).run(t, func(t *testing.T, w *world) {
		slow, end := context.WithCancel(t.Context())
		defer end()
		w.slowCalls(slow, hostile, 300)
		if n := w.node(0).slots.foreign; n.Taken() == 0 || n.Waits() == 0 {
			t.Fatalf("%d slots are taken and %d calls wait, so that this shows nothing", n.Taken(), n.Waits())
		}
		begin := time.Now()
		ctx := ForPrincipal(t.Context(), worker)
		for range 20 {
			if got, refusal, err := w.Call(ctx, "eth_call", nil); string(got) != "true" {
				t.Errorf("another principal's call: %s, %v, %v", got, refusal, err)
			}
		}
		if _, err := w.Counts(t.Context(), w.Status().Head, fakeAccounts(3)); err != nil {
			t.Errorf("counts: %v", err)
		}
		if _, err := w.Start(ctx, fakeAccounts(1)); err != nil {
			t.Errorf("the first count of an account: %v", err)
		}
		w.answersAre("", "")
		if v := w.Send(ctx, rawTransfer); v.Class != chain.InPool {
			t.Errorf("a transaction: %+v", v)
		}
		if d := time.Since(begin); d > 0 {
			t.Errorf("all that took %v while the nodes answer others at once", d)
		}
		w.mine()
		w.wantHead(w.nodes[0].Head())
	})
}

func TestNinetyCallsAtOnceAreAllAnswered(t *testing.T) {
	withNodes(1).run(t, func(t *testing.T, w *world) {
		w.nodes[0].On("eth_call", func([]json.RawMessage) (any, error) { time.Sleep(time.Second); return true, nil })
		var all sync.WaitGroup
		for range 90 { // what viem, and ethers nearly, have in a batch
			all.Go(func() {
				if _, _, err := w.Call(ForPrincipal(t.Context(), worker), "eth_call", nil); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
	})
}

func TestAWaitForASlotIsBoundedInTimeAndNumber(t *testing.T) {
	withNodes(1, func(cfg *Config) { cfg.Timeout = time.Minute; cfg.MaxWaiting = 5 }).run(t, func(t *testing.T, w *world) {
		slow, end := context.WithCancel(t.Context())
		defer end()
		foreign := w.node(0).slots.foreign
		w.slowCalls(slow, 0, int(foreign.Capacity())+4)
		begin := time.Now()
		_, _, err := w.Call(t.Context(), "eth_call", nil)
		if !errors.Is(err, ErrBusy) || !errors.Is(err, errNoSlot) || time.Since(begin) != slotWait {
			t.Errorf("%v after %v, want ErrBusy after %v", err, time.Since(begin), slotWait)
		}
		w.slowCalls(slow, 0, 10)
		if _, _, err := w.Call(t.Context(), "eth_call", nil); !errors.Is(err, ErrBusy) {
			t.Errorf("one more than may wait: %v, want ErrBusy", err)
		}
	})
}
