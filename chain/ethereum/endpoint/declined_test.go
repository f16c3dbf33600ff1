package endpoint

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"noncegate/chain"
	"noncegate/internal/access"
	"noncegate/nonce"
	"noncegate/nonce/memstore"
	"noncegate/test/lab/wait"
	"noncegate/wire"
)

// declines are the ways of declining of package ethereum's tests, which grade them.
func declines(t *testing.T) (all []struct {
	What, Class, Nonce string
	Later              bool
}) {
	t.Helper()
	data, err := os.ReadFile("../testdata/declined.json")
	must(t, err)
	must(t, json.Unmarshal(data, &all))
	return all
}

func classOf(t testing.TB, word string) chain.Class {
	t.Helper()
	for c := chain.Unknown; c <= chain.NotReached; c++ {
		if c.String() == word {
			return c
		}
	}
	t.Fatalf("what is the class %q?", word)
	return 0
}

// pool is a node with a pool: it has what it took, each nonce once.
type pool struct {
	mu      sync.Mutex
	decline chan chain.Verdict // of the first
	taken   map[int64]chain.Hash
}

func newPool(v chain.Verdict) *pool {
	p := &pool{decline: make(chan chain.Verdict, 1), taken: map[int64]chain.Hash{}}
	p.decline <- v
	return p
}

func (p *pool) say(tx chain.Tx) chain.Verdict {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case v := <-p.decline:
		return v
	default:
	}
	if is, there := p.taken[tx.Nonce]; there && is != tx.Hash {
		return chain.Verdict{Class: chain.Taken, Code: -32000, Message: "replacement transaction underpriced"}
	}
	p.taken[tx.Nonce] = tx.Hash
	return chain.Verdict{Class: chain.InPool}
}

// executed is how many transactions can be mined: those without a gap before them.
func (p *pool) executed() (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for ; ; n++ {
		if _, there := p.taken[int64(n)]; !there {
			return n
		}
	}
}

// payments makes payments as a wallet does that asks for the pending count before each. It sends
// again what libraries do, after an error with their code.
func (c *client) payments(names ...string) {
	c.Helper()
	for _, name := range names {
		raw := transaction(ada, c.pending(ada), name)
		for range 3 {
			if r := c.send(raw); r.Error == nil || r.Error.Code != wire.CodeServerBusy {
				break
			}
		}
	}
}

// pending is the pending count of an account.
func (c *client) pending(account string) int64 {
	c.Helper()
	r := c.call(methodCount, `["`+account+`","pending"]`)
	text, err := strconv.Unquote(string(r.Result))
	must(c.TB, err)
	n, err := strconv.ParseInt(text, 0, 64)
	must(c.TB, err)
	return n
}

// A node declines the first of three payments and is well afterwards. Without the gateway, two are
// mined, or three where the wallet sends the first again.
func TestADeclinedPaymentDoesNotStopAnAccount(t *testing.T) {
	for _, d := range declines(t) {
		t.Run(d.What, func(t *testing.T) {
			g := startGateway(t)
			p := newPool(chain.Verdict{
				Class: classOf(t, d.Class), Code: -32000, Message: d.What, Later: d.Later, Unanswered: d.Class == "not_reached",
			})
			g.nodes.saysBy(p.say)
			c := g.dial()
			c.payments("a", "b", "c")
			want := 2
			if d.Class == "not_reached" || d.Class == "unknown" {
				want = 3 // the wallet sends it again, or the gateway does
			}
			wait.Until(t, fmt.Sprintf("%d payments without a gap", want), func() bool { return p.executed() >= want })
			if n := c.pending(ada); n != int64(want) {
				t.Errorf("the pending count is %d behind %d payments", n, want)
			}
		})
	}
}

// The gateway that sent it is gone, by kill -9 between the record and the nodes' answer: whichever
// owns the signer now offers the transaction.
func TestATransactionWhoseGatewayDiedIsOffered(t *testing.T) {
	g := startGateway(t)
	c := g.dial()
	c.send(transaction(ada, 0, "before")).wantHashOf(t, transaction(ada, 0, "before"))
	raw := transaction(ada, 1, "a")
	tx, err := g.nodes.Decode(bytesOf(raw))
	must(t, err)
	sent := nonce.Sent{Signer: signer(ada), Nonce: 1, Hash: tx.Hash, Payment: tx.Payment, Raw: bytesOf(raw)}
	_, err = g.Store.KeepSent(t.Context(), sent, 0, 0)
	must(t, err)
	sent.Nonce, sent.Hash = 2, chain.Hash{2} // one that was not recorded
	_, err = g.Store.KeepSent(t.Context(), sent, 0, time.Hour)
	must(t, err)
	must(t, g.do(&nonce.Request{Kind: nonce.KindMarkSigned, Signer: signer(ada), Nonce: 1, TxHash: tx.Hash, Forwarded: true, Take: true}))
	must(t, g.Store.DelaySent(t.Context(), []nonce.Sent{sent}, 0))
	wait.Until(t, "the transaction at the nodes", func() bool { return slices.Contains(g.nodes.given(), 1) })
	wait.Until(t, "the mark", func() bool { return g.row(signer(ada), 1).Status == nonce.Consumed })
	wait.Until(t, "that what was not recorded is dropped", func() bool {
		left, err := g.Store.SentOf(t.Context(), signer(ada), 2)
		must(t, err)
		return len(left) == 0
	})
	c.send(raw).wantError(t, -32000, "already known")
}

