package interop

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"os"
	"os/exec"
	"slices"
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

	"noncegate/client"
	"noncegate/test/interop/chaintest"
	"noncegate/test/interop/clients"
)

// bench is a chain whose gateway asks the node itself, and one client with a faulty way to it.
type bench struct {
	*chained
	watch *rpc.Client
}

// payment is what a client is asked to send; Gas 0 and Nonce nil are for it to find out.
type payment struct {
	Value string `json:"value"`
	Gas   uint64 `json:"gas,omitempty"`
	Nonce *int64 `json:"nonce,omitempty"`
}

// payer sends a payment, and returns its hash or what it was told.
type payer func(payment) (hash string, err error)

// clientTimeout is how long a client waits for its node.
const clientTimeout = 10 * time.Second

func newBench(t *testing.T) *bench {
	b := &bench{chained: startChained(t)}
	b.proxy, b.watch = chaintest.StartProxy(t, b.sim), b.dial()
	return b
}

// row is a nonce of the client's account, as NONCE#ATTEMPT STATUS.
func (b *bench) row(nonce int64) string {
	b.t.Helper()
	list := call[struct {
		Allocations []struct {
			Nonce, Attempt        int64
			Status, TxHash, Chain string
		}
	}](b.t, b.watch, "nonce_list", object{"signer": b.signerOf(b.sim.Accounts[0]), "from": nonce, "limit": 1})
	if len(list.Allocations) == 0 {
		return "never handed out"
	}
	r := list.Allocations[0]
	text := fmt.Sprintf("%d#%d %s", r.Nonce, r.Attempt, r.Status)
	if r.TxHash != "" {
		text += " with a hash"
	}
	if r.Status == "HELD" && r.Chain == "mined" {
		text += ", mined"
	}
	return text
}

// await waits until a nonce is in one of the states.
func (b *bench) await(nonce int64, want ...string) {
	b.t.Helper()
	if !eventually(func() bool { return slices.Contains(want, b.row(nonce)) }) {
		b.t.Fatalf("nonce %d is %q, want %q", nonce, b.row(nonce), want)
	}
}

// mined has a payment be sent and mined with this nonce.
func (b *bench) mined(pay payer, p payment, nonce int64) {
	b.t.Helper()
	hash, err := pay(p)
	if err != nil {
		b.t.Fatalf("payment of nonce %d: %v", nonce, err)
	}
	b.sim.Commit()
	receipt := b.sim.Receipt(common.HexToHash(hash))
	if receipt == nil || receipt.Status != 1 {
		b.t.Fatalf("the payment of nonce %d, %s, is not mined", nonce, hash)
	}
	if count := b.sim.Nonce(b.sim.Accounts[0].Address); count != uint64(nonce)+1 {
		b.t.Fatalf("the account counts %d after nonce %d", count, nonce)
	}
}

// run is what every client has to do: send, give back what was refused, and leave alone what it
// knows nothing of.
func (b *bench) run(pay payer) {
	t := b.t
	for nonce := range int64(3) {
		b.mined(pay, payment{Value: "1"}, nonce)
		b.await(nonce, fmt.Sprintf("%d#1 CONSUMED with a hash", nonce)) // a client need not wait for its mark
	}

	// Nobody has so much. With the gas given, the first who notices is the pool.
	_, err := pay(payment{Value: "5000000000000000000000", Gas: 21000})
	if err == nil || !strings.Contains(err.Error(), "insufficient funds") {
		t.Fatalf("a payment that the account cannot make: %v", err)
	}
	b.await(3, "3#1 RELEASED")
	b.mined(pay, payment{Value: "2"}, 3)
	b.await(3, "3#2 CONSUMED with a hash")

	// What fails before anything is signed keeps no nonce either: the gas cannot be estimated.
	if _, err := pay(payment{Value: "5000000000000000000000"}); err == nil {
		t.Fatal("the gas of an impossible payment was estimated")
	}
	b.await(4, "never handed out", "4#1 RELEASED")

	// The node takes it, and its answer does not come.
	silence := b.proxy.On("eth_sendRawTransaction", chaintest.NoAnswer)
	if hash, err := pay(payment{Value: "3"}); err == nil {
		t.Fatalf("a node that does not answer was taken for one that did: %s", hash)
	}
	if met := silence.Met(); met != 1 {
		t.Fatalf("it was sent %d times", met)
	}
	silence.End()
	row := b.row(4)
	if !strings.HasSuffix(row, "HELD with a hash") {
		t.Fatalf("after a time-out the nonce is %q", row)
	}
	if pending := b.sim.PendingNonce(b.sim.Accounts[0].Address); pending != 5 {
		t.Fatalf("the account counts %d with its pool after the time-out", pending)
	}
	b.sim.Commit()
	b.await(4, row+", mined")
	b.mined(pay, payment{Value: "4"}, 5)

	// It has come to the node on another way before.
	ahead := b.proxy.On("eth_sendRawTransaction", chaintest.RateLimited, chaintest.If(func(params []json.RawMessage) bool {
		var raw hexutil.Bytes
		if err := json.Unmarshal(params[0], &raw); err != nil {
			return true
		}
		_, err := b.sim.SendRaw(raw)
		return err != nil // which the client would not be told else
	}))
	b.mined(pay, payment{Value: "5"}, 6)
	ahead.End()
	b.await(6, "6#1 CONSUMED with a hash")

	// A nonce that the caller chose is nobody's, and is not sent with.
	before := b.proxy.Calls("eth_sendRawTransaction")
	if _, err := pay(payment{Value: "6", Gas: 21000, Nonce: new(int64(9))}); err == nil {
		t.Fatal("a nonce was used that the gateway did not hand out")
	}
	if after := b.proxy.Calls("eth_sendRawTransaction"); after != before {
		t.Fatal("a transaction was sent whose nonce is not held")
	}
}

