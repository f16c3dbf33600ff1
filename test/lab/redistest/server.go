//go:build unix

// Package redistest runs a private Redis for tests and benchmarks, from the redis-server installed on the machine.
//
// A [Server] is a real server in a directory of its own: a random password, a Unix socket in that directory and a TCP port on the loopback
// address. As root it runs under the account redis or, where there is none, nobody. It can be stopped, killed, paused and started again at
// the same address, with what it had written.
//
// Promises: when the binary is missing, Start says which package to install; nothing skips. No process and no directory outlives the
// process that called Start, however that process ends (see package guarded).
//
// Not promised: anything on a system that is not Unix; safety of the data after Close. A fault proxy between a client and Redis is
// pgtest's, which forwards any TCP.
//
// A Server owns one goroutine, which waits for the process and ends with it.
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
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"noncegate/test/lab/expect"
	"noncegate/test/lab/guarded"
)

// errMissing is what Start returns where no server is installed.
var errMissing = errors.New("no redis-server found in PATH: install it " +
	"(Debian, Ubuntu: apt-get install redis-server; Fedora, Alpine, macOS with brew: the package redis)")

// Server is one running Redis. After Stop all it has answered is on disk, unless a setting says that nothing is written. Its methods may be
// called from any goroutine.
type Server struct {
	*guarded.Server
	port     int
	password string
}

// Start starts a new, empty server. Each setting is a line of redis.conf, such as "appendonly no", that overrides the defaults for tests:
// an append-only file synced every second, no snapshots, no eviction. The caller must Close.
func Start(settings ...string) (*Server, error) { return start(rand.Text(), settings) }

// Another starts one more server, with the same password, as a client of s meets it that is led to another place. The caller must Close
// both.
func (s *Server) Another(settings ...string) (*Server, error) { return start(s.password, settings) }

// Master is what a replica needs to know of the server.
func (s *Server) Master() (host, port, password string) {
	return "127.0.0.1", strconv.Itoa(s.port), s.password
}

// SetBack ends the server hard, takes the last of what it wrote off the end of its append-only file, at most n bytes, and starts it again:
// a server that went back. It fails on one that writes no such file.
func (s *Server) SetBack(n int64) error {
	return s.Rewrite(func() error {
		files, err := filepath.Glob(filepath.Join(s.Dir(), "appendonlydir", "*.incr.aof"))
		if err != nil || len(files) == 0 {
			return errors.Join(errors.New("it writes no append-only file"), err)
		}
		slices.Sort(files)
		last := files[len(files)-1]
		info, err := os.Stat(last)
		if err != nil {
			return err
		}
		return os.Truncate(last, max(0, info.Size()-n))
	})
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
	s := &Server{password: password}
	s.Server = guarded.NewServer(room, guarded.ServerConfig{
		Name: "Redis", Args: []string{binary, filepath.Join(room.Dir(), "redis.conf")}, Ready: s.ping, Stop: syscall.SIGTERM,
	})
	err = s.StartOn("Address already in use", func(port int) error {
		s.port = port
		return room.WriteFile("redis.conf", s.conf(settings))
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start Redis: %w", err), s.Close())
	}
	return s, nil
}

func (s *Server) conf(settings []string) string {
	lines := append([]string{
		"bind 127.0.0.1",
		"port " + strconv.Itoa(s.port),
		"unixsocket " + s.socket(),
		"requirepass " + s.password,
		"dir " + s.Dir(),
		"daemonize no",
		`save ""`,
		"appendonly yes",
		"appendfsync everysec",
		"maxmemory-policy noeviction",
		"repl-diskless-sync-delay 0", // a replica is there at once
	}, settings...)
	return strings.Join(lines, "\n") + "\n"
}

func (s *Server) socket() string { return filepath.Join(s.Dir(), "socket") }

// Addr is the server's TCP address, host:port. It stays the same over Restart.
func (s *Server) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

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

// ping asks once, in Redis' protocol for people: a client library answers a dial that fails with a log line and goes on dialling.
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

// flushTimeout bounds the emptying of a server after a test.
const flushTimeout = 30 * time.Second

// Main runs a package's tests beside one server, which *server points at meanwhile, and returns the exit code:
//
//	var server *redistest.Server
//
//	func TestMain(m *testing.M) { os.Exit(redistest.Main(m, &server)) }
//
// It fails the run when the server cannot be started, or when the tests leave goroutines behind beyond those that options ignore.
func Main(m *testing.M, server **Server, options ...goleak.Option) int {
	return guarded.Main(m, server, func() (*Server, error) { return Start() }, options...)
}

// Dial makes a client of this server, without retries, because a command whose answer was lost may have run; contexts bound its calls. The
// caller must Close it.
func (s *Server) Dial() *redis.Client {
	return redis.NewClient(&redis.Options{Addr: s.Addr(), Password: s.password, MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true})
}

// Client is Dial for one test. It is closed, and the server emptied, when the test ends, so a test that stops the server must have it run
// again by then.
func (s *Server) Client(t testing.TB) *redis.Client {
	t.Helper()
	client := s.Dial()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), flushTimeout)
		defer cancel()
		if err := client.FlushAll(ctx).Err(); err != nil {
			t.Errorf("empty Redis: %v", err)
		}
		expect.Check(t, client.Close())
	})
	return client
}