func bytesOf(raw string) (b []byte) {
	_, err := fmt.Sscanf(raw, "0x%x", &b)
	if err != nil {
		panic(err)
	}
	return b
}

// A transaction whose outcome was unknown, and that all nodes refuse when it is offered again, is
// no hole that stays: its sender is given the nonce again.
func TestANonceWhoseTransactionIsRefusedLaterIsGivenToItsSender(t *testing.T) {
	wallet := access.RightAllocate | access.RightMark
	g := startGateway(t, letIn(map[string]access.Right{"alice": wallet, "bob": wallet}))
	c, raw := g.dialAs("alice"), transaction(ada, 0, "a")
	answers := make(chan chain.Verdict, 1)
	answers <- chain.Verdict{Class: chain.Unknown}
	g.nodes.saysBy(func(chain.Tx) chain.Verdict {
		select {
		case v := <-answers:
			return v
		default:
			return chain.Verdict{Class: chain.Free, Code: -32000, Message: "insufficient funds"}
		}
	})
	c.send(raw).wantError(t, wire.CodeUnavailable, "may be on its way")
	wait.Until(t, "the pending count to name the nonce again", func() bool { return c.pending(ada) == 0 })
	if n := g.dialAs("bob").pending(ada); n != 1 {
		t.Errorf("somebody else's pending count is %d, want 1", n)
	}
	g.nodes.says(chain.Verdict{Class: chain.InPool})
	other := transaction(ada, 0, "b")
	c.send(other).wantHashOf(t, other)
	if row := g.row(signer(ada), 0); row.TxHash != hashOf(other) || !row.Replaced.Contains(hashOf(raw)) {
		t.Errorf("recorded are %v after %v, want both", row.TxHash, row.Replaced)
	}
}

// A node that is not reached leaves that unknown only until another one shows it in a block.
func TestATransactionThatIsMinedWhenItIsOfferedAgainIsMarked(t *testing.T) {
	g := startGateway(t)
	raw := transaction(ada, 0, "a")
	g.nodes.mined[0], g.nodes.alone = hashOf(raw), true
	first := make(chan struct{}, 1)
	first <- struct{}{}
	g.nodes.saysBy(func(chain.Tx) chain.Verdict {
		select {
		case <-first:
			return chain.Verdict{Class: chain.Unknown}
		default:
			return chain.Verdict{Class: chain.Used, Before: true, Unanswered: true, Code: -32000, Message: "nonce too low"}
		}
	})
	g.dial().send(raw).wantError(t, wire.CodeUnavailable, "may be on its way")
	wait.Until(t, "the mark", func() bool { return g.row(signer(ada), 0).Status == nonce.Consumed })
}

// Following an advice to sign anew would pay twice.
func TestWhoseBytesMayBeOnTheirWayIsNotToldToSignAnew(t *testing.T) {
	wallet := access.RightAllocate | access.RightMark
	g := startGateway(t, letIn(map[string]access.Right{"alice": wallet, "boss": everyRight | access.RightRepair}), func(s *setup) {
		s.endpoint.OfferAgain = time.Hour
	})
	c, raw := g.dialAs("alice"), transaction(ada, 0, "a")
	g.nodes.says(chain.Verdict{Class: chain.Unknown})
	c.send(raw).wantError(t, wire.CodeUnavailable, "may be on its way")
	must(t, g.do(&nonce.Request{Kind: nonce.KindAllocate, Signer: signer(ada), Count: 1}))
	wait.Until(t, "the count to be settled with which the account began, and the repair", func() bool {
		return g.do(&nonce.Request{Kind: nonce.KindRepair, Signer: signer(ada), Nonce: -1, Principal: nonce.PrincipalOf("boss")}) == nil
	})
	r := c.send(raw)
	r.wantError(t, wire.CodeUnavailable, "ask what became of it")
	if r.said().Outcome != wire.OutcomeUnknown {
		t.Errorf("outcome %q", r.said().Outcome)
	}
	c.send(transaction(ada, 0, "b")).wantError(t, wire.CodeRejected, "sign with that nonce") // which was never sent
	g.nodes.mined[0] = hashOf(raw)
	c.send(raw).wantHashOf(t, raw)
	g.nodes.wantGiven(0)
}

