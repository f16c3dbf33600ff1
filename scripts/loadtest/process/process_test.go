//go:build unix

package process

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"go.uber.org/goleak"

	"noncegate/test/lab/expect"
	"noncegate/test/lab/wait"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// shell makes a server of a shell script.
func shell(script string, ready ...string) *Server {
	return &Server{Name: "A", Command: Command{words: []string{"/bin/sh", "-c", script}}, Ready: ready}
}

// output is what a server has said.
func output(s *Server) string { return s.failed(errors.New("")).Error() }

// start runs a shell script and waits until it has said "up".
func start(t *testing.T, script string) *Server {
	t.Helper()
	s := shell(script)
	expect.Must(t, s.Start(t.Context()))
	t.Cleanup(func() { s.Stop(0) })
	wait.Until(t, "it says up", func() bool { return strings.Contains(output(s), "up") })
	return s
}

func TestAProcessThatEndsWhenAskedIsNotKilled(t *testing.T) {
	s := start(t, `trap 'exit 0' TERM; echo up; while :; do sleep 0.01; done`)
	expect.Check(t, s.Stop(wait.Patience)) // without the trap its status would be another one
	if _, err := os.Stat(s.log); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v; want that its output is gone", err)
	}
	if err := s.Stop(wait.Patience); err != nil {
		t.Errorf("second stop: %v", err)
	}
}

func TestAProcessThatDoesNotEndIsKilledWithItsGroup(t *testing.T) {
	s := start(t, `trap '' TERM; sleep 1000 & echo "child $!"; echo up; wait; while :; do sleep 1; done`)
	group := -s.Pid()
	err := s.Stop(50 * time.Millisecond)
	if err == nil || !strings.Contains(err.Error(), "was killed") {
		t.Errorf("stop: %v, want that it was killed", err)
	}
	wait.Until(t, "all of its group end", func() bool { return errors.Is(syscall.Kill(group, 0), syscall.ESRCH) })
}

func TestAStatusOtherThanZeroIsSaidWithTheOutput(t *testing.T) {
	s := start(t, `trap 'echo no luck; exit 3' TERM; echo up; while :; do sleep 0.01; done`)
	err := s.Stop(wait.Patience)
	if err == nil || !strings.Contains(err.Error(), "exit status 3") || !strings.Contains(err.Error(), "no luck") {
		t.Errorf("stop: %v, want its status and its words", err)
	}
}

// TestAProcessThatEndsBeforeItIsReadySaysWhy: also when another server is ready at its address.
func TestAProcessThatEndsBeforeItIsReadySaysWhy(t *testing.T) {
	foreign := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer foreign.Close()
	for _, ready := range []string{"http://127.0.0.1:1", foreign.URL} {
		s := shell("echo wrong flag; exit 2", ready)
		expect.Must(t, s.launch())
		<-s.exited
		err := s.failed(s.await(t.Context()))
		if err == nil || !strings.Contains(err.Error(), "exit status 2") || !strings.Contains(err.Error(), "wrong flag") {
			t.Errorf("ready: %v, want its status and its words", err)
		}
		s.Stop(0) // its status is told a second time
	}
	s := &Server{Name: "A", Command: Command{words: []string{"/nonexistent/gateway"}}}
	if err := s.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "/nonexistent/gateway") {
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
	urls := []string{"ws" + strings.TrimPrefix(srv.URL, "http"), srv.URL}
	for _, ready := range []bool{false, true} {
		up.Store(ready)
		for _, url := range urls {
			if err := Answers(t.Context(), url); (err == nil) != ready {
				t.Errorf("%s: %v, while it is ready: %t", url, err, ready)
			}
		}
	}
}

func TestAnAddressIsVacantWhileNobodyListensThere(t *testing.T) {
	srv := httptest.NewServer(http.NotFoundHandler())
	address := srv.Listener.Addr().String()
	for _, url := range []string{"ws://" + address + "/ws", "http://" + address + "/readyz"} {
		s := &Server{URLs: []string{"ws://127.0.0.1:1/ws", url}}
		if err := s.Vacant(t.Context()); !errors.Is(err, ErrTaken) || !strings.Contains(err.Error(), address) {
			t.Errorf("%s: %v, want that it is taken", url, err)
		}
	}
	srv.Close()
	if err := (&Server{URLs: []string{"ws://" + address + "/ws"}}).Vacant(t.Context()); err != nil {
		t.Errorf("%v, want that it is free", err)
	}
}

func TestACommandKnowsQuotesAndNothingElse(t *testing.T) {
	for line, want := range map[string][]string{
		`gateway serve --listen :1`:         {"gateway", "serve", "--listen", ":1"},
		"  a\t b ":                          {"a", "b"},
		`'C:\Program Files\gateway.exe' -x`: {`C:\Program Files\gateway.exe`, "-x"},
		`a "it's" 'say "x"'`:                {"a", "it's", `say "x"`},
		`--store='sqlite:my file.db'`:       {"--store=sqlite:my file.db"},
		`a '' b`:                            {"a", "", "b"},
		`$HOME && *`:                        {"$HOME", "&&", "*"},
	} {
		var got Command
		if err := got.UnmarshalText([]byte(line)); err != nil || !slices.Equal(got.words, want) {
			t.Errorf("%s: %q, %v; want %q", line, got.words, err, want)
		}
	}
	for _, line := range []string{"", "  ", `a 'b`, `a "b'`} {
		if err := new(Command).UnmarshalText([]byte(line)); err == nil {
			t.Errorf("%s: want an error", line)
		}
	}
}
