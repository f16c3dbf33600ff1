//go:build unix

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"noncegate/scripts/loadtest/result"
	"noncegate/scripts/loadtest/traffic"
	"noncegate/test/lab/gateway"
)

// gatewayProgram is the gateway, which TestMain builds.
var gatewayProgram string

func TestMain(m *testing.M) {
	var err error
	if gatewayProgram, err = gateway.Program(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

func startGateway(t *testing.T, flags ...string) *gateway.Gateway {
	return gateway.OnSQLite(t, gatewayProgram, flags...)
}

// runProgram runs the program, with progress for people, which each sees.
func runProgram(ctx context.Context, t *testing.T, see func(line string), args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errOut bytes.Buffer
	var mu sync.Mutex // guards errOut: what gateways say comes beside what the program says
	p := &program{stdout: &out, terminal: true, stderr: writerFunc(func(line []byte) {
		mu.Lock()
		errOut.Write(line)
		mu.Unlock()
		if see != nil {
			see(string(line))
		}
	})}
	code = p.run(ctx, args)
	mu.Lock()
	defer mu.Unlock()
	return code, out.String(), errOut.String()
}

type writerFunc func([]byte)

func (f writerFunc) Write(p []byte) (int, error) { f(p); return len(p), nil }

// TestARunPrintsWhatItHasWhenItIsInterrupted: the tests know no other way to make a run long enough.
func TestARunPrintsWhatItHasWhenItIsInterrupted(t *testing.T) {
	const key = "0123456789abcdef"
	g := startGateway(t, "--max-holds=4096", "--admin-key="+key)
	t.Setenv("NONCEGATE_ADMIN_KEY", key)
	page := filepath.Join(t.TempDir(), "report.html")
	ctx, cancel := context.WithCancel(t.Context())
	seconds := 0
	code, out, stderr := runProgram(ctx, t, func(string) {
		if seconds++; seconds == 2 { // so that /metrics was read twice
			cancel()
		}
	}, "run", "--url", g.URL, "--metrics", g.Admin+"/metrics", "--verify", "--subscribers=1", "--html", page, "--json=-",
		"--mix=pairs", "--connections=4", "--rate=200", "--inflight=1", "--warmup=0s", "--duration=1h")
	var run result.Run
	if err := json.Unmarshal([]byte(out), &run); err != nil || code != exitInterrupted {
		t.Fatalf("exit %d, %v: %s %s", code, err, out, stderr)
	}
	if run.Acknowledged == 0 || run.Verify == nil || run.Verify.Calls == 0 || run.Verify.ViolationCount != 0 || run.Events == nil {
		t.Errorf("%+v; want what was asked for", run)
	}
	if len(run.Nodes) != 1 || len(run.Nodes[0].Stages) == 0 {
		t.Errorf("nodes %+v; want the gateway's figures", run.Nodes)
	}
	if html, err := os.ReadFile(page); err != nil || !bytes.Contains(html, []byte("</html>")) {
		t.Errorf("%v: the HTML report is %d bytes", err, len(html))
	}
}

// quick is a run whose criteria are met, or not, whatever the machine makes of its time.
func quick(url string, more ...string) []string {
	return append([]string{"run", "--url", url, "--warmup=0s", "--duration=1s", "--connections=4", "--min-acknowledged=1",
		"--max-failed-share=1"}, more...)
}

func TestARunEndsWithZeroOrOneByItsCriteria(t *testing.T) {
	g := startGateway(t, "--max-holds=4096")
	if code, out, stderr := runProgram(t.Context(), t, nil, quick(g.URL, "--no-growth-check", "--max-lost=-1")...); code != exitOK {
		t.Errorf("exit %d, %s %s", code, out, stderr)
	}
	for _, criterion := range []string{"--max-e2e-p99=1ns", "--min-acknowledged=1000000000", "--metrics=http://127.0.0.1:1/metrics"} {
		if code, out, _ := runProgram(t.Context(), t, nil, quick(g.URL, criterion)...); code != exitFailure || !strings.Contains(out, "\nFAIL ") {
			t.Errorf("%s: exit %d, stdout %s", criterion, code, out)
		}
	}
}

func TestATargetThatCannotBeUsedIsNamedWithWhatToDo(t *testing.T) {
	g := startGateway(t)
	wrong := strings.TrimSuffix(g.URL, "/ws") + "/socket"
	for _, test := range []struct {
		want string
		args []string
	}{
		{"is the gateway running? (make run)", quick("ws://127.0.0.1:1/ws")},
		{"is the gateway running? (make run)", quick("ws://127.0.0.1:1/ws", "--verify")},
		{"is the gateway running? (make run)", []string{"slow", "--url=ws://127.0.0.1:1/ws"}},
		{"at /ws", quick(wrong)},
		{"at /ws", []string{"slow", "--url", wrong}},
	} {
		if code, out, stderr := runProgram(t.Context(), t, nil, test.args...); code != exitFailure || out != "" ||
			!strings.Contains(stderr, test.want) {
			t.Errorf("%q: exit %d, stdout %q, stderr %q, want %q", test.args, code, out, stderr, test.want)
		}
	}
}

func TestAWrongCommandLineNamesItsFlagAndExitsWithTwo(t *testing.T) {
	for want, args := range map[string][]string{
		"--connections must be":      {"run", "--connections=0"},
		"--rate must be 0":           {"run", "--rate=-.5"},
		"--rate:":                    {"run", "--rate=fast"},
		"--ramp-up must be 0s":       {"run", "--ramp-up=-1s"},
		"--inflight must be":         {"run", "--inflight=1001"},
		"--subscribers must be":      {"slow", "--subscribers=-1"},
		"--warmup must not":          {"run", "--warmup=-1s"},
		"--duration must be":         {"run", "--duration=0s"},
		"--signers must be":          {"run", "--signers=0"},
		"--signer-base must be":      {"run", "--signer-base=-1"},
		"--mix:":                     {"run", "--mix=mint=1"},
		"--url must be":              {"run", "--url=http://127.0.0.1:8080/ws"},
		"--metrics must be":          {"run", "--metrics=localhost:8081"},
		"--max-failed-share must be": {"run", "--max-failed-share=5"},
		"--min-acknowledged must be": {"run", "--min-acknowledged=0"},
		"--max-e2e-p99 must not":     {"run", "--max-e2e-p99=-1s"},
		"--max-lost must be -1":      {"run", "--max-lost=-2"},
		"--json cannot be written":   {"run", "--json=" + filepath.Join(t.TempDir(), "no", "file")},
		"--html must be a file":      {"run", "--html=-"},
		"unexpected argument":        {"run", "fast"},
		"expected one of":            {},
		"--slow-share must be":       {"slow", "--slow-share=1"},
		"--rounds must be":           {"slow", "--rounds=0"},
		"--a: a quote":               {"compare", "--a='", "--b=b"},
		"--min-ratio and":            {"compare", "--a=a", "--b=b", "--min-ratio=-1"},
		"--gateway: \"ws://a\"":      {"restart", "--gateway=ws://a"},
		"--ready must be given once": {"restart", "--gateway=ws://a=a", "--gateway=ws://b=b", "--ready=http://a"},
		"--rows knows no":            {"bench", "--rows=fast"},
	} {
		if code, _, stderr := runProgram(t.Context(), t, nil, args...); code != exitUsage || !strings.Contains(stderr, want) {
			t.Errorf("%q: exit %d, stderr %q, want %q", args, code, stderr, want)
		}
	}
}

func TestMetricsAreGuessedForThisMachinesDefaultPortOnly(t *testing.T) {
	for target, want := range map[string]string{
		"ws://127.0.0.1:8080/ws":       "http://127.0.0.1:8081/metrics",
		"ws://[::1]:8080/ws":           "http://[::1]:8081/metrics",
		"ws://127.0.0.1:9000/ws":       "",
		"ws://gateway.example:8080/ws": "",
	} {
		if got := strings.Join((&ReportFlags{}).pages([]string{target}, traffic.Access{}).URLs, " "); got != want {
			t.Errorf("%s: %q, want %q", target, got, want)
		}
	}
}
