//go:build unix

package main

import (
	"bytes"
	"net"
	"net/url"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"noncegate/internal/testenv/pgtest"
)

// refused runs a gateway that must not start, and returns its one sentence.
func refused(t *testing.T, code int, args ...string) string {
	t.Helper()
	var stdout, stderr bytes.Buffer
	got := run(t.Context(), append(args, "--log-level=error"), &stdout, &stderr)
	said := stderr.String()
	if got != code || stdout.Len() != 0 || !strings.HasPrefix(said, "gateway: ") || strings.Count(said, "\n") != 1 {
		t.Errorf("%q: exit %d, want %d, stdout %q, stderr %q", args, got, code, stdout.String(), said)
	}
	return said
}

func TestAStoreThatCannotBeUsedStopsTheStartWithASentence(t *testing.T) {
	t.Parallel()
	free := []string{"--listen=127.0.0.1:0", "--admin-listen=127.0.0.1:0"}
	unsafe, err := pgtest.Start("fsync = off")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unsafe.Close(); err != nil {
			t.Error(err)
		}
	})
	db := database(t)
	newer := database(t)
	execute(t, newer, `UPDATE noncegate_schema SET breaking_level = 99`)
	wrong, err := url.Parse(db)
	if err != nil {
		t.Fatal(err)
	}
	wrong.User = url.UserPassword("postgres", "not the password")
	for name, tt := range map[string]struct {
		store string
		code  int
		want  []string // contained
	}{
		"fsync is off":          {unsafe.URL("postgres"), exitUsage, []string{"--store", "fsync=off"}},
		"the password is wrong": {wrong.String(), exitUsage, []string{"--store", "password"}},
		"no such database":      {strings.Replace(pg.URL("nowhere"), "sslmode=disable", "sslmode=prefer", 1), exitUsage, []string{`--store cannot be used: FATAL: database "nowhere" does not exist`}},
		"commits not awaited":   {db + "&synchronous_commit=off", exitUsage, []string{"--store", "synchronous_commit=off"}},
		"a newer schema":        {newer, exitFailure, []string{"99", "upgrade the program"}},
		"no such directory":     {"sqlite:" + filepath.Join(t.TempDir(), "none", "n.db"), exitFailure, []string{filepath.Join("none", "n.db")}},
		"a directory":           {"sqlite:" + t.TempDir(), exitFailure, []string{"TestAStore"}},
	} {
		t.Run(name, func(t *testing.T) {
			began := time.Now()
			// What does not go away by waiting is not waited for.
			said := refused(t, tt.code, append(free, "--store-wait=10m", "--store="+tt.store)...)
			for _, want := range tt.want {
				if !strings.Contains(said, want) {
					t.Errorf("said %q, want %q in it", said, want)
				}
			}
			if strings.Contains(said, "not the password") {
				t.Error("the password is shown")
			}
			if took := time.Since(began); took > 10*time.Second {
				t.Errorf("it took %v", took)
			}
		})
	}
}

func TestAPostgresThatIsAwayIsWaitedForAtTheStart(t *testing.T) {
	t.Parallel()
	_, through, proxy := behindProxy(t)
	proxy.Refuse()
	began := time.Now()
	said := refused(t, exitFailure, "--listen=127.0.0.1:0", "--admin-listen=127.0.0.1:0", "--store="+through, "--store-wait=1s")
	if !strings.Contains(said, "PostgreSQL is away") {
		t.Errorf("said %q", said)
	}
	if took := time.Since(began); took < 500*time.Millisecond || took > 10*time.Second {
		t.Errorf("it waited for %v", took)
	}

	p := begin(t, "--store="+through, "--store-wait=30s")
	p.await("the log to say what is waited for", func() bool { return strings.Contains(p.log.String(), "is away; waiting") })
	proxy.Forward()
	p.serves()
	p.connect().allocate(account, "")
}

func TestASecondGatewayOnTheSameFileIsRefused(t *testing.T) {
	t.Parallel()
	store := "--store=sqlite:" + filepath.Join(t.TempDir(), "n.db")
	first := launch(t, store)
	c := first.connect()
	c.allocate(account, "")
	if said := refused(t, exitFailure, "--listen=127.0.0.1:0", "--admin-listen=127.0.0.1:0", store); !strings.Contains(said, "another process") {
		t.Errorf("said %q", said)
	}
	first.signal(syscall.SIGTERM)
	_ = c.ws.Close()
	if code := first.exit(); code != exitOK {
		t.Errorf("the first ended with %d", code)
	}
	if got := launch(t, store).connect().allocate(account, ""); got.Nonce != 1 {
		t.Errorf("after the first has ended: %+v", got)
	}
}

func TestAPortThatIsTakenStopsTheStartBeforeAnythingIsWritten(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	db := database(t)
	for _, flag := range []string{"listen", "admin-listen"} {
		args := []string{"--listen=127.0.0.1:0", "--admin-listen=127.0.0.1:0", "--store=" + db, "--" + flag + "=" + taken.Addr().String()}
		if said := refused(t, exitUsage, args...); !strings.Contains(said, "--"+flag) || !strings.Contains(said, taken.Addr().String()) {
			t.Errorf("said %q", said)
		}
	}
	if nodes := rows(t, db, `SELECT * FROM gateway_node`); nodes != "" {
		t.Errorf("it registered: %s", nodes)
	}
}

func TestMigrateMayBeRunAgain(t *testing.T) {
	t.Parallel()
	url := pg.NewDatabase(t)
	var first string
	for range 2 {
		var stdout, stderr bytes.Buffer
		if code := run(t.Context(), []string{"migrate", "--store=" + url}, &stdout, &stderr); code != exitOK {
			t.Fatalf("exit %d, stderr %s", code, stderr.String())
		}
		schema := rows(t, url, `SELECT table_name, column_name, data_type FROM information_schema.columns WHERE table_schema = 'public' ORDER BY 1, 2`)
		if first == "" {
			first = schema
		}
		if schema != first || !strings.Contains(schema, "(signer,live,") {
			t.Errorf("the schema is\n%s\nwant\n%s", schema, first)
		}
	}
}

func TestGatewaysThatStartTogetherMigrateOnce(t *testing.T) {
	t.Parallel()
	url := pg.NewDatabase(t)
	codes := make(chan int)
	for range 3 {
		go func() {
			var stdout, stderr bytes.Buffer
			code := run(t.Context(), []string{"migrate", "--store=" + url}, &stdout, &stderr)
			if code != exitOK {
				t.Errorf("exit %d, stderr %s", code, stderr.String())
			}
			codes <- code
		}()
	}
	for range 3 {
		<-codes
	}
	if done := rows(t, url, `SELECT count(*) FROM noncegate_schema`); done != "(1)" {
		t.Errorf("the schema was made %s times", done)
	}
}
