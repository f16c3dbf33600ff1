//go:build unix

package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"noncegate/test/lab/expect"
	"noncegate/test/lab/gateway"
	"noncegate/test/lab/peer"
	"noncegate/test/lab/wait"
	"noncegate/wire"
)

// Process is a gateway in a process of its own. It is killed when the test ends.
type Process struct {
	testing.TB
	URL, Admin string
	process    *gateway.Gateway
	args       []string
}

// Launch starts a gateway on free ports and returns once it serves.
func Launch(t testing.TB, args ...string) *Process {
	t.Helper()
	p := Begin(t, args...)
	p.Serves()
	return p
}

// begun counts the gateways and crowds that were begun.
var begun atomic.Int64

// Begin starts a gateway on free ports.
func Begin(t testing.TB, args ...string) *Process {
	t.Helper()
	log := fmt.Sprintf("gateway-%d.log", begun.Add(1))
	exe, err := program()
	expect.Must(t, err)
	g, err := gateway.Begin(room, gateway.Config{Program: exe, Log: log, Env: os.Environ(), Args: append([]string{"--workers=2"}, args...)})
	expect.Must(t, err)
	p := &Process{TB: t, process: g, args: args}
	t.Cleanup(p.bury)
	return p
}

// Serves waits until the gateway serves.
func (p *Process) Serves() {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.Context(), wait.Patience)
	defer cancel()
	expect.Must(p, p.process.Serves(ctx))
	p.URL, p.Admin = p.process.URL, p.process.Admin
}

func (p *Process) bury() {
	expect.Check(p, p.process.Kill())
	if log := p.Printed(); strings.Contains(log, "DATA RACE") || strings.Contains(log, "panic") {
		p.Errorf("the gateway's log:\n%s", log)
	} else if p.Failed() {
		p.Logf("the gateway's log:\n%s", log)
	}
}

// Printed is all that the gateway has said.
func (p *Process) Printed() string { return p.process.Log() }

func (p *Process) Signal(sig syscall.Signal) {
	p.Helper()
	expect.Must(p, p.process.Signal(sig))
}

// Pause stops the process where it stands and returns once it does.
func (p *Process) Pause() {
	p.Helper()
	p.Signal(syscall.SIGSTOP)
	p.Await("the process to stop", func() bool {
		pid := fmt.Sprint(p.process.PID())
		if stat, err := os.ReadFile("/proc/" + pid + "/stat"); err == nil {
			_, state, _ := strings.Cut(string(stat), ") ")
			return strings.HasPrefix(state, "T")
		}
		out, err := exec.Command("ps", "-o", "stat=", "-p", pid).Output() // not Linux
		expect.Must(p, err)
		return strings.HasPrefix(string(out), "T")
	})
}

// Exit waits for the end of the process and returns its exit code.
func (p *Process) Exit() int {
	p.Helper()
	select {
	case <-p.process.Exited():
	case <-time.After(wait.Patience):
		p.Fatalf("the gateway did not end")
	}
	if ended, ok := errors.AsType[*exec.ExitError](p.process.Err()); ok {
		return ended.ExitCode()
	}
	return ExitOK
}

// Stop has the gateway drain and end, in order.
func (p *Process) Stop() {
	p.Helper()
	p.Signal(syscall.SIGTERM)
	p.Ends()
}

// Ends waits for the end of the process, which must be in order.
func (p *Process) Ends() {
	p.Helper()
	if code := p.Exit(); code != ExitOK {
		p.Errorf("the gateway ended with %d", code)
	}
}

// Says waits for a text in the log, which may come later than what a client is told.
func (p *Process) Says(text string) {
	p.Helper()
	p.Await("the log to say "+text, func() bool { return strings.Contains(p.Printed(), text) })
}

// Logged reports whether a line of the gateway's log has all these words.
func (p *Process) Logged(words ...string) bool {
	for line := range strings.Lines(p.Printed()) {
		all := true
		for _, w := range words {
			all = all && strings.Contains(line, w)
		}
		if all {
			return true
		}
	}
	return false
}

// Await asks done until it says yes.
func (p *Process) Await(what string, done func() bool) {
	p.Helper()
	wait.Until(p, what, done)
}

// Get asks the admin side.
func (p *Process) Get(path string) (code int, body string) {
	p.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: wait.Patience}
	res, err := client.Get(p.Admin + path)
	expect.Must(p, err)
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	expect.Must(p, err)
	return res.StatusCode, string(text)
}

// Metric reports whether /metrics has this line.
func (p *Process) Metric(line string) bool {
	p.Helper()
	_, text := p.Get("/metrics")
	return strings.Contains(text, "\n"+line+"\n")
}

