// Package process runs a server as a child process: starts it, waits until it is
// ready, asks it to end, and kills it when it does not.
//
// It promises that Stop returns only once the child has ended and was waited
// for, and that a child which does not end by itself is killed with all
// processes of its group. It does not promise anything when this process is
// killed itself: the child then goes on.
//
// The command must be the server itself, or replace itself by it (exec). A shell
// that waits for the server would be asked to end in its place.
//
// One goroutine a process waits for it; it ends with the process.
package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"
)

const (
	readyPoll = 20 * time.Millisecond
	tailBytes = 2000 // of a child's output in an error
)

// Process is a child that was started.
type Process struct {
	cmd     *exec.Cmd
	logPath string
	exited  chan struct{} // closed once it was waited for
	err     error         // how it ended; to be read once exited is closed
}

// Start starts a program, its output appended to the file logPath. The caller
// must call Stop.
func Start(args []string, logPath string) (*Process, error) {
	if len(args) == 0 {
		return nil, errors.New("start a process: no command")
	}
	log, err := os.OpenFile(logPath, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", args[0], err)
	}
	defer log.Close() // the child has its own by then
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = ownGroup()
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", args[0], err)
	}
	p := &Process{cmd: cmd, logPath: logPath, exited: make(chan struct{})}
	go func() {
		defer close(p.exited)
		p.err = cmd.Wait()
	}()
	return p, nil
}

// Pid is the child's process id.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// WaitReady returns once ready does not complain and the child lives. It fails
// when the child ends first, and when ctx does: with what ready said last, and
// the end of the child's output. The error is ErrTaken when ready does not
// complain though the child has ended: it was satisfied by somebody else.
func (p *Process) WaitReady(ctx context.Context, ready func(context.Context) error) error {
	tick := time.NewTicker(readyPoll)
	defer tick.Stop()
	for {
		err := ready(ctx)
		if err == nil {
			return p.lives()
		}
		select {
		case <-p.exited:
			return fmt.Errorf("%s ended before it was ready: %s\n%s", p.cmd.Args[0], p.cmd.ProcessState, p.Output())
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w: %w\n%s", p.cmd.Args[0], context.Cause(ctx), err, p.Output())
		case <-tick.C:
		}
	}
}

func (p *Process) lives() error {
	select {
	case <-p.exited:
		return fmt.Errorf("%s has ended (%s), and something else serves there: %w\n%s",
			p.cmd.Args[0], p.cmd.ProcessState, ErrTaken, p.Output())
	default:
		return nil
	}
}

// Stop asks the child to end (SIGTERM; CTRL_BREAK on Windows), kills it and its
// group when it has not after grace, and waits. The error says that it had to be
// killed, or that it ended with a status other than 0. It may be called again,
// with the same answer, and by several goroutines.
func (p *Process) Stop(grace time.Duration) error {
	asked := askToEnd(p.cmd.Process)
	if asked != nil {
		grace = 0
	}
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-p.exited:
		return p.ended(nil)
	case <-timer.C:
	}
	select {
	case <-p.exited: // asking failed because it had ended
		return p.ended(nil)
	default:
	}
	killGroup(p.cmd.Process)
	<-p.exited
	awaitGroup(p.cmd.Process)
	if asked != nil {
		return p.ended(fmt.Errorf("could not be asked to end: %w", asked))
	}
	return p.ended(fmt.Errorf("had not ended %v after it was asked to, and was killed", grace))
}

func (p *Process) ended(why error) error {
	if why == nil {
		why = p.err
	}
	if why == nil {
		return nil
	}
	return fmt.Errorf("%s (process %d): %w\n%s", p.cmd.Args[0], p.Pid(), why, p.Output())
}

// Output is the end of what the child, and those that wrote to the same file
// before it, have said.
func (p *Process) Output() string {
	f, err := os.Open(p.logPath)
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	if size, err := f.Seek(0, io.SeekEnd); err == nil {
		f.Seek(max(0, size-tailBytes), io.SeekStart) // if not, all of it is read
	}
	out, err := io.ReadAll(io.LimitReader(f, tailBytes))
	if err != nil {
		return err.Error()
	}
	return string(out)
}
