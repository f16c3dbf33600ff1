package postgres_test

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"noncegate/nonce"
)

// waiting reports whether a session of this database waits for a lock.
func waiting(t testing.TB, conn *pgx.Conn) bool {
	t.Helper()
	var n int
	err := conn.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&n)
	if err != nil {
		t.Fatal(err)
	}
	return n > 0
}

// overtaken runs statement in a transaction of an outsider's, then run beside it,
// and commits once run waits for the lock. It reports whether run did wait and
// then ended by itself; one that gave up first has proved nothing.
func overtaken(t *testing.T, url, statement string, args []any, run func() error) bool {
	t.Helper()
	outsider, watch := dial(t, url), dial(t, url)
	tx, err := outsider.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), statement, args...); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- run() }()
	met := false
	await(t, "the lock to be waited for", func() bool {
		met = met || waiting(t, watch)
		return met || len(done) > 0
	})
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	err = <-done
	if err != nil && nonce.OutcomeOf(err) != nonce.Aborted {
		t.Fatal(err)
	}
	return met && err == nil
}

// lateCommit is what an owner's commit does, in one statement.
const lateCommit = `
WITH u AS (
  UPDATE signer_nonce_state SET version = version + 1, next_nonce = next_nonce + 1, held = held + 1
  WHERE signer = $1 AND owner_node = 'alice' RETURNING signer_id, next_nonce - 1 AS nonce, fencing_token),
i AS (
  INSERT INTO signer_nonce_allocation (signer_id, nonce, status, attempt, fencing_token, held_until, created_at, updated_at)
  SELECT signer_id, nonce, 1, 1, fencing_token, now() + interval '1 hour', now(), now() FROM u)
INSERT INTO signer_nonce_request SELECT signer_id, 'late', '\x00000000000000000000000000000000', ARRAY[nonce], ARRAY[1], now() FROM u`

func TestATakeOverThatWaitedForTheOldOwnersCommitSeesItsAllocations(t *testing.T) {
	url := migrated(t)
	s := openStore(t, url)
	need := nonce.Need{Signer: signer, Released: 10, Due: 10, Nonces: []int64{0, 1, 2, 3}, RequestIDs: []string{"late"}}
	acquire(t, s, bob, over, need) // prepares the statements
	for try := range int64(20) {
		old := acquire(t, s, alice, over, need)
		var got nonce.Snapshot
		met := overtaken(t, url, lateCommit, []any{signer}, func() error {
			snaps, err := s.Acquire(t.Context(), bob, over, []nonce.Need{need})
			if err == nil {
				got = snaps[0]
			}
			return err
		})
		if !met {
			continue
		}
		if !got.Acquired || got.TookOverFrom != "alice" || got.Lease.Token != old.Lease.Token+1 {
			t.Fatalf("bob did not take over: %+v", got)
		}
		if got.Version != old.Version+1 || got.Next != old.Next+1 || got.Held != old.Held+1 {
			t.Errorf("bob does not see the signer as alice left it: %+v after %+v", got, old)
		}
		if try == 0 && (len(got.Rows) != 1 || got.Rows[0].Status != nonce.Held || len(got.Requests) != 1) {
			t.Errorf("bob does not see what alice handed out: %+v", got)
		}
		if !commit(t, s, bob, handOut(got, 1)) {
			t.Error("bob cannot go on from what he saw")
		}
		return
	}
	t.Fatal("the acquire never waited")
}

