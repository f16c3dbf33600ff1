package postgres_test

import (
	"crypto/rand"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"noncegate/internal/access"
	"noncegate/internal/access/accesstest"
	"noncegate/lease"
	"noncegate/nonce"
	"noncegate/nonce/postgres"
	"noncegate/nonce/storetest"
)

func openShards(t testing.TB, url string, shards int) *postgres.Store {
	t.Helper()
	s, err := postgres.Open(t.Context(), url, shards, postgres.Config{MaxConns: 8})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// advance moves the clock of a database on by so many milliseconds from the real one.
func advance(t *testing.T, url string, by int64) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	_, err = conn.Exec(t.Context(), fmt.Sprintf(
		`CREATE OR REPLACE FUNCTION store_millis() RETURNS bigint LANGUAGE sql VOLATILE AS $$ SELECT %d + (extract(epoch FROM clock_timestamp()) * 1000)::bigint $$`, by))
	if err != nil {
		t.Fatal(err)
	}
}

func TestAStoreInShardsKeepsTheRules(t *testing.T) {
	// One database for all rules, one after the other: another schema costs a tenth of another
	// database.
	url := server.NewDatabase(t)
	open := func(t *testing.T) storetest.Database {
		conn := dial(t, url)
		execute(t, conn, `DROP SCHEMA public CASCADE`)
		execute(t, conn, `CREATE SCHEMA public`)
		openShards(t, url, 2)
		ahead := make(chan int64, 1)
		ahead <- 0
		return storetest.Database{
			Open: func(t *testing.T) nonce.Store { return openShards(t, url, 0) },
			Damage: func(t *testing.T, signer string) {
				execute(t, dial(t, url), `UPDATE signer SET live = '\xff' WHERE signer = $1`, signer)
			},
			Advance: func(d time.Duration) {
				by := <-ahead + d.Milliseconds()
				advance(t, url, by)
				ahead <- by
			},
		}
	}
	storetest.Run(t, open)
	t.Run("logs", func(t *testing.T) { storetest.RunLogs(t, open) })
}

func TestAStoreInShardsKeepsCredentials(t *testing.T) {
	accesstest.Run(t, func(t *testing.T) access.Store { return openShards(t, server.NewDatabase(t), 0) })
}

func TestTheNumberOfShardsIsThatOfTheDatabase(t *testing.T) {
	url := server.NewDatabase(t)
	if got := openShards(t, url, 0).Shards(); got != postgres.DefaultShards {
		t.Errorf("got %d", got)
	}
	if got := openShards(t, url, postgres.DefaultShards).Shards(); got != postgres.DefaultShards {
		t.Errorf("got %d", got)
	}
	_, err := postgres.Open(t.Context(), url, 7, postgres.Config{})
	if err == nil || !strings.Contains(err.Error(), "has 32 shards, and 7 are wanted") {
		t.Errorf("got %v", err)
	}
}

func TestADatabaseOfAnotherSchemaIsRefused(t *testing.T) {
	url := server.NewDatabase(t)
	execute(t, dial(t, url), `CREATE TABLE gateway_node (node_id text)`)
	_, err := postgres.Open(t.Context(), url, 0, postgres.Config{})
	if err == nil || !strings.Contains(err.Error(), "its schema is none of this program's; name another database") {
		t.Errorf("got %v", err)
	}
}

