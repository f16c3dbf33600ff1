//go:build unix

package e2e

import (
	"context"
	"errors"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"noncegate/lease"
	"noncegate/nonce/postgres"
	"noncegate/test/lab/expect"
	"noncegate/test/lab/guarded"
	"noncegate/test/lab/history"
	"noncegate/test/lab/pgtest"
	"noncegate/test/lab/redistest"
	"noncegate/test/lab/stored"
	"noncegate/test/lab/tlstest"
	"noncegate/test/lab/wait"
)

// FewShards is how many shards the databases of most tests have. They are where they should
// be sooner than the 32 that a database gets else.
const FewShards = 8

// Database makes a migrated database and returns its URL.
func Database(t testing.TB) string {
	t.Helper()
	url := PG.NewDatabase(t)
	MigrateFor(t, url)
	return url
}

// MigrateFor brings a database to the schema of the test's gateways.
func MigrateFor(t testing.TB, url string) {
	t.Helper()
	store, err := postgres.Open(t.Context(), url, FewShards, postgres.Config{})
	if err == nil {
		err = store.Close()
	}
	expect.Must(t, err)
}

// BehindProxy makes a database and a proxy to it.
func BehindProxy(t *testing.T) (direct, through string, p *pgtest.Proxy) {
	t.Helper()
	p, err := pgtest.NewProxy(PG.Addr())
	expect.Must(t, err)
	CloseLater(t, p)
	direct = Database(t)
	if through, err = p.URL(direct); err != nil {
		t.Fatal(err)
	}
	return direct, through, p
}

// Dial opens a session of the test's own to a database.
func Dial(t testing.TB, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	expect.Must(t, err)
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	return conn
}

// Execute runs statements over a session of its own.
func Execute(t testing.TB, url string, statements ...string) {
	t.Helper()
	conn := Dial(t, url)
	defer conn.Close(t.Context())
	for _, sql := range statements {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
}

// Query is the result of a query as text, a line each row.
func Query(t testing.TB, url, sql string) (text string) {
	t.Helper()
	conn := Dial(t, url)
	defer conn.Close(t.Context())
	err := conn.QueryRow(t.Context(), `SELECT coalesce(string_agg(x::text, E'\n'), '') FROM (`+sql+`) x`).Scan(&text)
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return text
}

// Settled waits until each shard is at the node that should have it, of those given.
func Settled(t testing.TB, url string, nodes ...string) {
	t.Helper()
	slices.Sort(nodes)
	conn := Dial(t, url)
	defer conn.Close(t.Context())
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	var owners, pinned []string
	wait.Until(t, "each shard to be at its node", func() bool {
		<-tick.C
		err := conn.QueryRow(t.Context(), `SELECT array_agg(owner_node ORDER BY shard_id), array_agg(pinned_node ORDER BY shard_id) FROM shard`).Scan(&owners, &pinned)
		expect.Must(t, err)
		for shard, preferred := range lease.Assign(nodes, pinned) {
			if owners[shard] != nodes[preferred] {
				return false
			}
		}
		return true
	})
}

// Everything is all there is of the signers, the times of the store included.
func Everything(t testing.TB, url string) string {
	t.Helper()
	return Query(t, url, `SELECT * FROM signer ORDER BY signer_id`) + "\n" +
		Query(t, url, `SELECT * FROM signer_history ORDER BY signer_id, nonce`) + "\n" +
		Query(t, url, `SELECT * FROM signer_request ORDER BY signer_id, request_id`)
}

// Consistent fails the test unless each signer's rows are as they say of each other: no hole, nothing beyond, and no nonce that two
// requests were given.
func Consistent(t testing.TB, url string) {
	t.Helper()
	final, err := stored.Postgres(t.Context(), url)
	expect.Must(t, err)
	for _, v := range history.Check(&history.History{Final: final}, history.Limits{MaxOverdue: time.Hour, NoModel: true}).Violations {
		if v.Rule == history.Hole || v.Rule == history.OneHolder { // what was asked is not written down
			t.Error(v)
		}
	}
}

// StartRedis starts a Redis that ends with the test.
func StartRedis(t testing.TB, settings ...string) *redistest.Server {
	t.Helper()
	s, err := redistest.Start(settings...)
	expect.Must(t, err)
	CloseLater(t, s)
	return s
}

func Do(t testing.TB, what string, f func() error) {
	t.Helper()
	if err := f(); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// EncryptedRedis listens with TLS beside its plain port.
func EncryptedRedis(t *testing.T, ca *tlstest.Authority, settings ...string) string {
	t.Helper()
	addr, err := guarded.FreeAddr()
	expect.Must(t, err)
	_, port, _ := net.SplitHostPort(addr)
	dir, err := os.MkdirTemp("", "redis-tls") // the server runs under another account
	expect.Must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	file := func(name string, data []byte) string {
		path := filepath.Join(dir, name)
		expect.Must(t, errors.Join(os.WriteFile(path, data, 0o600), os.Chmod(path, 0o644)))
		return path
	}
	expect.Must(t, os.Chmod(dir, 0o755))
	cert, key := ca.Issue(tlstest.Leaf{})
	s := StartRedis(t, append(settings, "tls-port "+port, "tls-cert-file "+file("cert.pem", cert), "tls-key-file "+file("key.pem", key),
		"tls-auth-clients no", "tls-ca-cert-file "+file("ca.pem", ca.PEM))...)
	u, err := url.Parse(s.URL())
	expect.Must(t, err)
	u.Scheme, u.Host = "rediss", addr
	return u.String()
}
