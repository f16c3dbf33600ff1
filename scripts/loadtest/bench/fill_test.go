//go:build unix

package bench

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"noncegate/nonce"
	"noncegate/nonce/postgres"
	"noncegate/scripts/loadtest/traffic"
	"noncegate/test/lab/pgtest"
)

// rowsDatabase is a database with a store and a connection.
func rowsDatabase(t *testing.T) (*postgres.Store, *pgx.Conn, string) {
	t.Helper()
	server, err := pgtest.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	name, err := server.CreateDatabase(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s, err := postgres.Open(t.Context(), server.URL(name), 0, postgres.Config{MaxConns: 2})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	conn, err := pgx.Connect(t.Context(), server.URL(name))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.WithoutCancel(t.Context())) })
	return s, conn, server.URL(name)
}

func TestAFilledDatabaseIsWhatItsStoreReads(t *testing.T) {
	s, conn, url := rowsDatabase(t)
	a := &arena{progress: new(lines)}
	if err := a.fill(t.Context(), url, stored{signers: 100, each: 5}); err != nil {
		t.Fatal(err)
	}
	var needs []nonce.SignerNeed
	for i := range 100 {
		needs = append(needs, nonce.SignerNeed{Signer: traffic.Signers{Count: 100}.Name(i), History: []int64{0, 1, 2, 3, 4}})
	}
	got, err := s.Load(t.Context(), needs)
	if err != nil {
		t.Fatal(err)
	}
	states := map[string]int{}
	hashes := map[nonce.TxHash]bool{}
	for _, l := range got.Signers {
		state := "consumed"
		if len(l.Signer.Live) > 0 {
			e := l.Signer.Live[0]
			state = strings.ToLower(e.Status.String())
			if e.Status == nonce.Held && time.UnixMilli(e.Until).Sub(got.Now) < 23*time.Hour {
				t.Errorf("held until %d only", e.Until)
			}
			if past := l.History[e.Nonce]; past != nil || len(l.Signer.Live) > 1 {
				t.Errorf("%+v has in its history %+v", l.Signer, past)
			}
		}
		states[state]++
		if l.Err != nil || l.Signer.Next != 5 || l.Signer.Version != 10 || l.Shard.Owner.Node != "" || l.Shard.Token < l.Token {
			t.Errorf("signer %+v", l)
		}
		for _, past := range l.History {
			if past != nil {
				hashes[past.TxHash] = true
			}
		}
	}
	if want := map[string]int{"consumed": 80, "held": 10, "released": 10}; states["consumed"] != 80 || states["held"] != 10 || states["released"] != 10 {
		t.Errorf("signers whose last state is %v, want %v", states, want)
	}
	if len(hashes) != 480 {
		t.Errorf("%d hashes, want 480", len(hashes))
	}
	rows, err := conn.Query(t.Context(), `SELECT signer, shard_id FROM signer`)
	if err != nil {
		t.Fatal(err)
	}
	var name string
	var shard int
	if _, err := pgx.ForEachRow(rows, []any{&name, &shard}, func() error {
		if want := nonce.ShardOf(name, s.Shards()); shard != want {
			t.Errorf("%s is of shard %d, want %d", name, shard, want)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	var due int
	if err := conn.QueryRow(t.Context(), `SELECT count(*) FROM signer_due JOIN signer USING (signer_id, shard_id) WHERE length(live) > 0`).Scan(&due); err != nil || due != 10 {
		t.Errorf("%d signers are due, %v; want those with a hold", due, err)
	}
}

func TestClientsAreAtTheOwnersOfTheShards(t *testing.T) {
	_, conn, _ := rowsDatabase(t)
	cl := &cluster{nodes: []*clusterNode{{id: "a"}, {id: "b"}, {id: "c"}}}
	if _, err := conn.Exec(t.Context(), `UPDATE shard SET owner_node = (ARRAY['a','b','c'])[1 + shard_id % 3]`); err != nil {
		t.Fatal(err)
	}
	all := traffic.Signers{Base: 70, Count: 1000}
	parts, err := cl.byShard(t.Context(), conn, all, time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for i, part := range parts {
		if part.Count < 200 || part.Count != len(part.Accounts) {
			t.Errorf("node %d has %d signers", i, part.Count)
		}
		for j := range part.Count {
			if name := part.Name(j); nonce.ShardOf(name, postgres.DefaultShards)%3 != i {
				t.Errorf("node %d has %s of a shard of another", i, name)
			} else {
				names = append(names, name)
			}
		}
	}
	if slices.Sort(names); len(slices.Compact(names)) != 1000 {
		t.Errorf("%d signers, want 1000", len(names))
	}
}

func TestShardsAreSharedOutWhenEachHasANodeAndEachNodeOne(t *testing.T) {
	cl := &cluster{nodes: []*clusterNode{{id: "a"}, {id: "b"}}}
	for owners, want := range map[string]bool{"a b a": true, "a a a": false, "a b ": false, "a b stranger": false} {
		if got := cl.shared(strings.Split(owners, " ")); got != want {
			t.Errorf("shards of %q are shared out: %v, want %v", owners, got, want)
		}
	}
}
