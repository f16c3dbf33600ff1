package postgres_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"noncegate/lease"
	"noncegate/nonce"
)

// used has alice hold n nonces of a signer, at most 4, and consume them.
func used(t testing.TB, s nonce.Store, name string, n int) nonce.Snapshot {
	t.Helper()
	if !commit(t, s, alice, handOut(acquire(t, s, alice, long, nonce.Need{Signer: name}), n)) {
		t.Fatal("refused")
	}
	c := handOut(all(t, s, name, ""), 0)
	for i := range int64(n) {
		c.Rows = append(c.Rows, nonce.RowChange{Nonce: i, FromStatus: nonce.Held, FromAttempt: 1, Status: nonce.Consumed, Attempt: 1, TxHash: nonce.TxHash{1}})
		c.Held--
	}
	if !commit(t, s, alice, c) {
		t.Fatal("refused")
	}
	return all(t, s, name, "")
}

// old prunes up to rows rows of one signer as alice, whatever their age.
func old(s nonce.Store, at nonce.Snapshot, rows int) (nonce.Pruned, error) {
	got, err := s.Prune(context.Background(), alice, nonce.Pruning{Age: -long, Epoch: s.Epoch(), Pieces: []nonce.PrunePiece{
		{ID: at.ID, Signer: at.Signer, Token: at.Lease.Token, Version: at.Version, Rows: rows},
	}})
	if err != nil {
		return nonce.Pruned{}, err
	}
	return got[0], nil
}

