//go:build unix

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"noncegate/internal/testenv/pgtest"
	"noncegate/wire"
)

// The tests in the files e2e_*_test.go run gateways as processes, on a real
// PostgreSQL or on a file, and speak the protocol to them as any client would.
// They wait for answers, never for a time to pass; patience only bounds them.

// runMain in the environment turns this test binary into the gateway.
const runMain = "GATEWAY_TEST_RUN_MAIN"

// patience is how long a test waits for what must come.
const patience = 30 * time.Second

// eager is how often a test asks again for what must come.
const eager = 5 * time.Millisecond

var pg *pgtest.Server

func TestMain(m *testing.M) {
	if os.Getenv(runMain) != "" {
		main()
	}
	os.Exit(pgtest.Main(m, &pg, goleak.IgnoreCurrent()))
}

// safeBuffer is what a process says on standard error.
type safeBuffer struct {
	mu  sync.Mutex // guards buf
	buf bytes.Buffer
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *safeBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// process is a gateway in a process of its own. It is killed when the test ends.
type process struct {
	testing.TB
	cmd        *exec.Cmd
	url, admin string
	log        safeBuffer
	greeting   chan []byte
	exited     chan struct{}
}

var greeted = regexp.MustCompile(`listens on (wss?://\S+)\s+\(metrics: (https?://\S+)/metrics\)`)

// launch starts a gateway on free ports and returns once it serves.
func launch(t testing.TB, args ...string) *process {
	t.Helper()
	p := begin(t, args...)
	p.serves()
	return p
}

// begin starts a gateway on free ports.
func begin(t testing.TB, args ...string) *process {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{TB: t, greeting: make(chan []byte, 1), exited: make(chan struct{})}
	p.cmd = exec.Command(exe, append([]string{"--listen=127.0.0.1:0", "--admin-listen=127.0.0.1:0", "--workers=2"}, args...)...)
	p.cmd.Env = append(os.Environ(), runMain+"=1")
	p.cmd.Stderr = &p.log
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.bury)
	go func() {
		defer close(p.exited)
		defer p.cmd.Wait() // ProcessState has what it returns
		defer close(p.greeting)
		var said []byte
		for chunk := make([]byte, 1024); ; {
			n, err := stdout.Read(chunk)
			said = append(said, chunk[:n]...)
			if greeted.Match(said) || err != nil {
				p.greeting <- said
				return // it says nothing after that
			}
		}
	}()
	return p
}

// serves waits until the gateway serves.
func (p *process) serves() {
	p.Helper()
	select {
	case said := <-p.greeting:
		if found := greeted.FindSubmatch(said); found != nil {
			p.url, p.admin = string(found[1]), string(found[2])
			return
		}
	case <-time.After(patience):
	}
	p.Fatal("the gateway did not start")
}

// bury ends the process and looks at what it said.
func (p *process) bury() {
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.exited
	if log := p.log.String(); strings.Contains(log, "DATA RACE") || strings.Contains(log, "panic") {
		p.Errorf("the gateway's log:\n%s", log)
	} else if p.Failed() {
		p.Logf("the gateway's log:\n%s", log)
	}
}

func (p *process) signal(sig syscall.Signal) {
	p.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil {
		p.Fatal(err)
	}
}

// pause stops the process where it stands and returns once it does.
func (p *process) pause() {
	p.Helper()
	p.signal(syscall.SIGSTOP)
	p.await("the process to stop", func() bool {
		pid := fmt.Sprint(p.cmd.Process.Pid)
		if stat, err := os.ReadFile("/proc/" + pid + "/stat"); err == nil {
			_, state, _ := strings.Cut(string(stat), ") ")
			return strings.HasPrefix(state, "T")
		}
		out, err := exec.Command("ps", "-o", "stat=", "-p", pid).Output() // not Linux
		if err != nil {
			p.Fatal(err)
		}
		return strings.HasPrefix(string(out), "T")
	})
}

// exit waits for the end of the process and returns its exit code.
func (p *process) exit() int {
	p.Helper()
	select {
	case <-p.exited:
	case <-time.After(patience):
		p.Fatalf("the gateway did not end")
	}
	return p.cmd.ProcessState.ExitCode()
}

// says waits for a text in the log, which comes by a pipe and so a little later than what a
// client is told.
func (p *process) says(text string) {
	p.Helper()
	p.await("the log to say "+text, func() bool { return strings.Contains(p.log.String(), text) })
}

// await asks done until it says yes.
func (p *process) await(what string, done func() bool) {
	p.Helper()
	await(p, what, done)
}

func await(t testing.TB, what string, done func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	tick := time.NewTicker(eager)
	defer tick.Stop()
	for !done() {
		if time.Now().After(deadline) {
			t.Fatalf("timed out waiting for %s", what)
		}
		<-tick.C
	}
}

