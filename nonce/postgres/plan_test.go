package postgres_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"noncegate/lease"
	"noncegate/nonce"
	"noncegate/nonce/postgres"
)

// The tables that grow.
var bigTables = map[string]bool{"signer_nonce_state": true, "signer_nonce_allocation": true, "signer_nonce_request": true, "signer_nonce_engine": true}

// plan is a node of EXPLAIN's JSON.
type plan struct {
	Type      string `json:"Node Type"`
	Relation  string `json:"Relation Name"`
	Index     string `json:"Index Name"`
	IndexCond string `json:"Index Cond"`
	Plans     []plan
}

// scans tells of every way the plan reads a big table without an index condition, or
// looks for a request id without the id in it: a signer may have very many. byNonce:
// it looks for the ids of nonces, which no index knows.
func (p *plan) scans(byNonce bool) (bad []string) {
	switch {
	case p.Index == "signer_nonce_request_pkey" && !byNonce && !strings.Contains(p.IndexCond, "request_id"):
		bad = append(bad, p.Type+" by "+p.Index+" where "+p.IndexCond)
	case p.Type == "ModifyTable": // its relation is read below it
	case p.Type == "Bitmap Heap Scan": // the index scan below it has the condition
	case p.Type == "Bitmap Index Scan" && p.IndexCond == "", bigTables[p.Relation] && p.IndexCond == "" && p.Type != "Tid Scan":
		bad = append(bad, strings.Join(strings.Fields(p.Type+" "+p.Relation+" "+p.Index), " "))
	}
	for i := range p.Plans {
		bad = append(bad, p.Plans[i].scans(byNonce)...)
	}
	return bad
}

// explain returns the generic plan of a prepared statement.
func explain(t *testing.T, conn *pgx.Conn, name string) *plan {
	t.Helper()
	var params int
	err := conn.QueryRow(t.Context(), `SELECT coalesce(cardinality(parameter_types), 0) FROM pg_prepared_statements WHERE name = $1`, name).Scan(&params)
	if err != nil {
		t.Fatal(err)
	}
	execute := "EXPLAIN (FORMAT JSON) EXECUTE " + name
	if params > 0 {
		execute += " (" + strings.TrimSuffix(strings.Repeat("NULL, ", params), ", ") + ")"
	}
	var text string
	err = conn.QueryRow(t.Context(), execute, pgx.QueryExecModeSimpleProtocol).Scan(&text)
	if err != nil {
		t.Fatal(err)
	}
	var plans []struct{ Plan plan }
	if err := json.Unmarshal([]byte(text), &plans); err != nil {
		t.Fatal(err)
	}
	return &plans[0].Plan
}

// TestEveryStatementReadsBigTablesByIndex: the plans are made while the tables
// are empty, and again when they are big, before and after ANALYZE.
func TestEveryStatementReadsBigTablesByIndex(t *testing.T) {
	url := migrated(t)
	config, err := pgx.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	config.RuntimeParams = postgres.RuntimeParams()
	delete(config.RuntimeParams, "lock_timeout")
	commits, flushes := postgres.CommitVariants(), postgres.FlushVariants()
	texts := slices.Concat(commits, flushes, postgres.Statements())
	look := func(when string) {
		conn, err := pgx.ConnectConfig(t.Context(), config)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(t.Context())
		for i, text := range texts {
			name, types := fmt.Sprint("s", i), postgres.CommitOIDs
			switch {
			case i >= len(commits)+len(flushes):
				types = nil // the casts in the text tell
			case i >= len(commits):
				types = postgres.FlushOIDs
			}
			if _, err := conn.PgConn().Prepare(t.Context(), name, text, types); err != nil {
				t.Fatalf("%v\n%s", err, text)
			}
			if bad := explain(t, conn, name).scans(text == postgres.ListRequests); len(bad) > 0 {
				t.Errorf("%s: %s\n%s", when, strings.Join(bad, ", "), text)
			}
		}
	}
	look("empty")
	fill(t, dial(t, url))
	fillEngines(t, dial(t, url))
	look("big, never analyzed")
	execute(t, dial(t, url), `ANALYZE`)
	look("big")
}

// fill makes 20,000 signers with 200,000 allocations, most of them consumed, two
// held and two released of each, and 40,000 request ids.
func fill(t *testing.T, conn *pgx.Conn) {
	t.Helper()
	execute(t, conn, `
		WITH s AS (
		  INSERT INTO signer_nonce_state (signer, next_nonce, held, version, updated_at)
		  SELECT 'filled-' || n, 10, 2, 10, now() FROM generate_series(1, 20000) n RETURNING signer_id),
		a AS (
		  INSERT INTO signer_nonce_allocation (signer_id, nonce, status, attempt, fencing_token, held_until, created_at, updated_at)
		  SELECT signer_id, n, CASE WHEN n > 7 THEN 1 WHEN n % 5 = 0 THEN 2 ELSE 3 END, 1, 1,
		         CASE WHEN n > 7 THEN now() + interval '1 hour' END, now(), now()
		  FROM s, generate_series(0, 9) n)
		INSERT INTO signer_nonce_request (signer_id, request_id, request_hash, nonces, attempts, created_at)
		SELECT signer_id, 'r' || n, '\x00000000000000000000000000000000', ARRAY[n], ARRAY[1], now() FROM s, generate_series(8, 9) n`)
	execute(t, conn, `SELECT brin_summarize_new_values('signer_nonce_request_created')`) // as autovacuum does
}

