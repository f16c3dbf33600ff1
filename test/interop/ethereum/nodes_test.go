// Package ethereum_test holds chain/ethereum against real nodes: go-ethereum's own, in this process, and Foundry's anvil.
package ethereum_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/core/types"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"noncegate/chain"
	"noncegate/chain/ethereum"
	"noncegate/test/interop/chaintest"
	"noncegate/test/lab/expect"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, chaintest.Leftovers()...) }

// net is how long anything may take before a test fails.
const net = 30 * time.Second

// world is a node and a Client that follows its chain.
type world struct {
	*ethereum.Client
	t        *testing.T
	node     *chaintest.Node
	accounts []chaintest.Account
	mine     func() // one block with what is in the pool
	heads    chan chain.Head
	log      *expect.Buffer
}

// everywhere runs a test against each kind of node, over HTTP and over a WebSocket.
func everywhere(t *testing.T, test func(w *world)) {
	for _, carrier := range []string{"http", "ws"} {
		t.Run("geth over "+carrier, func(t *testing.T) {
			sim := chaintest.StartSim(t, chaintest.SimConfig{})
			test(follow(t, sim.Node, carrier, sim.Accounts, sim.Commit))
		})
		t.Run("anvil over "+carrier, func(t *testing.T) {
			anvil := chaintest.StartAnvil(t, "--no-mining")
			test(follow(t, anvil.Node, carrier, anvil.Accounts, anvil.Commit))
		})
	}
}

