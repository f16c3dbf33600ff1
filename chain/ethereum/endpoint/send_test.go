package endpoint

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"noncegate/chain"
	"noncegate/internal/access"
	"noncegate/nonce"
	"noncegate/nonce/memstore"
	"noncegate/test/lab/wait"
	"noncegate/wire"
)

var ada = account(0xada)

func TestATransactionIsRecordedThenForwardedThenMarked(t *testing.T) {
	g := startGateway(t)
	raw := transaction(ada, 0, "a")
	g.nodes.saysBy(func(tx chain.Tx) chain.Verdict {
		if row := g.row(signer(ada), 0); row.Status != nonce.Held || row.TxHash != tx.Hash || row.Reason != nonce.ReasonForwarded {
			t.Errorf("when the nodes are given the transaction the store has %+v", row)
		}
		return chain.Verdict{Class: chain.InPool}
	})
	g.dial().send(raw).wantHashOf(t, raw)
	g.nodes.wantGiven(0)
	g.wantRow(signer(ada), 0, nonce.Consumed, hashOf(raw))
	g.WantMetrics(map[string]float64{"eth_sends_total{in_pool}": 1, "eth_requests_total{eth_sendRawTransaction}{ok}": 1})
}

// Each class of answers, what the wallet is told, and what becomes of the nonce.
func TestWhatTheNodesSayDecidesOverTheNonce(t *testing.T) {
	raw := transaction(ada, 0, "a")
	hash := hashOf(raw)
	ours := `"` + hash.String() + `"`
	for _, c := range []struct {
		name    string
		verdict chain.Verdict
		mined   chain.Hash // what a look-up of the nonce finds
		result  string     // "": the error
		code    int
		words   string
		outcome string
		retry   int64
		pending int64 // the pending count of the nodes
		status  nonce.Status
		left    chain.Hash
		reason  string
	}{
		{name: "in a pool", verdict: chain.Verdict{Class: chain.InPool}, result: ours, status: nonce.Consumed, left: hash},
		{name: "known already", verdict: chain.Verdict{Class: chain.InPool, Code: -32000, Message: "already known"}, result: ours, status: nonce.Consumed, left: hash},
		{name: "used by another", verdict: chain.Verdict{Class: chain.Used, Code: -32000, Message: "nonce too low: next nonce 1, tx nonce 0", Data: []byte(`{"by":1}`)},
			mined: chain.Hash{9}, code: -32000, words: "nonce too low: next nonce 1", status: nonce.Held},
		{name: "used, and nobody knows by whom", verdict: chain.Verdict{Class: chain.Used, Code: -32000, Message: "nonce too low"},
			code: -32000, words: "nonce too low", status: nonce.Held, left: hash},
		{name: "used by this very transaction", verdict: chain.Verdict{Class: chain.Used, Code: -32000, Message: "nonce too low"},
			mined: hash, result: ours, status: nonce.Consumed, left: hash},
		{name: "taken, and a node counts another transaction", verdict: chain.Verdict{Class: chain.Taken, Code: -32000, Message: "replacement transaction underpriced"},
			pending: 1, code: -32000, words: "replacement transaction underpriced", status: nonce.Held},
		{name: "taken, and no node counts another transaction", verdict: chain.Verdict{Class: chain.Taken, Code: -32000, Message: "replacement transaction underpriced"},
			code: -32000, words: "replacement transaction underpriced", status: nonce.Held, reason: nonce.ReasonRefused},
		{name: "unknown, in a node's words", verdict: chain.Verdict{Class: chain.Unknown, Code: -32010, Message: "the moon is in the wrong place"},
			code: wire.CodeUnavailable, words: "(the moon is in the wrong place)", outcome: "unknown", status: nonce.Held, left: hash, reason: nonce.ReasonForwarded},
		{name: "unknown, without an answer", verdict: chain.Verdict{Class: chain.Unknown},
			code: wire.CodeUnavailable, words: "may be on its way: the gateway offers it to the nodes again", outcome: "unknown", status: nonce.Held, left: hash, reason: nonce.ReasonForwarded},
		{name: "free", verdict: chain.Verdict{Class: chain.Free, Code: -32000, Message: "insufficient funds", Data: []byte(`["x",{"y":1}]`)},
			code: -32000, words: "insufficient funds", status: nonce.Released, reason: "refused: insufficient funds"},
		{name: "free, and a node that may have it was not reached", verdict: chain.Verdict{Class: chain.Free, Code: -32000, Message: "insufficient funds", Before: true, Unanswered: true},
			code: wire.CodeUnavailable, words: "insufficient funds", outcome: "unknown", status: nonce.Held, left: hash, reason: nonce.ReasonForwarded},
		{name: "free, and an earlier try may have left it somewhere", verdict: chain.Verdict{Class: chain.Free, Code: -32000, Message: "insufficient funds", Before: true},
			code: -32000, words: "insufficient funds", status: nonce.Held, left: hash, reason: nonce.ReasonForwarded},
		{name: "refused, for a lower one is missing", verdict: chain.Verdict{Class: chain.Refused, Code: -32000, Message: "nonce too high", Missing: true},
			code: -32000, words: "nonce too high", status: nonce.Held, reason: nonce.ReasonRefused},
		{name: "refused for now", verdict: chain.Verdict{Class: chain.Refused, Code: -32000, Message: "txpool is full", Later: true},
			code: -32000, words: "txpool is full", retry: 2000, status: nonce.Held, reason: nonce.ReasonRefused},
		{name: "not reached", verdict: chain.Verdict{Class: chain.NotReached, Unanswered: true, Message: "a: connection refused"},
			code: wire.CodeServerBusy, words: "unavailable: no node of the chain was reached, and nothing was sent (a: connection refused)", outcome: "none",
			retry: 500, status: nonce.Released, reason: "refused: a: connection refused"},
		{name: "not reached for its rate", verdict: chain.Verdict{Class: chain.NotReached, Unanswered: true, Later: true, RetryAfter: 7 * time.Second, Message: "a: HTTP status 429"},
			code: wire.CodeServerBusy, words: "HTTP status 429", outcome: "none", retry: 7000, status: nonce.Released, reason: "refused: a: HTTP status 429"},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := startGateway(t, func(s *setup) { s.endpoint.OfferAgain = time.Hour })
			g.nodes.saysBy(func(chain.Tx) chain.Verdict {
				g.nodes.at(ada, chain.Start{Pending: c.pending})
				return c.verdict
			})
			if c.mined != (chain.Hash{}) {
				g.nodes.mined[0] = c.mined
			}
			r := g.dial().send(raw)
			if c.result != "" {
				r.wantResult(t, c.result)
			} else {
				r.wantError(t, c.code, c.words)
				if got := r.said().Outcome; got != c.outcome {
					t.Errorf("outcome %q, want %q", got, c.outcome)
				}
				if got := r.said().RetryAfterMs; c.retry != 0 && got != c.retry {
					t.Errorf("retry after %d ms, want %d", got, c.retry)
				}
				if data := string(c.verdict.Data); data != "" && string(r.Error.Data) != data {
					t.Errorf("data %s, want %s", r.Error.Data, data)
				}
			}
			g.nodes.wantGiven(0)
			g.wantRow(signer(ada), 0, c.status, c.left)
			if row := g.row(signer(ada), 0); row.Reason != c.reason && (c.reason != "" || row.Status == nonce.Held && row.TxHash == chain.Hash{}) {
				t.Errorf("the reason is %q, want %q", row.Reason, c.reason)
			}
		})
	}
}