// fillEngines has all those signers been lost with Redis once, and half of the
// others of them entered again.
func fillEngines(t *testing.T, conn *pgx.Conn) {
	t.Helper()
	execute(t, conn, `
		INSERT INTO signer_nonce_engine (signer_id, redis_id, ceiling, grant_until, longest_hold, doubt_below, doubt_until)
		SELECT signer_id, 1, 10, now(), '1 minute', 5, now() FROM signer_nonce_state WHERE signer LIKE 'filled-%'`)
	execute(t, conn, `UPDATE signer_nonce_state SET engine = 1 WHERE signer LIKE 'filled-9%'`)
}

// TestPlansMadeOnEmptyTablesReadLittleOfBigOnes runs the statements of one
// connection, prepared while the tables were empty, and counts the rows and index
// entries it read.
func TestPlansMadeOnEmptyTablesReadLittleOfBigOnes(t *testing.T) {
	url := migrated(t)
	s, err := postgres.Open(t.Context(), url+"&pool_max_conns=1&application_name=planned", postgres.Config{})
	if err != nil {
		t.Fatal(err)
	}
	work(t, s, "empty-", 4)
	workEngines(t, s, "empty-", 4)
	filling := dial(t, url+"&application_name=filling")
	fill(t, filling)
	fillEngines(t, filling)
	conn := dial(t, url)
	execute(t, conn, `SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE application_name = 'filling'`)
	execute(t, conn, `SELECT pg_stat_reset()`)
	const signers = 100
	work(t, s, "filled-1", signers)
	workEngines(t, s, "filled-2", signers)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	// A session hands in its counts before it is gone.
	await(t, "the session to end", func() bool {
		var others int
		if err := conn.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity WHERE application_name = 'planned'`).Scan(&others); err != nil {
			t.Fatal(err)
		}
		return others == 0
	})
	var seq, index int
	if err := conn.QueryRow(t.Context(), `
		SELECT (SELECT sum(seq_tup_read) FROM pg_stat_user_tables WHERE relname LIKE 'signer_nonce%'),
		       (SELECT sum(idx_tup_read) FROM pg_stat_user_indexes WHERE relname LIKE 'signer_nonce%')`).Scan(&seq, &index); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d rows by sequence, %d index entries", seq, index)
	if most := 400 * signers; seq > 0 || index > most || index < signers {
		t.Errorf("%d rows by sequence, %d index entries for %d signers, want none and at most %d", seq, index, signers, most)
	}
}

// work has every method of a store do its part for so many signers.
func work(t *testing.T, s nonce.Store, prefix string, signers int) {
	t.Helper()
	ctx := t.Context()
	h := lease.Holder{Node: "planner", Incarnation: 1}
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	needs := make([]nonce.Need, signers)
	for i := range needs {
		needs[i] = nonce.Need{Signer: fmt.Sprintf("%s%03d", prefix, i), Released: 5, Due: 5, Nonces: []int64{8, 9}, RequestIDs: []string{"r8", "none"}}
	}
	for range 3 {
		snaps, err := s.Acquire(ctx, h, long, needs)
		ok(err)
		for _, change := range []func(i int, s nonce.Snapshot) nonce.Change{
			func(_ int, s nonce.Snapshot) nonce.Change { return handOut(s, 2) },
			func(i int, s nonce.Snapshot) nonce.Change { return kindOf(i, s, fmt.Sprint("w", s.Version)) },
		} {
			changes := make([]nonce.Change, signers)
			for i := range changes {
				changes[i] = change(i, snaps[i])
			}
			res, err := s.Commit(ctx, h, long, changes)
			ok(err)
			for i, applied := range res.Applied {
				if !applied {
					t.Fatalf("change %d was not applied: %+v", i, changes[i])
				}
			}
			snaps, err = s.Load(ctx, needs)
			ok(err)
		}
		terms := make([]nonce.ReleaseTerm, signers)
		for i := range terms {
			terms[i] = nonce.ReleaseTerm{ID: snaps[i].ID, Token: snaps[i].Lease.Token}
		}
		_, err = s.Release(ctx, h, terms)
		ok(err)
	}
	for i := range min(signers, 10) {
		_, err := s.Locked(ctx, needs[i], func(at nonce.Snapshot) (nonce.Change, error) { return handOut(at, 1), nil })
		ok(err)
		_, err = s.Summary(ctx, needs[i].Signer)
		ok(err)
		for status := range nonce.Consumed + 1 {
			_, err = s.List(ctx, nonce.ListQuery{Signer: needs[i].Signer, Status: status, Limit: 5})
			ok(err)
		}
		_, err = s.List(ctx, nonce.ListQuery{Signer: needs[i].Signer, Status: nonce.Held, Unknown: true, Limit: 5})
		ok(err)
		_, _, err = s.Due(ctx, 10)
		ok(err)
		for filter := nonce.AllSigners; filter <= nonce.RepeatSigners; filter++ {
			_, err = s.Signers(ctx, nonce.SignersQuery{Filter: filter, Names: []string{needs[i].Signer}, Limit: 5})
			ok(err)
			if filter != nonce.GapSigners { // which looks at whatever is RELEASED, as Totals does
				_, err = s.Signers(ctx, nonce.SignersQuery{Filter: filter, After: needs[i].Signer, Limit: 5})
				ok(err)
			}
		}
	}
	_, err := s.PruneRequests(ctx, time.Hour, 10)
	ok(err)
	_, err = s.Prunable(ctx, nonce.PruneQuery{Signers: signers, Found: 10, Rows: 10})
	ok(err)
	for i := range min(signers, 10) {
		snap := all(t, s, needs[i].Signer, "")
		_, err = s.Prune(ctx, lease.Holder{}, nonce.Pruning{Pieces: []nonce.PrunePiece{{ID: snap.ID, Version: snap.Version, Rows: 10}}})
		ok(err)
	}
}