// TestAPinWaitsForTheCommitsBeforeIt: for longer than other statements wait for a lock.
func TestAPinWaitsForTheCommitsBeforeIt(t *testing.T) {
	url, s, _, _ := owned(t)
	pinned := make(chan error, 1)
	besides(t, url, `SELECT 1 FROM shard WHERE shard_id = 0 FOR SHARE`, func() {
		go func() { pinned <- s.Pin(t.Context(), 0, "b") }()
		conn, err := pgx.Connect(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(t.Context())
		// By the database's clock: it has waited for longer than lock_timeout is else.
		const waits = `SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE 'UPDATE shard SET pinned_node%' AND clock_timestamp() - query_start > interval '300 ms'`
		for n := 0; n == 0; {
			if err := conn.QueryRow(t.Context(), waits).Scan(&n); err != nil {
				t.Fatal(err)
			}
			select {
			case err := <-pinned:
				t.Fatalf("it did not wait: %v", err)
			default:
			}
		}
	})
	if err := <-pinned; err != nil {
		t.Fatal(err)
	}
	all, err := s.Owners(t.Context())
	if err != nil || all.Shards[0].Pinned != "b" || all.Shards[1].Pinned != "" {
		t.Errorf("got %+v, %v", all.Shards, err)
	}
}

// besides runs statements in a transaction of somebody else's, and test while it is open.
func besides(t *testing.T, url, statement string, test func()) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	tx, err := conn.Begin(t.Context())
	if err == nil {
		_, err = tx.Exec(t.Context(), statement)
	}
	if err != nil {
		t.Fatal(err)
	}
	test()
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// owned is a database of two shards that one node has, with a write of a signer of each.
func owned(t *testing.T) (url string, s *postgres.Store, h lease.Holder, writes []nonce.Write) {
	t.Helper()
	url = server.NewDatabase(t)
	s, h, writes = ownedAt(t, url)
	return url, s, h, writes
}

func ownedAt(t *testing.T, url string) (s *postgres.Store, h lease.Holder, writes []nonce.Write) {
	t.Helper()
	s = openShards(t, url, 2)
	h, err := s.Register(t.Context(), lease.Presence{Node: "a"})
	if err == nil {
		_, err = s.Renew(t.Context(), h, time.Hour)
	}
	if err != nil {
		t.Fatal(err)
	}
	shards, err := s.Acquire(t.Context(), h, []int{0, 1})
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; len(writes) < 2; i++ {
		if name := fmt.Sprint("signer-", i); nonce.ShardOf(name, 2) == len(writes) {
			term := lease.ShardTerm{Shard: len(writes), Token: shards[len(writes)].Token}
			writes = append(writes, nonce.Write{Name: name, Term: term, Signer: nonce.Signer{Version: 1, Next: 1}})
		}
	}
	return s, h, writes
}

func TestACommitWaitsForWhoeverTakesItsShard(t *testing.T) {
	url, s, h, writes := owned(t)
	besides(t, url, `UPDATE shard SET fencing_token = fencing_token + 1, owner_node = 'b' WHERE shard_id = 0`, func() {
		if got, err := s.Commit(t.Context(), h, writes); nonce.OutcomeOf(err) != nonce.Aborted || err == nil {
			t.Errorf("got %+v, %v, want that nothing happened", got, err)
		}
	})
	if got, err := s.Commit(t.Context(), h, writes); err != nil || got.Results[0] != nonce.Applied || got.Results[1] != nonce.Applied {
		t.Errorf("afterwards: %+v, %v", got, err)
	}
}

func TestASignerWhoseRowSomebodyWritesIsLeftOutAndTheOthersStand(t *testing.T) {
	url, s, h, writes := owned(t)
	if _, err := s.Commit(t.Context(), h, writes); err != nil {
		t.Fatal(err)
	}
	for i := range writes {
		writes[i].Signer.Version = 2
	}
	besides(t, url, `SELECT 1 FROM signer WHERE signer = '`+writes[0].Name+`' FOR UPDATE`, func() {
		got, err := s.Commit(t.Context(), h, writes)
		if err != nil || got.Results[0] != nonce.Moved || got.Results[1] != nonce.Applied {
			t.Errorf("got %+v, %v", got, err)
		}
	})
}

func TestAStoreInShardsNeedsNoMoreRightsThanThoseOnItsTables(t *testing.T) {
	own := server.NewDatabase(t)
	openShards(t, own, 2)
	role := "r" + strings.ToLower(rand.Text())
	execute(t, dial(t, own), `CREATE ROLE `+role+` LOGIN PASSWORD 'secret'`)
	execute(t, dial(t, own), `GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO `+role)
	u, err := url.Parse(own)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(role, "secret")
	s, h, writes := ownedAt(t, u.String())
	for version := int64(1); version < 4; version++ {
		for i := range writes {
			w := &writes[i]
			w.Signer.Version, w.Signer.Next = version, version
			w.History = []nonce.Past{{Nonce: version - 1, Attempt: 1}}
			w.Requests, w.DueAt = []nonce.Request{{ID: fmt.Sprint(version)}}, 1
		}
		got, err := s.Commit(t.Context(), h, writes)
		if err != nil || got.Results[0] != nonce.Applied || got.Results[1] != nonce.Applied {
			t.Fatalf("got %+v, %v", got, err)
		}
	}
	for what, do := range map[string]func() error{
		"prune":          func() error { _, err := s.Prune(t.Context(), time.Now().Add(time.Hour), 10); return err },
		"prune requests": func() error { _, err := s.PruneRequests(t.Context(), -time.Hour, 10); return err },
		"totals":         func() error { _, err := s.Totals(t.Context()); return err },
		"signers":        func() error { _, err := s.Signers(t.Context(), nonce.SignersQuery{Limit: 10}); return err },
		"names":          func() error { return s.RememberNames(t.Context(), []string{"a"}) },
		"leave":          func() error { return s.Leave(t.Context(), h) },
		"tickets":        func() error { return s.PruneTickets(t.Context()) },
	} {
		if err := do(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}