func TestANonceThatWasGivenBackIsTakenAgain(t *testing.T) {
	g, c := connect(t)
	g.nodes.says(chain.Verdict{Class: chain.Free, Code: -32000, Message: "insufficient funds\n for gas"})
	c.send(transaction(ada, 0, "too much")).wantError(t, -32000, "insufficient funds")
	if row := g.row(signer(ada), 0); row.Reason != "refused: insufficient funds  for gas" {
		t.Errorf("given back for %q", row.Reason)
	}
	g.nodes.says(chain.Verdict{Class: chain.InPool})
	raw := transaction(ada, 0, "less")
	c.send(raw).wantHashOf(t, raw)
	g.wantRow(signer(ada), 0, nonce.Consumed, hashOf(raw))
	g.nodes.wantGiven(0, 0)
}

// A gateway that recorded a transaction may have given it to a node before it ended, and so may
// another one that has it on its way: that all nodes refuse it here is no proof that none has it.
func TestARefusalOfWhatAnotherGatewayRecordedGivesNoNonceBack(t *testing.T) {
	g := startGateway(t)
	if n := g.allocate(signer(ada), ""); n != 0 {
		t.Fatalf("got nonce %d", n)
	}
	raw := transaction(ada, 0, "a")
	must(t, g.Service.Do(t.Context(), &nonce.Op{Kind: nonce.KindMarkSigned, Signer: signer(ada), TxHash: hashOf(raw), Forwarded: true}))
	g.nodes.says(chain.Verdict{Class: chain.Free, Code: -32000, Message: "insufficient funds"})
	g.dial().send(raw).wantError(t, -32000, "insufficient funds")
	g.wantRow(signer(ada), 0, nonce.Consumed, hashOf(raw))
	if n := g.allocate(signer(ada), ""); n != 1 {
		t.Errorf("nonce %d was handed out, and a transaction of somebody else's with it may be in a pool", n)
	}
}

