package interop

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/ethclient"
	"github.com/ethereum/go-ethereum/rpc"
	"go.uber.org/goleak"

	"noncegate/test/interop/chaintest"
	testenv "noncegate/test/lab/gateway"
	"noncegate/test/lab/guarded"
)

// What the tests share: the gateway that TestMain built, and the room of all that they start.
var (
	program string
	room    *guarded.Room
)

// parallel is how many tests run at a time: they wait for blocks for most of their time.
const parallel = "6"

func TestMain(m *testing.M) {
	flag.Parse()
	err := flag.Set("test.parallel", parallel)
	if err == nil {
		room, err = guarded.Open("interop", nil)
	}
	if err == nil {
		program, err = testenv.Program(context.Background())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m, append(chaintest.Leftovers(), goleak.Cleanup(func(code int) {
		if err := room.Close(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = max(code, 1)
		}
		os.Exit(code)
	}))...)
}

// gateway is a process of the program. Its methods belong to the goroutine of the test.
type gateway struct {
	*testenv.Gateway
	t     *testing.T
	addr  string   // host:port of its WebSocket listener
	flags []string // what it was started with besides its addresses
}

// raceEnv has a race end the gateway at once, whose end is not delayed without one.
const raceEnv = "GORACE=atexit_sleep_ms=0 halt_on_error=1"

// startTimeout bounds the start of a gateway.
const startTimeout = 60 * time.Second

// starts numbers the logs of gateways.
var starts atomic.Int64

// start runs a gateway on a new file and returns when it listens.
func start(t *testing.T, flags ...string) *gateway {
	t.Helper()
	store := "--store=sqlite:" + filepath.Join(t.TempDir(), "nonces.db")
	return launch(t, "127.0.0.1:0", append(flags, store))
}

// again starts a gateway that has ended, on the same file and address: it is the same node.
func (g *gateway) again() *gateway {
	g.t.Helper()
	return launch(g.t, g.addr, g.flags)
}

func launch(t *testing.T, listen string, flags []string) *gateway {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	process := get(testenv.Start(ctx, room, testenv.Config{
		Program: program, Log: fmt.Sprintf("gateway-%d.log", starts.Add(1)), Env: []string{raceEnv},
		Args: append([]string{"--listen=" + listen}, flags...),
	}))(t)
	addr := strings.TrimSuffix(strings.TrimPrefix(process.URL, "ws://"), "/ws")
	g := &gateway{Gateway: process, t: t, addr: addr, flags: flags}
	t.Cleanup(g.cleanup)
	return g
}

func (g *gateway) cleanup() {
	select {
	case <-g.Exited():
	default:
		if err := g.Stop(); err != nil {
			g.t.Errorf("after SIGTERM: %v", err)
		}
	}
	if g.t.Failed() {
		g.t.Logf("the log of the gateway:\n%s", g.Log())
	}
}

// kill ends the gateway as a crash would.
func (g *gateway) kill() {
	g.t.Helper()
	if err := g.Kill(); err != nil {
		g.t.Fatal(err)
	}
	if err := g.Err(); err == nil || err.Error() != "signal: killed" {
		g.t.Fatalf("the gateway was not ended by the kill: %v", err)
	}
}

// dial connects a client of go-ethereum, which is closed with the test.
func (g *gateway) dial() *rpc.Client {
	g.t.Helper()
	client := get(rpc.DialContext(g.t.Context(), "ws://"+g.addr+"/ws"))(g.t)
	g.t.Cleanup(client.Close)
	return client
}

// awaitNode waits until a gateway that has just been started knows its chain's node.
func awaitNode(t *testing.T, through *ethclient.Client) {
	t.Helper()
	if !eventually(func() bool { _, err := through.BlockNumber(t.Context()); return err == nil }) {
		t.Fatal("the gateway does not come to know its node")
	}
}

const signer = "eip155:1:0x52908400098527886e0f7030069857d2e4169ee7"

// object is a JSON object as a client writes it down.
type object = map[string]any

// hold is what a program would keep of an answer to nonce_allocate.
type hold struct {
	Nonce   uint64 `json:"nonce"`
	Attempt uint64 `json:"attempt"`
}

// status is what a program would keep of an answer to nonce_status.
type status struct {
	Next     uint64 `json:"next"`
	Held     uint64 `json:"held"`
	Released uint64 `json:"released"`
	Consumed uint64 `json:"consumed"`
}

// call calls a method that must succeed.
func call[T any](t *testing.T, client *rpc.Client, method string, args ...any) (result T) {
	t.Helper()
	if err := client.CallContext(t.Context(), &result, method, args...); err != nil {
		t.Fatalf("%s: %v", method, err)
	}
	return result
}