// A count behind a transaction on the same connection knows of it, although that is not answered.
func TestAPendingCountRightBehindATransactionKnowsOfIt(t *testing.T) {
	g := startGateway(t)
	c := g.dial()
	let, committing := make(chan struct{}), make(chan struct{})
	var once sync.Once
	g.Store.SetHooks(memstore.Hooks{Before: func(call memstore.Call) error {
		if call.Op == memstore.OpSent {
			once.Do(func() {
				close(committing)
				<-let
			})
		}
		return nil
	}})
	id := c.begin(methodSend, `["`+transaction(ada, 0, "a")+`"]`)
	wait.For(t, committing, "the transaction in the store")
	count := c.begin(methodCount, `["`+ada+`","pending"]`)
	for range 20 { // an answer that did not wait would be there by then
		c.call(methodChainID, `[]`)
	}
	close(let)
	c.end(count).wantResult(t, `"0x1"`)
	c.end(id).wantHashOf(t, transaction(ada, 0, "a"))
}

// A client knows a receipt before the gateway counts the block: it waits instead of refusing.
func TestATransactionAfterAReceiptWaitsForTheCount(t *testing.T) {
	g := startGateway(t, func(s *setup) { s.chain.DelegatedWindow = 1; s.endpoint.CountWait = patience })
	g.nodes.at(ada, chain.Start{Delegated: true})
	c, first, second := g.dial(), transaction(ada, 0, "a"), transaction(ada, 1, "b")
	c.send(first).wantHashOf(t, first)
	c.send(second).wantError(t, wire.CodeHoldLimit, "new nonces may be 1 ahead")
	g.nodes.at(ada, chain.Start{Latest: 1, Pending: 1, Delegated: true}) // the nodes have the block
	id := c.begin(methodSend, `["`+second+`"]`)
	g.awaitLine(signer(ada), 1)
	g.nodes.newHead(2)
	c.end(id).wantHashOf(t, second)
}

// Nobody knows what became of a nonce's earlier hold: whoever takes the nonce in passing is told by
// the event that a node has the transaction, whichever try brought it there.
func TestWhoTakesANonceWithAnUnaccountedHoldIsTold(t *testing.T) {
	for name, c := range map[string]struct {
		first    chain.Verdict // of the first transaction; all after it are taken
		payments string        // what is sent, one after the other
		again    time.Duration // when it is offered again
	}{
		"at once":              {first: chain.Verdict{Class: chain.InPool}, payments: "a"},
		"after a refused one":  {first: chain.Verdict{Class: chain.Refused, Message: "underpriced"}, payments: "ab"},
		"after one given back": {first: chain.Verdict{Class: chain.Free, Message: "insufficient funds"}, payments: "ab"},
		"sent again":           {first: chain.Verdict{Class: chain.Unknown}, payments: "aa", again: time.Hour},
		"offered again":        {first: chain.Verdict{Class: chain.Unknown}, payments: "a", again: time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			g := startGateway(t, func(s *setup) { s.endpoint.OfferAgain = cmp.Or(c.again, time.Hour) })
			n := g.allocate(signer(ada), "somebody")
			mark := nonce.Request{Signer: signer(ada), Nonce: n, Attempt: 1, MarkAny: true}
			used, back := mark, mark
			used.Kind, back.Kind, back.Attempt, back.Unsent = nonce.KindMarkUsed, nonce.KindMarkRecyclable, 2, true
			must(t, g.do(&used))
			wait.Until(t, "the repair", func() bool {
				return g.do(&nonce.Request{Kind: nonce.KindRepair, Signer: signer(ada), Nonce: -1}) == nil
			})
			must(t, g.do(&back))
			verdicts := make(chan chain.Verdict, 1)
			verdicts <- c.first
			g.nodes.saysBy(func(chain.Tx) chain.Verdict {
				select {
				case v := <-verdicts:
					return v
				default:
					return chain.Verdict{Class: chain.InPool}
				}
			})
			events, a := g.watch(signer(ada)), g.dial()
			for _, payment := range strings.Split(c.payments, "") {
				a.send(transaction(ada, n, payment))
			}
			for {
				if e := wait.For(t, events, "the event"); e.Type == wire.EventSent {
					if e.Reason != reissued || e.Nonce != n {
						t.Errorf("the event is %+v", e)
					}
					return
				}
			}
		})
	}
}
