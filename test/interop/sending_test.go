package interop

import (
	"context"
	"encoding/json"
	"errors"
	"math/big"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/rpc"

	"noncegate/test/interop/chaintest"
	"noncegate/test/lab/pgtest"
)

// chainStatus is what nonce_status says of an account on a chain.
type chainStatus struct {
	Next  uint64
	Owner string
	Chain struct {
		Mined uint64
		Gap   *struct{ Nonce int64 }
	}
}

// A node that is mute has taken nothing, and the gateway that gave it the transaction is killed:
// the one that owns the account then offers the transaction, and no client has to come.
func TestWhoTakesOverAnAccountOffersItsTransaction(t *testing.T) {
	t.Parallel()
	pg := get(pgtest.Start())(t)
	t.Cleanup(func() {
		if err := pg.Close(); err != nil {
			t.Error(err)
		}
	})
	sim := chaintest.StartSim(t, chaintest.SimConfig{Accounts: 64})
	store := "--store=" + pg.NewDatabase(t)
	mute := chaintest.StartProxy(t, sim)
	mute.On("eth_sendRawTransaction", chaintest.Lost)
	node := func(id, url string) *chained {
		flags := append(chainFlags(url, sim), store, "--lease-ttl=2s", "--node-id="+id)
		return &chained{sim: sim, gateway: launch(t, "127.0.0.1:0", flags)}
	}
	a, b := node("a", mute.WS()), node("b", sim.WS())
	toA, toB := a.dial(), b.dial()
	awaitNodes(t, toA, 2)
	awaitNodes(t, toB, 2)
	owner := func(at *rpc.Client, of chaintest.Account) string {
		return call[chainStatus](t, at, "nonce_status", a.signerOf(of)).Owner
	}
	var from chaintest.Account
	found := eventually(func() bool {
		for _, from = range sim.Accounts {
			if owner(toA, from) == "a" && owner(toB, from) == "a" {
				return true
			}
		}
		return false
	})
	if !found {
		t.Fatal("no account is the first node's")
	}
	tx := sim.Sign(from, chaintest.Payment{Nonce: 0, To: sim.Accounts[1].Address})
	if err := a.dialEth("ws").SendTransaction(t.Context(), tx); err == nil || !strings.Contains(err.Error(), "may be on its way") {
		t.Fatalf("the client was told %v", err)
	}
	if is, where := owner(toA, from), sim.Where(tx.Hash()); is != "a" || where != chaintest.Nowhere {
		t.Fatalf("the account is owned by %q, and the transaction is %s", is, where)
	}
	a.kill()
	b.mine()
	if !eventually(func() bool { return sim.Where(tx.Hash()) == chaintest.Mined }) {
		t.Fatalf("the transaction is %s", sim.Where(tx.Hash()))
	}
	want := "0 CONSUMED " + tx.Hash().Hex()
	if !eventually(func() bool { return b.rows(toB, from) == want }) {
		t.Errorf("the gateway has %s, want %s", b.rows(toB, from), want)
	}
}

// A program computes forty nonces and sends all at once, over one connection: those behind the
// window are told the window until those before them are mined, and all of them are in the end.
func TestTransactionsBehindTheWindowAreToldTheWindow(t *testing.T) {
	t.Parallel()
	const all, window = 40, 16
	c := startChained(t) // with the usual window
	client, from := c.dialEth("ws").Client(), c.sim.Accounts[0]
	told, mining := make(chan uint64, all), make(chan struct{})
	ctx, giveUp := context.WithCancel(t.Context())
	defer giveUp()
	var sends sync.WaitGroup
	for n := range uint64(all) {
		raw := hexutil.Bytes(c.sim.Raw(c.sim.Sign(from, chaintest.Payment{Nonce: n, To: c.sim.Accounts[1].Address})))
		sends.Go(func() {
			for isTold := false; ; {
				err := client.CallContext(ctx, nil, "eth_sendRawTransaction", raw)
				if err == nil || strings.Contains(err.Error(), "already known") || ctx.Err() != nil {
					return
				}
				wait, isWindow := windowOf(err)
				if wait == 0 { // nothing to wait for, and those behind it would wait for ever
					t.Errorf("transaction %d: %v", n, err)
					giveUp()
					return
				}
				if isWindow && !isTold {
					isTold = true
					told <- n
					<-mining
				}
				time.Sleep(wait)
			}
		})
	}
	for range all - window {
		if n := next1(t, told); n < window {
			t.Errorf("transaction %d was told the window", n)
		}
	}
	close(mining)
	c.mine()
	sends.Wait()
	if !eventually(func() bool { return c.sim.Nonce(from.Address) == all }) {
		t.Errorf("%d are mined, want %d", c.sim.Nonce(from.Address), all)
	}
}

