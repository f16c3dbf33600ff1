package interop

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum"
	"github.com/ethereum/go-ethereum/accounts/abi"
	"github.com/ethereum/go-ethereum/accounts/abi/bind/v2"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/ethclient"
	"github.com/ethereum/go-ethereum/rpc"

	"noncegate/test/interop/chaintest"
	"noncegate/test/lab/pgtest"
)

// answerer is a contract that logs each call and answers 42.
const answerer = "0x600f600c600039600f6000f3" + "60006000a0602a60005260206000f3"

// chained is a chain and a gateway that asks its node, through a proxy where there is one.
type chained struct {
	*gateway
	sim   *chaintest.Sim
	proxy *chaintest.Proxy
}

// chainFlags have a gateway ask nodes, and wait for them as long as a busy machine may take.
func chainFlags(nodes string, sim *chaintest.Sim) []string {
	return []string{
		fmt.Sprintf("--chain=eip155:%v=%s", sim.ChainID(), nodes), "--chain-poll=50ms", "--chain-timeout=45s", "--chain-wait=45s", "--log-level=debug",
	}
}

func startChained(t *testing.T) *chained {
	t.Helper()
	sim := chaintest.StartSim(t, chaintest.SimConfig{Accounts: 4})
	return &chained{gateway: start(t, chainFlags(sim.WS(), sim)...), sim: sim}
}

func startFaulty(t *testing.T) *chained {
	t.Helper()
	sim := chaintest.StartSim(t, chaintest.SimConfig{Accounts: 4})
	proxy := chaintest.StartProxy(t, sim)
	flags := append(chainFlags(proxy.WS(), sim), "--chain-timeout=8s") // for an answer that does not come
	return &chained{gateway: start(t, flags...), sim: sim, proxy: proxy}
}

// eth is the endpoint's address; ws is its scheme.
func (c *chained) eth(scheme string) string {
	return fmt.Sprintf("%s://%s/eth/%v", scheme, c.addr, c.sim.ChainID())
}

func (c *chained) dialEth(scheme string) *ethclient.Client {
	c.t.Helper()
	client := get(ethclient.DialContext(c.t.Context(), c.eth(scheme)))(c.t)
	c.t.Cleanup(client.Close)
	return client
}

// mine makes a block whenever the pool has something to mine, and an empty one at the tick after it, until the test ends. A client that
// did not find a receipt yet asks again when a block comes, as one always does on a chain.
func (c *chained) mine() {
	again := false
	every(c.t, 200*time.Millisecond, func() {
		var pool struct{ Pending hexutil.Uint }
		if err := c.sim.Call(&pool, "txpool_status"); err != nil && c.t.Context().Err() == nil {
			c.t.Error(err)
		}
		if pool.Pending > 0 || again {
			c.sim.Commit()
		}
		again = pool.Pending > 0
	})
}

// every does something again and again until the test ends, which waits for it.
func every(t *testing.T, d time.Duration, do func()) {
	ctx, stopped := t.Context(), make(chan struct{})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(d)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				do()
			}
		}
	}()
	t.Cleanup(func() { <-stopped })
}

func (c *chained) signerOf(a chaintest.Account) string {
	return fmt.Sprintf("eip155:%v:%s", c.sim.ChainID(), strings.ToLower(a.Address.Hex()))
}

// rows are the nonces of an account as the gateway lists them: NONCE STATUS TX.
func (c *chained) rows(client *rpc.Client, a chaintest.Account) string {
	c.t.Helper()
	list := call[struct {
		Allocations []struct {
			Nonce          int64
			Status, TxHash string
		}
	}](c.t, client, "nonce_list", c.signerOf(a))
	var all []string
	for _, row := range list.Allocations {
		all = append(all, fmt.Sprint(row.Nonce, " ", row.Status, " ", row.TxHash))
	}
	return strings.Join(all, "; ")
}

