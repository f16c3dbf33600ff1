//go:build unix

package guarded

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

const (
	// StartTimeout bounds the start of a server, with the recovery of what it had written.
	StartTimeout = time.Minute
	// ReadyPoll is how often something is looked at that has no signal.
	ReadyPoll = 10 * time.Millisecond

	stopTimeout = 30 * time.Second // of an orderly shutdown, with its last write
	logBytes    = 2000             // of a log in an error
)

// ServerConfig says how a server program is started and ended.
type ServerConfig struct {
	Name string   // for errors
	Args []string // Args[0] is the path of the program
	// Ready asks once whether the server serves: most have no better signal where there is no service manager.
	Ready func(ctx context.Context) error
	Stop  syscall.Signal // shuts it down in order
}

// PlainEnv is the environment of servers: nothing of whoever runs the tests.
var PlainEnv = []string{"PATH=/usr/bin:/bin", "LC_ALL=C", "TZ=UTC"}

// Server is one server program that can be stopped, killed, paused and started again with the files of its room. Its methods may be called
// from any goroutine; those that change whether it runs take turns.
type Server struct {
	room *Room
	cfg  ServerConfig

	mu     sync.Mutex // guards what follows; held while starting and ending
	proc   *Process   // nil: not running
	closed bool
}

// NewServer makes a server in a room, which it closes with itself. Start starts it.
func NewServer(room *Room, cfg ServerConfig) *Server {
	return &Server{room: room, cfg: cfg}
}

// Dir is the directory of the server's room.
func (s *Server) Dir() string { return s.room.Dir() }

// PID is the server's process id, 0 while it does not run.
func (s *Server) PID() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc == nil {
		return 0
	}
	return s.proc.PID()
}

// portTries is how often a server is started again whose port somebody took meanwhile.
const portTries = 3

// StartOn starts the server on a free port, which configure writes into its settings, and returns the port once it serves. taken is in the
// log of a server whose port was taken.
func (s *Server) StartOn(taken string, configure func(port int) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var err error
	for range portTries {
		var port int
		if port, err = FreePort(); err != nil {
			return err
		}
		if err = configure(port); err != nil {
			return err
		}
		if err = s.startLocked(); err == nil || !strings.Contains(err.Error(), taken) {
			return err
		}
	}
	return err
}

// Stop shuts the server down in order. It does nothing when the server does not run.
func (s *Server) Stop() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stopLocked()
}

// Kill ends the server at once, as a crash does, and works on a paused one too. The operating system still has what the server wrote,
// synced or not.
func (s *Server) Kill() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.killLocked()
}

// Restart starts the server again, after stopping it in order when it runs, and returns once it serves.
func (s *Server) Restart() error { return s.restart("restart", s.stopLocked) }

// Rewrite kills the server, lets change alter its files, and starts it again.
func (s *Server) Rewrite(change func() error) error {
	return s.restart("rewrite the files of", func() error {
		if err := s.killLocked(); err != nil {
			return err
		}
		return change()
	})
}

func (s *Server) restart(what string, endLocked func() error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := errors.New("closed")
	if !s.closed {
		err = endLocked()
	}
	if err == nil {
		err = s.startLocked()
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w", what, s.cfg.Name, err)
	}
	return nil
}

// Pause stops every process of the server where it stands (SIGSTOP); the kernel still takes connections and bytes for it. The caller must
// Resume, Stop or Kill it.
func (s *Server) Pause() error { return s.signal(syscall.SIGSTOP) }

// Resume lets a paused server go on.
func (s *Server) Resume() error { return s.signal(syscall.SIGCONT) }

func (s *Server) signal(sig syscall.Signal) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc == nil {
		return fmt.Errorf("%v to %s: it does not run", sig, s.cfg.Name)
	}
	return s.proc.signalAll(sig)
}

// Close kills the server and deletes its directory. It may be called twice.
func (s *Server) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return errors.Join(s.killLocked(), s.room.Close())
}

// startLocked starts the process and waits until it serves.
func (s *Server) startLocked() error {
	p, err := s.room.Start("log", PlainEnv, s.cfg.Args...)
	if err != nil {
		return err
	}
	s.proc = p
	ctx, cancel := context.WithTimeout(context.Background(), StartTimeout)
	defer cancel()
	if err := p.Await(ctx, ReadyPoll, s.cfg.Ready); err != nil {
		return errors.Join(err, s.killLocked())
	}
	return nil
}

func (s *Server) stopLocked() error { return s.endLocked(s.cfg.Stop, stopTimeout) }

// killLocked gives the signal to the children first, so that a paused server does nothing more but end.
func (s *Server) killLocked() error {
	if s.proc == nil {
		return nil
	}
	return errors.Join(s.proc.signalAll(s.room.end), s.endLocked(s.room.end, killTimeout))
}

func (s *Server) endLocked(sig syscall.Signal, timeout time.Duration) error {
	p := s.proc
	if p == nil {
		return nil
	}
	s.proc = nil
	if err := p.End(sig, timeout); err != nil {
		return fmt.Errorf("%s: %w", s.cfg.Name, err)
	}
	return nil
}

// Retry does something again and again until it succeeds, and returns its last error when ctx ends.
func Retry(ctx context.Context, pause time.Duration, do func(context.Context) error) error {
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for {
		err := do(ctx)
		if err == nil || ctx.Err() != nil {
			return err
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}

// Main runs a package's tests beside one server, which *server points at meanwhile, and returns the exit code. It fails the run when the
// server cannot be started, or when the tests leave goroutines behind beyond those that options ignore.
func Main[S io.Closer](m *testing.M, server *S, start func() (S, error), options ...goleak.Option) int {
	s, err := start()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	*server = s
	code := m.Run()
	if err := s.Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	if code == 0 {
		if err := goleak.Find(options...); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	return code
}