// follow starts a Client of a node, and waits until it knows the newest block.
func follow(t *testing.T, node *chaintest.Node, carrier string, accounts []chaintest.Account, mine func()) *world {
	t.Helper()
	w := &world{t: t, node: node, accounts: accounts, mine: mine, heads: make(chan chain.Head, 1000), log: new(expect.Buffer)}
	url := node.URL()
	if carrier == "ws" {
		url = node.WS()
	}
	var err error
	w.Client, err = ethereum.New(ethereum.Config{
		ID: "eip155:" + node.ChainID().String(), Nodes: []string{url}, PollInterval: 50 * time.Millisecond, Timeout: net,
	}, prometheus.NewRegistry(), slog.New(slog.NewTextHandler(w.log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { w.Run(ctx, func(h chain.Head) { w.heads <- h }) })
	t.Cleanup(func() { cancel(); running.Wait() })
	w.until(func(h chain.Head) bool { return h.Skipped })
	return w
}

// until returns the first head that fits.
func (w *world) until(fits func(chain.Head) bool) chain.Head {
	w.t.Helper()
	late := time.After(net)
	for {
		select {
		case h := <-w.heads:
			if fits(h) {
				return h
			}
		case <-late:
			w.t.Fatalf("no such head; the log says\n%s", w.log)
		}
	}
}

// block mines one, and returns the head that tells of it.
func (w *world) block() chain.Head {
	w.t.Helper()
	w.mine()
	number, hash := w.node.Head()
	h := w.until(func(h chain.Head) bool { return h.Latest.Hash == chain.Hash(hash) })
	if h.Latest.Number != int64(number) || h.Skipped {
		w.t.Errorf("head %+v, want block %d and nothing skipped", h, number)
	}
	return h
}

func (w *world) send(from chaintest.Account, p chaintest.Payment) (*types.Transaction, chain.Verdict) {
	tx := w.node.Sign(from, p)
	return tx, w.Send(w.t.Context(), w.node.Raw(tx))
}

func (w *world) wantClass(v chain.Verdict, want chain.Class) {
	w.t.Helper()
	if v.Class != want {
		w.t.Errorf("verdict %+v, want %v", v, want)
	}
}

func name(a chaintest.Account) string { return strings.ToLower(a.Address.Hex()) }

func (w *world) counts(at chain.Block, of ...chaintest.Account) []int64 {
	w.t.Helper()
	var names []string
	for _, a := range of {
		names = append(names, name(a))
	}
	got, err := w.Counts(w.t.Context(), at, names)
	if err != nil {
		w.t.Fatal(err)
	}
	var used []int64
	for _, c := range got {
		used = append(used, c.Used)
	}
	return used
}

func TestATransactionIsFollowedFromTheSendingToTheBlock(t *testing.T) {
	everywhere(t, func(w *world) {
		t := w.t
		from := w.accounts[0]
		start, err := w.Start(t.Context(), []string{name(from)})
		if err != nil || start[0] != (chain.Start{}) {
			t.Errorf("start %+v, %v; want a new account", start, err)
		}
		tx, v := w.send(from, chaintest.Payment{Nonce: 0})
		w.wantClass(v, chain.InPool)
		w.wantClass(w.Send(t.Context(), w.node.Raw(tx)), chain.InPool) // the node has it already
		_, v = w.send(from, chaintest.Payment{Nonce: 0, Data: []byte("other")})
		w.wantClass(v, chain.Taken)
		_, v = w.send(from, chaintest.Payment{Nonce: 2})
		w.wantClass(v, chain.InPool) // it waits for nonce 1

		seen, err := w.Lookup(t.Context(), []chain.Ask{
			{Account: name(from), Nonce: 0, Hashes: []chain.Hash{chain.Hash(tx.Hash())}},
			{Account: name(from), Nonce: 0}, {Account: name(from), Nonce: 2}, {Account: name(from), Nonce: 1},
		})
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range []chain.Seen{chain.Pooled, chain.Pooled, chain.Pooled, chain.Absent} {
			if seen[i].Seen != want || seen[i].Failed {
				t.Errorf("sighting %d is %+v, want %v", i, seen[i], want)
			}
		}
		if seen[0].Tx != chain.Hash(tx.Hash()) || seen[0].Raw.MaxFeePerGas == "" {
			t.Errorf("sighting %+v, want the transaction and what it offers", seen[0])
		}
		start, err = w.Start(t.Context(), []string{name(from)})
		if err != nil || start[0].Latest != 0 || start[0].Pending < 1 {
			t.Errorf("start %+v, %v; want one pending", start, err)
		}

		h := w.block()
		if len(h.Uses) != 1 || h.Uses[0] != (chain.Use{Account: name(from), Nonce: 0, Tx: chain.Hash(tx.Hash())}) {
			t.Errorf("uses %+v, want that of the transaction", h.Uses)
		}
		before := chain.Block{Number: h.Latest.Number - 1, Hash: h.Latest.Parent}
		if now, then := w.counts(h.Latest, from), w.counts(before, from); now[0] != 1 || then[0] != 0 {
			t.Errorf("counts %v now and %v in the block before, want 1 and 0", now, then)
		}
		_, v = w.send(from, chaintest.Payment{Nonce: 0, Bump: 100})
		w.wantClass(v, chain.Used)
		seen, err = w.Lookup(t.Context(), []chain.Ask{{Account: name(from), Nonce: 0, Hashes: []chain.Hash{chain.Hash(tx.Hash())}}})
		if err != nil || seen[0].Seen != chain.Mined || seen[0].Block.Hash != h.Latest.Hash || seen[0].Block.Number != h.Latest.Number {
			t.Errorf("sighting %+v, %v; want it mined in block %d", seen, err, h.Latest.Number)
		}
		v = w.Send(t.Context(), w.node.Raw(tx))
		if v.Class != chain.Used && v.Class != chain.InPool {
			t.Errorf("verdict %+v of a transaction that was mined, want used", v)
		}
		w.refusals()
		if strings.Contains(w.log.String(), "EIP-1898") {
			t.Errorf("the node was taken for one without counts at a block hash:\n%s", w.log)
		}
	})
}

// refusals are what leaves nothing behind: a payment of somebody who has nothing, one without a fee, and a block that nobody has.
func (w *world) refusals() {
	_, v := w.send(chaintest.NewAccount(1000), chaintest.Payment{Nonce: 0})
	w.wantClass(v, chain.Free)
	_, v = w.send(w.accounts[1], chaintest.Payment{Nonce: 0, Bump: -100})
	if v.Class != chain.Refused && v.Class != chain.InPool {
		w.t.Errorf("verdict %+v of a transaction without a fee", v)
	}
	at := w.Status().Head
	at.Hash[0]++
	if got, err := w.Counts(w.t.Context(), at, []string{name(w.accounts[0])}); !errors.Is(err, chain.ErrUnreachable) {
		w.t.Errorf("counts %+v, %v; want ErrUnreachable", got, err)
	}
	if s := w.Status().Nodes[0]; !s.Up {
		w.t.Errorf("status %+v, want up", s)
	}
}

func TestLongABlobTransactionIsTakenAndAGapOfBlobsIsNot(t *testing.T) {
	sim := chaintest.StartSim(t, chaintest.SimConfig{})
	w := follow(t, sim.Node, "ws", sim.Accounts, sim.Commit)
	from := w.accounts[0]
	gap := w.node.SignBlob(from, chaintest.Payment{Nonce: 1})
	if v := w.Send(t.Context(), w.node.Raw(gap)); v.Class != chain.Refused || !v.Missing {
		t.Errorf("verdict %+v of a blob without the nonce before it, want refused, because of a gap", v)
	}
	tx := w.node.SignBlob(from, chaintest.Payment{Nonce: 0})
	w.wantClass(w.Send(t.Context(), w.node.Raw(tx)), chain.InPool)
	w.wantClass(w.Send(t.Context(), w.node.Raw(tx)), chain.InPool)
	h := w.block()
	if len(h.Uses) != 1 || h.Uses[0] != (chain.Use{Account: name(from), Nonce: 0, Tx: chain.Hash(tx.Hash())}) {
		t.Errorf("uses %+v, want that of the blob transaction", h.Uses)
	}
}

func TestAReorganizationOfAnvilLosesTheTransaction(t *testing.T) {
	anvil := chaintest.StartAnvil(t, "--no-mining")
	w := follow(t, anvil.Node, "ws", anvil.Accounts, anvil.Commit)
	from := w.accounts[0]
	w.block()
	tx, _ := w.send(from, chaintest.Payment{Nonce: 0})
	old := w.block().Latest
	anvil.Reorg(1)
	h := w.until(func(h chain.Head) bool { return h.Reorg != nil })
	if h.Reorg.From != old || h.Reorg.Depth != 1 {
		t.Errorf("head %+v with %+v, want a reorganization of one block", h, h.Reorg)
	}
	if got := w.counts(w.Status().Head, from); got[0] != 0 {
		t.Errorf("count %v, want 0", got)
	}
	seen, err := w.Lookup(t.Context(), []chain.Ask{{Account: name(from), Nonce: 0, Hashes: []chain.Hash{chain.Hash(tx.Hash())}}})
	if err != nil || seen[0].Seen != chain.Absent || seen[0].Failed {
		t.Errorf("sighting %+v, %v; want it nowhere", seen, err)
	}
}
