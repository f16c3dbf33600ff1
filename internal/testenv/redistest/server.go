//go:build unix

package redistest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"noncegate/internal/testenv/guarded"
)

const (
	startTimeout = 30 * time.Second // start, with the loading of what it had written
	stopTimeout  = 30 * time.Second // orderly shutdown, with its last write
	killTimeout  = 10 * time.Second
	readyPoll    = 10 * time.Millisecond

	logName  = "log"
	logBytes = 2000 // of the log in an error
)

// errMissing is what Start returns where no server is installed.
var errMissing = errors.New("no redis-server found in PATH: install it " +
	"(Debian, Ubuntu: apt-get install redis-server; Fedora, Alpine, macOS with brew: the package redis)")

// Server is one running Redis. Its methods may be called from any goroutine;
// those that change whether it runs take turns.
type Server struct {
	binary   string
	room     *guarded.Room
	port     int
	bus      int // of its cluster; 0: it is in none
	password string

	mu     sync.Mutex       // guards what follows; held while starting and stopping
	proc   *guarded.Process // nil: not running
	closed bool
}

// Start starts a new, empty server. Each setting is a line of redis.conf, such as
// "appendonly no", that overrides the defaults for tests: an append-only file
// synced every second, no snapshots, no eviction. The caller must Close.
func Start(settings ...string) (*Server, error) { return start(rand.Text(), settings) }

// Another starts one more server, with the same password, as a client of s meets it
// that is led to another place. The caller must Close both.
func (s *Server) Another(settings ...string) (*Server, error) { return start(s.password, settings) }

// Master is what a replica needs to know of the server.
func (s *Server) Master() (host, port, password string) {
	return "127.0.0.1", strconv.Itoa(s.port), s.password
}

// SetBack ends the server hard, takes the last of what it wrote off the end of its
// append-only file, at most n bytes, and starts it again: a server that went back.
// It fails on one that writes no such file.
func (s *Server) SetBack(n int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.endLocked(syscall.SIGKILL, killTimeout); err != nil {
		return fmt.Errorf("set Redis back: %w", err)
	}
	files, err := filepath.Glob(filepath.Join(s.room.Dir(), "appendonlydir", "*.incr.aof"))
	if err != nil || len(files) == 0 {
		return errors.Join(errors.New("set Redis back: it writes no append-only file"), err)
	}
	slices.Sort(files)
	last := files[len(files)-1]
	info, err := os.Stat(last)
	if err == nil {
		err = os.Truncate(last, max(0, info.Size()-n))
	}
	if err != nil {
		return fmt.Errorf("set Redis back: %w", err)
	}
	if err := s.startLocked(); err != nil {
		return fmt.Errorf("set Redis back: %w", err)
	}
	return nil
}

func start(password string, settings []string) (*Server, error) {
	binary, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, errMissing
	}
	cred, err := guarded.Account("redis", "nobody")
	if err != nil {
		return nil, fmt.Errorf("start Redis: %w", err)
	}
	room, err := guarded.Open("redistest", cred)
	if err != nil {
		return nil, err
	}
	s := &Server{binary: binary, room: room, password: password}
	if err := s.setUp(settings); err != nil {
		return nil, errors.Join(fmt.Errorf("start Redis: %w", err), s.Close())
	}
	return s, nil
}

// setUp configures and starts the server. A port that somebody takes meanwhile is
// another one the next time.
func (s *Server) setUp(settings []string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var err error
	for range 3 {
		if s.port, err = guarded.FreePort(); err != nil {
			return err
		}
		if err = s.room.WriteFile("redis.conf", s.conf(settings)); err != nil {
			return err
		}
		err = s.startLocked()
		if err == nil || !strings.Contains(err.Error(), "Address already in use") {
			return err
		}
	}
	return err
}

func (s *Server) conf(settings []string) string {
	lines := append([]string{
		"bind 127.0.0.1",
		"port " + strconv.Itoa(s.port),
		"unixsocket " + s.socket(),
		"requirepass " + s.password,
		"dir " + s.room.Dir(),
		"daemonize no",
		`save ""`,
		"appendonly yes",
		"appendfsync everysec",
		"maxmemory-policy noeviction",
		"repl-diskless-sync-delay 0", // a replica is there at once
	}, settings...)
	return strings.Join(lines, "\n") + "\n"
}

func (s *Server) socket() string { return filepath.Join(s.room.Dir(), "socket") }

