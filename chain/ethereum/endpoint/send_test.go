package endpoint

import (
	"strings"
	"testing"

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
