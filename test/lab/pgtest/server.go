//go:build unix

// Package pgtest runs a private PostgreSQL for tests and benchmarks, from the server binaries installed on the machine, and bends the
// connection to it.
//
// A [Server] is a real server in a directory of its own: fsync on, a random password, a Unix socket in that directory and a TCP port on the
// loopback address. As root it runs under the account postgres or, where there is none, nobody, because Postgres refuses to be root. A
// [Proxy] stands in front of a server and cuts, refuses, delays or withholds traffic at a moment a test chooses.
//
// Promises: when the binaries are missing, Start says which package to install; nothing skips. No process and no directory outlives the
// process that called Start, however that process ends (see package guarded, whose guard has the postmaster end its children).
//
// Not promised: anything on a system that is not Unix; safety of the data after Close. The port is below the usual ephemeral range, so that
// a client dialling a stopped server can neither reach itself nor take the port.
//
// A Server owns one goroutine, which waits for the postmaster and ends with it. A Proxy owns its accept loop and two or three goroutines a
// connection; Close waits for them.
package pgtest

import (
	"context"
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"noncegate/test/lab/expect"
	"noncegate/test/lab/guarded"
)

// Server is one running PostgreSQL. Stop is its fast shutdown: connections are cut, transactions under way are rolled back, a checkpoint is
// written. Kill is the immediate one, after which the next start recovers from the log. Its methods may be called from any goroutine.
type Server struct {
	*guarded.Server
	room     *guarded.Room
	bin      string // directory of the binaries
	port     int
	password string

	mu       sync.Mutex // guards what follows
	template string     // database that new ones are copied from
	old      []string   // databases of tests that have ended
	keep     int        // of them, at most
}

// Start makes a new cluster and starts it. Each setting is a line of postgresql.conf, such as "fsync = off", that overrides the defaults
// for tests: fsync on, 200 connections, 32 MB of shared buffers. The caller must Close.
func Start(settings ...string) (*Server, error) {
	bin, err := binDir(candidateDirs())
	if err != nil {
		return nil, err
	}
	s, err := newServer(bin, rand.Text())
	if err != nil {
		return nil, err
	}
	if err := s.setUp(settings); err != nil {
		return nil, errors.Join(fmt.Errorf("start PostgreSQL: %w", err), s.Close())
	}
	return s, nil
}

// newServer makes a server without files.
func newServer(bin, password string) (*Server, error) {
	cred, err := guarded.Account("postgres", "nobody")
	if err != nil {
		return nil, err
	}
	room, err := guarded.OpenFor("pgtest", cred, syscall.SIGQUIT)
	if err != nil {
		return nil, err
	}
	s := &Server{room: room, bin: bin, password: password, template: "template1", keep: keptDatabases}
	s.Server = guarded.NewServer(room, guarded.ServerConfig{
		Name: "PostgreSQL", Args: []string{filepath.Join(bin, "postgres"), "-D", filepath.Join(room.Dir(), "data")},
		Ready: func(ctx context.Context) error { return s.exec(ctx) }, Stop: syscall.SIGINT,
	})
	return s, nil
}

func (s *Server) setUp(settings []string) error {
	verifier, err := scramVerifier(s.password)
	if err == nil {
		err = s.room.WriteFile("password", verifier)
	}
	if err != nil {
		return err
	}
	// Syncing a cluster that is thrown away protects nothing; the server syncs.
	err = s.run("initdb", "--pgdata="+s.dataDir(), "--username=postgres", "--pwfile="+filepath.Join(s.Dir(), "password"),
		"--auth=scram-sha-256", "--encoding=UTF8", "--locale=C", "--no-sync", "--no-instructions")
	if err != nil {
		return err
	}
	return s.startNew(settings)
}

// scramVerifier is what PostgreSQL keeps of a password, with 1 round of hashing instead of 4096: with the race detector those take a client
// longer than all else of a new connection.
func scramVerifier(password string) (string, error) {
	salt := []byte("0123456789abcdef")
	salted, err := pbkdf2.Key(sha256.New, password, salt, 1, sha256.Size)
	key := func(name string) []byte {
		h := hmac.New(sha256.New, salted)
		h.Write([]byte(name))
		return h.Sum(nil)
	}
	stored, b64 := sha256.Sum256(key("Client Key")), base64.StdEncoding.EncodeToString
	return "SCRAM-SHA-256$1:" + b64(salt) + "$" + b64(stored[:]) + ":" + b64(key("Server Key")), err
}

func (s *Server) startNew(settings []string) error {
	return s.StartOn("could not bind", func(port int) error {
		s.port = port
		return s.room.WriteFile("data/postgresql.conf", s.conf(settings))
	})
}

func (s *Server) run(name string, args ...string) error {
	p, err := s.room.Start("log", guarded.PlainEnv, append([]string{filepath.Join(s.bin, name)}, args...)...)
	if err != nil {
		return err
	}
	if err := p.Err(); err != nil {
		return fmt.Errorf("%s: %w\n%s", name, err, p.LogTail(2000))
	}
	return nil
}

