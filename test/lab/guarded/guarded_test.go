//go:build unix

package guarded

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// victimEnv makes the test binary open a room, start a program in it, say which,
// and wait.
const victimEnv = "GUARDED_VICTIM"

func TestMain(m *testing.M) {
	if os.Getenv(victimEnv) != "" {
		os.Exit(victim())
	}
	goleak.VerifyTestMain(m)
}

// testTimeout is a safety net; nothing waits for it when things work.
const testTimeout = 30 * time.Second

func open(t *testing.T) *Room {
	t.Helper()
	r, err := Open("guardedtest", nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(r.Dir()); !os.IsNotExist(err) {
			t.Errorf("the directory is left behind: %v", err)
		}
	})
	return r
}

func start(t *testing.T, r *Room, script string) *Process {
	t.Helper()
	p, err := r.Start("log", nil, "/bin/sh", "-c", script)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// said waits until a program has written text to its log.
func said(t *testing.T, p *Process, text string) {
	t.Helper()
	deadline := time.Now().Add(testTimeout)
	for tick := time.NewTicker(time.Millisecond); ; <-tick.C {
		if strings.Contains(p.LogTail(1000), text) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the program never said %q, but %q", text, p.LogTail(1000))
		}
	}
}

func TestAProgramRunsInTheRoomAndItsOutputIsKept(t *testing.T) {
	r := open(t)
	if err := r.WriteFile("note", "read me"); err != nil {
		t.Fatal(err)
	}
	p := start(t, r, "cat note; echo; pwd; cat; exit 3")
	if err := p.Err(); err == nil || err.Error() != "exit status 3" {
		t.Errorf("it ended with %v, want exit status 3", err)
	}
	if got, want := p.LogTail(1000), "read me\n"+r.Dir(); got != want {
		t.Errorf("it said %q, want %q", got, want)
	}
	if got, want := p.LogTail(5), r.Dir()[len(r.Dir())-4:]; got != want {
		t.Errorf("the last 5 bytes but the line's end are %q, want %q", got, want)
	}
}

func TestEndAsksAndThenKills(t *testing.T) {
	r := open(t)
	p := start(t, r, `trap 'echo asked; exit' TERM; echo up; while :; do sleep 0.01; done`)
	said(t, p, "up")
	if err := p.End(syscall.SIGTERM, testTimeout); err != nil {
		t.Error(err)
	}
	if got := p.LogTail(1000); got != "up\nasked" {
		t.Errorf("it said %q, want that it was asked", got)
	}
	if err := p.Signal(syscall.SIGTERM); err == nil {
		t.Error("a program that has ended takes a signal")
	}
	if err := p.End(syscall.SIGTERM, testTimeout); err != nil {
		t.Errorf("ending it again: %v", err)
	}
	deaf := start(t, r, `trap '' TERM; echo deaf; while :; do sleep 0.01; done`)
	said(t, deaf, "deaf")
	if err := deaf.End(syscall.SIGTERM, time.Millisecond); err == nil || !strings.Contains(err.Error(), "did not end") {
		t.Errorf("end of a program that ignores the signal: %v, want that it was killed", err)
	}
}

func TestAPausedProgramCanBeEnded(t *testing.T) {
	p := start(t, open(t), `echo up; while :; do sleep 0.01; done`)
	said(t, p, "up")
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := p.End(syscall.SIGTERM, testTimeout); err != nil {
		t.Error(err)
	}
}

func TestCloseEndsWhatRunsAndNothingStartsAfterIt(t *testing.T) {
	r := open(t)
	first, second := start(t, r, "exec sleep 1000"), start(t, r, "exec sleep 1000")
	for range 2 {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
	for _, p := range []*Process{first, second} {
		select {
		case <-p.Exited():
		default:
			t.Errorf("process %d still runs", p.PID())
		}
	}
	if _, err := r.Start("log", nil, "/bin/sh"); err == nil {
		t.Error("a program was started in a closed room")
	}
}

func TestAProgramThatIsNotThereEndsAndSaysSo(t *testing.T) {
	p, err := open(t).Start("log", nil, "/nonexistent/program")
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Err(); err == nil || !strings.Contains(p.LogTail(1000), "/nonexistent/program") {
		t.Errorf("it ended with %v and said %q", err, p.LogTail(1000))
	}
}

func TestAccountsThatDoNotExistAreNamed(t *testing.T) {
	cred, err := Account("no-such-account", "nor-this")
	if os.Geteuid() != 0 {
		if cred != nil || err != nil {
			t.Errorf("without being root: %v, %v; want ourselves", cred, err)
		}
		return
	}
	if err == nil || !strings.Contains(err.Error(), "no-such-account, nor-this") {
		t.Errorf("Account: %v, %v; want an error with the names", cred, err)
	}
	if cred, err := Account("no-such-account", "nobody"); err != nil || cred == nil || cred.Uid == 0 {
		t.Errorf("Account: %+v, %v; want nobody's", cred, err)
	}
}

func TestOnlyAReachableDirectoryIsForAnotherAccount(t *testing.T) {
	dir := t.TempDir()
	closed := filepath.Join(dir, "closed")
	if err := os.MkdirAll(filepath.Join(closed, "below"), 0o700); err != nil {
		t.Fatal(err)
	}
	if reachable(filepath.Join(closed, "below")) {
		t.Error("a directory below one that is closed counts as reachable")
	}
	if !reachable("/") {
		t.Error("the root counts as unreachable")
	}
}

func victim() int {
	r, err := Open("guardedtest", nil)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	var pids []int
	for range 2 {
		p, err := r.Start("log", nil, "/bin/sleep", "1000")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		pids = append(pids, p.PID())
	}
	fmt.Println(pids[0], pids[1], r.Dir())
	select {}
}

func TestNothingOutlivesAKilledProcess(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), victimEnv+"=1")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var first, second int
	var dir string
	_, err = fmt.Fscan(bufio.NewReader(out), &first, &second, &dir)
	cmd.Process.Kill()
	cmd.Wait()
	if err != nil {
		t.Fatal(err)
	}
	// The guard belongs to nobody now, so there is nothing to wait on but what it
	// leaves: first no process, then no directory.
	deadline := time.Now().Add(testTimeout)
	for tick := time.NewTicker(10 * time.Millisecond); ; <-tick.C {
		_, statErr := os.Stat(dir)
		if os.IsNotExist(statErr) && gone(first) && gone(second) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("left behind: directory %s (%v), processes %d and %d", dir, statErr, first, second)
		}
	}
}

// gone reports whether a process has ended. One that is a zombie has: in a
// container its parent may be a process that never asks.
func gone(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return true
	}
	out, err := exec.Command("ps", "-o", "stat=", "-p", fmt.Sprint(pid)).Output()
	return err != nil || strings.HasPrefix(string(out), "Z")
}