// Nodes whose final block fell may lie: that they refuse a transaction does not hand its nonce
// out again. Who has it may send another one with it.
func TestARefusalOfNodesWhoseFinalBlockFellGivesNoNonceBack(t *testing.T) {
	g := startGateway(t)
	c := g.dial()
	first := transaction(ada, 0, "a")
	c.send(first).wantHashOf(t, first)
	g.nodes.finalFalls()
	refused := transaction(ada, 1, "too much")
	g.nodes.says(chain.Verdict{Class: chain.Free, Code: -32000, Message: "insufficient funds"})
	c.send(refused).wantError(t, -32000, "insufficient funds")
	g.wantRow(signer(ada), 1, nonce.Held, hashOf(refused))
	g.nodes.says(chain.Verdict{Class: chain.InPool})
	again := transaction(ada, 1, "less")
	c.send(again).wantHashOf(t, again)
	g.wantRow(signer(ada), 1, nonce.Consumed, hashOf(again))
	g.WantMetrics(map[string]float64{"eth_loose_ends_total": 0})
}

// Bytes that were answered with their hash are answered as a node does, and forwarded: a node may
// have lost them.
func TestTheSameTransactionAgainIsForwardedAgainAndKnown(t *testing.T) {
	g := startGateway(t)
	c, raw := g.dial(), transaction(ada, 0, "a")
	c.send(raw).wantHashOf(t, raw)
	for range 2 {
		c.send(raw).wantError(t, -32000, "already known")
	}
	g.nodes.wantGiven(0, 0, 0)
	g.nodes.says(chain.Verdict{Class: chain.Unknown})
	c.send(raw).wantError(t, -32000, "already known")
	g.wantRow(signer(ada), 0, nonce.Consumed, hashOf(raw))
	// What a node had once is not free because no node takes it again.
	g.nodes.says(chain.Verdict{Class: chain.Free, Code: -32000, Message: "insufficient funds"})
	c.send(raw).wantError(t, -32000, "insufficient funds")
	g.wantRow(signer(ada), 0, nonce.Consumed, hashOf(raw))
	g.WantMetrics(map[string]float64{"eth_loose_ends_total": 0})
}

func TestAReplacementOfTheHolderIsRecorded(t *testing.T) {
	g := startGateway(t)
	c, first, second := g.dial(), transaction(ada, 0, "a"), transaction(ada, 0, "a, more")
	c.send(first).wantHashOf(t, first)
	c.send(second).wantHashOf(t, second)
	row := g.row(signer(ada), 0)
	if row.TxHash != hashOf(second) || !row.Replaced.Contains(hashOf(first)) {
		t.Errorf("the store has %v after %v", row.TxHash, row.Replaced)
	}
	// That every node refuses it says nothing of the first.
	g.nodes.says(chain.Verdict{Class: chain.Free, Code: -32000, Message: "insufficient funds"})
	c.send(transaction(ada, 0, "a, most")).wantError(t, -32000, "insufficient funds")
	if row := g.row(signer(ada), 0); row.Status != nonce.Consumed || row.TxHash != hashOf(second) {
		t.Errorf("the nonce of a transaction that was sent is %v with %v, want that of the second", row.Status, row.TxHash)
	}
}