// node starts a client that uses the package for TypeScript, of which dir is a copy. It ends with the test.
func (b *bench) node(kind, dir string) payer {
	t := b.t
	t.Helper()
	cmd := exec.Command("node", "test/drive.mjs")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "NODE="+b.proxy.URL(), "CHAIN_ID="+b.sim.ChainID().String(), "KEY="+keyOf(b.sim.Accounts[0]),
		"TO="+b.sim.Accounts[1].Address.Hex(), "KIND="+kind, "GATEWAY=ws://"+b.addr+"/ws", fmt.Sprint("TIMEOUT_MS=", clientTimeout.Milliseconds()))
	var stderr strings.Builder
	cmd.Stderr = &stderr
	in, out := get(cmd.StdinPipe())(t), get(cmd.StdoutPipe())(t)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("the client ended with %v\n%s", err, &stderr)
		}
	})
	lines := bufio.NewScanner(out)
	answer := func() (a struct{ Hash, Error string }) {
		if !lines.Scan() {
			t.Fatalf("the client said no more: %v\n%s", lines.Err(), &stderr)
		}
		if err := json.Unmarshal(lines.Bytes(), &a); err != nil {
			t.Fatalf("the client said %q", lines.Text())
		}
		return a
	}
	answer() // it is ready
	return func(p payment) (string, error) {
		if err := json.NewEncoder(in).Encode(p); err != nil {
			t.Fatal(err)
		}
		a := answer()
		if a.Error != "" {
			return "", errors.New(a.Error)
		}
		return a.Hash, nil
	}
}

func TestTheClientForGoEthereum(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	gateway := get(client.Dial(t.Context(), "ws://"+b.addr+"/ws", client.Config{}))(t)
	defer gateway.Close()
	node := get(ethclient.DialContext(t.Context(), b.proxy.URL()))(t)
	defer node.Close()
	auth := bind.NewKeyedTransactor(b.sim.Accounts[0].Key, b.sim.ChainID())
	contract := bind.NewBoundContract(b.sim.Accounts[1].Address, abi.ABI{}, node, node, node)
	estimate := func(opts *bind.TransactOpts) (uint64, error) {
		return node.EstimateGas(opts.Context, ethereum.CallMsg{From: opts.From, To: &b.sim.Accounts[1].Address, Value: opts.Value})
	}
	b.run(func(p payment) (string, error) {
		value, _ := new(big.Int).SetString(p.Value, 10)
		ctx, cancel := context.WithTimeout(t.Context(), clientTimeout)
		defer cancel()
		tx, err := clients.Send(ctx, gateway, node, b.signerOf(b.sim.Accounts[0]), *auth, func(opts *bind.TransactOpts) (*types.Transaction, error) {
			opts.Value, opts.GasLimit = value, p.Gas
			if p.Nonce != nil {
				opts.Nonce = big.NewInt(*p.Nonce)
			}
			if p.Gas == 0 { // a binding estimates for contracts alone
				gas, err := estimate(opts)
				if err != nil {
					return nil, err
				}
				opts.GasLimit = gas
			}
			return contract.RawTransact(opts, nil)
		})
		if err != nil {
			return "", err
		}
		return tx.Hash().Hex(), nil
	})
}