func (s *Server) conf(settings []string) string {
	lines := append([]string{
		"listen_addresses = '127.0.0.1'",
		"port = " + strconv.Itoa(s.port),
		"unix_socket_directories = '" + s.Dir() + "'",
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

func (s *Server) dataDir() string { return filepath.Join(s.Dir(), "data") }

// Addr is the server's TCP address, host:port. It stays the same over Restart.
func (s *Server) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

// URL addresses a database over TCP, as the superuser.
func (s *Server) URL(db string) string {
	u := url.URL{Scheme: "postgres", User: url.UserPassword("postgres", s.password), Host: s.Addr(), Path: "/" + db, RawQuery: "sslmode=disable"}
	return u.String()
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

// Standby makes a physical replica of the server, as pg_basebackup does, and starts it: it follows the server asynchronously, answers
// reads, and may become a primary by Promote. It has the server's databases and password. The caller must Close it.
func (s *Server) Standby() (*Server, error) {
	bin, err := BinDir()
	if err != nil {
		return nil, err
	}
	replica, err := newServer(bin, s.password)
	if err != nil {
		return nil, err
	}
	if err := replica.follow(s); err != nil {
		return nil, errors.Join(fmt.Errorf("start a standby of PostgreSQL: %w", err), replica.Close())
	}
	return replica, nil
}

func (s *Server) follow(primary *Server) error {
	err := s.run("pg_basebackup", "--pgdata="+s.dataDir(), "--dbname="+primary.URL("postgres"), "--wal-method=stream",
		"--write-recovery-conf", "--checkpoint=fast", "--no-sync")
	if err != nil {
		return err
	}
	return s.startNew(nil)
}

// Follows waits until a standby has replayed all that its primary has committed.
func (s *Server) Follows(ctx context.Context, primary *Server) error {
	var at string
	if err := primary.ask(ctx, &at, `SELECT pg_current_wal_lsn()::text`); err != nil {
		return err
	}
	return s.awaitRow(ctx, `SELECT pg_last_wal_replay_lsn() >= $1::pg_lsn`, at)
}

// Unfollow makes a standby hear nothing more of its primary.
func (s *Server) Unfollow(ctx context.Context) error {
	if err := s.exec(ctx, `ALTER SYSTEM SET primary_conninfo = ''`, `SELECT pg_reload_conf()`); err != nil {
		return err
	}
	return s.awaitRow(ctx, `SELECT NOT EXISTS (SELECT FROM pg_stat_wal_receiver)`)
}

// Promote makes a standby a primary of its own, on a new timeline.
func (s *Server) Promote(ctx context.Context) error {
	if err := s.exec(ctx, `SELECT pg_promote()`); err != nil {
		return err
	}
	return s.awaitRow(ctx, `SELECT NOT pg_is_in_recovery()`)
}

func (s *Server) awaitRow(ctx context.Context, sql string, args ...any) error {
	ctx, cancel := context.WithTimeout(ctx, guarded.StartTimeout)
	defer cancel()
	return guarded.Retry(ctx, guarded.ReadyPoll, func(ctx context.Context) error {
		var yes bool
		err := s.ask(ctx, &yes, sql, args...)
		if err == nil && !yes {
			err = fmt.Errorf("it is not so: %s", sql)
		}
		return err
	})
}

func (s *Server) ask(ctx context.Context, into any, sql string, args ...any) error {
	conn, err := pgx.Connect(ctx, s.URL("postgres"))
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	return conn.QueryRow(ctx, sql, args...).Scan(into)
}

// dropTimeout bounds the dropping of one database.
const dropTimeout = 30 * time.Second

// Main runs a package's tests beside one server, which *server points at meanwhile, and returns the exit code:
//
//	var server *pgtest.Server
//
//	func TestMain(m *testing.M) { os.Exit(pgtest.Main(m, &server)) }
//
// It fails the run when the server cannot be started, or when the tests leave goroutines behind beyond those that options ignore.
func Main(m *testing.M, server **Server, options ...goleak.Option) int {
	return guarded.Main(m, server, func() (*Server, error) { return Start() }, options...)
}

// SetTemplate makes a database, lets prepare fill it (with a schema, say), and has every later database copied from it. prepare must leave
// no connection open.
func (s *Server) SetTemplate(ctx context.Context, prepare func(ctx context.Context, url string) error) error {
	name, err := s.CreateDatabase(ctx)
	if err != nil {
		return err
	}
	if err := prepare(ctx, s.URL(name)); err != nil {
		return fmt.Errorf("prepare template database: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.template = name
	return nil
}

// CreateDatabase makes a database with a fresh name and returns the name.
func (s *Server) CreateDatabase(ctx context.Context) (string, error) {
	s.mu.Lock()
	template := s.template
	s.mu.Unlock()
	name := "t" + strings.ToLower(rand.Text())
	sql := "CREATE DATABASE " + quote(name) + " TEMPLATE " + quote(template)
	if err := s.exec(ctx, sql); err != nil {
		return "", fmt.Errorf("create database: %w", err)
	}
	return name, nil
}

// DropDatabase drops a database, ending what is connected to it.
func (s *Server) DropDatabase(ctx context.Context, name string) error {
	if err := s.exec(ctx, "DROP DATABASE "+quote(name)+" WITH (FORCE)"); err != nil {
		return fmt.Errorf("drop database: %w", err)
	}
	return nil
}

// keptDatabases is how many databases of tests that have ended are kept at most, of about 10 MB each. Each drop waits for a checkpoint,
// which writes what tests beside it have changed, so it is done where many repetitions would fill the disk and not in a run of all tests:
// the end of the server removes its folder.
const keptDatabases = 128

// NewDatabase makes a database for one test and returns its URL. It is dropped some time after the test has ended, so a test that stops the
// server must have it run again by then.
func (s *Server) NewDatabase(t testing.TB) string {
	t.Helper()
	name, err := s.CreateDatabase(t.Context())
	expect.Must(t, err)
	t.Cleanup(func() {
		for _, name := range s.ended(name) {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), dropTimeout)
			expect.Check(t, s.DropDatabase(ctx, name))
			cancel()
		}
	})
	return s.URL(name)
}

// ended notes a database whose test has ended, and returns those to be dropped.
func (s *Server) ended(name string) (drop []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.old = append(s.old, name)
	if len(s.old) > s.keep {
		drop, s.old = s.old, nil
	}
	return drop
}

func quote(name string) string { return pgx.Identifier{name}.Sanitize() }