// TestACommitThatWaitedForSomebodyElsesIsRefused: the statement's snapshot is
// from before the wait, and still nothing of it may take effect.
func TestACommitThatWaitedForSomebodyElsesIsRefused(t *testing.T) {
	for name, statement := range map[string]string{
		"a take-over":              `UPDATE signer_nonce_state SET fencing_token = fencing_token + 1, owner_node = 'bob', owner_incarnation = 1 WHERE signer = $1`,
		"a later term of its own":  `UPDATE signer_nonce_state SET fencing_token = fencing_token + 1 WHERE signer = $1`,
		"a start of the same node": `UPDATE signer_nonce_state SET fencing_token = fencing_token + 1, owner_incarnation = 2 WHERE signer = $1`,
		"a release":                `UPDATE signer_nonce_state SET fencing_token = fencing_token + 1, owner_node = NULL, owner_incarnation = NULL WHERE signer = $1`,
		"a write of mode basic":    `UPDATE signer_nonce_state SET version = version + 1, next_nonce = next_nonce + 1 WHERE signer = $1`,
		"the signer's own end":     `DELETE FROM signer_nonce_state WHERE signer = $1`,
	} {
		t.Run(name, func(t *testing.T) {
			url := migrated(t)
			s := openStore(t, url)
			release := func(c nonce.Change) nonce.Change {
				c.Rows = append(c.Rows, nonce.RowChange{Nonce: 0, FromStatus: nonce.Held, FromAttempt: 1, Status: nonce.Released, Attempt: 1})
				return c
			}
			for _, change := range []func(nonce.Snapshot) nonce.Change{
				func(s nonce.Snapshot) nonce.Change { return handOut(s, 2) },
				func(s nonce.Snapshot) nonce.Change { return asked(handOut(s, 2), "r") },
				func(s nonce.Snapshot) nonce.Change { return asked(release(handOut(s, 2)), "r") },
			} {
				execute(t, dial(t, url), `TRUNCATE signer_nonce_state, signer_nonce_allocation, signer_nonce_request`)
				first := acquire(t, s, alice, long, nonce.Need{Signer: signer})
				if !commit(t, s, alice, handOut(first, 1)) {
					t.Fatal("the first commit was refused")
				}
				before := all(t, s, signer, "r")
				applied := true
				overtaken(t, url, statement, []any{signer}, func() error {
					res, err := s.Commit(t.Context(), alice, long, []nonce.Change{change(before)})
					applied = err != nil || res.Applied[0]
					return err
				})
				after := all(t, s, signer, "r")
				if applied || len(after.Requests) != 0 {
					t.Errorf("the commit was applied: %+v", after)
				}
				var rows, held int
				if err := dial(t, url).QueryRow(t.Context(), `SELECT count(*), count(*) FILTER (WHERE status = 1) FROM signer_nonce_allocation`).Scan(&rows, &held); err != nil {
					t.Fatal(err)
				}
				if rows != 1 || held != 1 {
					t.Errorf("%d rows, %d of them held, want the one from before", rows, held)
				}
			}
		})
	}
}

// TestTwoHoldersCannotBe plays the scenario for which the signer's row is the
// fence: token 33 is paused, 34 serves, and 33 wakes with a nonce that has no row.
func TestTwoHoldersCannotBe(t *testing.T) {
	url := migrated(t)
	s, paused := openStore(t, url), openStore(t, url)
	acquire(t, s, alice, over, nonce.Need{Signer: signer})
	execute(t, dial(t, url), `UPDATE signer_nonce_state SET fencing_token = 32, next_nonce = 100 WHERE signer = $1`, signer)
	old := acquire(t, paused, alice, over, nonce.Need{Signer: signer})
	taken := acquire(t, s, bob, long, nonce.Need{Signer: signer})
	if old.Lease.Token != 33 || taken.Lease.Token != 34 || old.Next != 100 {
		t.Fatalf("tokens %d and %d, next %d", old.Lease.Token, taken.Lease.Token, old.Next)
	}
	if commit(t, paused, alice, handOut(old, 1)) {
		t.Fatal("token 33 handed out nonce 100 after 34 was given")
	}

	// A program without the fence inserts it all the same: an alarm, not a second
	// holder.
	execute(t, dial(t, url), `
		INSERT INTO signer_nonce_allocation (signer_id, nonce, status, attempt, fencing_token, held_until, created_at, updated_at)
		VALUES ($1, 100, 1, 1, 33, now() + interval '1 hour', now(), now())`, taken.ID)
	for what, change := range map[string]nonce.Change{
		"a new nonce": handOut(taken, 1),
		"an overwritten hold": {
			ID: taken.ID, Signer: signer, Token: 34, Version: taken.Version, Next: 101, Held: 1,
			Rows: []nonce.RowChange{{Nonce: 100, FromStatus: nonce.Held, FromAttempt: 1, Status: nonce.Held, Attempt: 2, Hold: long}},
		},
	} {
		_, err := s.Commit(t.Context(), bob, long, []nonce.Change{change})
		if nonce.OutcomeOf(err) != nonce.Aborted || !errors.Is(err, nonce.ErrInvariant) {
			t.Errorf("%s: got %v, want an abort and an alarm", what, err)
		}
	}
	got := all(t, s, signer, "")
	if len(got.Rows) != 1 || got.Rows[0].Token != 33 || got.Rows[0].Attempt != 1 || got.Version != taken.Version {
		t.Errorf("got %+v", got)
	}
}
