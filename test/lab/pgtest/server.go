//go:build unix

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
	"time"

	"github.com/jackc/pgx/v5"

	"noncegate/test/lab/guarded"
)

const (
	startTimeout = 60 * time.Second // with the recovery of a killed server
	stopTimeout  = 30 * time.Second // fast shutdown, with its checkpoint
	killTimeout  = 15 * time.Second // immediate shutdown; children get 5 s
	readyPoll    = 20 * time.Millisecond
)

// Server is one running PostgreSQL. Stop is its fast shutdown: connections are cut, transactions under way are rolled back, a
// checkpoint is written. Kill is the immediate one, after which the next start recovers from the log. Its methods may be called
// from any goroutine.
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

// Start makes a new cluster and starts it. Each setting is a line of postgresql.conf, such as "fsync = off", that overrides the
// defaults for tests: fsync on, 200 connections, 32 MB of shared buffers. The caller must Close.
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
		Ready:        func(ctx context.Context) error { return s.exec(ctx) },
		StartTimeout: startTimeout, Stop: syscall.SIGINT, StopTimeout: stopTimeout, KillTimeout: killTimeout,
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

// scramVerifier is what PostgreSQL keeps of a password, with 1 round of hashing instead of 4096:
// with the race detector those take a client longer than all else of a new connection.
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

// startNew starts a server for the first time.
func (s *Server) startNew(settings []string) error {
	return s.StartOn("could not bind", func(port int) error {
		s.port = port
		return s.room.WriteFile("data/postgresql.conf", s.conf(settings))
	})
}

// run runs another program of PostgreSQL to its end.
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

// SocketURL addresses a database over the Unix socket, as the superuser.
func (s *Server) SocketURL(db string) string {
	q := url.Values{"host": {s.Dir()}, "port": {strconv.Itoa(s.port)}, "sslmode": {"disable"}}
	u := url.URL{Scheme: "postgres", User: url.UserPassword("postgres", s.password), Path: "/" + db, RawQuery: q.Encode()}
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