func TestNothingIsSentBeforeTheRecordIsCommitted(t *testing.T) {
	g := startGateway(t)
	c, raw := g.dial(), transaction(ada, 0, "a")
	waiting, let := make(chan struct{}, 100), make(chan struct{})
	release := sync.OnceFunc(func() { close(let) })
	defer release()
	g.Store.SetHooks(memstore.Hooks{Before: func(call memstore.Call) error {
		if call.Op == memstore.OpCommit {
			waiting <- struct{}{}
			<-let
		}
		return nil
	}})
	id := c.begin(methodSend, `["`+raw+`"]`)
	wait.For(t, waiting, "the commit of the record")
	g.nodes.wantGiven()
	release()
	c.end(id).wantHashOf(t, raw)
	g.nodes.wantGiven(0)
}

func TestNothingIsSentWithoutARecord(t *testing.T) {
	away := &nonce.StoreError{Outcome: nonce.NotSent, Err: errors.New("away")}
	cut := &nonce.StoreError{Outcome: nonce.Unknown, Err: errors.New("cut")}
	for _, c := range []struct {
		name    string
		hooks   memstore.Hooks
		outcome string
		words   string
	}{
		{"the store is away", memstore.Hooks{Before: func(memstore.Call) error { return away }}, "none", "nothing was sent"},
		{"the commit is not answered", memstore.Hooks{Before: func(call memstore.Call) error {
			switch call.Op {
			case memstore.OpCommit:
				return cut
			case memstore.OpSent:
				return nil
			}
			return away // so that it cannot be settled
		}}, "unknown", "send the same raw transaction again"},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := startGateway(t, func(s *setup) { s.Service.LockWait = 50 * time.Millisecond })
			client, raw := g.dial(), transaction(ada, 1, "a")
			client.send(transaction(ada, 0, "before"))
			g.Store.SetHooks(c.hooks)
			r := client.send(raw)
			r.wantError(t, wire.CodeUnavailable, c.words)
			if r.said().Outcome != c.outcome {
				t.Errorf("outcome %q, want %q", r.said().Outcome, c.outcome)
			}
			g.nodes.wantGiven(0)
			g.Store.SetHooks(memstore.Hooks{})
			client.send(raw).wantHashOf(t, raw)
			g.nodes.wantGiven(0, 1)
		})
	}
}

// What a gateway that dies between forward and mark leaves behind: the record, by which
// the nonce is used when its hold ends.
func TestTheOutcomeOfATransactionThatCouldNotBeMarkedIsInItsRecord(t *testing.T) {
	g := startGateway(t)
	c, raw := g.dial(), transaction(ada, 0, "a")
	g.nodes.saysBy(func(chain.Tx) chain.Verdict {
		g.Store.SetHooks(memstore.Hooks{Before: func(memstore.Call) error {
			return &nonce.StoreError{Outcome: nonce.NotSent, Err: errors.New("away")}
		}})
		return chain.Verdict{Class: chain.InPool}
	})
	c.send(raw).wantHashOf(t, raw)
	g.Store.SetHooks(memstore.Hooks{})
	g.wantRow(signer(ada), 0, nonce.Held, hashOf(raw))
	g.WantMetrics(map[string]float64{"eth_loose_ends_total": 1})
	g.nodes.says(chain.Verdict{Class: chain.InPool, Code: -32000, Message: "already known"})
	c.send(raw).wantHashOf(t, raw)
	g.wantRow(signer(ada), 0, nonce.Consumed, hashOf(raw))
}

