package dashboards_test

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"noncegate/client"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// program builds the gateway and returns its path.
func program(t *testing.T) string {
	t.Helper()
	// The compiler is a process of its own. Only what the test opens itself makes
	// a cached result out of date: the folders that name the metrics.
	for _, source := range []string{"../cmd/gateway", "../perf"} {
		if _, err := os.ReadDir(source); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(t.TempDir(), "gateway")
	build := exec.Command("go", "build", "-o", path, "./cmd/gateway")
	build.Dir = ".."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the gateway: %v\n%s", err, out)
	}
	return path
}

var greeting = regexp.MustCompile(`listens on (ws://\S+)\s+\(metrics: (http://\S+)\)`)

// gateway starts one on a new file and returns the addresses of its WebSocket and
// its metrics. It ends with the test.
func gateway(t *testing.T) (ws, metrics string) {
	t.Helper()
	cmd := exec.Command(program(t), "--listen=127.0.0.1:0", "--admin-listen=127.0.0.1:0",
		"--store=sqlite:"+filepath.Join(t.TempDir(), "nonces.db"))
	cmd.Env = []string{} // no settings of whoever runs the test
	var log bytes.Buffer
	cmd.Stderr = &log
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // Wait tells when it had ended before
		if err := cmd.Wait(); err != nil {
			t.Errorf("the gateway ended with %v:\n%s", err, &log)
		}
	})
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		if found := greeting.FindStringSubmatch(lines.Text()); found != nil {
			return found[1], found[2]
		}
	}
	t.Fatal("the gateway did not say where it listens")
	return "", ""
}

// converse makes each stage of the gateway see something: a subscriber hears of
// what is allocated and marked.
func converse(t *testing.T, url string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	c, err := client.Dial(ctx, url, client.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	const signer = "eip155:1:0xab16a96d359ec26a11e2c2b3d8f8b8942d5bfcdb"
	events, err := c.Subscribe(ctx, signer)
	if err != nil {
		t.Fatal(err)
	}
	defer events.Close()
	for range 3 {
		err := c.WithNonce(ctx, signer, func(context.Context, client.Allocation) (string, error) {
			return "0x5c504ed432cb51138bcf09aa5e8a410dd4a1e204ef84bfed1be16dfba1b22060", nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	select {
	case <-events.Events():
	case <-ctx.Done():
		t.Fatal("no event came")
	}
}

// scrape reads the metrics as Prometheus would.
func scrape(t *testing.T, url string) exposition {
	t.Helper()
	defer http.DefaultClient.CloseIdleConnections()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s, %v", url, resp.Status, err)
	}
	return parseExposition(string(text))
}
