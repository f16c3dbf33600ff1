package postgres_test

import (
	"context"
	"encoding/json"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"noncegate/nonce"
	"noncegate/test/lab/pgtest"
)

// patience is how long a test waits for what must come.
const patience = 45 * time.Second

func dial(t testing.TB, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	return conn
}

func execute(t testing.TB, conn *pgx.Conn, sql string, args ...any) {
	t.Helper()
	if _, err := conn.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// await asks done until it says yes.
func await(t testing.TB, what string, done func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !done() {
		if time.Now().After(deadline) {
			t.Fatalf("timed out waiting for %s", what)
		}
		<-tick.C
	}
}

// through is a proxy before the server, and the URL of a database behind it.
func through(t testing.TB, raw string) (*pgtest.Proxy, string) {
	t.Helper()
	proxy, err := pgtest.NewProxy(server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = proxy.Close() })
	url, err := proxy.URL(raw)
	if err != nil {
		t.Fatal(err)
	}
	return proxy, url
}

// plan is a node of EXPLAIN's JSON.
type plan struct {
	Type      string `json:"Node Type"`
	Relation  string `json:"Relation Name"`
	Index     string `json:"Index Name"`
	IndexCond string `json:"Index Cond"`
	Plans     []plan
}

// explain returns the generic plan of a prepared statement.
func explain(t *testing.T, conn *pgx.Conn, name string) *plan {
	t.Helper()
	var params int
	err := conn.QueryRow(t.Context(), `SELECT coalesce(cardinality(parameter_types), 0) FROM pg_prepared_statements WHERE name = $1`, name).Scan(&params)
	if err != nil {
		t.Fatal(err)
	}
	execute := "EXPLAIN (FORMAT JSON) EXECUTE " + name
	if params > 0 {
		execute += " (" + strings.TrimSuffix(strings.Repeat("NULL, ", params), ", ") + ")"
	}
	var text string
	err = conn.QueryRow(t.Context(), execute, pgx.QueryExecModeSimpleProtocol).Scan(&text)
	if err != nil {
		t.Fatal(err)
	}
	var plans []struct{ Plan plan }
	if err := json.Unmarshal([]byte(text), &plans); err != nil {
		t.Fatal(err)
	}
	return &plans[0].Plan
}

// waiting reports whether a session of this database waits for a lock.
func waiting(t testing.TB, conn *pgx.Conn) bool {
	t.Helper()
	var n int
	err := conn.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&n)
	if err != nil {
		t.Fatal(err)
	}
	return n > 0
}

// overtaken runs statement in a transaction of an outsider's, then run beside it,
// and commits once run waits for the lock. It reports whether run did wait and
// then ended by itself; one that gave up first has proved nothing.
func overtaken(t *testing.T, url, statement string, args []any, run func() error) bool {
	t.Helper()
	outsider, watch := dial(t, url), dial(t, url)
	tx, err := outsider.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), statement, args...); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- run() }()
	met := false
	await(t, "the lock to be waited for", func() bool {
		met = met || waiting(t, watch)
		return met || len(done) > 0
	})
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	err = <-done
	if err != nil && nonce.OutcomeOf(err) != nonce.Aborted {
		t.Fatal(err)
	}
	return met && err == nil
}

// twin starts another server with an empty database of the same name and the same
// password as raw names.
func twin(t *testing.T, raw string) (s *pgtest.Server, there string) {
	t.Helper()
	s, err := pgtest.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	u, err := url.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	password, _ := u.User.Password()
	admin := dial(t, s.URL("postgres"))
	execute(t, admin, "CREATE DATABASE "+pgx.Identifier{u.Path[1:]}.Sanitize())
	execute(t, admin, "ALTER ROLE postgres PASSWORD '"+password+"'")
	u.Host = s.Addr()
	return s, u.String()
}
