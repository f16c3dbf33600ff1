//go:build unix

// Package stores tests gateways and their stores: the start, refusals, unknown outcomes, a store that is lost or goes back.
package stores

import (
	"net"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"noncegate/test/e2e"
	"noncegate/test/lab/expect"
	"noncegate/test/lab/pgtest"
)

func TestMain(m *testing.M) { e2e.Main(m) }

func TestAStoreThatCannotBeUsedStopsTheStartWithASentence(t *testing.T) {
	t.Parallel()
	free := []string{"--listen=127.0.0.1:0", "--admin-listen=127.0.0.1:0"}
	unsafe, err := pgtest.Start("fsync = off")
	expect.Must(t, err)
	e2e.CloseLater(t, unsafe)
	db := e2e.Database(t)
	newer := e2e.Database(t)
	e2e.Execute(t, newer, `UPDATE noncegate_schema SET breaking_level = 99`)
	wrong, err := url.Parse(db)
	expect.Must(t, err)
	wrong.User = url.UserPassword("postgres", "not the password")
	for name, tt := range map[string]struct {
		store string
		code  int
		want  []string // contained
	}{
		"fsync is off":          {unsafe.URL("postgres"), e2e.ExitUsage, []string{"--store", "fsync=off"}},
		"the password is wrong": {wrong.String(), e2e.ExitUsage, []string{"--store", "password"}},
		"no such database":      {strings.Replace(e2e.PG.URL("nowhere"), "sslmode=disable", "sslmode=prefer", 1), e2e.ExitUsage, []string{`--store cannot be used: FATAL: database "nowhere" does not exist`}},
		"commits not awaited":   {db + "&synchronous_commit=off", e2e.ExitUsage, []string{"--store", "synchronous_commit=off"}},
		"a newer schema":        {newer, e2e.ExitFailure, []string{"99", "upgrade the program"}},
		"no such directory":     {"sqlite:" + filepath.Join(t.TempDir(), "none", "n.db"), e2e.ExitFailure, []string{filepath.Join("none", "n.db")}},
		"a directory":           {"sqlite:" + t.TempDir(), e2e.ExitFailure, []string{"TestAStore"}},
	} {
		t.Run(name, func(t *testing.T) {
			// What does not go away by waiting is not waited for.
			said := e2e.Refused(t, tt.code, append(free, "--store-wait=10m", "--store="+tt.store)...)
			for _, want := range tt.want {
				if !strings.Contains(said, want) {
					t.Errorf("said %q, want %q in it", said, want)
				}
			}
			if strings.Contains(said, "not the password") {
				t.Error("the password is shown")
			}
		})
	}
}

func TestAPostgresThatIsAwayIsWaitedForAtTheStart(t *testing.T) {
	t.Parallel()
	_, through, proxy := e2e.BehindProxy(t)
	proxy.Refuse()
	said := e2e.Refused(t, e2e.ExitFailure, "--listen=127.0.0.1:0", "--admin-listen=127.0.0.1:0", "--store="+through, "--store-wait=1s")
	if !strings.Contains(said, "PostgreSQL is away") {
		t.Errorf("said %q", said)
	}

	p := e2e.Begin(t, "--store="+through, "--store-wait=30s")
	p.Await("the log to say what is waited for", func() bool { return strings.Contains(p.Printed(), "is away; waiting") })
	proxy.Forward()
	p.Serves()
	p.Connect().Allocate(e2e.Account, "")
}

func TestAPortThatIsTakenStopsTheStartBeforeAnythingIsWritten(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	expect.Must(t, err)
	defer taken.Close()
	db := e2e.Database(t)
	for _, flag := range []string{"listen", "admin-listen"} {
		args := []string{"--listen=127.0.0.1:0", "--admin-listen=127.0.0.1:0", "--store=" + db, "--" + flag + "=" + taken.Addr().String()}
		if said := e2e.Refused(t, e2e.ExitUsage, args...); !strings.Contains(said, "--"+flag) || !strings.Contains(said, taken.Addr().String()) {
			t.Errorf("said %q", said)
		}
	}
	if nodes := e2e.Query(t, db, `SELECT * FROM gateway_node`); nodes != "" {
		t.Errorf("it registered: %s", nodes)
	}
}

func TestMigrateMayBeRunAgain(t *testing.T) {
	t.Parallel()
	url := e2e.PG.NewDatabase(t)
	var first string
	for range 2 {
		if o := e2e.Run(t, "migrate", "--store="+url); o.Code != e2e.ExitOK {
			t.Fatalf("exit %d, stderr %s", o.Code, o.Stderr)
		}
		schema := e2e.Query(t, url, `SELECT table_name, column_name, data_type FROM information_schema.columns WHERE table_schema = 'public' ORDER BY 1, 2`)
		if first == "" {
			first = schema
		}
		if schema != first || !strings.Contains(schema, "(signer,live,") {
			t.Errorf("the schema is\n%s\nwant\n%s", schema, first)
		}
	}
}