func TestAPruningLeavesOutSignersThatOthersHaveLockedAndWaitsForNobody(t *testing.T) {
	url := migrated(t)
	s := openStore(t, url)
	locked, free := used(t, s, "locked", 3), used(t, s, "free", 3)
	tx, err := dial(t, url).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `SELECT 1 FROM signer_nonce_state WHERE signer = 'locked' FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	got, err := s.Prune(t.Context(), lease.Holder{}, nonce.Pruning{Age: -long, Pieces: []nonce.PrunePiece{
		{ID: locked.ID, Version: locked.Version, Rows: 9}, {ID: free.ID, Version: free.Version, Rows: 9},
	}})
	if err != nil || got[0].Applied || !got[1].Applied {
		t.Errorf("got %+v, %v", got, err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := all(t, s, "locked", ""); len(got.Rows) != 3 || got.Pruned != 0 || got.Version != locked.Version {
		t.Errorf("the locked one: got %+v", got)
	}
	if got, err := old(s, locked, 9); err != nil || got.Rows != 3 {
		t.Errorf("afterwards: got %+v, %v", got, err)
	}
}

// TestARowThatSomebodyTouchedByHandAbortsThePruning: such a write does not raise
// the version, so only the count of what was deleted can tell.
func TestARowThatSomebodyTouchedByHandAbortsThePruning(t *testing.T) {
	url := migrated(t)
	s := openStore(t, url)
	for range 20 {
		snap := used(t, s, signer, 4)
		var alarm error
		met := overtaken(t, url, `UPDATE signer_nonce_allocation SET status = 1 WHERE nonce = 2`, nil, func() error {
			if _, alarm = old(s, snap, 9); errors.Is(alarm, nonce.ErrInvariant) {
				return nil
			}
			return alarm
		})
		if got := all(t, s, signer, ""); met && (alarm == nil || len(got.Rows) != 4 || got.Pruned != 0 || got.Version != snap.Version) {
			t.Fatalf("got %v, left %+v", alarm, got)
		}
		if met {
			return
		}
		execute(t, dial(t, url), `TRUNCATE signer_nonce_state, signer_nonce_allocation`)
	}
	t.Fatal("the pruning never waited")
}

func TestAPruningWhoseReplyIsLostIsUnknown(t *testing.T) {
	direct, s, proxy := proxied(t)
	snap := used(t, s, signer, 3)
	if got, err := old(s, snap, 1); err != nil || got.Rows != 1 { // prepares the statement
		t.Fatal(got, err)
	}
	answered := proxy.CutReplies("stmtcache")
	snap.Version++
	_, err := old(s, snap, 9)
	if nonce.OutcomeOf(err) != nonce.Unknown {
		t.Errorf("got %v", err)
	}
	<-answered
	if got := all(t, openStore(t, direct), signer, ""); got.Pruned != 3 || len(got.Rows) != 0 || got.Version != snap.Version+1 {
		t.Errorf("got %+v", got)
	}
}

func TestAPruningForAnotherDatabaseIsNotSent(t *testing.T) {
	s := openStore(t, migrated(t))
	snap := used(t, s, signer, 3)
	_, err := s.Prune(t.Context(), alice, nonce.Pruning{Age: -long, Epoch: s.Epoch() + 1, Pieces: []nonce.PrunePiece{
		{ID: snap.ID, Token: snap.Lease.Token, Version: snap.Version, Rows: 9},
	}})
	if nonce.OutcomeOf(err) != nonce.NotSent {
		t.Errorf("got %v", err)
	}
}

// TestPruningAndListingDoNotStepOverWhatWasPruned: an old snapshot keeps every
// deleted row in place, as a long query of somebody else would.
func TestPruningAndListingDoNotStepOverWhatWasPruned(t *testing.T) {
	url := migrated(t)
	s := openStore(t, url+"&pool_max_conns=1&application_name=planned")
	snap := used(t, s, signer, 1)
	conn := dial(t, url)
	const rows, piece = 5000, 100
	execute(t, conn, `
		INSERT INTO signer_nonce_allocation (signer_id, nonce, status, attempt, fencing_token, created_at, updated_at)
		SELECT $1, n, 3, 1, 1, now(), now() FROM generate_series(1, $2 - 1) n`, snap.ID, rows)
	execute(t, conn, `UPDATE signer_nonce_state SET next_nonce = $1`, rows)
	holds, err := dial(t, url).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = holds.Rollback(context.WithoutCancel(t.Context())) }()
	if _, err := holds.Exec(t.Context(), `SET TRANSACTION ISOLATION LEVEL REPEATABLE READ`); err != nil {
		t.Fatal(err)
	}
	if _, err := holds.Exec(t.Context(), `SELECT 1 FROM signer_nonce_state`); err != nil {
		t.Fatal(err)
	}
	execute(t, conn, `SELECT pg_stat_reset()`)
	for range rows/piece - 1 {
		page, err := s.Prunable(t.Context(), nonce.PruneQuery{Age: -long, Signers: 10, Found: 10, Rows: piece})
		if err != nil || len(page.Found) != 1 {
			t.Fatal(page, err)
		}
		got, err := old(s, snap, page.Found[0].Rows)
		if err != nil || got.Rows != piece {
			t.Fatal(got, err)
		}
		snap.Version++
		if _, err := s.List(t.Context(), nonce.ListQuery{Signer: signer, Limit: 1}); err != nil {
			t.Fatal(err)
		}
		if _, err := s.List(t.Context(), nonce.ListQuery{Signer: signer, Limit: 1, Status: nonce.Consumed}); err != nil {
			t.Fatal(err)
		}
	}
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
	var read int
	err = conn.QueryRow(t.Context(), `SELECT sum(idx_tup_read) FROM pg_stat_user_indexes WHERE relname = 'signer_nonce_allocation'`).Scan(&read)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d index entries for %d rows", read, rows)
	if read < rows || read > 4*rows {
		t.Errorf("%d index entries were read to prune %d rows, want three or four a row", read, rows)
	}
}

// TestTheMigrationOfABigTableRewritesNothing: an older version's signers, any
// number of them, are there at once.
func TestTheMigrationOfABigTableRewritesNothing(t *testing.T) {
	url := server.NewDatabase(t)
	s := openStore(t, url)
	if _, err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	conn := dial(t, url)
	execute(t, conn, `DROP VIEW signer_engine, signer_allocation`)
	execute(t, conn, `DROP TABLE gateway_principal, auth_key, auth_key_generation, auth_ticket`)
	execute(t, conn, `DROP TABLE engine_redis, engine_cluster, signer_nonce_engine`)
	execute(t, conn, `ALTER TABLE signer_nonce_allocation DROP COLUMN promised_until, DROP COLUMN holder`)
	execute(t, conn, `ALTER TABLE signer_nonce_state DROP COLUMN pruned, DROP COLUMN engine`)
	execute(t, conn, `ALTER TABLE gateway_node DROP COLUMN mode, DROP COLUMN patience, DROP COLUMN signers, DROP COLUMN engines`)
	execute(t, conn, `DELETE FROM noncegate_migration WHERE version_id > 1`)
	fill(t, conn)
	file := func() (f string) {
		if err := conn.QueryRow(t.Context(), `
			SELECT pg_relation_filenode('signer_nonce_state') || ' ' || pg_relation_filenode('signer_nonce_allocation')`).Scan(&f); err != nil {
			t.Fatal(err)
		}
		return f
	}
	before := file()
	if n, err := s.Migrate(t.Context()); err != nil || n == 0 {
		t.Fatalf("%d migrations, %v", n, err)
	}
	if after := file(); after != before {
		t.Error("a table was written anew")
	}
	at := acquire(t, s, alice, time.Minute, nonce.Need{Signer: "filled-1"})
	if at.Pruned != 0 || !commit(t, s, alice, handOut(at, 1)) {
		t.Errorf("got %+v", at)
	}
}
