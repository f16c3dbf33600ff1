//go:build unix

// Package guarded runs programs in a directory such that neither outlives this process.
//
// Promises: no program started in a [Room], nor the room's directory, outlives the process that opened it, however that process
// ends. Each room has a guard, a small shell in a session of its own that reads from a pipe the process holds open. The kernel
// closes the pipe when the process dies, also by SIGKILL, and the guard then kills the programs and deletes the directory. A
// program is started in two steps, first a shell that waits for a word on its own pipe, then, once the guard knows its process id,
// the word; so there is no moment without a guard. (A parent death signal would depend on the thread that forked, would be lost on
// a stopped program, and exists on Linux only.)
//
// Not promised: an end of what a program has started itself, unless the program sees to that when it is given the signal that
// OpenFor names; an orderly end, when it is the guard that ends it; anything on a system that is not Unix.
//
// A [Server] is a server program in a room of its own, which is stopped, killed, paused and started again.
//
// A room owns one goroutine for each running program, which waits for its end.
package guarded

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// guardScript remembers the last line it was told, which is the process ids of all that runs, until its standard input ends; then
// it gives those the signal $2, kills after ten seconds those that it does not kill, and deletes the directory $1.
const guardScript = `
pids=
while read -r line; do pids=$line; done
if [ -n "$pids" ]; then
	kill -$2 $pids; kill -CONT $pids
	n=0
	[ $2 = 9 ] || for pid in $pids; do
		while kill -0 $pid && [ $n -lt 100 ]; do sleep 0.1; n=$((n+1)); done
	done
	kill -KILL $pids
fi 2>/dev/null
n=0
until rm -rf "$1" 2>/dev/null || [ $n -ge 50 ]; do sleep 0.1; n=$((n+1)); done
`

// gateScript becomes the command it is given once it has read a line.
const gateScript = `read -r _ && exec "$@" </dev/null`

// killTimeout bounds the wait for a process that is to end at once.
const killTimeout = 15 * time.Second

// Room is a directory and the programs that run in it. Its methods may be called from any goroutine.
type Room struct {
	dir  string
	cred *syscall.Credential // nil: as ourselves
	end  syscall.Signal      // ends a program at once
	cmd  *exec.Cmd           // the guard
	pipe io.WriteCloser      // what it reads

	mu     sync.Mutex // guards what follows, and writing to pipe
	procs  map[*Process]struct{}
	closed bool
}

// Open makes a room whose directory, below the usual one for temporary files, has a name that begins with prefix. Its programs run
// under the account cred, which also owns the directory, or under ours when cred is nil. The directory's path is short enough for a
// Unix socket in it. The caller must Close.
func Open(prefix string, cred *syscall.Credential) (*Room, error) {
	return OpenFor(prefix, cred, syscall.SIGKILL)
}

// OpenFor is Open for programs that are not to be killed, because they have others to
// end: they are given the signal end instead, and killed if that does not end them.
func OpenFor(prefix string, cred *syscall.Credential, end syscall.Signal) (*Room, error) {
	dir, err := makeDir(prefix, cred)
	if err != nil {
		return nil, fmt.Errorf("directory for %s: %w", prefix, err)
	}
	cmd := exec.Command("/bin/sh", "-c", guardScript, "guard", dir, strconv.Itoa(int(end)))
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	pipe, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start the guard of %s: %w", dir, err), os.RemoveAll(dir))
	}
	return &Room{dir: dir, cred: cred, end: end, cmd: cmd, pipe: pipe, procs: make(map[*Process]struct{})}, nil
}

// Dir is the room's directory.
func (r *Room) Dir() string { return r.dir }

// WriteFile writes a file of the room that its programs can read and nobody else.
func (r *Room) WriteFile(name, text string) error {
	path := filepath.Join(r.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return err
	}
	if r.cred == nil {
		return nil
	}
	return os.Chown(path, int(r.cred.Uid), int(r.cred.Gid))
}

// Close kills what still runs, deletes the directory and waits for both. It may be called twice.
func (r *Room) Close() error {
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		return nil
	}
	r.closed = true
	var left []*Process
	for p := range r.procs {
		left = append(left, p)
	}
	r.mu.Unlock()
	var err error
	for _, p := range left {
		err = errors.Join(err, p.End(r.end, killTimeout))
	}
	return errors.Join(err, r.pipe.Close(), r.cmd.Wait())
}

