package interop

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/ethereum/go-ethereum/rpc"
	"go.uber.org/goleak"

	"noncegate/test/interop/chaintest"
)

// program is the path of the gateway that TestMain built.
var program string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "interop")
	if err == nil {
		program = filepath.Join(dir, "gateway")
		err = build(program)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m, append(chaintest.Leftovers(), goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(dir)
		os.Exit(code)
	}))...)
}

// build builds the gateway as this test was built: with the race detector, or
// without. A race that it finds spoils the exit code of the gateway.
func build(path string) error {
	args := []string{"build", "-o", path}
	if info, ok := debug.ReadBuildInfo(); ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		args = append(args, "-race")
	}
	cmd := exec.Command("go", append(args, "./cmd/gateway")...)
	cmd.Dir = "../.."
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build the gateway: %w\n%s", err, out)
	}
	return nil
}

// gateway is a process of the program. Its methods belong to the goroutine of
// the test.
type gateway struct {
	t      *testing.T
	cmd    *exec.Cmd
	addr   string   // host:port of its WebSocket listener
	flags  []string // what it was started with besides its addresses
	stderr bytes.Buffer
}

// start runs a gateway on a new file and returns when it listens.
func start(t *testing.T, flags ...string) *gateway {
	t.Helper()
	store := "--store=sqlite:" + filepath.Join(t.TempDir(), "nonces.db")
	return launch(t, "127.0.0.1:0", append(flags, store))
}

// again starts a gateway that has ended, on the same file and address: it is the
// same node.
func (g *gateway) again() *gateway {
	g.t.Helper()
	return launch(g.t, g.addr, g.flags)
}

func launch(t *testing.T, listen string, flags []string) *gateway {
	t.Helper()
	g := &gateway{t: t, flags: flags}
	g.cmd = exec.Command(program, append([]string{"--listen", listen, "--admin-listen", "127.0.0.1:0"}, flags...)...)
	// No settings of whoever runs the test; a race ends the gateway at once, and
	// without one its end is not delayed.
	g.cmd.Env = []string{"GORACE=atexit_sleep_ms=0 halt_on_error=1"}
	g.cmd.Stderr = &g.stderr
	stdout, err := g.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := g.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.cleanup)
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		if url, ok := strings.CutPrefix(lines.Text(), "Noncegate listens on ws://"); ok {
			g.addr, _, _ = strings.Cut(url, "/ws")
			return g
		}
	}
	t.Fatal("the gateway did not say where it listens")
	return nil
}

// running reports whether nobody has ended the process yet.
func (g *gateway) running() bool { return g.cmd.ProcessState == nil }

func (g *gateway) cleanup() {
	if g.running() {
		g.stop()
	}
	if g.t.Failed() {
		g.t.Logf("the log of the gateway:\n%s", &g.stderr)
	}
}

// stop ends the gateway in the orderly way.
func (g *gateway) stop() {
	g.t.Helper()
	if err := g.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		g.t.Error(err)
	}
	if err := g.cmd.Wait(); err != nil {
		g.t.Errorf("after SIGTERM the gateway ended with: %v", err)
	}
}

// kill ends the gateway as a crash would.
func (g *gateway) kill() {
	g.t.Helper()
	if err := g.cmd.Process.Kill(); err != nil {
		g.t.Fatal(err)
	}
	if err := g.cmd.Wait(); err == nil || err.Error() != "signal: killed" {
		g.t.Fatalf("the gateway was not ended by the kill: %v", err)
	}
}

// dial connects a client of go-ethereum, which is closed with the test.
func (g *gateway) dial() *rpc.Client {
	g.t.Helper()
	client, err := rpc.DialContext(g.t.Context(), "ws://"+g.addr+"/ws")
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(client.Close)
	return client
}
