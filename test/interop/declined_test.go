package interop

import (
	"encoding/json"
	"fmt"
	"math/bits"
	"net/http"
	"os"
	"slices"
	"testing"
	"time"

	"noncegate/test/interop/chaintest"
	"noncegate/test/interop/npm"
)

// decline is one way in which a node, or what stands before it, declines a transaction.
type decline struct {
	What, Body string
	HTTP       int
	Headers    map[string]string
	Error      *struct {
		Code    int
		Message string
	}
	Break string // instead of an answer: cut or silent; refused and unresolved come to the same as a key that is refused
}

func declines(t *testing.T) (all []decline) {
	t.Helper()
	text := get(os.ReadFile("../../chain/ethereum/testdata/declined.json"))(t)
	err := json.Unmarshal(text, &all)
	all = slices.DeleteFunc(all, func(d decline) bool { return d.Break == "refused" || d.Break == "unresolved" })
	if err != nil || len(all) == 0 {
		t.Fatal(len(all), err)
	}
	return all
}

// fault is what becomes of a transaction that is declined so.
func (d *decline) fault() chaintest.Fault {
	body, header := d.Body, http.Header{}
	for k, v := range d.Headers {
		header.Set(k, v)
	}
	switch {
	case d.Break == "cut":
		return chaintest.Cut
	case d.Break == "silent":
		return chaintest.Lost
	case d.What == "page after acceptance": // by what stands before the node, which has taken it
		return chaintest.After(chaintest.Page(d.HTTP, nil, d.Body))
	case d.Error != nil && d.HTTP == http.StatusOK:
		return chaintest.RPCError(d.Error.Code, d.Error.Message)
	case d.Error != nil:
		header.Set("Content-Type", "application/json")
		body = fmt.Sprintf(`{"jsonrpc":"2.0","id":null,"error":{"code":%d,"message":%q}}`, d.Error.Code, d.Error.Message)
	}
	return chaintest.Page(d.HTTP, header, body)
}

// chainStatus is what nonce_status says of an account on a chain.
type chainStatus struct {
	Next  uint64
	Chain struct {
		Mined uint64
		Gap   *struct{ Nonce int64 }
	}
}

// Three payments of a wallet, of which the node declines the first once: with the gateway never
// fewer are mined than without it, each is executed once, and the account goes on.
func TestLongADeclinedPaymentCostsNoMoreThanWithoutTheGateway(t *testing.T) {
	all := declines(t)
	sim := chaintest.StartSim(t, chaintest.SimConfig{Accounts: 2 * len(all)})
	packages := get(npm.Folder(t.Context()))(t)
	every(t, 200*time.Millisecond, sim.Commit)
	for i, d := range all {
		t.Run(d.What, func(t *testing.T) {
			t.Parallel()
			alone, behind := chaintest.StartProxy(t, sim), chaintest.StartProxy(t, sim)
			metAlone := alone.On("eth_sendRawTransaction", d.fault(), chaintest.Once)
			metBehind := behind.On("eth_sendRawTransaction", d.fault(), chaintest.Once)
			c := &chained{sim: sim, gateway: start(t, append(chainFlags(behind.URL(), sim), "--chain-gap-after=1s", "--chain-timeout=8s")...)}
			awaitNode(t, c.dialEth("ws"))
			by, through := sim.Accounts[2*i], sim.Accounts[2*i+1]
			to := [2]chaintest.Account{chaintest.NewAccount(1000 + 2*i), chaintest.NewAccount(1001 + 2*i)}
			text := get(json.Marshal([]map[string]string{
				{"url": alone.URL(), "key": keyOf(by), "to": to[0].Address.Hex()},
				{"url": c.eth("http"), "key": keyOf(through), "to": to[1].Address.Hex()},
			}))(t)
			told := runScript(t, packages, "payments.mjs", "WALLETS="+string(text), fmt.Sprint("CHAIN=", sim.ChainID()))
			if metAlone.Met() != 1 || metBehind.Met() != 1 {
				t.Fatalf("the node was not given a transaction: %s", told)
			}
			if !eventually(func() bool { return sim.PendingNonce(by.Address) == sim.Nonce(by.Address) }) {
				t.Fatalf("the pool keeps what was sent without the gateway: %s", told)
			}
			least, admin := sim.Nonce(by.Address), c.dial()
			var n uint64
			var said chainStatus
			rests := eventually(func() bool {
				n = sim.Nonce(through.Address)
				said = call[chainStatus](t, admin, "nonce_status", c.signerOf(through))
				pending := get(c.dialEth("http").PendingNonceAt(t.Context(), through.Address))(t)
				return n >= least && sim.PendingNonce(through.Address) == n && pending == n && said.Chain.Mined == n && said.Chain.Gap == nil
			})
			if !rests {
				t.Errorf("%d were mined without the gateway and %d with it, which says %+v; the pool has up to %d; the wallets were told %s",
					least, n, said, sim.PendingNonce(through.Address), told)
			}
			var queued map[string]map[string]any
			if err := sim.Call(&queued, "txpool_contentFrom", through.Address); err != nil || len(queued["queued"]) > 0 {
				t.Errorf("%v; behind a gap are %v", err, queued["queued"])
			}
			for k, account := range []chaintest.Account{by, through} {
				if paid := sim.Balance(to[k].Address).Uint64(); paid > 7 || uint64(bits.OnesCount64(paid)) != sim.Nonce(account.Address) {
					t.Errorf("%d transactions paid %d: one payment was executed twice; the wallets were told %s", sim.Nonce(account.Address), paid, told)
				}
			}
			t.Logf("%d without, %d with: %s", least, n, told)
		})
	}
}