// Process is a program that was started in a room. Its methods may be called from any goroutine.
type Process struct {
	cmd     *exec.Cmd
	logPath string
	exited  chan struct{}
	err     error // how it ended; to be read once exited is closed
}

// Start runs a program in the room's directory, with its output appended to the file log in it, its standard input empty, and env
// as its environment (nil: ours). It has a session of its own, so that a terminal's signals do not reach it. args[0] is the path of
// the program.
func (r *Room) Start(log string, env []string, args ...string) (*Process, error) {
	logPath := filepath.Join(r.dir, log)
	out, err := os.OpenFile(logPath, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	cmd := exec.Command("/bin/sh", append([]string{"-c", gateScript, filepath.Base(args[0])}, args...)...)
	cmd.Dir, cmd.Env = r.dir, env
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: r.cred}
	gate, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	p := &Process{cmd: cmd, logPath: logPath, exited: make(chan struct{})}
	if err := r.launch(p); err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", filepath.Base(args[0]), err), gate.Close())
	}
	// A gate that cannot be told has ended, which the process shows by its end.
	io.WriteString(gate, "go\n")
	gate.Close()
	return p, nil
}

// launch starts p and tells the guard, before the room can be closed. When it fails nothing runs.
func (r *Room) launch(p *Process) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return errors.New("the room is closed")
	}
	if err := p.cmd.Start(); err != nil {
		return err
	}
	r.procs[p] = struct{}{}
	if err := r.tellGuardLocked(); err != nil {
		delete(r.procs, p)
		p.cmd.Process.Kill()
		return errors.Join(fmt.Errorf("tell the guard: %w", err), p.cmd.Wait())
	}
	go func() {
		err := p.cmd.Wait()
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.procs, p)
		r.tellGuardLocked() // a guard that is gone has nothing left to end here
		p.err = err
		close(p.exited)
	}()
	return nil
}

// tellGuardLocked lists what runs. The line is far below what a pipe holds, and
// the guard reads all the time: the write does not wait.
func (r *Room) tellGuardLocked() error {
	pids := make([]string, 0, len(r.procs))
	for p := range r.procs {
		pids = append(pids, strconv.Itoa(p.PID()))
	}
	_, err := io.WriteString(r.pipe, strings.Join(pids, " ")+"\n")
	return err
}

// PID is the program's process id, which may be another's once it has ended.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Exited is closed once the program has ended.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// Err is how the program ended, nil with exit status 0. It waits for the end.
func (p *Process) Err() error {
	<-p.exited
	return p.err
}

// Signal sends sig; an error says that the program has ended.
func (p *Process) Signal(sig syscall.Signal) error { return p.cmd.Process.Signal(sig) }

// Await asks every now and then, until ready returns no error. Its own error says that the
// program has ended or that ctx has, with the end of the log.
func (p *Process) Await(ctx context.Context, every time.Duration, ready func(context.Context) error) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		err := ready(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-p.exited:
			return fmt.Errorf("%w at once: %v\n%s", ErrEnded, p.err, p.LogTail(logBytes))
		case <-ctx.Done():
			return fmt.Errorf("not ready: %w: %w\n%s", context.Cause(ctx), err, p.LogTail(logBytes))
		case <-tick.C:
		}
	}
}

// ErrEnded says that a program ended that should have gone on.
var ErrEnded = errors.New("it ended")

// End sends sig, lets a stopped program and what it has started go on, and waits for the
// end. After timeout these are killed, which is an error; that it had ended before is none.
func (p *Process) End(sig syscall.Signal, timeout time.Duration) error {
	p.Signal(sig)
	p.signalAll(syscall.SIGCONT)
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-p.exited:
		return nil
	case <-timer.C:
	}
	p.signalAll(syscall.SIGKILL)
	<-p.exited
	return fmt.Errorf("process %d did not end within %v of %v", p.PID(), timeout, sig)
}

// Log is all that the program and those before it wrote to the log.
func (p *Process) Log() string {
	log, err := os.ReadFile(p.logPath)
	if err != nil {
		return err.Error()
	}
	return string(log)
}

// LogTail is the last bytes that the program and those before it wrote to the log, for errors.
func (p *Process) LogTail(bytes int) string {
	log := p.Log()
	return strings.TrimSpace(log[max(0, len(log)-bytes):])
}