func TestWhatWasRecordedIsSentAlthoughItsClientHasGone(t *testing.T) {
	g := startGateway(t)
	c, raw := g.dial(), transaction(ada, 0, "a")
	given, let, marked := make(chan struct{}), make(chan struct{}), make(chan struct{})
	g.nodes.saysBy(func(chain.Tx) chain.Verdict {
		close(given)
		<-let
		return chain.Verdict{Class: chain.InPool}
	})
	c.begin(methodSend, `["`+raw+`"]`)
	wait.For(t, given, "the transaction at the nodes")
	g.Store.SetHooks(memstore.Hooks{After: func(call memstore.Call) error {
		if call.Op == memstore.OpCommit && len(call.Writes) == 1 && len(call.Writes[0].History) == 1 {
			close(marked)
		}
		return nil
	}})
	must(t, c.conn.Close())
	wait.Until(t, "the end of the connection", func() bool { return g.Metric("connections") == 0 })
	close(let)
	wait.For(t, marked, "the mark")
	g.wantRow(signer(ada), 0, nonce.Consumed, hashOf(raw))
	g.WantMetrics(map[string]float64{"eth_sends_total{in_pool}": 1})
}

func TestWhoIsNotTheHolderIsRefusedAndNothingIsSent(t *testing.T) {
	wallet := access.RightAllocate | access.RightMark
	g := startGateway(t, letIn(map[string]access.Right{"alice": wallet, "bob": wallet, "boss": everyRight}))
	if n := g.allocate(signer(ada), "alice"); n != 0 {
		t.Fatalf("allocated %d", n)
	}
	bobs, alices := transaction(ada, 0, "bob"), transaction(ada, 0, "alice")
	r := g.dialAs("bob").send(bobs)
	r.wantError(t, wire.CodeRejected, "is held by somebody else, nothing was sent")
	if r.said().Reason != "not_holder" {
		t.Errorf("reason %q", r.said().Reason)
	}
	g.nodes.wantGiven()
	g.wantRow(signer(ada), 0, nonce.Held, chain.Hash{})
	g.dialAs("alice").send(alices).wantHashOf(t, alices)
	g.dialAs("bob").send(transaction(ada, 0, "after")).wantError(t, wire.CodeRejected, "somebody else")
	replaced := transaction(ada, 0, "alice, more")
	g.dialAs("boss").send(replaced).wantHashOf(t, replaced) // it may mark any
	g.nodes.wantGiven(0, 0)
	g.WantMetrics(map[string]float64{"eth_sends_total{refused}": 2})
}

func TestRightsAreAskedForAsElsewhere(t *testing.T) {
	g := startGateway(t, letIn(map[string]access.Right{"reader": access.RightRead | access.RightAllocate, "marker": access.RightMark}))
	g.dialAs("reader").send(transaction(ada, 0, "a")).wantError(t, wire.CodeForbidden, "the right mark on this signer is missing")
	g.dialAs("marker").send(transaction(ada, 0, "a")).wantError(t, wire.CodeForbidden, "the right allocate on this signer is missing")
	g.nodes.wantGiven()
	g.allocate(signer(ada), "marker")
	raw := transaction(ada, 0, "a")
	g.dialAs("marker").send(raw).wantHashOf(t, raw)
	g.nodes.wantGiven(0)
}

func TestQuotasHoldAsElsewhere(t *testing.T) {
	p := who(map[string]access.Right{"alice": everyRight, "bob": everyRight})
	p.Limit("alice", access.Quota{OpenHolds: 2})
	p.Limit("bob", access.Quota{OpenHolds: 2})
	g := startGateway(t, func(s *setup) { s.ws.Auth = p })
	// Those that are in a pool are no open holds; those of which nobody knows are.
	g.nodes.says(chain.Verdict{Class: chain.Taken, Code: -32000, Message: "replacement transaction underpriced"})
	c := g.dialAs("alice")
	for n := range int64(2) {
		c.send(transaction(ada, n, "a")).wantError(t, -32000, "underpriced")
	}
	c.send(transaction(ada, 2, "a")).wantError(t, wire.CodeHoldLimit, "nothing was sent")
	g.nodes.wantGiven(0, 1)
	raw := transaction(ada, 2, "b")
	g.nodes.says(chain.Verdict{Class: chain.InPool})
	g.dialAs("bob").send(raw).wantHashOf(t, raw)
}

