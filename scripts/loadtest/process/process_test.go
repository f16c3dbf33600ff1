//go:build unix

package process

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"go.uber.org/goleak"

	"noncegate/test/lab/expect"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits for what must happen.
const patience = time.Minute

// said is ready once the process has written text.
func said(p **Process, text string) func(context.Context) error {
	return func(context.Context) error {
		if strings.Contains(output(*p), text) {
			return nil
		}
		return errors.New("it has not said " + text)
	}
}

// output is what a process has said.
func output(p *Process) string { return p.failed(errors.New("")).Error() }

// start runs a shell script and waits until it has said "up".
func start(t *testing.T, script string) *Process {
	t.Helper()
	p, err := Start([]string{"/bin/sh", "-c", script}, filepath.Join(t.TempDir(), "log"))
	expect.Must(t, err)
	t.Cleanup(func() { p.Stop(0) })
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	expect.Must(t, p.WaitReady(ctx, said(&p, "up")))
	return p
}

func TestAProcessThatEndsWhenAskedIsNotKilled(t *testing.T) {
	p := start(t, `trap 'echo drained; exit 0' TERM; echo up; while :; do sleep 0.01; done`)
	if err := p.Stop(patience); err != nil {
		t.Errorf("stop: %v", err)
	}
	if !strings.Contains(output(p), "drained") {
		t.Errorf("output %q, want that it drained", output(p))
	}
	if err := p.Stop(patience); err != nil {
		t.Errorf("second stop: %v", err)
	}
}

func TestAProcessThatDoesNotEndIsKilledWithItsGroup(t *testing.T) {
	p := start(t, `trap '' TERM; sleep 1000 & echo "child $!"; echo up; wait; while :; do sleep 1; done`)
	err := p.Stop(50 * time.Millisecond)
	if err == nil || !strings.Contains(err.Error(), "was killed") {
		t.Errorf("stop: %v, want that it was killed", err)
	}
	deadline := time.Now().Add(patience)
	for !errors.Is(syscall.Kill(-p.Pid(), 0), syscall.ESRCH) {
		if time.Now().After(deadline) {
			t.Fatal("something of its group is left")
		}
	}
}

func TestAStatusOtherThanZeroIsSaidWithTheOutput(t *testing.T) {
	p := start(t, `trap 'echo no luck; exit 3' TERM; echo up; while :; do sleep 0.01; done`)
	err := p.Stop(patience)
	if err == nil || !strings.Contains(err.Error(), "exit status 3") || !strings.Contains(err.Error(), "no luck") {
		t.Errorf("stop: %v, want its status and its words", err)
	}
}

// TestAProcessThatEndsBeforeItIsReadySaysWhy: also when another server is ready at its address.
func TestAProcessThatEndsBeforeItIsReadySaysWhy(t *testing.T) {
	for _, foreign := range []error{errors.New("not yet"), nil} {
		p, err := Start([]string{"/bin/sh", "-c", "echo wrong flag; exit 2"}, filepath.Join(t.TempDir(), "log"))
		expect.Must(t, err)
		<-p.exited
		err = p.WaitReady(t.Context(), func(context.Context) error { return foreign })
		if err == nil || !strings.Contains(err.Error(), "exit status 2") || !strings.Contains(err.Error(), "wrong flag") {
			t.Errorf("ready: %v, want its status and its words", err)
		}
	}
	if _, err := Start([]string{"/nonexistent/gateway"}, filepath.Join(t.TempDir(), "log")); err == nil ||
		!strings.Contains(err.Error(), "/nonexistent/gateway") {
		t.Errorf("start: %v, want the command's name", err)
	}
}

func TestReadyMeansAHandshakeOrOK(t *testing.T) {
	var up atomic.Bool
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !up.Load() {
			http.Error(w, "draining", http.StatusServiceUnavailable)
			return
		}
		if !websocket.IsWebSocketUpgrade(r) {
			return
		}
		upgrader := websocket.Upgrader{}
		if ws, err := upgrader.Upgrade(w, r, nil); err == nil {
			ws.Close()
		}
	}))
	defer srv.Close()
	address := strings.TrimPrefix(srv.URL, "http")
	checks := map[string]func(context.Context) error{
		"handshake": Handshakes("ws" + address), "GET": AnswersOK(srv.URL),
	}
	for name, ready := range checks {
		if err := ready(t.Context()); err == nil {
			t.Errorf("%s: ready while it answers 503", name)
		}
	}
	up.Store(true)
	checks["listens"] = Listens(srv.Listener.Addr().String())
	for name, ready := range checks {
		if err := ready(t.Context()); err != nil {
			t.Errorf("%s: %v, want ready", name, err)
		}
	}
}

func TestAnAddressIsVacantWhileNobodyListensThere(t *testing.T) {
	srv := httptest.NewServer(http.NotFoundHandler())
	address := srv.Listener.Addr().String()
	for _, url := range []string{"ws://" + address + "/ws", "http://" + address + "/readyz"} {
		if err := Vacant(t.Context(), "ws://127.0.0.1:1/ws", url); !errors.Is(err, ErrTaken) || !strings.Contains(err.Error(), address) {
			t.Errorf("%s: %v, want that it is taken", url, err)
		}
	}
	srv.Close()
	if err := Vacant(t.Context(), "ws://"+address+"/ws"); err != nil {
		t.Errorf("%v, want that it is free", err)
	}
}

func TestSplitKnowsQuotesAndNothingElse(t *testing.T) {
	for line, want := range map[string][]string{
		`gateway serve --listen :1`:         {"gateway", "serve", "--listen", ":1"},
		"  a\t b ":                          {"a", "b"},
		`'C:\Program Files\gateway.exe' -x`: {`C:\Program Files\gateway.exe`, "-x"},
		`a "it's" 'say "x"'`:                {"a", "it's", `say "x"`},
		`--store='sqlite:my file.db'`:       {"--store=sqlite:my file.db"},
		`a '' b`:                            {"a", "", "b"},
		`$HOME && *`:                        {"$HOME", "&&", "*"},
	} {
		got, err := Split(line)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %q, %v; want %q", line, got, err, want)
		}
	}
	for _, line := range []string{"", "  ", `a 'b`, `a "b'`} {
		if got, err := Split(line); err == nil {
			t.Errorf("%s: %q, want an error", line, got)
		}
	}
}