// Value is that of a line of /metrics; 0 when it is not there.
func (p *Process) Value(name string) float64 {
	p.Helper()
	_, text := p.Get("/metrics")
	_, rest, there := strings.Cut(text, "\n"+name+" ")
	number, _, _ := strings.Cut(rest, "\n")
	v, err := strconv.ParseFloat(number, 64)
	if there && err != nil {
		p.Fatal(err)
	}
	return v
}

// Outcome is what a command showed.
type Outcome struct {
	Code           int
	Stdout, Stderr string
}

// Run runs the gateway's program until it ends.
func Run(t testing.TB, args ...string) Outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), wait.Patience)
	defer cancel()
	var stdout, stderr bytes.Buffer
	exe, err := program()
	expect.Must(t, err)
	cmd := exec.CommandContext(ctx, exe, args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); cmd.ProcessState == nil || !cmd.ProcessState.Exited() || strings.Contains(stderr.String(), "DATA RACE") {
		t.Errorf("%q: %v, stderr %s", args, err, stderr.String())
	}
	return Outcome{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// Refused runs a gateway that must not start, and returns its one sentence.
func Refused(t testing.TB, code int, args ...string) string {
	t.Helper()
	o := Run(t, append(append([]string{"serve"}, args...), "--log-level=error")...)
	if o.Code != code || o.Stdout != "" || !strings.HasPrefix(o.Stderr, "gateway: ") || strings.Count(o.Stderr, "\n") != 1 {
		t.Errorf("%q: exit %d, want %d, stdout %q, stderr %q", args, o.Code, code, o.Stdout, o.Stderr)
	}
	return o.Stderr
}

// Account is the signer of the tests that need one.
const Account = "eip155:1:0xab16a96d359ec26a11e2c2b3d8f8b8942d5bfcdb"

const Hash = `0x00000000000000000000000000000000000000000000000000000000000000aa`

// Reply is an answer of a gateway.
type Reply = peer.Reply

// Peer is one connection to a gateway, of one goroutine.
type Peer struct {
	testing.TB
	*peer.Conn
	Last int64
	Got  map[int64]*Reply // answers that were not waited for yet
}

// Connect opens a connection.
func (p *Process) Connect() *Peer {
	p.Helper()
	conn, err := peer.Dial(p.Context(), p.URL, peer.Config{Timeout: wait.Patience, DefaultHold: time.Minute})
	expect.Must(p, err)
	p.Cleanup(func() { _ = conn.Close() })
	return &Peer{TB: p.TB, Conn: conn, Got: make(map[int64]*Reply)}
}

// Send sends a request and returns its id.
func (c *Peer) Send(method, params string) int64 {
	c.Helper()
	c.Last++
	expect.Must(c, c.Request(c.Last, method, params))
	return c.Last
}

// Answer waits for the answer to a request.
func (c *Peer) Answer(id int64) *Reply {
	c.Helper()
	for c.Got[id] == nil {
		r, err := c.Read()
		if err != nil {
			c.Fatalf("waiting for answer %d: %v", id, err)
		}
		c.Got[r.ID] = r
	}
	r := c.Got[id]
	delete(c.Got, id)
	return r
}

func (c *Peer) Call(method, params string) *Reply {
	c.Helper()
	return c.Answer(c.Send(method, params))
}

// Want calls and fails the test unless the answer is a result, or the refusal of that reason.
func (c *Peer) Want(reason, method, params string) *Reply {
	c.Helper()
	r := c.Call(method, params)
	if got := r.Reason(); got != reason {
		c.Fatalf("%s %s: %s, want %s (%v)", method, params, got, reason, r.Error)
	}
	return r
}

// Allocation is the params of nonce_allocate; without an id, none.
func Allocation(signer, requestID string) string {
	if requestID == "" {
		return fmt.Sprintf(`{"signer":%q}`, signer)
	}
	return fmt.Sprintf(`{"signer":%q,"requestId":%q}`, signer, requestID)
}

// Mark is the params of nonce_markUsed.
func Mark(signer string, nonce int64) string {
	return fmt.Sprintf(`{"signer":%q,"nonce":%d,"txHash":%q}`, signer, nonce, Hash)
}

// Allocate must get a nonce.
func (c *Peer) Allocate(signer, requestID string) wire.AllocateResult {
	c.Helper()
	return Decode[wire.AllocateResult](c, c.Want("ok", wire.MethodAllocate, Allocation(signer, requestID)))
}

func StatusOf(c *Peer, signer string) wire.StatusResult {
	c.Helper()
	return Decode[wire.StatusResult](c, c.Want("ok", wire.MethodStatus, Allocation(signer, "")))
}

func Decode[T any](t testing.TB, r *Reply) (v T) {
	t.Helper()
	if err := wire.Unmarshal(r.Result, &v); err != nil {
		t.Fatalf("%s: %v", r.Result, err)
	}
	return v
}
