//go:build unix

package pgtest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"noncegate/internal/testenv/guarded"
)

const (
	startTimeout = 60 * time.Second // start, with the recovery of a killed server
	stopTimeout  = 30 * time.Second // fast shutdown, with its checkpoint
	killTimeout  = 15 * time.Second // immediate shutdown; children get 5 s
	readyPoll    = 20 * time.Millisecond
)

// Server is one running PostgreSQL. Its methods may be called from any
// goroutine; those that change whether it runs take turns.
type Server struct {
	launcher
	port     int
	password string

	mu       sync.Mutex // guards what follows; held while starting and stopping
	proc     *process   // nil: not running
	template string     // database that new ones are copied from
	old      []string   // databases of tests that have ended
	keep     int        // of them, at most
	closed   bool
}

// Start makes a new cluster and starts it. Each setting is a line of
// postgresql.conf, such as "fsync = off", that overrides the defaults for tests:
// fsync on, 200 connections, 32 MB of shared buffers. The caller must Close.
func Start(settings ...string) (*Server, error) {
	bin, err := binDir(candidateDirs())
	if err != nil {
		return nil, err
	}
	cred, err := guarded.Account("postgres", "nobody")
	if err != nil {
		return nil, err
	}
	dir, err := guarded.MakeDir("pgtest", cred)
	if err != nil {
		return nil, fmt.Errorf("directory for PostgreSQL: %w", err)
	}
	g, err := startGuard(dir)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	s := &Server{
		launcher: launcher{bin: bin, dir: dir, cred: cred, guard: g},
		password: rand.Text(),
		template: "template1",
		keep:     keptDatabases,
	}
	if err := s.setUp(settings); err != nil {
		return nil, errors.Join(fmt.Errorf("start PostgreSQL: %w", err), s.Close())
	}
	return s, nil
}

func (s *Server) setUp(settings []string) error {
	pwfile := filepath.Join(s.dir, "password")
	if err := s.writeOwned(pwfile, s.password); err != nil {
		return err
	}
	// Syncing a cluster that is thrown away protects nothing; the server syncs.
	err := s.run("initdb", "--pgdata="+s.dataDir(), "--username=postgres", "--pwfile="+pwfile,
		"--auth=scram-sha-256", "--encoding=UTF8", "--locale=C", "--no-sync", "--no-instructions")
	if err != nil {
		return err
	}
	for range 3 {
		if s.port, err = guarded.FreePort(); err != nil {
			return err
		}
		if err = s.writeOwned(filepath.Join(s.dataDir(), "postgresql.conf"), s.conf(settings)); err != nil {
			return err
		}
		err = s.startLocked()
		if err == nil || !strings.Contains(s.logTail(), "could not bind") {
			return err
		}
	}
	return err
}

func (s *Server) conf(settings []string) string {
	lines := append([]string{
		"listen_addresses = '127.0.0.1'",
		"port = " + strconv.Itoa(s.port),
		"unix_socket_directories = '" + s.dir + "'",
		"max_connections = 200",
		"shared_buffers = 32MB",
		"fsync = on",
		"synchronous_commit = on",
		"checkpoint_timeout = 30min", // no checkpoint by the clock amid a test
		"max_wal_size = 1GB",
		"huge_pages = off",
		"log_min_messages = warning",
	}, settings...)
	return strings.Join(lines, "\n") + "\n"
}

// writeOwned writes a file that the server's account can read and nobody else.
func (s *Server) writeOwned(path, text string) error {
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return err
	}
	if s.cred == nil {
		return nil
	}
	return os.Chown(path, int(s.cred.Uid), int(s.cred.Gid))
}

func (s *Server) dataDir() string { return filepath.Join(s.dir, "data") }

// Addr is the server's TCP address, host:port. It stays the same over Restart.
func (s *Server) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

// Dir is the server's directory: its cluster is in data below it, its socket and
// its log beside that. It is on the disk whose speed the server's commits have.
func (s *Server) Dir() string { return s.dir }

// URL addresses a database over TCP, as the superuser.
func (s *Server) URL(db string) string {
	u := url.URL{Scheme: "postgres", User: url.UserPassword("postgres", s.password), Host: s.Addr(), Path: "/" + db, RawQuery: "sslmode=disable"}
	return u.String()
}

