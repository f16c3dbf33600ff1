package postgres_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"noncegate/lease"
	"noncegate/nonce"
	"noncegate/nonce/postgres"
	"noncegate/nonce/shardtest"
)

func openShards(t *testing.T, url string, shards int) *postgres.ShardStore {
	t.Helper()
	s, err := postgres.OpenShards(t.Context(), url, shards, postgres.Config{MaxConns: 8})
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
	shardtest.Run(t, func(t *testing.T) shardtest.Database {
		url := server.NewDatabase(t)
		s := openShards(t, url, 2)
		ahead := make(chan int64, 1)
		ahead <- 0
		return shardtest.Database{
			Open: func(t *testing.T) nonce.ShardStore { return openShards(t, url, 0) },
			Register: func(t *testing.T, id string) lease.Holder {
				h, err := s.StartNode(t.Context(), lease.Presence{Node: id})
				if err != nil {
					t.Fatal(err)
				}
				return h
			},
			Advance: func(d time.Duration) {
				by := <-ahead + d.Milliseconds()
				advance(t, url, by)
				ahead <- by
			},
		}
	})
}

func TestTheNumberOfShardsIsThatOfTheDatabase(t *testing.T) {
	url := server.NewDatabase(t)
	if got := openShards(t, url, 0).Shards(); got != postgres.DefaultShards {
		t.Errorf("got %d", got)
	}
	if got := openShards(t, url, postgres.DefaultShards).Shards(); got != postgres.DefaultShards {
		t.Errorf("got %d", got)
	}
	_, err := postgres.OpenShards(t.Context(), url, 7, postgres.Config{})
	if err == nil || !strings.Contains(err.Error(), "has 32 shards, and 7 are wanted") {
		t.Errorf("got %v", err)
	}
}

func TestADatabaseOfTheOtherSchemaIsRefused(t *testing.T) {
	_, err := postgres.OpenShards(t.Context(), migrated(t), 0, postgres.Config{})
	if err == nil || !strings.Contains(err.Error(), "signer_nonce_state") {
		t.Errorf("got %v", err)
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
func owned(t *testing.T) (url string, s *postgres.ShardStore, h lease.Holder, writes []nonce.Write) {
	t.Helper()
	url = server.NewDatabase(t)
	s = openShards(t, url, 2)
	h, err := s.StartNode(t.Context(), lease.Presence{Node: "a"})
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
			term := nonce.ShardTerm{Shard: len(writes), Token: shards[len(writes)].Token}
			writes = append(writes, nonce.Write{Name: name, Term: term, Signer: nonce.Signer{Version: 1, Next: 1}})
		}
	}
	return url, s, h, writes
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
