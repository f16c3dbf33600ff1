package postgres_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"noncegate/nonce"
	"noncegate/nonce/postgres"
)

// The tables in shards that grow.
var bigShardTables = map[string]bool{"signer": true, "signer_history": true, "signer_request": true, "signer_due": true, "signer_watch": true}

// shardScans tells of every way the plan reads a big table without a condition on an index,
// or on where a row lies, and of looking for a row of the history or a request id without
// its nonce or id: a signer may have very many. text is the statement.
func (p *plan) shardScans(text string) (bad []string) {
	part := map[string]string{"signer_request_pkey": "request_id", "signer_history_pkey": "nonce"}[p.Index]
	switch {
	case part != "" && text != postgres.ListAsked && !strings.Contains(p.IndexCond, part):
		bad = append(bad, p.Type+" by "+p.Index+" where "+p.IndexCond)
	case p.Type == "ModifyTable", p.Type == "Bitmap Heap Scan", p.Type == "Tid Scan", p.Type == "Tid Range Scan":
	case p.Type == "Bitmap Index Scan" && p.IndexCond == "", bigShardTables[p.Relation] && p.IndexCond == "" && text != postgres.LastSigner && (text != postgres.Troubled || p.Index != "signer_watch_trouble"):
		bad = append(bad, strings.Join(strings.Fields(p.Type+" "+p.Relation+" "+p.Index), " "))
	}
	for i := range p.Plans {
		bad = append(bad, p.Plans[i].shardScans(text)...)
	}
	return bad
}

// fillShards makes 4,000 signers with 40,000 rows of history, 8,000 request ids and 4,000 entries
// of what is due.
func fillShards(t *testing.T, conn *pgx.Conn) {
	t.Helper()
	execute(t, conn, `
		WITH s AS (
		  INSERT INTO signer (signer, shard_id, version, fencing_token, next_nonce, floor, live, updated_at)
		  SELECT 'filled-' || n, n % 2, 10, 1, 10, 0, '', n FROM generate_series(1, 4000) n RETURNING signer_id, shard_id),
		h AS (
		  INSERT INTO signer_history (signer_id, nonce, attempt, holder, tx_hashes, reason, at)
		  SELECT signer_id, n, 1, 0, '', '', n FROM generate_series(0, 9) n, s),
		d AS (INSERT INTO signer_due (signer_id, shard_id, due_at) SELECT signer_id, shard_id, signer_id FROM s),
		w AS (INSERT INTO signer_watch (signer_id, shard_id, kind, nonce, since) SELECT signer_id, shard_id, 1, 0, 0 FROM s)
		INSERT INTO signer_request (signer_id, request_id, request_hash, nonces, created_at)
		SELECT signer_id, 'r' || n, '\x00', '[]', n FROM generate_series(8, 9) n, s`)
}

// TestEveryStatementOnShardsReadsBigTablesByIndex: the plans are made while the tables are
// empty, and again when they are big, before and after ANALYZE.
func TestEveryStatementOnShardsReadsBigTablesByIndex(t *testing.T) {
	t.Parallel()
	url := server.NewDatabase(t)
	openShards(t, url, 2)
	config, err := pgx.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	config.RuntimeParams = postgres.RuntimeParams()
	delete(config.RuntimeParams, "lock_timeout")
	texts := slices.Concat(postgres.ShardCommits(), postgres.ShardStatements())
	look := func(when string) {
		conn, err := pgx.ConnectConfig(t.Context(), config)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(t.Context())
		for i, text := range texts {
			name := fmt.Sprint("s", i)
			if _, err := conn.PgConn().Prepare(t.Context(), name, text, nil); err != nil {
				t.Fatalf("%v\n%s", err, text)
			}
			if bad := explain(t, conn, name).shardScans(text); len(bad) > 0 {
				t.Errorf("%s: %s\n%s", when, strings.Join(bad, ", "), text)
			}
		}
	}
	look("empty")
	fillShards(t, dial(t, url))
	look("big, never analyzed")
	execute(t, dial(t, url), `ANALYZE`)
	look("big")
}

// handIn ends all sessions of a database, which hand in their counts by that.
func handIn(t *testing.T, url string) {
	t.Helper()
	execute(t, dial(t, url), `SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND datname = current_database()`)
}