// SocketURL addresses a database over the Unix socket, as the superuser.
func (s *Server) SocketURL(db string) string {
	q := url.Values{"host": {s.dir}, "port": {strconv.Itoa(s.port)}, "sslmode": {"disable"}}
	u := url.URL{Scheme: "postgres", User: url.UserPassword("postgres", s.password), Path: "/" + db, RawQuery: q.Encode()}
	return u.String()
}

// PID is the postmaster's process id, 0 while it does not run.
func (s *Server) PID() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc == nil {
		return 0
	}
	return s.proc.pid
}

// Stop shuts the server down in order: connections are cut, transactions under
// way are rolled back, a checkpoint is written. It does nothing when the server
// does not run.
func (s *Server) Stop() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.endLocked(syscall.SIGINT, stopTimeout)
}

// Kill ends the server at once, as a crash does: the next start recovers from
// the log. It works on a paused server too.
func (s *Server) Kill() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.endLocked(syscall.SIGQUIT, killTimeout)
}

// Restart starts the server again on the same port, after stopping it in order
// when it runs, and returns once it accepts connections.
func (s *Server) Restart() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errors.New("restart PostgreSQL: closed")
	}
	if err := s.endLocked(syscall.SIGINT, stopTimeout); err != nil {
		return err
	}
	return s.startLocked()
}

// Pause stops every process of the server where it stands (SIGSTOP); the kernel
// still takes connections and bytes for it. The caller must Resume, Stop or
// Kill it.
func (s *Server) Pause() error { return s.signalAll(syscall.SIGSTOP) }

// Resume lets a paused server go on.
func (s *Server) Resume() error { return s.signalAll(syscall.SIGCONT) }

func (s *Server) signalAll(sig syscall.Signal) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc == nil {
		return fmt.Errorf("%v to PostgreSQL: it does not run", sig)
	}
	return s.proc.signal(sig, true)
}

// Close ends the server, hard, and deletes its directory. It may be called
// twice.
func (s *Server) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	return errors.Join(s.endLocked(syscall.SIGQUIT, killTimeout), s.guard.release())
}

// startLocked starts the postmaster and waits until it accepts connections.
func (s *Server) startLocked() error {
	p, err := s.start("postgres", "-D", s.dataDir())
	if p == nil {
		return err
	}
	s.proc = p
	if err == nil {
		err = s.waitReady(p)
	}
	if err != nil {
		err = fmt.Errorf("%w\n%s", err, s.logTail())
		return errors.Join(err, s.endLocked(syscall.SIGQUIT, killTimeout))
	}
	return nil
}

// waitReady asks for a connection until one is given: the postmaster has no
// better signal, and pg_ctl polls as well.
func (s *Server) waitReady(p *process) error {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	tick := time.NewTicker(readyPoll)
	defer tick.Stop()
	for {
		err := s.exec(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-p.exited:
			return fmt.Errorf("postgres ended at once: %w", p.err)
		case <-ctx.Done():
			return fmt.Errorf("not ready within %v: %w", startTimeout, err)
		case <-tick.C:
		}
	}
}

// endLocked ends the postmaster with sig and waits; one that does not end in
// time is killed and an error.
func (s *Server) endLocked(sig syscall.Signal, timeout time.Duration) error {
	p := s.proc
	if p == nil {
		return nil
	}
	s.proc = nil
	select {
	case <-p.exited: // by itself; its process id may be somebody else's by now
		return nil
	default:
	}
	// The signal first, then SIGCONT: a paused server does nothing more but end.
	err := errors.Join(p.signal(sig, sig == syscall.SIGQUIT), p.signal(syscall.SIGCONT, true))
	deadline := time.NewTimer(timeout)
	defer deadline.Stop()
	select {
	case <-p.exited:
		return nil
	case <-deadline.C:
		err = errors.Join(err, p.signal(syscall.SIGKILL, true))
		<-p.exited
		return errors.Join(fmt.Errorf("PostgreSQL did not end within %v of %v", timeout, sig), err)
	}
}

// exec runs statements on a connection of its own to the database postgres.
func (s *Server) exec(ctx context.Context, statements ...string) error {
	conn, err := pgx.Connect(ctx, s.URL("postgres"))
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	for _, sql := range statements {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return err
		}
	}
	return nil
}