// get ends the test if there is an error: get(f())(t).
func get[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// go-ethereum's client as a program uses it, with nothing changed but the URL.
func TestGoEthereumsClientSendsThroughTheGateway(t *testing.T) {
	t.Parallel()
	for _, scheme := range []string{"ws", "http"} {
		t.Run(scheme, func(t *testing.T) {
			t.Parallel()
			c := startChained(t)
			client, from := c.dialEth(scheme), c.sim.Accounts[0]
			heads := make(chan *types.Header, 100)
			logs := make(chan types.Log, 100)
			if scheme == "ws" {
				sub := get(client.SubscribeNewHead(t.Context(), heads))(t)
				defer sub.Unsubscribe()
				sub2 := get(client.SubscribeFilterLogs(t.Context(), ethereum.FilterQuery{}, logs))(t)
				defer sub2.Unsubscribe()
			}
			c.mine()
			if id := get(client.ChainID(t.Context()))(t); id.Cmp(c.sim.ChainID()) != 0 {
				t.Errorf("chain id %v", id)
			}
			opts := bind.NewKeyedTransactor(from.Key, c.sim.ChainID())
			to := bind.NewBoundContract(c.sim.Accounts[1].Address, abi.ABI{}, client, client, client)
			payment := *opts
			payment.GasLimit = 21_000 // it estimates for contracts alone
			for i := range uint64(3) {
				tx := get(to.RawTransact(&payment, nil))(t)
				if r := awaitReceipt(t, client, tx.Hash()); tx.Nonce() != i || r.Status != types.ReceiptStatusSuccessful {
					t.Errorf("nonce %d, receipt of %d: %+v", tx.Nonce(), i, r)
				}
			}
			contract, deploy, err := bind.DeployContract(opts, common.FromHex(answerer), client, nil)
			if err != nil {
				t.Fatal(err)
			}
			awaitReceipt(t, client, deploy.Hash())
			if out := get(client.CallContract(t.Context(), ethereum.CallMsg{To: &contract}, nil))(t); new(big.Int).SetBytes(out).Int64() != 42 {
				t.Errorf("the contract answers %x", out)
			}
			tx := get(bind.NewBoundContract(contract, abi.ABI{}, client, client, client).RawTransact(opts, nil))(t)
			r := awaitReceipt(t, client, tx.Hash())
			found := get(client.FilterLogs(t.Context(), ethereum.FilterQuery{BlockHash: &r.BlockHash, Addresses: []common.Address{contract}}))(t)
			if len(found) != 1 {
				t.Errorf("logs: %v", found)
			}
			if scheme == "ws" {
				if l := next1(t, logs); l.Address != contract {
					t.Errorf("log of %v", l.Address)
				}
				if h := next1(t, heads); h.Number.Sign() <= 0 {
					t.Errorf("head %v", h.Number)
				}
			}
			status := call[status](t, c.dial(), "nonce_status", c.signerOf(from))
			if status.Next != 5 || status.Held != 0 || status.Released != 0 {
				t.Errorf("the gateway has %+v", status)
			}
		})
	}
}

func awaitReceipt(t *testing.T, client *ethclient.Client, tx common.Hash) *types.Receipt {
	t.Helper()
	var receipt *types.Receipt
	mined := eventually(func() bool {
		var err error
		if receipt, err = client.TransactionReceipt(t.Context(), tx); err != nil && !errors.Is(err, ethereum.NotFound) {
			t.Fatal(err)
		}
		return err == nil
	})
	if !mined {
		t.Fatalf("transaction %v was never mined", tx)
	}
	return receipt
}

func next1[T any](t *testing.T, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(scenarioTime):
		t.Fatal("nothing came over the subscription")
		panic("unreachable")
	}
}

// A gateway dies when the record is committed: before the node has the transaction, or when
// it has it and nobody was told. Nobody else gets the nonce, and the same transaction goes on.
func TestAGatewayThatDiesWhileItForwardsLeavesTheRecord(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		fault chaintest.Fault
		where string // the transaction is after it
	}{
		"before the node has it": {chaintest.Lost, chaintest.Nowhere},
		"when the node has it":   {chaintest.NoAnswer, chaintest.InPool},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := startFaulty(t)
			from := c.sim.Accounts[0]
			tx := c.sim.Sign(from, chaintest.Payment{Nonce: 0, To: c.sim.Accounts[1].Address})
			rule := c.proxy.On("eth_sendRawTransaction", tt.fault)
			client := c.dialEth("ws")
			sent := make(chan error, 1)
			go func() { sent <- client.SendTransaction(context.Background(), tx) }()
			rule.Await(1)
			c.kill()
			if err := <-sent; err == nil {
				t.Error("a client of a gateway that died was told that all is well")
			}
			rule.End()
			if where := c.sim.Where(tx.Hash()); where != tt.where {
				t.Fatalf("the transaction is %s", where)
			}
			c.gateway = c.again()
			if got, want := c.rows(c.dial(), from), "0 HELD "+tx.Hash().Hex(); got != want {
				t.Errorf("the gateway has %s, want %s", got, want)
			}
			if n := get(c.dialEth("http").PendingNonceAt(t.Context(), from.Address))(t); n != 1 {
				t.Errorf("pending nonce %d", n)
			}
			if err := c.dialEth("http").SendTransaction(t.Context(), tx); err != nil { // nobody was told its hash yet
				t.Fatal(err)
			}
			if err := c.dialEth("ws").SendTransaction(t.Context(), tx); err == nil || !strings.Contains(err.Error(), "already known") {
				t.Errorf("once it was answered with its hash: %v", err)
			}
			if where := c.sim.Where(tx.Hash()); where != chaintest.InPool {
				t.Errorf("the transaction is %s", where)
			}
			if got, want := c.rows(c.dial(), from), "0 CONSUMED "+tx.Hash().Hex(); got != want {
				t.Errorf("the gateway has %s, want %s", got, want)
			}
		})
	}
}

