package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"noncegate/scripts/loadtest/result"
	"noncegate/scripts/loadtest/target"
	"noncegate/scripts/loadtest/traffic"
)

func TestMain(m *testing.M) { target.Main(m) }

// programEnd is what one run of the program showed.
type programEnd struct {
	code           int
	stdout, stderr string
}

func runProgram(ctx context.Context, args ...string) programEnd {
	var out, errOut bytes.Buffer
	p := &program{stdout: &out, stderr: &errOut}
	code := p.run(ctx, args)
	return programEnd{code, out.String(), errOut.String()}
}

func quick(url string, more ...string) []string {
	return append([]string{"run", "--url", url, "--warmup=0s", "--duration=300ms", "--connections=4", "--min-acknowledged=10"}, more...)
}

func refusing(t *testing.T) string {
	return target.Serve(t, func(c *target.Conn, _ int, message []byte) error {
		var f struct{ ID json.RawMessage }
		if err := json.Unmarshal(message, &f); err != nil {
			return err
		}
		return c.Reply(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32012,"message":"m","data":{"reason":"unavailable"}}}`, f.ID))
	})
}

func TestARunThatMeetsItsCriteriaReportsAndExitsWithZero(t *testing.T) {
	const key = "0123456789abcdef"
	g := target.StartGateway(t, "--max-holds=4096", "--admin-key="+key)
	t.Setenv("NONCEGATE_ADMIN_KEY", key)
	page := filepath.Join(t.TempDir(), "report.html")
	o := runProgram(t.Context(), quick(g.URL, "--metrics", g.Metrics, "--verify", "--subscribers=1", "--html", page,
		"--mix=allocate=6,markUsed=3,markRecyclable=1,status=1", "--max-e2e-p99=10s", "--json=-")...)
	if o.code != exitOK || o.stderr != "" {
		t.Fatalf("exit %d, stderr %q, stdout %s", o.code, o.stderr, o.stdout)
	}
	var run result.Run
	if err := json.Unmarshal([]byte(o.stdout), &run); err != nil {
		t.Fatalf("%v: %s", err, o.stdout)
	}
	if run.Acknowledged == 0 || run.Verify == nil || run.Verify.Allocations == 0 || run.Events == nil || !run.Passed() {
		t.Errorf("%+v; want what was asked for, passed", run)
	}
	if len(run.Nodes) != 1 || run.Nodes[0].Missing != "" || len(run.Nodes[0].Stages) == 0 {
		t.Errorf("nodes %+v; want the gateway's figures", run.Nodes)
	}
	if html, err := os.ReadFile(page); err != nil || !bytes.Contains(html, []byte("</html>")) {
		t.Errorf("%v: the HTML report is %d bytes", err, len(html))
	}
}

func TestARunThatMissesACriterionReportsAndExitsWithOne(t *testing.T) {
	g := target.StartGateway(t, "--max-holds=4096")
	for _, criterion := range []string{"--max-e2e-p99=1us", "--min-acknowledged=1000000000"} {
		o := runProgram(t.Context(), quick(g.URL, criterion)...)
		if o.code != exitFailure || o.stderr != "" || !strings.Contains(o.stdout, "FAIL") {
			t.Errorf("%s: exit %d, stderr %q, stdout %s", criterion, o.code, o.stderr, o.stdout)
		}
	}
	o := runProgram(t.Context(), quick(refusing(t))...)
	if o.code != exitFailure || !strings.Contains(o.stdout, "unavailable") {
		t.Errorf("nothing but refusals: exit %d, stdout %s", o.code, o.stdout)
	}
}

func TestAnUnreachableTargetIsNamedAndExitsWithOne(t *testing.T) {
	for _, args := range [][]string{quick("ws://127.0.0.1:1/ws"), {"verify", "--url=ws://127.0.0.1:1/ws", "--signers=1"}} {
		o := runProgram(t.Context(), args...)
		if o.code != exitFailure || !strings.Contains(o.stderr, "ws://127.0.0.1:1/ws") || !strings.Contains(o.stderr, "is the gateway running? (make run)") {
			t.Errorf("%s: exit %d, stderr %q", args[0], o.code, o.stderr)
		}
		if o.stdout != "" {
			t.Errorf("%s: it says %q, though nothing was found out", args[0], o.stdout)
		}
	}
}

func TestAWrongCommandLineNamesItsFlagAndExitsWithTwo(t *testing.T) {
	for want, args := range map[string][]string{
		"--connections must be":      {"run", "--connections=0"},
		"--inflight must be":         {"run", "--inflight=1001"},
		"--rate must be":             {"run", "--rate=-1"},
		"--rate:":                    {"run", "--rate=fast"},
		"--ramp-up must not":         {"run", "--ramp-up=-1s"},
		"--duration must be":         {"run", "--duration=0s"},
		"--signers must be":          {"verify", "--signers=0"},
		"--signer-base must be":      {"verify", "--signer-base=-1"},
		"--zipf must be":             {"run", "--zipf=0.5"},
		"--mix:":                     {"run", "--mix=mint=1"},
		"--url must be":              {"run", "--url=http://127.0.0.1:8080/ws"},
		"--metrics must be":          {"run", "--metrics=localhost:8081"},
		"--max-failed-share must be": {"run", "--max-failed-share=5"},
		"--min-acknowledged must be": {"run", "--min-acknowledged=0"},
		"--max-e2e-p99 must not":     {"run", "--max-e2e-p99=-1s"},
		"--max-lost must be":         {"run", "--max-lost=-2"},
		"--json cannot be written":   {"run", "--json=" + filepath.Join(t.TempDir(), "no", "file")},
		"--html must be a file":      {"run", "--html=-"},
		"unexpected argument":        {"run", "fast"},
		"expected one of":            {},
		"--inflight must be 1":       {"run", "--inflight", "-3"},
		"--rate must be 0":           {"run", "--rate", "-.5"},
		"--warmup must not":          {"run", "--warmup", "-1s"},
		"--max-lost must be -1":      {"churn", "--max-lost", "-2"},
	} {
		o := runProgram(t.Context(), args...)
		if o.code != exitUsage || !strings.Contains(o.stderr, want) {
			t.Errorf("%q: exit %d, stderr %q, want %q", args, o.code, o.stderr, want)
		}
	}
}

func TestHelpShowsEveryFlagWithItsDefault(t *testing.T) {
	o := runProgram(t.Context(), "run", "--help")
	for _, want := range []string{"--connections=64", "--inflight=16", "--max-failed-share=0.05", "--min-acknowledged=1000", "--duration=5s"} {
		if o.code != exitOK || !strings.Contains(o.stdout, want) {
			t.Errorf("exit %d, no %s in %s", o.code, want, o.stdout)
		}
	}
}

func TestAnInterruptedRunPrintsWhatItHasAndExitsWith130(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	g := target.StartGateway(t, "--max-holds=4096")
	p := &program{stdout: new(bytes.Buffer), stderr: writerFunc(func(line []byte) {
		if bytes.Contains(line, []byte("/s")) {
			cancel() // the first line of progress
		}
	}), terminal: true}
	code := p.run(ctx, quick(g.URL, "--duration=1h", "--verify"))
	if text := p.stdout.(*bytes.Buffer).String(); code != exitInterrupted || !strings.Contains(text, "acknowledged") || !strings.Contains(text, "verify") {
		t.Errorf("exit %d, stdout %s", code, text)
	}
}

func TestARunThatIsInterruptedWhileItWarmsUpSaysWhoWasNotRead(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	url := target.Serve(t, func(*target.Conn, int, []byte) error { cancel(); return nil })
	o := runProgram(ctx, quick(url, "--warmup=1h", "--metrics=http://127.0.0.1:1/metrics")...)
	if o.code != exitInterrupted || !strings.Contains(o.stdout, "http://127.0.0.1:1/metrics was not read within the measured time") {
		t.Errorf("exit %d, stderr %q, stdout %s", o.code, o.stderr, o.stdout)
	}
}

type writerFunc func([]byte)

func (f writerFunc) Write(p []byte) (int, error) { f(p); return len(p), nil }

func TestProgressIsForTerminalsAndCleansUp(t *testing.T) {
	var out bytes.Buffer
	line := (&program{stderr: &out, terminal: true}).progress()
	line.second(result.Second{Acknowledged: 123, Seconds: 1})
	line.signers(10, 10)
	line.end()
	shown := strings.Split(out.String(), "\r")
	if last := shown[len(shown)-2]; strings.TrimSpace(last) != "" || len(last) < len(shown[1]) || !strings.Contains(shown[1], "123/s") {
		t.Errorf("shown %q, want a line that is cleared at last", shown)
	}
	out.Reset()
	line = (&program{stderr: &out}).progress()
	line.second(result.Second{})
	line.end()
	if out.Len() != 0 {
		t.Errorf("shown %q where nobody looks", out.String())
	}
}

func TestMetricsAreGuessedForThisMachinesDefaultPortOnly(t *testing.T) {
	for target, want := range map[string]string{
		"ws://127.0.0.1:8080/ws":       "http://127.0.0.1:8081/metrics",
		"ws://localhost:8080/ws":       "http://localhost:8081/metrics",
		"ws://[::1]:8080/ws":           "http://[::1]:8081/metrics",
		"ws://127.0.0.1:9000/ws":       "",
		"ws://gateway.example:8080/ws": "",
	} {
		if got := strings.Join((&reportFlags{}).metrics([]string{target}), " "); got != want {
			t.Errorf("%s: %q, want %q", target, got, want)
		}
	}
	if got := (&reportFlags{Metrics: []string{"http://a/metrics"}}).metrics([]string{"ws://127.0.0.1:8080/ws"}); len(got) != 1 || got[0] != "http://a/metrics" {
		t.Errorf("%q, want the one that was given", got)
	}
}

func TestAReportFileKeepsWhatItHadUntilThereIsAResult(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run.json")
	if err := os.WriteFile(path, []byte("the report of yesterday, longer than what comes"), 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := (&reportFlags{JSON: path}).open(&program{stdout: io.Discard})
	if err != nil {
		t.Fatal(err)
	}
	if had, _ := os.ReadFile(path); len(had) == 0 {
		t.Error("it was emptied before there was a result")
	}
	nothing := func(io.Writer) error { return nil }
	if err := out.write(forms{text: nothing, json: func(w io.Writer) error { _, err := io.WriteString(w, "{}"); return err }}); err != nil {
		t.Fatal(err)
	}
	if has, _ := os.ReadFile(path); string(has) != "{}" {
		t.Errorf("it has %q, want the result alone", has)
	}
}

func TestVerifySaysWhatItFound(t *testing.T) {
	g := target.StartGateway(t, "--max-holds=4096")
	load := traffic.Load{URLs: []string{g.URL}, Connections: 1, Inflight: 5, Duration: 50 * time.Millisecond, Signers: traffic.Signers{Base: 50, Count: 1}}
	if _, err := load.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	o := runProgram(t.Context(), "verify", "--url", g.URL, "--signer-base=50", "--signers=2")
	if o.code != exitOK || !strings.Contains(o.stdout, "2 of 2 signers read") || !strings.Contains(o.stdout, "every nonce is accounted for") {
		t.Errorf("exit %d, stdout %q, stderr %q", o.code, o.stdout, o.stderr)
	}
	o = runProgram(t.Context(), "verify", "--url", g.URL, "--signer-base=50", "--signers=2", "--json=-")
	var v result.Verify
	if err := json.Unmarshal([]byte(o.stdout), &v); err != nil || o.code != exitOK || v.Signers != 2 || v.Allocations == 0 {
		t.Errorf("exit %d, %v: %s", o.code, err, o.stdout)
	}
	o = runProgram(t.Context(), "verify", "--url", g.URL, "--signer-base=7000", "--signers=2")
	if o.code != exitFailure || !strings.Contains(o.stderr, "nothing was verified") {
		t.Errorf("nothing to verify: exit %d, stderr %q", o.code, o.stderr)
	}
}

func TestVerifyExitsWithOneOnAViolation(t *testing.T) {
	url := target.Serve(t, func(c *target.Conn, _ int, message []byte) error {
		var call struct {
			ID     json.RawMessage
			Method string
		}
		if err := json.Unmarshal(message, &call); err != nil {
			return err
		}
		answer := `{"next":2,"held":2,"version":1}`
		if call.Method == "nonce_list" {
			answer = `{"allocations":[{"nonce":1,"status":"HELD","attempt":1},{"nonce":1,"status":"HELD","attempt":1}]}`
		}
		return c.Reply(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, call.ID, answer))
	})
	o := runProgram(t.Context(), "verify", "--url", url, "--signers=1")
	if o.code != exitFailure || o.stderr != "" || !strings.Contains(o.stdout, "violations") || !strings.Contains(o.stdout, "listed after") {
		t.Errorf("exit %d, stderr %q, stdout %q", o.code, o.stderr, o.stdout)
	}
}

func TestANegativeNumberIsTheValueOfTheFlagBeforeIt(t *testing.T) {
	for _, test := range []struct{ args, want string }{
		{"run --rate -1 --verify", "run --rate=-1 --verify"},
		{"run --warmup -.5s", "run --warmup=-.5s"},
		{"run --rate=1 -1", "run --rate=1 -1"},
		{"run -1", "run -1"},
		{"-1", "-1"},
		{"run --json - --html x", "run --json - --html x"},
		{"run --html --verify", "run --html --verify"},
	} {
		if got := joinNegative(strings.Fields(test.args)); !slices.Equal(got, strings.Fields(test.want)) {
			t.Errorf("%s: %q, want %s", test.args, got, test.want)
		}
	}
}

func TestAnAddressWithoutAPathGetsThatOfAGateway(t *testing.T) {
	for address, want := range map[string]string{
		"ws://h:1":       "ws://h:1/ws",
		"ws://h:1/":      "ws://h:1/ws",
		"wss://h/?a=b":   "wss://h/ws?a=b",
		"ws://h/ws":      "ws://h/ws",
		"ws://h/other":   "ws://h/other",
		"localhost:8080": "localhost:8080", // refused by its rule, as it was written
		"ws://":          "ws://",
	} {
		if got := withPath(address); got != want {
			t.Errorf("%s: %s, want %s", address, got, want)
		}
	}
	g := target.StartGateway(t, "--max-holds=4096")
	address := strings.TrimSuffix(g.URL, "/ws")
	if o := runProgram(t.Context(), quick(address, "--no-growth-check")...); o.code != exitOK {
		t.Errorf("exit %d: %s", o.code, o.stderr)
	}
	if url, _, err := splitGateway("ws://h:1=gateway serve"); url != "ws://h:1/ws" || err != nil {
		t.Errorf("--gateway: %s, %v", url, err)
	}
}

func TestAWrongPathIsAnsweredWithTheRightOne(t *testing.T) {
	g := target.StartGateway(t)
	address := strings.TrimSuffix(g.URL, "/ws") + "/socket"
	for _, args := range [][]string{quick(address), {"verify", "--url", address}, {"slow", "--url", address}, {"churn", "--url", address}} {
		if o := runProgram(t.Context(), args...); o.code != exitFailure || !strings.Contains(o.stderr, "at /ws") {
			t.Errorf("%s: exit %d, %q", args[0], o.code, o.stderr)
		}
	}
}
