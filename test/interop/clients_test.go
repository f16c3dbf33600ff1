package interop

import (
	"bufio"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum"
	"github.com/ethereum/go-ethereum/accounts/abi"
	"github.com/ethereum/go-ethereum/accounts/abi/bind/v2"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/ethereum/go-ethereum/ethclient"
	"github.com/ethereum/go-ethereum/rpc"

	"noncegate/client"
	"noncegate/test/interop/chaintest"
	"noncegate/test/interop/clients"
	"noncegate/test/lab/npmtest"
)

func TestThePageNamesTheClientsThatAreTested(t *testing.T) {
	page, err := os.ReadFile("../../docs/clients.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"viem.mjs", "ethers.mjs", "geth.go"} {
		text, err := os.ReadFile(filepath.Join("clients", name))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(page), "](../test/interop/clients/"+name+")") {
			t.Errorf("docs/clients.md does not link test/interop/clients/%s", name)
		}
		if lines := strings.Count(string(text), "\n"); lines >= 55 {
			t.Errorf("test/interop/clients/%s has %d lines; fewer than 55 are promised", name, lines)
		}
	}
}

// bench is a chain, a faulty way to it, a gateway that asks the chain itself, and one client.
type bench struct {
	t      *testing.T
	sim    *chaintest.Sim
	proxy  *chaintest.Proxy
	gw     *gateway
	watch  *rpc.Client
	signer string
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
const clientTimeout = 3 * time.Second

func newBench(t *testing.T) *bench {
	b := &bench{t: t, sim: chaintest.StartSim(t, chaintest.SimConfig{Accounts: 3})}
	b.proxy = chaintest.StartProxy(t, b.sim)
	b.signer = fmt.Sprintf("eip155:%s:%s", b.sim.ChainID(), strings.ToLower(b.sim.Accounts[0].Address.Hex()))
	b.gw = start(t, fmt.Sprintf("--chain=eip155:%s=%s", b.sim.ChainID(), b.sim.WS()), "--chain-poll=50ms", "--sweep-interval=100ms")
	b.watch = b.gw.dial()
	return b
}

// row is a nonce of the client's account, as NONCE#ATTEMPT STATUS.
func (b *bench) row(nonce int64) string {
	b.t.Helper()
	var list struct {
		Allocations []struct {
			Nonce, Attempt        int64
			Status, TxHash, Chain string
		}
	}
	if err := b.watch.CallContext(b.t.Context(), &list, "nonce_list", map[string]any{"signer": b.signer, "from": nonce, "limit": 1}); err != nil {
		b.t.Fatal(err)
	}
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

func (b *bench) want(nonce int64, want string) {
	b.t.Helper()
	if got := b.row(nonce); got != want {
		b.t.Fatalf("nonce %d is %q, want %q", nonce, got, want)
	}
}

func (b *bench) await(nonce int64, want string) {
	b.t.Helper()
	if !eventually(func() bool { return b.row(nonce) == want }) {
		b.t.Fatalf("nonce %d is %q after %v, want %q", nonce, b.row(nonce), scenarioTime, want)
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
	b.want(3, "3#1 RELEASED")
	b.mined(pay, payment{Value: "2"}, 3)
	b.await(3, "3#2 CONSUMED with a hash")

	// What fails before anything is signed keeps no nonce either: the gas cannot be estimated.
	if _, err := pay(payment{Value: "5000000000000000000000"}); err == nil {
		t.Fatal("the gas of an impossible payment was estimated")
	}
	b.awaitFree(4)

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

// awaitFree waits until a nonce is held by nobody.
func (b *bench) awaitFree(nonce int64) {
	b.t.Helper()
	if row := b.row(nonce); row != "never handed out" {
		b.await(nonce, fmt.Sprintf("%d#1 RELEASED", nonce))
	}
}

func TestTheClientForViem(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.run(b.node("viem"))
}

func TestTheClientForEthers(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.run(b.node("ethers"))
}

// folder is a folder with the clients in JavaScript and the packages they need.
func folder(t *testing.T) string {
	t.Helper()
	packages, err := npmtest.Folder(t.Context(), "clients", os.DirFS("clients/npm"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, file := range []string{"viem.mjs", "ethers.mjs", "testdata/drive.mjs"} {
		text, err := os.ReadFile(filepath.Join("clients", file))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, filepath.Base(file)), text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(filepath.Join(packages, "node_modules"), filepath.Join(dir, "node_modules")); err != nil {
		t.Fatal(err)
	}
	return dir
}

// environment is what programs in JavaScript are told of a chain.
func environment(sim *chaintest.Sim, node chaintest.Endpoint) []string {
	return append(os.Environ(), "NODE="+node.URL(), "CHAIN_ID="+sim.ChainID().String(),
		"KEY=0x"+hex.EncodeToString(crypto.FromECDSA(sim.Accounts[0].Key)), "TO="+sim.Accounts[1].Address.Hex())
}

// node starts a client in JavaScript, which ends with the test.
func (b *bench) node(kind string) payer {
	t := b.t
	t.Helper()
	cmd := exec.Command("node", "drive.mjs")
	cmd.Dir = folder(t)
	cmd.Env = append(environment(b.sim, b.proxy), "KIND="+kind, "GATEWAY=ws://"+b.gw.addr+"/ws", fmt.Sprint("TIMEOUT_MS=", clientTimeout.Milliseconds()))
	var stderr strings.Builder
	cmd.Stderr = &stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
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
		line, err := json.Marshal(p)
		if err == nil {
			_, err = io.WriteString(in, string(line)+"\n")
		}
		if err != nil {
			t.Fatal(err)
		}
		if a := answer(); a.Error != "" {
			return "", errors.New(a.Error)
		} else {
			return a.Hash, nil
		}
	}
}

func TestTheClientForGoEthereum(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	gateway, err := client.Dial(t.Context(), "ws://"+b.gw.addr+"/ws", client.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer gateway.Close()
	node, err := ethclient.DialContext(t.Context(), b.proxy.URL())
	if err != nil {
		t.Fatal(err)
	}
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
		tx, err := clients.Send(ctx, gateway, node, b.signer, *auth, func(opts *bind.TransactOpts) (*types.Transaction, error) {
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