// get asks the admin side.
func (p *process) get(path string) (code int, body string) {
	p.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}
	res, err := client.Get(p.admin + path)
	if err != nil {
		p.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		p.Fatal(err)
	}
	return res.StatusCode, string(text)
}

// metric reports whether /metrics has this line.
func (p *process) metric(line string) bool {
	p.Helper()
	_, text := p.get("/metrics")
	return strings.Contains(text, "\n"+line+"\n")
}

// reply is an answer of a gateway.
type reply struct {
	ID     int64       `json:"id"`
	Result wire.Raw    `json:"result"`
	Error  *wire.Error `json:"error"`
}

// reason is the stable word of a refusal, and its outcome where it has one; "ok"
// for a result.
func (r *reply) reason() string {
	switch {
	case r.Error == nil:
		return "ok"
	case r.Error.Data == nil:
		return fmt.Sprint(r.Error.Code)
	}
	return strings.TrimSpace(r.Error.Data.Reason + " " + r.Error.Data.Outcome)
}

// peer is one connection to a gateway, of one goroutine.
type peer struct {
	testing.TB
	ws   *websocket.Conn
	last int64
	got  map[int64]*reply // answers that were not waited for yet
}

// connect opens a connection.
func (p *process) connect() *peer {
	p.Helper()
	ws, res, err := websocket.DefaultDialer.DialContext(p.Context(), p.url, nil)
	if err != nil {
		p.Fatal(err)
	}
	_ = res.Body.Close()
	p.Cleanup(func() { _ = ws.Close() })
	return &peer{TB: p.TB, ws: ws, got: make(map[int64]*reply)}
}

// send sends a request and returns its id.
func (c *peer) send(method, params string) int64 {
	c.Helper()
	c.last++
	if err := c.trySend(c.last, method, params); err != nil {
		c.Fatal(err)
	}
	return c.last
}

func (c *peer) trySend(id int64, method, params string) error {
	frame := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`, id, method, params)
	return c.ws.WriteMessage(websocket.TextMessage, []byte(frame))
}

// read reads one answer. Its error is that of the connection.
func (c *peer) read() (*reply, error) {
	if err := c.ws.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return nil, err
	}
	_, data, err := c.ws.ReadMessage()
	if err != nil {
		return nil, err
	}
	r := new(reply)
	return r, wire.Unmarshal(data, r)
}

// answer waits for the answer to a request.
func (c *peer) answer(id int64) *reply {
	c.Helper()
	for c.got[id] == nil {
		r, err := c.read()
		if err != nil {
			c.Fatalf("waiting for answer %d: %v", id, err)
		}
		c.got[r.ID] = r
	}
	r := c.got[id]
	delete(c.got, id)
	return r
}

func (c *peer) call(method, params string) *reply {
	c.Helper()
	return c.answer(c.send(method, params))
}

// want calls and fails the test unless the answer is a result, or the refusal
// of that reason.
func (c *peer) want(reason, method, params string) *reply {
	c.Helper()
	r := c.call(method, params)
	if got := r.reason(); got != reason {
		c.Fatalf("%s %s: %s, want %s (%v)", method, params, got, reason, r.Error)
	}
	return r
}

// allocation is the params of nonce_allocate; without an id, none.
func allocation(signer, requestID string) string {
	if requestID == "" {
		return fmt.Sprintf(`{"signer":%q}`, signer)
	}
	return fmt.Sprintf(`{"signer":%q,"requestId":%q}`, signer, requestID)
}

// allocate must get a nonce.
func (c *peer) allocate(signer, requestID string) wire.AllocateResult {
	c.Helper()
	return decode[wire.AllocateResult](c, c.want("ok", wire.MethodAllocate, allocation(signer, requestID)))
}

func decode[T any](t testing.TB, r *reply) (v T) {
	t.Helper()
	if err := wire.Unmarshal(r.Result, &v); err != nil {
		t.Fatalf("%s: %v", r.Result, err)
	}
	return v
}

// database makes a migrated database and returns its URL.
func database(t testing.TB) string {
	t.Helper()
	url := pg.NewDatabase(t)
	migrateFor(t, url)
	return url
}

// dial opens a session of the test's own to a database.
func dial(t testing.TB, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	return conn
}

// execute runs statements over a session of its own.
func execute(t testing.TB, url string, statements ...string) {
	t.Helper()
	conn := dial(t, url)
	defer conn.Close(t.Context())
	for _, sql := range statements {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
}

// rows is the result of a query as text, a line each row.
func rows(t testing.TB, url, sql string) string {
	t.Helper()
	return rowsWith(t, url, "", sql)
}

// rowsWith is rows of a query that uses what its WITH clause defines.
func rowsWith(t testing.TB, url, with, sql string) string {
	t.Helper()
	conn := dial(t, url)
	defer conn.Close(t.Context())
	var text string
	err := conn.QueryRow(t.Context(), with+`SELECT coalesce(string_agg(x::text, E'\n'), '') FROM (`+sql+`) x`).Scan(&text)
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return text
}
