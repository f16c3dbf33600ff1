//go:build unix

package pgtest

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"noncegate/test/lab/expect"
	"noncegate/test/lab/guarded"
)

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

// SetTemplate makes a database, lets prepare fill it (with a schema, say), and has every later database copied from it. prepare
// must leave no connection open.
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

// keptDatabases is how many databases of tests that have ended are kept at most, of about 10 MB each. Each drop waits for a
// checkpoint, which writes what tests beside it have changed, so it is done where many repetitions would fill the disk and not in a
// run of all tests: the end of the server removes its folder.
const keptDatabases = 128

// NewDatabase makes a database for one test and returns its URL. It is dropped some time after the test has ended, so a test that
// stops the server must have it run again by then.
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