func TestWithoutTakeOnlyWhatWasAllocatedIsSent(t *testing.T) {
	g := startGateway(t, func(s *setup) { s.endpoint.Take = false })
	c, raw := g.dial(), transaction(ada, 0, "a")
	c.send(raw).wantError(t, wire.CodeRejected, "nobody holds nonce 0 of "+signer(ada)+", nothing was sent; allocate it first")
	g.nodes.wantGiven()
	g.allocate(signer(ada), "")
	c.send(raw).wantHashOf(t, raw)
}

func TestWalletsUnderstandNoncesThatAreTooLowOrTooHigh(t *testing.T) {
	g := startGateway(t, func(s *setup) { s.endpoint.OrderWait = time.Millisecond; s.chain.Window = 5 })
	g.nodes.at(ada, chain.Start{Latest: 5, Pending: 7})
	c := g.dial()
	raw := transaction(ada, 7, "a")
	c.send(raw).wantHashOf(t, raw)
	c.send(transaction(ada, 4, "mined")).wantError(t, wire.CodeRejected, "nonce too low: the next nonce of "+signer(ada)+" is 8")
	c.send(transaction(ada, 6, "pending, from elsewhere")).wantError(t, wire.CodeRejected, "nonce too low")
	c.send(transaction(ada, 9, "ahead")).wantError(t, wire.CodeRejected, "nonce too high: nobody holds nonce 9 of "+signer(ada)+", and the next one is 8")
	c.send(transaction(ada, 10, "far ahead")).wantError(t, wire.CodeHoldLimit, "new nonces may be 5 ahead of the chain, and nonce 5 is the lowest")
	for n := range int64(2) {
		raw = transaction(ada, 8+n, "a")
		c.send(raw).wantHashOf(t, raw)
	}
	c.send(transaction(ada, 10, "beyond the window")).wantError(t, wire.CodeHoldLimit, "nothing was sent")
	g.nodes.wantGiven(7, 8, 9)
}

// nodesOfTen are those of chain 10, which are not asked anything.
type nodesOfTen struct{ *fakeNodes }

func (nodesOfTen) ID() string { return "eip155:10" }

func TestATransactionOfAnotherChainIsToldWhereItBelongs(t *testing.T) {
	raw := vector(t, "access list") // of chain 10
	g := startGateway(t)
	const bothChains = "invalid_params: transaction: chainId must be 1, is 10: the transaction is for another chain; "
	c := g.dial()
	c.send(raw).wantError(t, wire.CodeInvalidParams, bothChains+"this gateway has no /eth/10; nothing was sent")
	tenth, err := New(nodesOfTen{g.nodes}, g.endpoint.chains, g.endpoint.events, g.Store, Config{}, prometheus.NewRegistry(), g.Logger)
	must(t, err)
	_, err = Handler(g.srv, defaults().bounds, g.endpoint, tenth) // no call is under way
	must(t, err)
	c.send(raw).wantError(t, wire.CodeInvalidParams, bothChains+"send it to /eth/10, or sign it for chain 1; nothing was sent")
	g.nodes.wantGiven()
}

func TestASignerThatIsNewIsCountedWhenAWalletSends(t *testing.T) {
	p := who(map[string]access.Right{"alice": access.RightAllocate | access.RightMark})
	p.Limit("alice", access.Quota{NewSigners: 1})
	g := startGateway(t, func(s *setup) { s.ws.Auth = p })
	first, second := "0x"+strings.Repeat("a", 40), "0x"+strings.Repeat("b", 40)
	for _, account := range []string{first, second} {
		g.nodes.at(account, chain.Start{})
	}
	alice := g.dialAs("alice")
	alice.send(transaction(first, 0, "x"))
	alice.send(transaction(first, 1, "y"))
	alice.send(transaction(second, 0, "x")).wantError(t, wire.CodeServerBusy, "the new signers a minute of this principal are used up")
	g.nodes.wantGiven(0, 1)
}