func count(t *testing.T, url, query string) (n int64) {
	t.Helper()
	if err := dial(t, url).QueryRow(t.Context(), query).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestAHandOutAMarkAndAnExpiryChangeTheRowWhereItIs(t *testing.T) {
	url := server.NewDatabase(t) // of which nothing is counted yet
	s, h, first := ownedAt(t, url)
	writes := make([]nonce.Write, 300)
	for i := range writes {
		name := fmt.Sprint("signer-", i)
		writes[i] = nonce.Write{Name: name, Term: first[nonce.ShardOf(name, 2)].Term}
	}
	round := func(change func(*nonce.Write)) {
		t.Helper()
		for i := range writes {
			w := &writes[i]
			w.Signer.Version, w.Signer.Live, w.History, w.DueAt = w.Signer.Version+1, slices.Clone(w.Signer.Live), nil, 0
			change(w)
		}
		got, err := s.Commit(t.Context(), h, writes)
		if err != nil || slices.ContainsFunc(got.Results, func(r nonce.WriteResult) bool { return r != nonce.Applied }) {
			t.Fatalf("got %+v, %v", got, err)
		}
	}
	until := time.Now().Add(time.Minute).UnixMilli()
	handOut := func(w *nonce.Write) {
		w.Signer.Live = append(w.Signer.Live, nonce.Entry{Nonce: w.Signer.Next, Attempt: 1, Status: nonce.Held, Until: until, Holder: 9})
		w.Signer.Next++
		w.DueAt = until
	}
	mark := func(w *nonce.Write) {
		last := len(w.Signer.Live) - 1
		w.History = []nonce.Past{{Nonce: w.Signer.Live[last].Nonce, Attempt: 1, Holder: 9, Note: nonce.Note{TxHash: nonce.TxHash{1}}}}
		w.Signer.Live = w.Signer.Live[:last]
	}
	expiry := func(w *nonce.Write) {
		last := len(w.Signer.Live) - 1
		w.Signer.Live[last] = nonce.Entry{Nonce: w.Signer.Live[last].Nonce, Attempt: 1, Status: nonce.Released, Holder: 9, Note: &nonce.Note{Reason: nonce.ReasonExpired}}
	}
	round(handOut)
	const rounds = 8
	for range rounds {
		round(handOut)
		round(mark)
		round(handOut)
		round(expiry)
	}
	handIn(t, url)
	updates := count(t, url, `SELECT n_tup_upd FROM pg_stat_user_tables WHERE relname = 'signer'`)
	hot := count(t, url, `SELECT n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'signer'`)
	moved := count(t, url, `SELECT n_tup_upd FROM pg_stat_user_tables WHERE relname = 'signer_due'`)
	if updates != int64(rounds*4*len(writes)) || hot < updates*99/100 || moved != 0 {
		t.Errorf("of %d updates %d are in place; %d entries of what is due were changed", updates, hot, moved)
	}
}

func TestOldHistoryIsDeletedPieceByPieceThroughATableOfAnySize(t *testing.T) {
	t.Parallel()
	for _, limit := range []int{10_000, 150} { // a call ends at the end of its piece, and before
		url := server.NewDatabase(t)
		s := openShards(t, url, 2)
		// More than two pieces; one row in a hundred is old.
		execute(t, dial(t, url), `INSERT INTO signer_history (signer_id, nonce, attempt, holder, tx_hashes, reason, at)
			SELECT 1, n, 1, 0, decode(repeat('00', 32), 'hex'), repeat('x', 256), CASE WHEN n % 100 = 0 THEN 1000 ELSE 3000 END FROM generate_series(1, 60000) n`)
		if blocks := count(t, url, `SELECT pg_relation_size('signer_history') / 8192`); blocks < 2*1024 {
			t.Fatalf("%d blocks are too few", blocks)
		}
		prune := func(most, want int) {
			t.Helper()
			deleted := 0
			for calls := 0; calls < most && deleted < want; calls++ {
				n, err := s.Prune(t.Context(), time.UnixMilli(2000), limit)
				if deleted += n; err != nil || n > limit {
					t.Fatalf("%d, %v", n, err)
				}
			}
			if left := count(t, url, `SELECT count(*) FROM signer_history WHERE at < 2000`); left != 0 || deleted != want {
				t.Errorf("at most %d: %d are deleted and %d are left", limit, deleted, left)
			}
		}
		prune(max(3, 600/limit+1), 600)
		execute(t, dial(t, url), `UPDATE signer_history SET at = 1 WHERE nonce IN (1, 30001)`)
		prune(6, 2) // what has become old behind the walk is found by the next one
		if young := count(t, url, `SELECT count(*) FROM signer_history`); young != 59398 {
			t.Errorf("%d young rows are left", young)
		}
	}
}
