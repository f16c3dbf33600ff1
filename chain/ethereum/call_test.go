package ethereum

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"noncegate/chain/ethereum/internal/jsonrpc"
)

func TestACallWithoutNodesOrTimeSaysSo(t *testing.T) {
	withNodes(1).prepare(t, func(t *testing.T, w *world) {
		if _, _, err := w.Call(t.Context(), "eth_call", nil); !isUnreachable(err) || !errors.Is(err, ErrClosed) {
			t.Errorf("before Run: %v, want ErrUnreachable and ErrClosed", err)
		}
		w.run()
		block := make(chan struct{})
		defer close(block)
		w.nodes[0].On("eth_call", func([]json.RawMessage) (any, error) { <-block; return nil, nil })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, _, err := w.Call(ctx, "eth_call", nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v, want the deadline", err)
		}
		w.nodes[0].OnHTTP(status(500))
		time.Sleep(blockTime)
		if _, _, err := w.Call(t.Context(), "eth_call", nil); !isUnreachable(err) {
			t.Errorf("%v, want ErrUnreachable", err)
		}
	})
}

func TestSubscriptionsBeyondTheirNumberAreRefused(t *testing.T) {
	withNodes(1, overWebSocket).run(t, func(t *testing.T, w *world) {
		for range MaxSubscriptions {
			w.subs <- struct{}{}
		}
		if _, _, err := w.Subscribe(t.Context(), json.RawMessage(`["logs"]`), nil, nil); !errors.Is(err, ErrBusy) {
			t.Errorf("%v, want ErrBusy", err)
		}
		for range MaxSubscriptions {
			<-w.subs
		}
	})
}

// mistaken is a node whose client has a mistake in it.
type mistaken struct{ jsonrpc.Node }

func (mistaken) Do(context.Context, uint64, []*jsonrpc.Call, int64) { panic("a mistake") }
func (mistaken) Subscribe(context.Context, uint64, json.RawMessage, func(json.RawMessage), func(error)) (
	*jsonrpc.Subscription, *jsonrpc.Error, error,
) {
	panic("a mistake")
}

func TestAMistakeGivesThePlacesOfItsCallBack(t *testing.T) {
	withNodes(1, overWebSocket).run(t, func(t *testing.T, w *world) {
		n := w.node(0)
		sound := n.link
		n.link = mistaken{sound}
		slip := func(do func()) {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			do()
		}
		slip(func() { _, _, _ = w.Call(t.Context(), "eth_call", nil) })
		slip(func() { _, _, _ = w.Subscribe(t.Context(), json.RawMessage(`["logs"]`), nil, nil) })
		n.link = sound
		if n.slots.foreign.Taken() != 0 || len(w.subs) != 0 {
			t.Errorf("%d slots at the node and %d subscriptions are taken, want none", n.slots.foreign.Taken(), len(w.subs))
		}
		w.stop() // which waits for what was begun
	})
}

func TestTheEndOfRunEndsSubscriptionsAndWaitsForTheirConsumers(t *testing.T) {
	withNodes(1, overWebSocket).run(t, func(t *testing.T, w *world) {
		reasons := make(chan error, 1)
		_, _, err := w.Subscribe(t.Context(), json.RawMessage(`["newHeads"]`), func(json.RawMessage) {}, func(err error) {
			time.Sleep(time.Second) // of the bubble
			reasons <- err
		})
		must(t, err)
		w.stop()
		select {
		case err := <-reasons:
			if !errors.Is(err, ErrClosed) {
				t.Errorf("ended with %v, want ErrClosed", err)
			}
		default:
			t.Error("Run has ended, and the consumer is still being told")
		}
	})
}

func TestALateLossOfASubscriptionLeavesOneOpen(t *testing.T) {
	withNodes(1, overWebSocket).run(t, func(t *testing.T, w *world) {
		s := &subscription{
			c: w.Client, params: json.RawMessage(`["newPendingTransactions"]`), on: func(json.RawMessage) {}, ended: func(error) {},
			lost: make(chan error, 1), left: make(chan struct{}),
		}
		if refusal, err := s.open(t.Context()); refusal != nil || err != nil {
			t.Fatal(refusal, err)
		}
		var running sync.WaitGroup
		running.Go(func() { s.run(t.Context()) })
		s.drop(errBehind) // of the connection before the one that there is
		synctest.Wait()
		if open := w.nodes[0].Subscribed("newPendingTransactions"); open != 1 {
			t.Errorf("%d are open at the node, want one", open)
		}
		s.unsubscribe()
		running.Wait()
	})
}

func TestAClientThatLeavesFailsNoOtherCall(t *testing.T) {
	withNodes(1).run(t, func(t *testing.T, w *world) {
		w.nodes[0].OnHTTP(status(500))
		if _, _, err := w.Call(t.Context(), "eth_call", nil); err == nil {
			t.Fatal("the node answers")
		}
		w.nodes[0].OnHTTP(func(_ http.ResponseWriter, _ *http.Request, body []byte) bool {
			time.Sleep(100 * time.Millisecond)
			return false
		})
		leaving, leave := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() { _, _, _ = w.Call(leaving, "eth_call", nil) }) // asks first of which chain the node is
		synctest.Wait()
		all.Go(func() {
			if _, _, err := w.Call(t.Context(), "eth_chainId", nil); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		leave()
		all.Wait()
	})
}