// windowOf is how long a refusal says to wait, 0 where it does not, and whether it is about the window.
func windowOf(err error) (wait time.Duration, is bool) {
	e, ok := errors.AsType[rpc.DataError](err)
	if !ok {
		return 0, false
	}
	var data struct {
		Reason, Cause string
		RetryAfterMs  int
	}
	text, err := json.Marshal(e.ErrorData())
	if err != nil || json.Unmarshal(text, &data) != nil {
		return 0, false
	}
	return time.Duration(data.RetryAfterMs) * time.Millisecond, data.Reason == "hold_limit" && data.Cause == "window"
}

// The outcome of a transaction is unknown until its hold is over, so that its nonce counts as used;
// then all nodes refuse it for good. The nonce is told as a gap, and its account reaches it.
func TestANonceWhoseTransactionIsRefusedForGoodAfterItsHoldIsReachable(t *testing.T) {
	t.Parallel()
	c := startChained(t, "--hold-ttl=1s", "--sweep-interval=100ms", "--chain-gap-after=1s")
	from, to := c.sim.Accounts[0], c.sim.Accounts[1].Address
	client, admin := c.dialEth("ws"), c.dial()
	send := func(p chaintest.Payment) (*types.Transaction, error) {
		tx := c.sim.Sign(from, p)
		return tx, client.SendTransaction(t.Context(), tx)
	}
	tooMuch := c.sim.Sign(from, chaintest.Payment{Nonce: 0, To: to, Value: chaintest.Ether(2000)})
	raw := hexutil.Encode(c.sim.Raw(tooMuch))
	lost := c.proxy.On("eth_sendRawTransaction", chaintest.Lost, chaintest.If(func(params json.RawMessage) bool { return strings.Contains(string(params), raw) }))
	if err := client.SendTransaction(t.Context(), tooMuch); err == nil || !strings.Contains(err.Error(), "may be on its way") {
		t.Fatalf("the client was told %v", err)
	}
	if _, err := send(chaintest.Payment{Nonce: 1, To: to}); err != nil {
		t.Fatal(err)
	}
	used := "0 CONSUMED " + tooMuch.Hash().Hex() + "; "
	if !eventually(func() bool { return strings.HasPrefix(c.rows(admin, from), used) }) {
		t.Fatalf("the gateway has %s, want %s…", c.rows(admin, from), used)
	}
	pending := func() uint64 { return get(client.PendingNonceAt(t.Context(), from.Address))(t) }
	if n := pending(); n != 2 {
		t.Errorf("the pending count is %d while the transaction may be on its way, want 2", n)
	}
	lost.End()
	if !eventually(func() bool { return pending() == 0 }) {
		t.Fatalf("the pending count is %d, want the nonce that nobody else fills", pending())
	}
	gap := func() *struct{ Nonce int64 } {
		return call[chainStatus](t, admin, "nonce_status", c.signerOf(from)).Chain.Gap
	}
	if !eventually(func() bool { g := gap(); return g != nil && g.Nonce == 0 }) {
		t.Errorf("the gap is %v, want nonce 0", gap())
	}
	other, err := send(chaintest.Payment{Nonce: 0, To: to, Value: big.NewInt(5)})
	if err != nil {
		t.Fatal(err)
	}
	c.mine()
	if !eventually(func() bool { return c.sim.Nonce(from.Address) == 2 && gap() == nil && pending() == 2 }) {
		t.Errorf("%d are mined, the other one is %s, the pending count is %d, and the gap %v", c.sim.Nonce(from.Address), c.sim.Where(other.Hash()), pending(), gap())
	}
}
