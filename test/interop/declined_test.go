package interop

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/bits"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"testing"
	"time"

	"noncegate/test/interop/chaintest"
)

// decline is one way in which a node, or what stands before it, declines a transaction.
type decline struct {
	What    string
	HTTP    int
	Body    string
	Headers map[string]string
	Error   json.RawMessage
	Break   string // instead of an answer: refused, unresolved, cut or silent
	Class   string
}

func declines(t *testing.T) (all []decline) {
	t.Helper()
	text := get(os.ReadFile("../../chain/ethereum/testdata/declined.json"))(t)
	if err := json.Unmarshal(text, &all); err != nil || len(all) == 0 {
		t.Fatal(len(all), err)
	}
	return all
}

// notReached reports whether no connection to the node is made. A name that is not found comes to
// the same as a port that nobody listens at.
func (d *decline) notReached() bool { return d.Break == "refused" || d.Break == "unresolved" }

// afterwards reports whether what stands before the node declines what the node has taken.
func (d *decline) afterwards() bool { return d.What == "page after acceptance" }

// door is an address of a node that declines the first transaction in one way, and is well
// afterwards. It owns its server, and the goroutine that opens it again.
type door struct {
	t        *testing.T
	decline  decline
	node     string
	addr     string
	declined chan struct{} // has a token until the first transaction
	silent   chan struct{} // closed at the end: who waits for an answer for good may go
	work     sync.WaitGroup

	mu     sync.Mutex
	server *http.Server
}

func startDoor(t *testing.T, node string, d decline) *door {
	t.Helper()
	r := &door{t: t, decline: d, node: node, addr: "127.0.0.1:0", declined: make(chan struct{}, 1), silent: make(chan struct{})}
	if !d.notReached() {
		r.declined <- struct{}{}
	}
	r.open()
	t.Cleanup(func() {
		close(r.silent)
		r.shut()
		r.work.Wait()
	})
	return r
}

func (r *door) url() string { return "http://" + r.addr }

// open listens, at the same address as before.
func (r *door) open() {
	r.mu.Lock()
	defer r.mu.Unlock()
	ln, err := net.Listen("tcp", r.addr)
	if err != nil {
		r.t.Errorf("the node's address cannot be opened: %v", err)
		return
	}
	r.addr = ln.Addr().String()
	server := &http.Server{Handler: r}
	r.server = server
	r.work.Go(func() { _ = server.Serve(ln) })
}

func (r *door) shut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	_ = r.server.Close()
}

// control is an address that shuts the door for a while; "" where it declines in another way.
func (r *door) control() string {
	if !r.decline.notReached() {
		return ""
	}
	control := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		r.shut()
		r.work.Go(func() {
			select {
			case <-time.After(500 * time.Millisecond):
				r.open()
			case <-r.silent:
			}
		})
	}))
	r.t.Cleanup(control.Close)
	return control.URL
}

// ServeHTTP implements http.Handler.
func (r *door) ServeHTTP(w http.ResponseWriter, in *http.Request) {
	body, err := io.ReadAll(in.Body)
	if err != nil {
		return // who asked has gone
	}
	declines := false
	if bytes.Contains(body, []byte(`"eth_sendRawTransaction"`)) {
		select {
		case <-r.declined:
			declines = true
		default:
		}
	}
	if declines && !r.decline.afterwards() {
		r.refuse(w, in, body)
		return
	}
	answer, err := http.Post(r.node, "application/json", bytes.NewReader(body))
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	defer answer.Body.Close()
	if declines { // by what stands before the node, which has taken it
		w.WriteHeader(r.decline.HTTP)
		_, _ = io.WriteString(w, r.decline.Body)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(answer.StatusCode)
	_, _ = io.Copy(w, answer.Body)
}

// refuse declines a transaction, which the node never gets.
func (r *door) refuse(w http.ResponseWriter, in *http.Request, body []byte) {
	switch r.decline.Break {
	case "cut":
		panic(http.ErrAbortHandler)
	case "silent":
		select {
		case <-r.silent:
		case <-in.Context().Done():
		}
		panic(http.ErrAbortHandler)
	}
	answer := []byte(r.decline.Body)
	if r.decline.Error != nil {
		var asked struct{ ID json.RawMessage }
		_ = json.Unmarshal(body, &asked)
		answer, _ = json.Marshal(map[string]any{"jsonrpc": "2.0", "id": asked.ID, "error": r.decline.Error})
		w.Header().Set("Content-Type", "application/json")
	}
	for k, v := range r.decline.Headers {
		w.Header().Set(k, v)
	}
	w.WriteHeader(r.decline.HTTP)
	_, _ = w.Write(answer)
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
	packages := wallets(t)
	every(t, 200*time.Millisecond, func() { sim.Commit() })
	for i, d := range all {
		t.Run(d.What, func(t *testing.T) {
			t.Parallel()
			alone, behind := startDoor(t, sim.URL(), d), startDoor(t, sim.URL(), d)
			c := &chained{sim: sim, gateway: start(t, append(chainFlags(behind.url(), sim), "--chain-gap-after=1s")...)}
			by, through := sim.Accounts[2*i], sim.Accounts[2*i+1]
			to := [2]chaintest.Account{chaintest.NewAccount(1000 + 2*i), chaintest.NewAccount(1001 + 2*i)}
			text := get(json.Marshal([]map[string]string{
				{"url": alone.url(), "key": keyOf(by), "to": to[0].Address.Hex(), "signed": alone.control()},
				{"url": c.eth("http"), "key": keyOf(through), "to": to[1].Address.Hex(), "signed": behind.control()},
			}))(t)
			told := runScript(t, packages, "payments.mjs", "WALLETS="+string(text), fmt.Sprint("CHAIN=", sim.ChainID()))
			if len(alone.declined)+len(behind.declined) > 0 {
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
