package interop

import (
	"bufio"
	"context"
	"encoding/base64"
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

	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/ethclient"
	"github.com/ethereum/go-ethereum/rpc"

	"noncegate/test/interop/chaintest"
	testenv "noncegate/test/lab/gateway"
)

const (
	// endlessLoop is code that a node runs until the gas of the call is used up.
	endlessLoop                                    = "0x5b600056"
	slowCalls, halfFrames, frameBytes, authorities = 300, 500, 2 << 20, 671
)

// tenants is a gateway before a real node, with a key for each kind of attack and one for a
// worker.
type tenants struct {
	*gateway
	anvil *chaintest.Anvil
	keys  map[string]string
	tasks sync.WaitGroup
	// what the attacks came to
	forbidden, slow atomic.Int64
}

func startTenants(t *testing.T) *tenants {
	t.Helper()
	dir := t.TempDir()
	store, rights := "--store=sqlite:"+filepath.Join(dir, "nonces.db"), filepath.Join(dir, "rights.yaml")
	file := "principals:\n  frames: []\n  delegations: []\n  slow: [{rights: [chain], signers: ['eip155:31337:*']}]\n" +
		"  worker: [{rights: [allocate, mark, read, chain], signers: ['eip155:31337:*']}]\n"
	if err := os.WriteFile(rights, []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	s := &tenants{anvil: chaintest.StartAnvil(t), keys: map[string]string{}}
	for _, name := range []string{"frames", "delegations", "slow", "worker"} {
		made := get(exec.CommandContext(t.Context(), program, "key", "create", name, store).Output())(t)
		s.keys[name] = strings.TrimSpace(string(made))
	}
	s.gateway = launch(t, "127.0.0.1:0", []string{store, "--rights=" + rights, "--chain=eip155:31337=" + s.anvil.WS(), "--address-rate=0"})
	t.Cleanup(s.tasks.Wait) // the context of the test has ended by then
	return s
}

func (s *tenants) dial(name, path string) *rpc.Client {
	s.t.Helper()
	client := get(rpc.DialContext(s.t.Context(), "ws://any:"+s.keys[name]+"@"+s.addr+path))(s.t)
	s.t.Cleanup(client.Close)
	return client
}

const ethPath = "/eth/31337"

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
				if client.CallContext(ctx, nil, "eth_call", object{"data": endlessLoop}, "latest") != nil {
					s.slow.Add(1)
				}
			})
		}
	}
	for range halfFrames {
		s.attack(s.halfFrame)
	}
	s.delegations()
	s.await("half frames wait for room", s.manyHalfFramesWait)
	s.await("slow calls are answered", func() bool { return s.slow.Load() > 8 })
	s.await("transactions are refused", func() bool { return s.forbidden.Load() > 8 })
}

// delegations has transactions of type 4 sent by a key that may do nothing.
func (s *tenants) delegations() {
	auths := make([]types.SetCodeAuthorization, authorities)
	for i := range auths {
		auths[i] = s.anvil.Authorize(s.anvil.Accounts[1], s.anvil.Accounts[2].Address, uint64(i))
	}
	text := hexutil.Encode(s.anvil.Raw(s.anvil.SignDelegations(s.anvil.Accounts[1], chaintest.Payment{}, auths...)))
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

// number reads a figure of the gateway out of a text.
func (s *tenants) number(form, text string) float64 {
	s.t.Helper()
	found := regexp.MustCompile(form).FindStringSubmatch(text)
	if found == nil {
		s.t.Fatalf("there is no %s", form)
	}
	return get(strconv.ParseFloat(found[1], 64))(s.t)
}

func (s *tenants) manyHalfFramesWait() bool {
	s.t.Helper()
	req := get(http.NewRequestWithContext(s.t.Context(), http.MethodGet, s.Admin+"/metrics", nil))(s.t)
	resp := get(http.DefaultClient.Do(req))(s.t)
	defer resp.Body.Close()
	return s.number(`(?m)^noncegate_receive_waiting (\S+)$`, string(get(io.ReadAll(resp.Body))(s.t))) > halfFrames/2
}

// mostResident is the most memory that the gateway has had, in bytes.
func (s *tenants) mostResident() int64 {
	s.t.Helper()
	status := get(os.ReadFile(fmt.Sprintf("/proc/%d/status", s.PID())))(s.t)
	return int64(s.number(`VmHWM:\s+(\d+) kB`, string(status))) << 10
}

// work does what a worker does. What does not come within a minute is an error.
func (s *tenants) work(client *ethclient.Client, nonces *rpc.Client, heads <-chan *types.Header, i int) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), scenarioTime)
	defer cancel()
	from, to := s.anvil.Accounts[10+i], s.anvil.Accounts[3].Address
	get(client.BalanceAt(ctx, from.Address, nil))(s.t)
	n := get(client.PendingNonceAt(ctx, from.Address))(s.t)
	tx := s.anvil.Sign(from, chaintest.Payment{Nonce: n, To: to, Value: big.NewInt(1)})
	if err := client.SendTransaction(ctx, tx); err != nil {
		s.t.Fatalf("send: %v", err)
	}
	receipt := awaitReceipt(s.t, client, tx.Hash())
	for head := next1(s.t, heads); head.Number.Cmp(receipt.BlockNumber) < 0; {
		head = next1(s.t, heads)
	}
	fresh := "eip155:31337:" + strings.ToLower(s.anvil.Accounts[30+i].Address.Hex())
	var got hold
	if err := nonces.CallContext(ctx, &got, "nonce_allocate", fresh); err != nil || got.Nonce != 0 {
		s.t.Fatalf("the first allocation of %s: nonce %d, %v", fresh, got.Nonce, err)
	}
}

// A tenant does what it can to a gateway before a real node. The reads, sends and first
// allocations of another one go on, it sees heads, and the gateway's memory stays within what
// docs/sizing.md says.
func TestLongAHostileTenantHoldsUpNobody(t *testing.T) {
	s := startTenants(t)
	client, nonces := ethclient.NewClient(s.dial("worker", ethPath)), s.dial("worker", "/ws")
	heads := make(chan *types.Header, 1000)
	sub := get(client.SubscribeNewHead(t.Context(), heads))(t)
	t.Cleanup(sub.Unsubscribe)
	s.attacks()
	for i := range 15 {
		s.work(client, nonces, heads, i)
	}
	// The attack goes on. Between two waves, when those that waited long enough are closed, few wait.
	s.await("half frames wait for room again", s.manyHalfFramesWait)
	most := s.mostResident()
	t.Logf("%d MiB resident at most; answered: %d slow calls, %d transactions", most>>20, s.slow.Load(), s.forbidden.Load())
	if slices.Contains(testenv.FlagsOfThis(), "-race") {
		return // the detector needs memory of its own
	}
	// docs/sizing.md: at rest, for each connection, and five times --max-receive-bytes.
	if bound := int64(35<<20 + 5*64<<20 + 520*15<<10); most > bound {
		t.Errorf("the gateway had %d bytes of memory, more than %d", most, bound)
	}
}
