package interop

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/ethclient"
	"github.com/ethereum/go-ethereum/rpc"

	"noncegate/test/interop/chaintest"
	testenv "noncegate/test/lab/gateway"
)

const (
	// endlessLoop is code that a node runs until the gas of the call is used up.
	endlessLoop = "0x5b600056"
	// quotaText is a reason that looks as if a provider had refused the request.
	quotaText = "monthly quota used up"

	slowCalls, halfFrames, frameBytes, authorities = 300, 500, 2 << 20, 671
)

// quotaRevert is code that reverts with Error(quotaText).
func quotaRevert() string {
	data := append([]byte{0x08, 0xc3, 0x79, 0xa0}, make([]byte, 96)...)
	data[4+31], data[4+63] = 32, byte(len(quotaText))
	copy(data[4+64:], quotaText)
	n := byte(len(data)) // the code copies what follows it to memory, and reverts with that
	code := []byte{0x60, n, 0x60, 12, 0x60, 0, 0x39, 0x60, n, 0x60, 0, 0xfd}
	return "0x" + hex.EncodeToString(append(code, data...))
}

// tenants is a gateway before a real node, with a key for each kind of attack and one for a
// worker.
type tenants struct {
	*gateway
	anvil *chaintest.Anvil
	node  *ethclient.Client // asks the node itself
	keys  map[string]string
	tasks sync.WaitGroup
	// what the attacks came to
	reverted, forbidden, slow atomic.Int64
}

