//go:build unix

package guarded

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"noncegate/test/lab/expect"
)

// victimEnv makes the test binary open a room, start programs in it, say which, and wait.
const victimEnv = "GUARDED_VICTIM"

func TestMain(m *testing.M) {
	if os.Getenv(victimEnv) != "" {
		if err := victim(); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

// testTimeout is a safety net; nothing waits for it when things work.
const testTimeout = 30 * time.Second

func open(t *testing.T) *Room {
	t.Helper()
	r, err := Open("guardedtest", nil)
	expect.Must(t, err)
	t.Cleanup(func() {
		expect.Check(t, r.Close())
		if _, err := os.Stat(r.Dir()); !os.IsNotExist(err) {
			t.Errorf("the directory is left behind: %v", err)
		}
	})
	return r
}

// start starts a script and returns once it has said that it is up.
func start(t *testing.T, r *Room, script string) *Process {
	t.Helper()
	p, err := r.Start("log", nil, "/bin/sh", "-c", script)
	expect.Must(t, err)
	for deadline := time.Now().Add(testTimeout); !strings.HasSuffix(p.Log(), "up\n"); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the program is not up, but says %q", p.Log())
		}
	}
	return p
}

func TestEndAsksAndThenKillsAlsoWhatStandsStill(t *testing.T) {
	r := open(t)
	p := start(t, r, `trap 'echo asked; exit' TERM; echo up; while :; do sleep 0.01; done`)
	expect.Must(t, p.Signal(syscall.SIGSTOP))
	if err := p.End(syscall.SIGTERM, testTimeout); err != nil || p.LogTail(1000) != "up\nasked" {
		t.Errorf("%v; it said %q, want that it was asked", err, p.LogTail(1000))
	}
	deaf := start(t, r, `trap '' TERM; echo up; while :; do sleep 0.01; done`)
	if err := deaf.End(syscall.SIGTERM, time.Millisecond); err == nil || !strings.Contains(err.Error(), "did not end") {
		t.Errorf("end of a program that ignores the signal: %v, want that it was killed", err)
	}
	left := start(t, r, "echo up; exec sleep 1000")
	for range 2 {
		expect.Check(t, r.Close())
	}
	<-left.Exited()
	if _, err := r.Start("log", nil, "/bin/sh"); err == nil {
		t.Error("a program was started in a closed room")
	}
}

func victim() error {
	r, err := Open("guardedtest", nil)
	if err != nil {
		return err
	}
	var pids [2]int
	for i := range pids {
		p, err := r.Start("log", nil, "/bin/sleep", "1000")
		if err != nil {
			return err
		}
		pids[i] = p.PID()
	}
	fmt.Println(pids[0], pids[1], r.Dir())
	select {}
}

func TestNothingOutlivesAKilledProcess(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), victimEnv+"=1")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	expect.Must(t, err)
	expect.Must(t, cmd.Start())
	var first, second int
	var dir string
	_, err = fmt.Fscan(bufio.NewReader(out), &first, &second, &dir)
	cmd.Process.Kill()
	cmd.Wait()
	expect.Must(t, err)
	// The guard belongs to nobody now, so there is nothing to wait on but what it leaves: first no process, then no directory.
	for deadline := time.Now().Add(testTimeout); ; time.Sleep(10 * time.Millisecond) {
		_, statErr := os.Stat(dir)
		if os.IsNotExist(statErr) && gone(first) && gone(second) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("left behind: directory %s (%v), processes %d and %d", dir, statErr, first, second)
		}
	}
}

// gone reports whether a process has ended. One that is a zombie has: in a container its parent may be a process that never asks.
func gone(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return true
	}
	out, err := exec.Command("ps", "-o", "stat=", "-p", fmt.Sprint(pid)).Output()
	return err != nil || strings.HasPrefix(string(out), "Z")
}
