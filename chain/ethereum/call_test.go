package ethereum

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"noncegate/chain/ethereum/internal/jsonrpc"
	"noncegate/test/lab/fakenode"
)

// named has each node answer eth_call with its name.
func (w *world) named() {
	for i, n := range w.nodes {
		n.On("eth_call", func([]json.RawMessage) (any, error) { return w.set.names[i], nil })
	}
}

func TestAnAnswerThatIsTooLargeIsToldAndBounded(t *testing.T) {
	for _, change := range []func(*Config){func(*Config) {}, overWebSocket} {
		withNodes(2, change, func(cfg *Config) { cfg.MaxAnswerBytes = 1 << 20 }).run(t, func(t *testing.T, w *world) {
			big := json.RawMessage(`"` + strings.Repeat("x", 2<<20) + `"`)
			for _, n := range w.nodes {
				n.On("eth_getLogs", func([]json.RawMessage) (any, error) { return big, nil })
			}
			if _, _, err := w.Call(t.Context(), "eth_getLogs", nil); !errors.Is(err, ErrTooLarge) || isUnreachable(err) {
				t.Errorf("%v, want ErrTooLarge", err)
			}
			if n := w.nodes[1].Calls("eth_getLogs"); n != 0 {
				t.Errorf("another node was asked %d times for the same", n)
			}
			if !w.nodeStatus(0).Up || w.node(0).link.Session() != 1 {
				t.Errorf("status %+v, want up in its first session", w.nodeStatus(0))
			}
		})
	}
}

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

// listener is a consumer of a subscription.
type listener struct {
	events chan string
	ended  chan error
}

func newListener() *listener {
	return &listener{events: make(chan string, 1000), ended: make(chan error, 10)}
}

func (w *world) subscribe(l *listener, params string) func() {
	w.t.Helper()
	leave, refusal, err := w.Subscribe(w.t.Context(), json.RawMessage(params),
		func(e json.RawMessage) { l.events <- string(e) }, func(err error) { l.ended <- err })
	if refusal != nil || err != nil {
		w.t.Fatalf("not subscribed: %v, %v", refusal, err)
	}
	synctest.Wait()
	return leave
}

func TestASubscriptionOfOthersIsPassedThrough(t *testing.T) {
	withNodes(2, func(cfg *Config) { cfg.Nodes[1] = "ws://b:80" }).run(t, func(t *testing.T, w *world) { // a has none
		l := newListener()
		leave := w.subscribe(l, `["logs",{"address":"0x1"}]`)
		w.nodes[1].Emit("logs", "one")
		if got := <-l.events; got != `"one"` {
			t.Errorf("event %s, want one", got)
		}
		leave()
		leave()
		synctest.Wait()
		if n := w.nodes[1].Subscribed("logs"); n != 0 {
			t.Errorf("%d subscriptions are open at the node, want none", n)
		}
		w.nodes[1].CloseSockets()
		synctest.Wait()
		if len(w.subs) != 0 || len(l.ended) != 0 {
			t.Errorf("%d slots are taken and %d ends told, want none", len(w.subs), len(l.ended))
		}
	})
}

