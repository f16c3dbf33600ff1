package interop

import (
	"encoding/json"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/ethereum/go-ethereum/common"

	"noncegate/test/interop/chaintest"
)

// The package's tests of viem and ethers with go-ethereum's node instead of anvil.
func TestLongTheTypeScriptPackageOnGoEthereum(t *testing.T) {
	chains := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, startAsAnvil(t)) }))
	t.Cleanup(chains.Close)
	env := []string{"NONCEGATE=" + program, "GETH=" + chains.URL}
	t.Log(inFolder(t, sdk(t), env, "node", "--test", "--test-concurrency=1", "--test-reporter=spec",
		"test/viem.test.mjs", "test/ethers.test.mjs", "test/blobs.long.mjs"))
}

// asAnvil is go-ethereum's node as the tests of the package expect a node: with those methods of anvil's that they use.
type asAnvil struct {
	*chaintest.Sim

	mu   sync.Mutex
	auto bool // a block for each transaction
	gave uint64
}

// startAsAnvil starts one and returns its address.
func startAsAnvil(t *testing.T) string {
	a := &asAnvil{Sim: chaintest.StartSim(t, chaintest.SimConfig{ChainID: 31337}), auto: true}
	server := httptest.NewServer(a)
	t.Cleanup(server.Close)
	return server.URL
}

func (a *asAnvil) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var call struct {
		ID     json.RawMessage
		Method string
		Params []json.RawMessage
	}
	if err != nil || json.Unmarshal(body, &call) != nil && body[0] != '[' {
		http.Error(w, "no JSON", http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if a.own(call.Method, call.Params) {
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":null}`, call.ID)
		return
	}
	answer, err := http.Post(a.URL(), "application/json", strings.NewReader(string(body)))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer answer.Body.Close()
	said, _ := io.ReadAll(answer.Body)
	if a.mu.Lock(); call.Method == "eth_sendRawTransaction" && a.auto {
		a.Settle()
		a.Commit()
	}
	a.mu.Unlock()
	_, _ = w.Write(said)
}

// own does what is a method of anvil's alone.
func (a *asAnvil) own(method string, params []json.RawMessage) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch method {
	case "anvil_setBalance": // by a payment
		var to common.Address
		_ = json.Unmarshal(params[0], &to)
		_ = a.Send(a.Sign(a.Accounts[0], chaintest.Payment{Nonce: a.gave, To: to, Value: big.NewInt(1e18)}))
		a.gave++
		a.Commit()
	case "evm_setAutomine":
		_ = json.Unmarshal(params[0], &a.auto)
	case "anvil_mine":
		a.Settle()
		a.Commit()
	default:
		return false
	}
	return true
}
