package endpoint

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"noncegate/chain"
	"noncegate/nonce"
	"noncegate/test/lab/wait"
	"noncegate/wire"
)

// Wallets send several transactions at once. Over one connection they keep their order.
func TestTransactionsOfOneConnectionKeepTheirOrder(t *testing.T) {
	g := startGateway(t, func(s *setup) { s.endpoint.OrderWait = time.Nanosecond })
	c := g.dial()
	let := make(chan struct{})
	g.nodes.saysBy(func(chain.Tx) chain.Verdict { <-let; return chain.Verdict{Class: chain.InPool} })
	var ids []string
	for n := range int64(12) {
		ids = append(ids, c.begin(methodSend, `["`+transaction(ada, n, "a")+`"]`))
	}
	// All of them are recorded while the nodes think about the first.
	wait.Until(t, "all at the nodes", func() bool { return len(g.nodes.given()) == 12 })
	close(let)
	for n, id := range ids {
		c.end(id).wantHashOf(t, transaction(ada, int64(n), "a"))
	}
}

// Over several connections they may come in any order: each waits for those before it.
func TestATransactionWaitsForThoseBeforeIt(t *testing.T) {
	g := startGateway(t)
	var all sync.WaitGroup
	for _, n := range []int64{3, 1, 2, 0} {
		c := g.dial()
		id := c.begin(methodSend, `["`+transaction(ada, n, "a")+`"]`)
		all.Go(func() { c.end(id).wantHashOf(t, transaction(ada, n, "a")) })
		if n != 0 {
			g.awaitLine(signer(ada), n)
		}
	}
	all.Wait()
	got := g.nodes.given()
	slices.Sort(got)
	if !slices.Equal(got, []int64{0, 1, 2, 3}) {
		t.Errorf("the nodes were given %v", got)
	}
}

// Those before it may have come to another node of the gateway, or over /ws.
func TestATransactionWaitsForWhatIsDoneElsewhere(t *testing.T) {
	g := startGateway(t)
	g.nodes.at(ada, chain.Start{Latest: 0})
	c, raw := g.dial(), transaction(ada, 1, "b")
	id := c.begin(methodSend, `["`+raw+`"]`)
	g.awaitLine(signer(ada), 1)
	if n := g.allocate(signer(ada), ""); n != 0 {
		t.Fatalf("allocated %d", n)
	}
	c.end(id).wantHashOf(t, raw)
}

// However long one that is on its way takes: it is not known yet whether the later one is too high.
func TestATransactionWaitsAsLongAsOneBeforeItIsOnItsWay(t *testing.T) {
	g := startGateway(t, func(s *setup) { s.endpoint.OrderWait = time.Nanosecond })
	g.nodes.at(ada, chain.Start{Latest: 0})
	l, before := g.endpoint.lines.enter(signer(ada)), chain.Tx{Nonce: 0, Hash: chain.Hash{1}}
	l.begin(t.Context(), before, func() {})
	c, raw := g.dial(), transaction(ada, 1, "b")
	id := c.begin(methodSend, `["`+raw+`"]`)
	// Each look at whether it is its turn asks the nodes, and the second one is after OrderWait.
	wait.Until(t, "further looks", func() bool { return g.nodes.askedToBegin() >= 6 })
	if n := g.allocate(signer(ada), ""); n != 0 {
		t.Fatalf("allocated %d", n)
	}
	c.end(id).wantHashOf(t, raw)
	l.end(before)
	g.endpoint.lines.leave(l)
}

// awaitLine returns when a transaction with the nonce is on its way.
func (g *gateway) awaitLine(signer string, n int64) {
	g.Helper()
	wait.Until(g.TB, fmt.Sprintf("nonce %d on its way", n), func() bool {
		ls := g.endpoint.lines
		ls.mu.Lock()
		defer ls.mu.Unlock()
		l := ls.bySigner[signer]
		return l != nil && l.nonces[n] > 0
	})
}

// What is remembered of windows is bounded in number and in time.
func TestASignerThatWasToldTheWindowIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newLines()
		for i := range maxBehind + 1 {
			l := all.enter(account(i))
			l.toldWindow(4)
			if l.toldWindow(3); !l.awaitsWindow(4) || l.awaitsWindow(5) {
				t.Fatalf("account %d is not remembered, or with too much", i)
			}
			all.leave(l)
		}
		first, last := all.enter(account(0)), all.enter(account(maxBehind))
		defer all.leave(first)
		defer all.leave(last)
		if first.awaitsWindow(4) || !last.awaitsWindow(4) {
			t.Errorf("with one more than may be remembered, the first one is %v, the last one %v", first.awaitsWindow(4), last.awaitsWindow(4))
		}
		time.Sleep(rememberBehind + 1)
		if last.toldWindow(2); !last.awaitsWindow(2) || last.awaitsWindow(3) {
			t.Error("what is too old is remembered")
		}
	})
}

// A node that wants transactions in order refuses one whose predecessor it gets a moment
// later.
func TestATransactionWhosePredecessorIsOnItsWayIsGivenAgain(t *testing.T) {
	g, c := connect(t)
	first, refused := make(chan struct{}), make(chan struct{})
	var mu sync.Mutex
	have := false
	g.nodes.saysBy(func(tx chain.Tx) chain.Verdict {
		if tx.Nonce == 0 {
			<-first
			mu.Lock()
			have = true
			mu.Unlock()
			return chain.Verdict{Class: chain.InPool}
		}
		mu.Lock()
		defer mu.Unlock()
		if !have {
			close(refused)
			return chain.Verdict{Class: chain.Refused, Missing: true, Code: -32000, Message: "nonce too high"}
		}
		return chain.Verdict{Class: chain.InPool}
	})
	a, b := c.begin(methodSend, `["`+transaction(ada, 0, "a")+`"]`), c.begin(methodSend, `["`+transaction(ada, 1, "b")+`"]`)
	wait.For(t, refused, "the refusal of the second")
	close(first)
	c.end(a).wantHashOf(t, transaction(ada, 0, "a"))
	c.end(b).wantHashOf(t, transaction(ada, 1, "b"))
	g.wantRow(signer(ada), 1, nonce.Consumed, hashOf(transaction(ada, 1, "b")))
}