func TestASubscriptionThatIsRefusedOrImpossibleIsToldSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		none := func(json.RawMessage) { t.Error("an event") }
		end := func(error) { t.Error("an end") }
		w := newWorld(t, 1).run()
		if _, _, err := w.Subscribe(t.Context(), json.RawMessage(`["newHeads"]`), none, end); !isUnreachable(err) {
			t.Errorf("without a WebSocket: %v, want ErrUnreachable", err)
		}
		w = newWorld(t, 1, overWebSocket).run()
		w.nodes[0].On("eth_subscribe", func([]json.RawMessage) (any, error) {
			return nil, &fakenode.Error{Code: -32602, Message: "unknown kind"}
		})
		if _, refusal, err := w.Subscribe(t.Context(), json.RawMessage(`["what"]`), none, end); err != nil || refusal == nil || refusal.Message != "unknown kind" {
			t.Errorf("%v, %v; want the refusal", refusal, err)
		}
		for range MaxSubscriptions {
			w.subs <- struct{}{}
		}
		if _, _, err := w.Subscribe(t.Context(), json.RawMessage(`["logs"]`), none, end); !errors.Is(err, ErrBusy) {
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
func (mistaken) Subscribe(context.Context, uint64, json.RawMessage, func(json.RawMessage), func(error)) (*jsonrpc.Subscription, *jsonrpc.Error, error) {
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

func TestAConsumerThatDoesNotTakeEventsIsEndedByName(t *testing.T) {
	for name, event := range map[string]string{"many": "x", "large": strings.Repeat("x", 400<<10)} {
		withNodes(1, overWebSocket, func(cfg *Config) { cfg.MaxAnswerBytes = 1 << 20 }).run(t, func(t *testing.T, w *world) {
			let, ended := make(chan struct{}), make(chan error, 1)
			_, _, err := w.Subscribe(t.Context(), json.RawMessage(`["newPendingTransactions"]`),
				func(json.RawMessage) { <-let }, func(err error) { ended <- err })
			must(t, err)
			synctest.Wait()
			for range map[string]int{"many": maxWaitingEvents + 2, "large": 4}[name] {
				w.nodes[0].Emit("newPendingTransactions", event)
			}
			synctest.Wait()
			close(let)
			if err := <-ended; !errors.Is(err, ErrSlowConsumer) {
				t.Errorf("%s: ended with %v, want ErrSlowConsumer", name, err)
			}
			synctest.Wait()
			if n := w.nodes[0].Subscribed("newPendingTransactions"); n != 0 {
				t.Errorf("%s: %d subscriptions are open at the node, want none", name, n)
			}
		})
	}
}

func TestAfterALostConnectionHeadsGoOnAndLogsEnd(t *testing.T) {
	withNodes(2, overWebSocket).run(t, func(t *testing.T, w *world) {
		heads, logs := newListener(), newListener()
		w.subscribe(heads, `["newHeads"]`)
		w.subscribe(logs, `["logs",{}]`)
		w.nodes[0].CloseSockets()
		if err := <-logs.ended; !errors.Is(err, ErrSubscriptionLost) {
			t.Errorf("logs ended with %v, want ErrSubscriptionLost", err)
		}
		time.Sleep(time.Second)
		for _, n := range w.nodes {
			n.Emit("newHeads", n.Head().JSON(false))
		}
		synctest.Wait()
		if len(heads.events) != 1 || len(heads.ended) != 0 {
			t.Errorf("%d heads and %d ends, want one head and no end", len(heads.events), len(heads.ended))
		}
		for _, n := range w.nodes {
			n.OnHTTP(status(500))
			n.CloseSockets()
		}
		begin := time.Now()
		if err := <-heads.ended; !isUnreachable(err) || time.Since(begin) < maxAway {
			t.Errorf("heads ended with %v after %v, want ErrUnreachable after %v", err, time.Since(begin), maxAway)
		}
	})
}

func TestASubscriptionLeavesANodeThatFallsBehind(t *testing.T) {
	withNodes(2, overWebSocket).run(t, func(t *testing.T, w *world) {
		heads, logs := newListener(), newListener()
		w.subscribe(heads, `["newHeads"]`)
		w.subscribe(logs, `["logs",{}]`)
		for range 6 {
			w.nodes[1].SetHead(w.chain.Extend(w.nodes[1].Head()))
			w.settle()
		}
		time.Sleep(2 * lookAfter)
		if err := <-logs.ended; !errors.Is(err, ErrSubscriptionLost) {
			t.Errorf("logs ended with %v, want ErrSubscriptionLost", err)
		}
		for len(heads.events) > 0 {
			<-heads.events
		}
		w.nodes[1].SetHead(w.chain.Extend(w.nodes[1].Head()))
		synctest.Wait()
		if len(heads.events) != 1 || len(heads.ended) != 0 {
			t.Errorf("%d heads and %d ends, want one of the node that goes on", len(heads.events), len(heads.ended))
		}
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
