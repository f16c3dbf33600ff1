//go:build unix

package pgtest

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"noncegate/test/lab/expect"
)

var server *Server

func TestMain(m *testing.M) { os.Exit(Main(m, &server)) }

// connect opens a session in which whatever hangs fails in the end.
func connect(t *testing.T, url string) (*pgx.Conn, context.Context) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	conn, err := pgx.Connect(ctx, url)
	expect.Must(t, err)
	t.Cleanup(func() { conn.Close(context.WithoutCancel(ctx)) })
	return conn, ctx
}

// rows are the numbers in a table, with commas between.
func rows(t *testing.T, url string) (list string) {
	t.Helper()
	conn, ctx := connect(t, url)
	expect.Must(t, conn.QueryRow(ctx, "SELECT coalesce(string_agg(n::text, ',' ORDER BY n), '') FROM rows").Scan(&list))
	return list
}

// proxied makes a database with an empty table rows, and returns its URL, a proxy and a session through it.
func proxied(t *testing.T) (direct string, p *Proxy, conn *pgx.Conn, ctx context.Context) {
	t.Helper()
	p, err := NewProxy(server.Addr())
	expect.Must(t, err)
	t.Cleanup(func() { expect.Check(t, p.Close()) })
	direct = server.NewDatabase(t)
	through, err := p.URL(direct)
	expect.Must(t, err)
	conn, ctx = connect(t, through)
	_, err = conn.Exec(ctx, "CREATE TABLE rows (n int)")
	expect.Must(t, err)
	return direct, p, conn, ctx
}

func TestCommittedRowsSurviveAKillAndUncommittedDoNot(t *testing.T) {
	url, _, conn, ctx := proxied(t)
	for _, sql := range []string{"INSERT INTO rows VALUES (1)", "BEGIN", "INSERT INTO rows VALUES (2)"} {
		_, err := conn.Exec(ctx, sql)
		expect.Must(t, err)
	}
	expect.Must(t, server.Pause()) // also one that stands still can be killed
	expect.Must(t, server.Kill())
	expect.Must(t, server.Restart())
	if got := rows(t, url); got != "1" {
		t.Errorf("rows after the crash: %s, want 1", got)
	}
}

// What is cut or comes late has happened at the server, and its client is not told. A prepared statement is known by its text, also
// when it was prepared long before; that it is prepared is let through, and so is the execution of another one.
func TestWhatIsCutOrComesLateHappensAndIsNotAnswered(t *testing.T) {
	const late = 100 * time.Millisecond
	for name, tt := range map[string]struct {
		arm       func(*Proxy) <-chan struct{}
		statement bool // a prepared one is executed
		before    bool // it was prepared before the proxy is armed
		late      time.Duration
	}{
		"any request":      {arm: func(p *Proxy) <-chan struct{} { return p.CutReplies("") }},
		"a late request":   {arm: func(p *Proxy) <-chan struct{} { return p.DelayRequest("INSERT", late) }, late: late},
		"a statement":      {arm: func(p *Proxy) <-chan struct{} { return p.CutStatement("INTO rows") }, statement: true},
		"a late statement": {arm: func(p *Proxy) <-chan struct{} { return p.DelayStatement("INTO rows", late) }, statement: true, before: true, late: late},
	} {
		t.Run(name, func(t *testing.T) {
			direct, p, conn, ctx := proxied(t)
			prepare := func(now bool) {
				if tt.statement && now {
					_, err := conn.Prepare(ctx, "put", "INSERT INTO rows VALUES ($1)")
					expect.Must(t, err)
				}
			}
			prepare(tt.before)
			began := time.Now()
			met := tt.arm(p)
			prepare(!tt.before)
			sql, args := "INSERT INTO rows VALUES (1)", []any(nil)
			if tt.statement {
				_, err := conn.Exec(ctx, "SELECT $1::int", 7)
				expect.Must(t, err)
				sql, args = "put", []any{1}
			}
			if _, err := conn.Exec(ctx, sql, args...); err == nil {
				t.Error("it was answered")
			}
			<-met
			if took := time.Since(began); took < tt.late {
				t.Errorf("the server had it after %v, want at least %v", took, tt.late)
			}
			if got := rows(t, direct); got != "1" {
				t.Errorf("rows %q, want the one that nobody was told of", got)
			}
		})
	}
}

func TestABlackHoleHoldsBytesBackUntilForwardAndRefuseCuts(t *testing.T) {
	direct, p, conn, ctx := proxied(t)
	p.BlackHole()
	answer := make(chan error, 1)
	go func() {
		_, err := conn.Exec(ctx, "INSERT INTO rows VALUES (1)")
		answer <- err
	}()
	if got := rows(t, direct); got != "" {
		t.Errorf("rows %q during the black hole", got)
	}
	p.Forward()
	if err := <-answer; err != nil || rows(t, direct) != "1" {
		t.Errorf("after it: %v, rows %q", err, rows(t, direct))
	}
	p.Refuse()
	if err := conn.Ping(ctx); err == nil {
		t.Error("a connection outlived the partition")
	}
}

func TestPostgresWithoutInitdbIsNoFind(t *testing.T) {
	dir := t.TempDir()
	expect.Must(t, os.WriteFile(filepath.Join(dir, "postgres"), nil, 0o755))
	if got, err := binDir([]string{dir}); err == nil || !strings.Contains(err.Error(), "apt-get install postgresql") {
		t.Errorf("without initdb: %q, %v; want an error that says what to install", got, err)
	}
}
