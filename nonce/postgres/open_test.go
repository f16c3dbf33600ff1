package postgres_test

import (
	"errors"
	"maps"
	"net/url"
	"strings"
	"sync"
	"testing"

	"noncegate/nonce/postgres"
	"noncegate/test/lab/pgtest"
)

func TestThePoolIsAsLargeAsTheURLSaysOrElseTheSettings(t *testing.T) {
	for _, tt := range []struct {
		query string
		conns int
		want  int32
	}{
		{"", 0, 16}, {"", 3, 3}, {"", 40, 40},
		{"pool_max_conns=2", 0, 2}, {"pool_max_conns=2", 40, 2}, {"pool_max_conns=4", 40, 4}, {"pool_max_conns=90", 3, 90},
	} {
		got, err := postgres.MaxConns("postgres://u@h/db?"+tt.query, postgres.Config{MaxConns: tt.conns})
		if err != nil || got != tt.want {
			t.Errorf("%q with %d: got %d %v, want %d", tt.query, tt.conns, got, err, tt.want)
		}
	}
}

func TestAServerThatMayLoseCommitsIsRefused(t *testing.T) {
	t.Parallel()
	unsafe, err := pgtest.Start("fsync = off")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unsafe.Close(); err != nil {
			t.Error(err)
		}
	})
	if _, err := postgres.Open(t.Context(), unsafe.URL("postgres"), 0, postgres.Config{}); !errors.Is(err, postgres.ErrFsyncOff) || postgres.Away(err) {
		t.Errorf("fsync=off: got %v", err)
	}
	raw := newShards(t)
	for _, word := range []string{"off", "OFF", "false", "no", "0", "local", "Local"} {
		_, err := postgres.Open(t.Context(), raw+"&synchronous_commit="+word, 0, postgres.Config{})
		if err == nil || !strings.Contains(err.Error(), "synchronous_commit=") || postgres.Away(err) {
			t.Errorf("%s: got %v", word, err)
		}
	}
}

// TestEverySessionHasTheSettingsTheProofNeeds: whatever the database's defaults
// are. A trigger sees the session from inside.
func TestEverySessionHasTheSettingsTheProofNeeds(t *testing.T) {
	raw := server.NewDatabase(t)
	openShards(t, raw, 2)
	admin := dial(t, raw)
	for _, setting := range []string{"synchronous_commit TO off", "default_transaction_isolation TO serializable", "lock_timeout TO 0", "idle_in_transaction_session_timeout TO 0", "enable_seqscan TO on"} {
		execute(t, admin, `DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET `+setting+`', current_database()); END $$`)
	}
	execute(t, admin, `CREATE TABLE seen (name text, setting text)`)
	execute(t, admin, `CREATE FUNCTION look() RETURNS trigger LANGUAGE plpgsql AS
		$$ BEGIN INSERT INTO seen SELECT name, setting FROM pg_settings; RETURN NEW; END $$`)
	execute(t, admin, `CREATE TRIGGER look BEFORE INSERT ON signer FOR EACH ROW EXECUTE FUNCTION look()`)
	s, h, writes := ownedAt(t, raw)
	if _, err := s.Commit(t.Context(), h, writes); err != nil {
		t.Fatal(err)
	}
	want := postgres.RuntimeParams()
	// What the guarantees rest on stands here in words of the test's own.
	maps.Copy(want, map[string]string{"synchronous_commit": "on", "default_transaction_isolation": "read committed", "lock_timeout": "100", "idle_in_transaction_session_timeout": "10000", "fsync": "on"})
	for name, want := range want {
		var got string
		if err := admin.QueryRow(t.Context(), `SELECT setting FROM seen WHERE name = $1`, name).Scan(&got); err != nil || got != want {
			t.Errorf("%s is %q %v, want %q", name, got, err, want)
		}
	}
}

func TestWhatIsAwayAndWhatIsWrong(t *testing.T) {
	raw := server.NewDatabase(t)
	u, err := url.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	with := func(change func(*url.URL)) string {
		other := *u
		change(&other)
		return other.String()
	}
	for name, tt := range map[string]struct {
		url  string
		away bool
	}{
		"nobody listens":     {with(func(u *url.URL) { u.Host = "127.0.0.1:1" }), true},
		"the wrong password": {with(func(u *url.URL) { u.User = url.UserPassword("postgres", "secret") }), false},
		"no such user":       {with(func(u *url.URL) { u.User = url.UserPassword("nobody", "secret") }), false},
		"no such database":   {with(func(u *url.URL) { u.Path = "/none" }), false},
		"not a URL":          {"postgres://h:port/db", false},
	} {
		_, err := postgres.Open(t.Context(), tt.url, 0, postgres.Config{})
		if err == nil || postgres.Away(err) != tt.away || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: away %t, want %t: %v", name, postgres.Away(err), tt.away, err)
		}
	}
}

func TestNodesThatStartTogetherMigrateOnce(t *testing.T) {
	t.Parallel()
	url := server.NewDatabase(t)
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			s, err := postgres.Open(t.Context(), url, 7, postgres.Config{})
			if err != nil {
				t.Error(err)
				return
			}
			if s.Shards() != 7 {
				t.Errorf("there are %d shards", s.Shards())
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

func TestASchemaThatBreaksOlderProgramsIsRefused(t *testing.T) {
	t.Parallel()
	url := newShards(t)
	for change, want := range map[string]string{
		`UPDATE noncegate_schema SET breaking_level = 99`: "upgrade the program",
		`DELETE FROM noncegate_schema`:                    "empty",
	} {
		conn := dial(t, url)
		execute(t, conn, `CREATE TABLE kept AS TABLE noncegate_schema`)
		execute(t, conn, change)
		_, err := postgres.Open(t.Context(), url, 0, postgres.Config{})
		if _, ofSchema := errors.AsType[*postgres.SchemaError](err); !ofSchema || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v", change, err)
		}
		execute(t, conn, `DELETE FROM noncegate_schema`)
		execute(t, conn, `INSERT INTO noncegate_schema TABLE kept`)
		execute(t, conn, `DROP TABLE kept`)
	}
}

func TestStoresOfOneDatabaseAreTheSamePlaceAndOthersAreNot(t *testing.T) {
	t.Parallel()
	one, other := newShards(t), newShards(t)
	id := func(url string) string {
		t.Helper()
		s, err := postgres.Open(t.Context(), url, 0, postgres.Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		return s.DatabaseID()
	}
	here := id(one)
	if id(one) != here || len(here) != 32 {
		t.Errorf("one database is %q, and then %q", here, id(one))
	}
	execute(t, dial(t, one), `CREATE SCHEMA apart`)
	t.Cleanup(func() { run(t, one, `DROP SCHEMA apart CASCADE`) })
	for what, url := range map[string]string{"another database": other, "another schema": one + "&search_path=apart"} {
		if id(url) == here {
			t.Errorf("%s has the same id", what)
		}
	}
}