func startTenants(t *testing.T) *tenants {
	t.Helper()
	dir := t.TempDir()
	store, rights := "--store=sqlite:"+filepath.Join(dir, "nonces.db"), filepath.Join(dir, "rights.yaml")
	file := "principals:\n  frames: []\n  delegations: []\n  slow: [{rights: [chain], signers: ['eip155:31337:*']}]\n" +
		"  reverts: [{rights: [chain], signers: ['eip155:31337:*']}]\n" +
		"  worker: [{rights: [allocate, mark, read, chain], signers: ['eip155:31337:*']}]\n"
	if err := os.WriteFile(rights, []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	s := &tenants{anvil: chaintest.StartAnvil(t), keys: map[string]string{}}
	for _, name := range []string{"frames", "delegations", "slow", "reverts", "worker"} {
		made, err := exec.CommandContext(t.Context(), program, "key", "create", name, store).Output()
		if err != nil {
			t.Fatal(err)
		}
		s.keys[name] = strings.TrimSpace(string(made))
	}
	s.gateway = launch(t, "127.0.0.1:0", []string{store, "--rights=" + rights, "--chain=eip155:31337=" + s.anvil.WS(), "--address-rate=0"})
	s.node = get(ethclient.DialContext(t.Context(), s.anvil.WS()))(t)
	t.Cleanup(s.node.Close)
	t.Cleanup(s.tasks.Wait) // the context of the test has ended by then
	return s
}

func (s *tenants) dial(name, path string) *rpc.Client {
	s.t.Helper()
	client, err := rpc.DialContext(s.t.Context(), "ws://any:"+s.keys[name]+"@"+s.addr+path)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(client.Close)
	return client
}

const ethPath = "/eth/31337"

func run(ctx context.Context, client *rpc.Client, code string) error {
	var result string
	return client.CallContext(ctx, &result, "eth_call", map[string]string{"data": code}, "latest")
}

// attack does something again and again until the test ends.
func (s *tenants) attack(do func(ctx context.Context)) {
	ctx := s.t.Context()
	s.tasks.Go(func() {
		for ctx.Err() == nil {
			do(ctx)
		}
	})
}

// halfFrame sends half of a frame, and waits until the gateway closes the connection.
func (s *tenants) halfFrame(ctx context.Context) {
	// From another address than the others': how many sockets of an address may wait to be let in
	// is bounded, and past that bound the gateway closes what comes from it unread.
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	conn, err := dialer.DialContext(ctx, "tcp", s.addr)
	if err != nil {
		return
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	basic := base64.StdEncoding.EncodeToString([]byte("any:" + s.keys["frames"]))
	fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: gateway\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nAuthorization: Basic %s\r\n"+
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n", ethPath, basic)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		return // the gateway had enough of them just now
	}
	header := []byte{0x81, 0xff, 0, 0, 0, 0, 0, frameBytes >> 16, 0, 0, 1, 2, 3, 4}
	if _, err = conn.Write(append(header, make([]byte, frameBytes/2)...)); err == nil {
		_, _ = io.Copy(io.Discard, conn) // until it is closed, by whomever
	}
}

// attacks begins them all, and waits until each is felt.
func (s *tenants) attacks() {
	for range slowCalls / 100 { // a connection has 256 calls in flight at most
		client := s.dial("slow", ethPath)
		for range 100 {
			s.attack(func(ctx context.Context) {
				if run(ctx, client, endlessLoop) != nil {
					s.slow.Add(1)
				}
			})
		}
	}
	for range halfFrames {
		s.attack(s.halfFrame)
	}
	client, code := s.dial("reverts", ethPath), quotaRevert()
	every(s.t, time.Second/8, func() {
		s.tasks.Go(func() {
			if err := run(s.t.Context(), client, code); err != nil && strings.Contains(err.Error(), quotaText) {
				s.reverted.Add(1)
			}
		})
	})
	s.delegations()
	s.await("half frames wait for room", func() bool { return s.gauge("receive_waiting") > halfFrames/2 })
	s.await("calls that revert are answered", func() bool { return s.reverted.Load() > 8 })
	s.await("slow calls are answered", func() bool { return s.slow.Load() > 8 })
	s.await("transactions are refused", func() bool { return s.forbidden.Load() > 8 })
}

// delegations has transactions of type 4 sent by a key that may do nothing.
func (s *tenants) delegations() {
	auths := make([]types.SetCodeAuthorization, authorities)
	for i := range auths {
		auths[i] = s.anvil.Authorize(s.anvil.Accounts[1], s.anvil.Accounts[2].Address, uint64(i))
	}
	raw, err := s.anvil.SignDelegations(s.anvil.Accounts[1], chaintest.Payment{}, auths...).MarshalBinary()
	if err != nil {
		s.t.Fatal(err)
	}
	text := "0x" + hex.EncodeToString(raw)
	for range 4 {
		client := s.dial("delegations", ethPath)
		s.attack(func(ctx context.Context) {
			err := client.CallContext(ctx, nil, "eth_sendRawTransaction", text)
			switch {
			case err != nil && strings.Contains(err.Error(), "the right mark"):
				s.forbidden.Add(1)
			case ctx.Err() == nil:
				s.t.Errorf("a transaction of a key that may do nothing: %v", err)
			}
		})
	}
}

func (s *tenants) await(what string, so func() bool) {
	s.t.Helper()
	if !eventually(so) {
		s.t.Fatalf("waited in vain: %s", what)
	}
}

// gauge reads a figure of the gateway.
func (s *tenants) gauge(name string) float64 {
	s.t.Helper()
	req := get(http.NewRequestWithContext(s.t.Context(), http.MethodGet, s.Admin+"/metrics", nil))(s.t)
	resp := get(http.DefaultClient.Do(req))(s.t)
	defer resp.Body.Close()
	found := regexp.MustCompile(`(?m)^noncegate_` + name + ` (\S+)$`).FindSubmatch(get(io.ReadAll(resp.Body))(s.t))
	if found == nil {
		s.t.Fatalf("there is no figure %s", name)
	}
	return get(strconv.ParseFloat(string(found[1]), 64))(s.t)
}

// mostResident is the most memory that the gateway has had, in bytes.
func (s *tenants) mostResident() int64 {
	s.t.Helper()
	status := get(os.ReadFile(fmt.Sprintf("/proc/%d/status", s.PID())))(s.t)
	found := regexp.MustCompile(`VmHWM:\s+(\d+) kB`).FindSubmatch(status)
	if found == nil {
		s.t.Fatalf("no VmHWM in\n%s", status)
	}
	return get(strconv.ParseInt(string(found[1]), 10, 64))(s.t) << 10
}

// work does what a worker does, and returns how long each part took. What does not come within
// a minute is an error.
func (s *tenants) work(client *ethclient.Client, nonces *rpc.Client, heads <-chan *types.Header, i int) map[string]time.Duration {
	s.t.Helper()
	took, began := map[string]time.Duration{}, time.Now()
	lap := func(part string) { took[part], began = time.Since(began), time.Now() }
	ctx, cancel := context.WithTimeout(s.t.Context(), scenarioTime)
	defer cancel()

	from, to := s.anvil.Accounts[10+i], s.anvil.Accounts[3].Address
	get(s.node.BalanceAt(ctx, from.Address, nil))(s.t)
	lap("read at the node")
	get(client.BalanceAt(ctx, from.Address, nil))(s.t)
	lap("read")
	n := get(client.PendingNonceAt(ctx, from.Address))(s.t)
	lap("pending count")
	tx := s.anvil.Sign(from, chaintest.Payment{Nonce: n, To: to, Value: big.NewInt(1)})
	if err := client.SendTransaction(ctx, tx); err != nil {
		s.t.Fatalf("send: %v", err)
	}
	lap("send")
	receipt := awaitReceipt(s.t, client, tx.Hash())
	lap("receipt")
	for head := next1(s.t, heads); head.Number.Cmp(receipt.BlockNumber) < 0; {
		head = next1(s.t, heads)
	}
	lap("head after receipt")
	fresh := "eip155:31337:" + strings.ToLower(s.anvil.Accounts[30+i].Address.Hex())
	var got hold
	if err := nonces.CallContext(ctx, &got, "nonce_allocate", fresh); err != nil || got.Nonce != 0 {
		s.t.Fatalf("the first allocation of %s: nonce %d, %v", fresh, got.Nonce, err)
	}
	lap("first allocation")
	return took
}

// A tenant does what it can to a gateway before a real node. The reads, sends and first
// allocations of another one go on, it sees heads, and the gateway's memory stays within what
// docs/sizing.md says.
func TestLongAHostileTenantHoldsUpNobody(t *testing.T) {
	s := startTenants(t)
	client, nonces := ethclient.NewClient(s.dial("worker", ethPath)), s.dial("worker", "/ws")
	awaitNode(t, client)
	heads := make(chan *types.Header, 1000)
	sub, err := client.SubscribeNewHead(t.Context(), heads)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sub.Unsubscribe)
	t.Logf("alone: %v", s.work(client, nonces, heads, 0))
	s.attacks()
	all := map[string][]time.Duration{}
	for i := range 15 {
		for part, took := range s.work(client, nonces, heads, 1+i) {
			all[part] = append(all[part], took)
		}
	}
	for part, took := range all {
		slices.Sort(took)
		t.Logf("%s: median %v, longest %v", part, took[len(took)/2], took[len(took)-1])
	}
	// The attack goes on. Between two waves, when those that waited long enough are closed, few wait.
	s.await("half frames wait for room again", func() bool { return s.gauge("receive_waiting") > halfFrames/2 })
	most := s.mostResident()
	t.Logf("%d MiB resident at most; answered: %d calls that revert, %d slow ones, %d transactions",
		most>>20, s.reverted.Load(), s.slow.Load(), s.forbidden.Load())
	if slices.Contains(testenv.FlagsOfThis(), "-race") {
		return // the detector needs memory of its own
	}
	// docs/sizing.md: at rest, for each connection, and five times --max-receive-bytes.
	if bound := int64(35<<20 + 5*64<<20 + 520*15<<10); most > bound {
		t.Errorf("the gateway had %d bytes of memory, more than %d", most, bound)
	}
}