// A node does not answer: its client is told so, and the gateway goes on offering the transaction.
func TestATransactionWithoutAnAnswerIsOfferedAgain(t *testing.T) {
	t.Parallel()
	c := startFaulty(t)
	tx := c.sim.Sign(c.sim.Accounts[0], chaintest.Payment{Nonce: 0})
	lost := c.proxy.On("eth_sendRawTransaction", chaintest.Lost)
	if err := c.dialEth("ws").SendTransaction(t.Context(), tx); err == nil || !strings.Contains(err.Error(), "may be on its way") {
		t.Fatalf("the client was told %v", err)
	}
	lost.End()
	admin, want := c.dial(), "0 CONSUMED "+tx.Hash().Hex()
	if !eventually(func() bool { return c.rows(admin, c.sim.Accounts[0]) == want }) {
		t.Errorf("the gateway has %s, want %s", c.rows(admin, c.sim.Accounts[0]), want)
	}
	if where := c.sim.Where(tx.Hash()); where != chaintest.InPool {
		t.Errorf("the transaction is %s", where)
	}
}

// Which node of a cluster owns an account makes no difference.
func TestEveryNodeOfAClusterSends(t *testing.T) {
	t.Parallel()
	pg := get(pgtest.Start())(t)
	t.Cleanup(func() {
		if err := pg.Close(); err != nil {
			t.Error(err)
		}
	})
	sim := chaintest.StartSim(t, chaintest.SimConfig{Accounts: 4})
	flags := append(chainFlags(sim.WS(), sim), "--store="+pg.NewDatabase(t))
	var nodes []*chained
	for _, id := range []string{"a", "b"} {
		nodes = append(nodes, &chained{sim: sim, gateway: launch(t, "127.0.0.1:0", append(flags, "--node-id="+id))})
	}
	for _, n := range nodes {
		client, live := n.dial(), 0
		known := eventually(func() bool {
			live = 0
			for _, node := range call[struct{ Nodes []struct{ State string } }](t, client, "gateway_info").Nodes {
				if node.State == "live" {
					live++
				}
			}
			return live == 2
		})
		if !known {
			t.Fatalf("%d nodes are live, want 2", live)
		}
	}
	from := sim.Accounts[0]
	for i := range uint64(6) {
		client := nodes[i%2].dialEth("http")
		n := get(client.PendingNonceAt(t.Context(), from.Address))(t)
		if n != i {
			t.Fatalf("node %d says pending nonce %d, want %d", i%2, n, i)
		}
		if err := client.SendTransaction(t.Context(), sim.Sign(from, chaintest.Payment{Nonce: n})); err != nil {
			t.Fatalf("transaction %d at node %d: %v", i, i%2, err)
		}
	}
	if n := sim.PendingNonce(from.Address); n != 6 {
		t.Errorf("the pool of the chain says %d", n)
	}
}

// A blob transaction is as long as no other.
func TestLongABlobTransactionGoesThrough(t *testing.T) {
	t.Parallel()
	c := startChained(t)
	for i, scheme := range []string{"ws", "http"} {
		tx := c.sim.SignBlob(c.sim.Accounts[0], chaintest.Payment{Nonce: uint64(i), To: c.sim.Accounts[1].Address})
		var hash common.Hash
		if err := c.dialEth(scheme).Client().CallContext(t.Context(), &hash, "eth_sendRawTransaction", hexutil.Bytes(c.sim.Raw(tx))); err != nil || hash != tx.Hash() {
			t.Errorf("over %s: %v, %v", scheme, hash, err)
		}
		if where := c.sim.Where(tx.Hash()); where != chaintest.InPool {
			t.Errorf("over %s: the transaction is %s", scheme, where)
		}
	}
}