// Addr is the server's TCP address, host:port. It stays the same over Restart.
func (s *Server) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

// Dir is the server's directory: its files, its socket and its log.
func (s *Server) Dir() string { return s.room.Dir() }

// URL addresses database 0 over TCP.
func (s *Server) URL() string {
	u := url.URL{Scheme: "redis", User: url.UserPassword("", s.password), Host: s.Addr(), Path: "/0"}
	return u.String()
}

// SocketURL addresses database 0 over the Unix socket.
func (s *Server) SocketURL() string {
	u := url.URL{Scheme: "unix", User: url.UserPassword("", s.password), Path: s.socket(), RawQuery: "db=0"}
	return u.String()
}

// PID is the server's process id, 0 while it does not run.
func (s *Server) PID() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc == nil {
		return 0
	}
	return s.proc.PID()
}

// Stop shuts the server down in order; all it has answered is on disk then, unless
// a setting says that nothing is written. It does nothing when the server does not
// run.
func (s *Server) Stop() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.endLocked(syscall.SIGTERM, stopTimeout)
}

// Kill ends the server at once, as a crash of the process does. The operating
// system still has what the server wrote, synced or not. It works on a paused
// server too.
func (s *Server) Kill() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.endLocked(syscall.SIGKILL, killTimeout)
}

// Restart starts the server again on the same port, after stopping it in order
// when it runs, and returns once it has loaded what it had written and answers.
func (s *Server) Restart() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errors.New("restart Redis: closed")
	}
	if err := s.endLocked(syscall.SIGTERM, stopTimeout); err != nil {
		return fmt.Errorf("restart Redis: %w", err)
	}
	if err := s.startLocked(); err != nil {
		return fmt.Errorf("restart Redis: %w", err)
	}
	return nil
}

// Pause stops the server where it stands (SIGSTOP); the kernel still takes
// connections and bytes for it. The caller must Resume, Stop or Kill it.
func (s *Server) Pause() error { return s.signal(syscall.SIGSTOP) }

// Resume lets a paused server go on.
func (s *Server) Resume() error { return s.signal(syscall.SIGCONT) }

func (s *Server) signal(sig syscall.Signal) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc == nil {
		return fmt.Errorf("%v to Redis: it does not run", sig)
	}
	return s.proc.Signal(sig)
}

// Close ends the server, hard, and deletes its directory. It may be called twice.
func (s *Server) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed, s.proc = true, nil
	return s.room.Close()
}

// startLocked starts the process and waits until it answers.
func (s *Server) startLocked() error {
	env := []string{"PATH=/usr/bin:/bin", "LC_ALL=C", "TZ=UTC"}
	p, err := s.room.Start(logName, env, s.binary, filepath.Join(s.room.Dir(), "redis.conf"))
	if err != nil {
		return err
	}
	s.proc = p
	if err := s.waitReady(p); err != nil {
		err = fmt.Errorf("%w\n%s", err, p.LogTail(logBytes))
		return errors.Join(err, s.endLocked(syscall.SIGKILL, killTimeout))
	}
	return nil
}

// waitReady asks until the server answers that it has loaded its data: Redis has
// no better signal where there is no service manager.
func (s *Server) waitReady(p *guarded.Process) error {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	tick := time.NewTicker(readyPoll)
	defer tick.Stop()
	for {
		err := s.ping(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-p.Exited():
			return fmt.Errorf("redis-server ended at once: %v", p.Err())
		case <-ctx.Done():
			return fmt.Errorf("not ready within %v: %w", startTimeout, err)
		case <-tick.C:
		}
	}
}

// ping asks once, in Redis' protocol for people: a client library answers a dial
// that fails with a log line and goes on dialling.
func (s *Server) ping(ctx context.Context) error {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", s.Addr())
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return err
	}
	if _, err := fmt.Fprintf(conn, "AUTH %s\r\nPING\r\nQUIT\r\n", s.password); err != nil {
		return err
	}
	answer, err := io.ReadAll(conn)
	if err != nil {
		return err
	}
	if !strings.Contains(string(answer), "+PONG\r\n") {
		return fmt.Errorf("it answers %q", answer)
	}
	return nil
}

// endLocked ends the process with sig and waits.
func (s *Server) endLocked(sig syscall.Signal, timeout time.Duration) error {
	if s.proc == nil {
		return nil
	}
	p := s.proc
	s.proc = nil
	return p.End(sig, timeout)
}
