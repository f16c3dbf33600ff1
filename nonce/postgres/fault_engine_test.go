package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"noncegate/nonce"
	"noncegate/nonce/postgres"
)

// TestAReplyThatIsLostLeavesAMoveUnknown: it happened, and is seen to have.
func TestAReplyThatIsLostLeavesAMoveUnknown(t *testing.T) {
	ctx := context.Background()
	for name, tt := range map[string]struct {
		cut string // what the client sends last
		run func(s *postgres.Store, at nonce.Snapshot) error
		was string // engine, epoch, version, ceiling, next of the row after it
	}{
		"a flush": {"\x00noncegate_flush_", func(s *postgres.Store, at nonce.Snapshot) error {
			_, err := s.Apply(ctx, long, []nonce.FlushEvent{flushOf(at, 1)})
			return err
		}, "(1,2,22,3)"},
		"a block": {"stmtcache", func(s *postgres.Store, at nonce.Snapshot) error {
			_, _, err := s.Reserve(ctx, alice, long, long, long, []nonce.ReserveTerm{{ID: at.ID, Token: at.Lease.Token, Ceiling: 99}})
			return err
		}, "(1,1,99,2)"},
		"a return": {"stmtcache", func(s *postgres.Store, at nonce.Snapshot) error {
			_, err := s.Return(ctx, alice, []nonce.MoveTerm{moveOf(at)})
			return err
		}, "(0,1,22,2)"},
		"a loss": {"stmtcache", func(s *postgres.Store, at nonce.Snapshot) error {
			_, err := s.Lose(ctx, alice, long, []nonce.ReserveTerm{{ID: at.ID, Token: at.Lease.Token}})
			return err
		}, "(0,4294967296,22,22)"},
	} {
		t.Run(name, func(t *testing.T) {
			direct, st, proxy := proxied(t)
			s := st.(*postgres.Store)
			warm := entered(t, s, 2, "warm", signer)
			if err := tt.run(s, warm[0]); err != nil { // prepares it
				t.Fatal(err)
			}
			at := warm[1]
			answered := proxy.CutReplies(tt.cut)
			if err := tt.run(s, at); err == nil || nonce.OutcomeOf(err) != nonce.Unknown {
				t.Errorf("got %v, want unknown", err)
			}
			<-answered
			var got string
			conn := dial(t, direct)
			execute(t, conn, `SELECT 1 FROM signer_nonce_state FOR UPDATE`) // waits for what is under way
			err := conn.QueryRow(t.Context(), `SELECT (engine, version, ceiling, next_nonce)::text FROM signer_nonce_state JOIN signer_nonce_engine USING (signer_id) WHERE signer = $1`, signer).Scan(&got)
			if err != nil || got != tt.was {
				t.Errorf("the row is %s, want %s, %v", got, tt.was, err)
			}
			if name == "a flush" {
				if v := apply(t, s, flushOf(at, 1)); v != nonce.FlushAlready {
					t.Errorf("repeated: got verdict %d", v)
				}
			}
		})
	}
}

// held locks the row of a signer until the test says.
func held(t *testing.T, url, name string) pgx.Tx {
	t.Helper()
	tx, err := dial(t, url).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `SELECT 1 FROM signer_nonce_state WHERE signer = $1 FOR UPDATE`, name); err != nil {
		t.Fatal(err)
	}
	return tx
}

