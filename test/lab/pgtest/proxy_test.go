//go:build unix

package pgtest

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

func newProxy(t *testing.T) *Proxy {
	t.Helper()
	p, err := NewProxy(server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
		if err := p.Close(); err != nil {
			t.Errorf("second close: %v", err)
		}
	})
	return p
}

// proxied makes a database with an empty table rows, and returns its URL and the
// one through the proxy.
func proxied(t *testing.T, p *Proxy) (direct, through string) {
	t.Helper()
	direct = server.NewDatabase(t)
	through, err := p.URL(direct)
	if err != nil {
		t.Fatal(err)
	}
	mustExec(t, connect(t, direct), "CREATE TABLE rows (n int)")
	return direct, through
}

func countRows(t *testing.T, url string) string {
	t.Helper()
	return queryString(t, connect(t, url), "SELECT count(*)::text FROM rows")
}

func TestCutRepliesLosesTheReplyOfTheCommitOnly(t *testing.T) {
	p := newProxy(t)
	direct, through := proxied(t, p)
	bystander := connect(t, through)
	tx, err := connect(t, through).Begin(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	answered := p.CutReplies("commit")
	if _, err := tx.Exec(testContext(t), "INSERT INTO rows VALUES (1)"); err != nil {
		t.Fatalf("before the commit: %v", err)
	}
	if err := tx.Commit(testContext(t)); err == nil {
		t.Error("the commit was answered")
	}
	<-answered
	if got := countRows(t, direct); got != "1" {
		t.Errorf("%s rows, want the one whose commit got no reply", got)
	}
	mustExec(t, bystander, "INSERT INTO rows VALUES (2)")
	if got := countRows(t, through); got != "2" {
		t.Errorf("%s rows over a later connection, want 2", got)
	}
}

// What is cut or comes late has happened at the server, and its client is not told. A
// prepared statement is known by its text, also when it was prepared long before; that it is
// prepared is let through, and so is the execution of another one.
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
			p := newProxy(t)
			direct, through := proxied(t, p)
			conn := connect(t, through)
			prepare := func(now bool) {
				if !tt.statement || !now {
					return
				}
				if _, err := conn.Prepare(testContext(t), "put", "INSERT INTO rows VALUES ($1)"); err != nil {
					t.Fatalf("prepare: %v", err)
				}
			}
			prepare(tt.before)
			began := time.Now()
			met := tt.arm(p)
			prepare(!tt.before)
			sql, args := "INSERT INTO rows VALUES (1)", []any(nil)
			if tt.statement {
				if _, err := conn.Exec(testContext(t), "SELECT $1::int", 7); err != nil {
					t.Fatalf("another statement: %v", err)
				}
				sql, args = "put", []any{1}
			}
			if _, err := conn.Exec(testContext(t), sql, args...); err == nil {
				t.Error("it was answered")
			}
			<-met
			if took := time.Since(began); took < tt.late {
				t.Errorf("the server had it after %v, want at least %v", took, tt.late)
			}
			if got := countRows(t, direct); got != "1" {
				t.Errorf("%s rows, want the one that nobody was told of", got)
			}
		})
	}
}

func TestRefuseCutsAndForwardHeals(t *testing.T) {
	p := newProxy(t)
	_, through := proxied(t, p)
	conn := connect(t, through)
	p.Refuse()
	if err := conn.Ping(testContext(t)); err == nil {
		t.Error("a connection outlived the partition")
	}
	if c, err := pgx.Connect(testContext(t), through); err == nil {
		c.Close(t.Context())
		t.Error("connected during the partition")
	}
	p.Forward()
	connect(t, through)
}

func TestBlackHoleHoldsBytesBackUntilForward(t *testing.T) {
	p := newProxy(t)
	direct, through := proxied(t, p)
	conn := connect(t, through)
	p.BlackHole()
	answer := make(chan error, 1)
	go func() {
		_, err := conn.Exec(testContext(t), "INSERT INTO rows VALUES (1)")
		answer <- err
	}()
	if got := countRows(t, direct); got != "0" {
		t.Errorf("%s rows during the black hole, want 0", got)
	}
	p.Forward()
	if err := <-answer; err != nil {
		t.Errorf("after it: %v", err)
	}
	if got := countRows(t, direct); got != "1" {
		t.Errorf("%s rows after it, want 1", got)
	}
}

func TestMatchIsFoundAcrossReads(t *testing.T) {
	p := &Proxy{}
	answered := p.CutReplies("commit")
	l := &link{}
	tail := p.armed(l, []byte("Q insert; com"), nil)
	if l.cut != nil || string(tail) != "; com" {
		t.Fatalf("after half of it: cut %v, kept %q; want none, %q", l.cut, tail, "; com")
	}
	p.armed(l, append(tail, "mit\x00"...), nil)
	if l.cut == nil || (<-chan struct{})(l.cut.answered) != answered {
		t.Error("the second half did not cut the link")
	}
}

// TestDelayedRepliesArriveLateAndDoNotWaitForOneAnother: the replies of a pipeline
// are late once, not one after the other.
func TestDelayedRepliesArriveLateAndDoNotWaitForOneAnother(t *testing.T) {
	p := newProxy(t)
	_, through := proxied(t, p)
	early := connect(t, through)
	const late = 50 * time.Millisecond
	p.DelayReplies(late)
	conn := connect(t, through)
	began := time.Now()
	mustExec(t, conn, "SELECT 1")
	if took := time.Since(began); took < late {
		t.Errorf("a reply came after %v, want %v at least", took, late)
	}
	began = time.Now()
	pipe := conn.PgConn().StartPipeline(testContext(t))
	for range 20 {
		pipe.SendQueryParams("SELECT pg_sleep(0.005)", nil, nil, nil, nil)
		if err := pipe.Sync(); err != nil {
			t.Fatal(err)
		}
	}
	if err := pipe.Close(); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took < late || took > 10*late {
		t.Errorf("20 replies that left 5 ms apart came after %v, want %v and little more", took, late)
	}
	began = time.Now()
	mustExec(t, early, "SELECT 1")
	if took := time.Since(began); took >= late {
		t.Errorf("a connection from before was answered after %v", took)
	}
}

func TestStatementsAreFollowedByteByByteAndOtherProtocolsNotAtAll(t *testing.T) {
	start := "\x00\x00\x00\x08\x04\xd2\x16\x2f" + "\x00\x00\x00\x0d\x00\x03\x00\x00user\x00"
	sent := start + "P\x00\x00\x00\x13a\x00SELECT 1;;;\x00\x00" + "B\x00\x00\x00\x08\x00a\x00\x00"
	var s statements
	var bound []string
	for _, b := range []byte(sent) {
		bound = append(bound, s.feed([]byte{b})...)
	}
	if len(bound) != 1 || bound[0] != "SELECT 1;;;" {
		t.Errorf("bound %q, want the one statement", bound)
	}
	var other statements
	if bound := other.feed([]byte("*3\r\n$7\r\nEVALSHA\r\n")); len(bound) > 0 || !other.foreign {
		t.Errorf("Redis' protocol: bound %q, foreign %v", bound, other.foreign)
	}
}