// The same transaction over two connections at once is not judged by two answers at once:
// one could give back what the other has put into a pool.
func TestTheSameTransactionIsSentOnceAtATime(t *testing.T) {
	g := startGateway(t)
	raw := transaction(ada, 0, "a")
	var mu sync.Mutex
	under, peak := 0, 0
	entered, let := make(chan struct{}, 2), make(chan struct{})
	g.nodes.saysBy(func(chain.Tx) chain.Verdict {
		mu.Lock()
		under++
		peak = max(peak, under)
		mu.Unlock()
		entered <- struct{}{}
		<-let
		mu.Lock()
		under--
		mu.Unlock()
		return chain.Verdict{Class: chain.InPool}
	})
	a, b := g.dial(), g.dial()
	ida := a.begin(methodSend, `["`+raw+`"]`)
	wait.For(t, entered, "the first")
	idb := b.begin(methodSend, `["`+raw+`"]`)
	wait.Until(t, "the second", func() bool {
		g.endpoint.lines.mu.Lock()
		defer g.endpoint.lines.mu.Unlock()
		return g.endpoint.lines.bySigner[signer(ada)].users == 2
	})
	close(let)
	a.end(ida).wantHashOf(t, raw)
	b.end(idb).wantError(t, -32000, "already known") // two workers that pay the same once are told so
	if peak != 1 {
		t.Errorf("%d at once", peak)
	}
	g.nodes.wantGiven(0, 0)
}

func TestTheEventsOfATransactionThatIsSent(t *testing.T) {
	g := startGateway(t)
	events := g.watch(signer(ada))
	raw := transaction(ada, 0, "a")
	g.dial().send(raw)
	for _, want := range []nonce.EventType{nonce.EventAllocated, nonce.EventSigned, nonce.EventUsed, nonce.EventSent} {
		e := wait.For(t, events, "an event")
		if e.Type != want.String() || e.Signer != signer(ada) || e.Nonce != 0 || e.Attempt != 1 || e.Version < 1 {
			t.Errorf("got %+v, want %v", e, want)
		}
		if want != nonce.EventAllocated && e.TxHash != hashOf(raw).String() {
			t.Errorf("got %+v, want the hash of the transaction", e)
		}
	}
}

func TestSendSyncAnswersWithTheReceipt(t *testing.T) {
	g := startGateway(t, func(s *setup) { s.endpoint.OrderWait = time.Millisecond })
	c, raw := g.dial(), transaction(ada, 0, "a")
	other := transaction(ada, 1, "b")
	asked := 0
	g.nodes.answer(methodReceipt, func(params string) (string, *rpcError, error) {
		if asked++; asked < 3 || params != `["`+hashOf(raw).String()+`"]` {
			return "null", nil, nil
		}
		return `{"status":"0x1"}`, nil, nil
	})
	c.call(methodSendSync, `["`+raw+`"]`).wantResult(t, `{"status":"0x1"}`)
	r := c.call(methodSendSync, `["`+other+`","0x5"]`)
	r.wantError(t, codeReceiptTimeout, "wasn't processed in 5ms")
	if string(r.Error.Data) != `"`+hashOf(other).String()+`"` {
		t.Errorf("data %s", r.Error.Data)
	}
	c.call(methodSendSync, `["`+other+`",0]`).wantError(t, wire.CodeInvalidParams, "timeout: must be a number of milliseconds above 0")
	c.call(methodSendSync, `["`+transaction(account(1), 3, "")+`",1]`).wantError(t, wire.CodeRejected, "nonce too high")
}

func TestAMistakeInAQuestionForAReceiptEndsItsCallOnly(t *testing.T) {
	g := startGateway(t)
	c := g.dial()
	g.nodes.answer(methodReceipt, func(string) (string, *rpcError, error) { panic("a mistake") })
	r := c.call(methodSendSync, `["`+transaction(ada, 0, "a")+`"]`)
	if r.wantError(t, wire.CodeUnavailable, "the transaction may be on its way"); r.said().Outcome != wire.OutcomeUnknown {
		t.Errorf("got %v, want an unknown outcome", r)
	}
	if n := g.srv.Panics(); n != 1 {
		t.Errorf("%d panics counted, want 1", n)
	}
	c.call(methodSendSync, `["`+transaction(account(1), 3, "")+`",0]`).wantError(t, wire.CodeInvalidParams, "timeout")
}

// TestWhoWaitsForAReceiptWhenTheGatewayStopsIsToldThatItWasSent: by POST, which has no connection
// that would end.
func TestWhoWaitsForAReceiptWhenTheGatewayStopsIsToldThatItWasSent(t *testing.T) {
	g := startGateway(t)
	raw := transaction(ada, 0, "a")
	asked := make(chan struct{}, 1)
	g.nodes.answer(methodReceipt, func(string) (string, *rpcError, error) {
		select {
		case asked <- struct{}{}:
		default:
		}
		return "null", nil, nil
	})
	got := make(chan string, 1)
	go func() {
		_, body := g.post("", call("1", methodSendSync, `["`+raw+`"]`))
		got <- body
	}()
	<-asked
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	must(t, g.srv.Stop(ctx))
	if body := <-got; !strings.Contains(body, `"code":4,"message":"The transaction was added to the transaction pool;`) {
		t.Errorf("told %s", body)
	}
}