func TestABackendThatIsEndedDuringAFlushLeavesItUnknownAndItIsRepeated(t *testing.T) {
	url := migrated(t)
	s := openStore(t, url)
	at := entered(t, s, 1, signer)[0]
	admin := dial(t, url)
	tx := held(t, url, signer)
	done := make(chan error, 1)
	go func() {
		_, err := s.Apply(t.Context(), long, []nonce.FlushEvent{flushOf(at, 2)})
		done <- err
	}()
	await(t, "the flush to be ended", func() bool {
		execute(t, admin, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`)
		return len(done) > 0
	})
	if err := <-done; err == nil || nonce.OutcomeOf(err) != nonce.Unknown {
		t.Errorf("got %v, want unknown", err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := all(t, s, signer, ""); got.Version != at.Version || got.Next != at.Next {
		t.Errorf("got %+v", got)
	}
	for _, want := range []nonce.FlushVerdict{nonce.FlushApplied, nonce.FlushAlready} {
		if v := apply(t, s, flushOf(at, 2)); v != want {
			t.Errorf("repeated: got verdict %d, want %d", v, want)
		}
	}
}

func TestAFlushLeavesOutRowsThatOthersHaveLocked(t *testing.T) {
	url := migrated(t)
	s := openStore(t, url)
	snaps := entered(t, s, 1, "a", "b", "c")
	tx := held(t, url, "b")
	for round := range 3 {
		verdicts, err := s.Apply(t.Context(), long, []nonce.FlushEvent{flushOf(snaps[0], 1), flushOf(snaps[1], 1), flushOf(snaps[2], 1)})
		if err != nil || fmt.Sprint(verdicts) != fmt.Sprint([]nonce.FlushVerdict{nonce.FlushApplied, nonce.FlushLocked, nonce.FlushApplied}) {
			t.Fatalf("round %d: got %v, %v", round, verdicts, err)
		}
		for _, i := range []int{0, 2} {
			snaps[i] = all(t, s, snaps[i].Signer, "")
		}
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if v := apply(t, s, flushOf(snaps[1], 1)); v != nonce.FlushApplied {
		t.Errorf("got verdict %d when the lock was gone", v)
	}
}

// TestAFlushThatWaitedForAnotherTakesNoRowForMissing: its snapshot is from before the
// rows that the other wrote, while the signer's row is as the event says.
func TestAFlushThatWaitedForAnotherTakesNoRowForMissing(t *testing.T) {
	url := migrated(t)
	s := openStore(t, url)
	at := entered(t, s, 1, signer)[0]
	first := flushOf(at, 1)
	second := nonce.FlushEvent{
		ID: at.ID, Signer: signer, Token: first.Token, From: first.To, To: first.To + 1, At: at.Now, Next: first.Next, Held: at.Held,
		Rows: []nonce.FlushRow{{Nonce: at.Next, Status: nonce.Released, Attempt: 1}},
	}
	admin := dial(t, url)
	tx := held(t, url, signer)
	for _, sql := range []string{
		`INSERT INTO signer_nonce_allocation (signer_id, nonce, status, attempt, fencing_token, held_until, created_at, updated_at)
		 SELECT signer_id, next_nonce, 1, 1, fencing_token, now() + interval '1 minute', now(), now() FROM signer_nonce_state`,
		`UPDATE signer_nonce_state SET version = version + 1, next_nonce = next_nonce + 1, held = held + 1`,
	} {
		if _, err := tx.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	type answer struct {
		verdicts []nonce.FlushVerdict
		err      error
	}
	done := make(chan answer, 1)
	go func() {
		verdicts, err := s.Apply(t.Context(), long, []nonce.FlushEvent{second})
		done <- answer{verdicts, err}
	}()
	await(t, "the second flush to wait", func() bool {
		var waiting int
		if err := admin.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&waiting); err != nil {
			t.Fatal(err)
		}
		return waiting > 0 || len(done) > 0
	})
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if a := <-done; a.err != nil || a.verdicts[0] != nonce.FlushGap {
		t.Errorf("got %v, %v, want a gap, which was there when it began", a.verdicts, a.err)
	}
	if v := apply(t, s, first); v != nonce.FlushAlready {
		t.Errorf("the first: got verdict %d", v)
	}
	if v := apply(t, s, second); v != nonce.FlushApplied {
		t.Errorf("the second, again: got verdict %d", v)
	}
}

// TestALossThatWaitedForAFlushSeesItsRows: the holds that the flush wrote are in
// doubt too.
func TestALossThatWaitedForAFlushSeesItsRows(t *testing.T) {
	url := migrated(t)
	s := openStore(t, url)
	at := entered(t, s, 1, signer)[0]
	admin := dial(t, url)
	tx := held(t, url, signer)
	for _, sql := range []string{
		`INSERT INTO signer_nonce_allocation (signer_id, nonce, status, attempt, fencing_token, held_until, created_at, updated_at)
		 SELECT signer_id, next_nonce, 1, 1, fencing_token, now(), now(), now() FROM signer_nonce_state`,
		`UPDATE signer_nonce_state SET version = version + 1, next_nonce = next_nonce + 1, held = held + 1`,
	} {
		if _, err := tx.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	done := make(chan error, 1)
	go func() {
		lost, err := s.Lose(t.Context(), alice, long, []nonce.ReserveTerm{{ID: at.ID, Token: at.Lease.Token}})
		if err == nil && !lost[0] {
			err = errors.New("not lost")
		}
		done <- err
	}()
	await(t, "the loss to wait", func() bool {
		var waiting int
		if err := admin.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&waiting); err != nil {
			t.Fatal(err)
		}
		return waiting > 0 || len(done) > 0
	})
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	snaps, err := s.Load(t.Context(), []nonce.Need{{Signer: signer, Due: 10}})
	if err != nil || len(snaps[0].Due) > 0 || snaps[0].Held != 2 || snaps[0].Version != nonce.NextEpoch(at.Version) {
		t.Errorf("got %+v, %v", snaps[0], err)
	}
}

// TestStatementsOfBothEnginesDoNotDeadlock runs those that lock many rows against
// each other.
func TestStatementsOfBothEnginesDoNotDeadlock(t *testing.T) {
	url := migrated(t)
	// Sooner than lock_timeout, which would else end a circle first.
	execute(t, dial(t, url), `DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET deadlock_timeout TO 5', current_database()); END $$`)
	const rounds, signers = 15, 40
	names := make([]string, signers)
	for i := range names {
		names[i] = fmt.Sprintf("s%02d", i)
	}
	first := openStore(t, url)
	snaps := entered(t, first, 1, names...)
	var applied sync.Map
	var work sync.WaitGroup
	for i := range 4 {
		s := openStore(t, url)
		rng := rand.New(rand.NewPCG(1, uint64(i)))
		work.Go(func() {
			for range rounds {
				var events []nonce.FlushEvent
				var blocks []nonce.ReserveTerm
				var moves []nonce.MoveTerm
				for _, k := range rng.Perm(signers)[:signers*3/4] {
					got, err := s.Load(t.Context(), []nonce.Need{{Signer: names[k]}})
					if err != nil {
						t.Error(err)
						return
					}
					events = append(events, flushOf(got[0], 1))
					blocks = append(blocks, nonce.ReserveTerm{ID: got[0].ID, Token: got[0].Lease.Token, Ceiling: got[0].Next + 50})
					moves = append(moves, moveOf(got[0]))
				}
				verdicts, err := s.Apply(t.Context(), long, events)
				onlyWaited(t, err)
				for _, v := range verdicts {
					applied.Store(v, true)
				}
				_, _, err = s.Reserve(t.Context(), alice, long, long, long, blocks)
				onlyWaited(t, err)
				if i == 0 {
					_, err = s.Return(t.Context(), alice, moves[:3])
					onlyWaited(t, err)
					_, _, err = s.Enter(t.Context(), alice, long, long, long, moves)
					onlyWaited(t, err)
				}
			}
		})
	}
	work.Wait()
	if _, ok := applied.Load(nonce.FlushApplied); !ok {
		t.Error("nothing was flushed")
	}
	var holes int
	err := dial(t, url).QueryRow(t.Context(), `
		SELECT count(*) FROM signer_nonce_state s
		WHERE next_nonce <> (SELECT count(*) FROM signer_nonce_allocation a WHERE a.signer_id = s.signer_id) OR version <> next_nonce`).Scan(&holes)
	if err != nil || holes != 0 || len(snaps) != signers {
		t.Errorf("%d signers with holes, %v", holes, err)
	}
}

// onlyWaited fails the test unless there is no error, or one of a lock waited for.
func onlyWaited(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		aborted(t, err)
	}
}

// the performance engine without looking.
// TestAMoveWaitsLongerForARowThanACommit: a flush may have the row for a while. What
// follows on the same connection waits no longer than it should.
func TestAMoveWaitsLongerForARowThanACommit(t *testing.T) {
	url := migrated(t)
	s := openStore(t, url+"&pool_max_conns=1&application_name=moving")
	at := entered(t, s, 1, signer)[0]
	free := acquire(t, s, alice, long, nonce.Need{Signer: "free"})
	admin := dial(t, url)
	tx := held(t, url, signer)
	done := make(chan error, 1)
	go func() {
		res, _, err := s.Reserve(t.Context(), alice, long, long, long, []nonce.ReserveTerm{{ID: at.ID, Token: at.Lease.Token, Ceiling: 99}})
		if err == nil && !res[0].Applied {
			err = errors.New("not reserved")
		}
		done <- err
	}()
	await(t, "the block to wait longer than a commit would", func() bool {
		var waiting int
		err := admin.QueryRow(t.Context(), `
			SELECT count(*) FROM pg_stat_activity
			WHERE application_name = 'moving' AND wait_event_type = 'Lock' AND clock_timestamp() > query_start + interval '300 milliseconds'`).Scan(&waiting)
		if err != nil {
			t.Fatal(err)
		}
		return waiting > 0 || len(done) > 0
	})
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Errorf("the block: %v", err)
	}
	tx = held(t, url, "free")
	began := time.Now()
	if commit(t, s, alice, handOut(free, 1)) {
		t.Error("a commit went past a lock")
	}
	if took := time.Since(began); took > time.Second {
		t.Errorf("a commit on the same connection waited %v", took)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
}
