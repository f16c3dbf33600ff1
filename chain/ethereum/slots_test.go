package ethereum

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"noncegate/chain"
	"noncegate/nonce"
	"noncegate/test/lab/fakenode"
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
		if !errors.Is(err, ErrBusy) || !errors.Is(err, errNoSlot) || time.Since(begin) != w.set.SlotWait {
			t.Errorf("%v after %v, want ErrBusy after %v", err, time.Since(begin), w.set.SlotWait)
		}
		w.slowCalls(slow, 0, 10)
		if _, _, err := w.Call(t.Context(), "eth_call", nil); !errors.Is(err, ErrBusy) {
			t.Errorf("one more than may wait: %v, want ErrBusy", err)
		}
	})
}

func TestTheReasonOfARevertIsNoWishForFewerRequests(t *testing.T) {
	withNodes(2).run(t, func(t *testing.T, w *world) {
		reverted := &fakenode.Error{Code: 3, Message: "execution reverted: monthly quota used up, too many requests", Data: json.RawMessage(`"0x08c379a0"`)}
		for _, n := range w.nodes {
			n.On("eth_call", func([]json.RawMessage) (any, error) { return nil, reverted })
		}
		for range 200 {
			_, got, err := w.Call(t.Context(), "eth_call", nil)
			if err != nil || got == nil || got.Message != reverted.Message {
				t.Fatalf("%v, %v; want the revert", got, err)
			}
		}
		for i := range w.nodes {
			if !w.node(i).takesOthers() || w.node(i).paused(useCounts) {
				t.Errorf("node %d is left alone", i)
			}
		}
	})
}

func TestALimitForCallsOfOthersStopsThoseAloneAtThatNodeAlone(t *testing.T) {
	limited := map[string]func(n *fakenode.Node){
		"status": func(n *fakenode.Node) {
			n.OnHTTP(func(w http.ResponseWriter, _ *http.Request, body []byte) bool {
				if !strings.Contains(string(body), "eth_call") {
					return false
				}
				w.Header().Set("Retry-After", "20")
				http.Error(w, "slow down", http.StatusTooManyRequests)
				return true
			})
		},
		"code": func(n *fakenode.Node) {
			n.On("eth_call", func([]json.RawMessage) (any, error) {
				return nil, &fakenode.Error{Code: 429, Message: "Your app has exceeded its compute units per second capacity."}
			})
		},
	}
	for name, limit := range limited {
		t.Run(name, func(t *testing.T) {
			withNodes(2).run(t, func(t *testing.T, w *world) {
				w.named()
				limit(w.nodes[0])
				if got, refusal, err := w.Call(t.Context(), "eth_call", nil); string(got) != `"b"` {
					t.Errorf("%s, %v, %v; want the answer of the other node", got, refusal, err)
				}
				if w.node(0).takesOthers() || w.node(0).paused(useCounts) || !w.node(1).takesOthers() {
					t.Error("the limit of calls of others is not what it is for")
				}
				counted := w.nodes[0].Calls(methodCount)
				if _, err := w.Counts(t.Context(), w.Status().Head, fakeAccounts(1)); err != nil || w.nodes[0].Calls(methodCount) == counted {
					t.Errorf("counts: %v, asked %d times", err, w.nodes[0].Calls(methodCount)-counted)
				}
				limit(w.nodes[1])
				if _, _, err := w.Call(t.Context(), "eth_call", nil); !errors.Is(err, ErrBusy) {
					t.Errorf("with every node limited: %v, want ErrBusy", err)
				}
				asked := w.nodes[0].Calls("eth_call") + w.nodes[1].Calls("eth_call")
				if _, _, err := w.Call(t.Context(), "eth_call", nil); !errors.Is(err, ErrBusy) {
					t.Errorf("during the pause: %v, want ErrBusy", err)
				}
				if n := w.nodes[0].Calls("eth_call") + w.nodes[1].Calls("eth_call"); n != asked {
					t.Errorf("the nodes were asked %d times during the pause", n-asked)
				}
				w.mine()
				w.wantHead(w.nodes[0].Head())
				for i, n := range w.nodes {
					n.OnHTTP(nil)
					n.On("eth_call", func([]json.RawMessage) (any, error) { return fmt.Sprint(i), nil })
				}
				time.Sleep(30 * time.Second)
				if _, _, err := w.Call(t.Context(), "eth_call", nil); err != nil {
					t.Errorf("after the pause: %v", err)
				}
			})
		})
	}
}
