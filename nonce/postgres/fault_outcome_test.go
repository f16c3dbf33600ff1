package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"noncegate/internal/pgtest"
	"noncegate/lease"
	"noncegate/nonce"
)

// TestAReplyThatIsLostLeavesTheOutcomeUnknown: whatever the driver calls it.
func TestAReplyThatIsLostLeavesTheOutcomeUnknown(t *testing.T) {
	ctx := context.Background()
	var proxy *pgtest.Proxy
	plan := func(s nonce.Snapshot) (nonce.Change, error) { return handOut(s, 1), nil }
	for name, tt := range map[string]struct {
		cut     string // what the client sends last
		run     func(s nonce.Store, at nonce.Snapshot) error
		outcome nonce.Outcome
		changes string // next, token when it did happen
	}{
		"commit": {"\x00noncegate_commit_", func(s nonce.Store, at nonce.Snapshot) error {
			_, err := s.Commit(ctx, alice, long, []nonce.Change{handOut(at, 1)})
			return err
		}, nonce.Unknown, "(2,2)"},
		"acquire": {"stmtcache", func(s nonce.Store, _ nonce.Snapshot) error {
			_, err := s.Acquire(ctx, alice, long, []nonce.Need{{Signer: signer}})
			return err
		}, nonce.Unknown, "(1,3)"},
		"release": {"stmtcache", func(s nonce.Store, at nonce.Snapshot) error {
			_, err := s.Release(ctx, alice, []nonce.ReleaseTerm{{ID: at.ID, Token: at.Lease.Token}})
			return err
		}, nonce.Unknown, "(1,3)"},
		"the end of a locked transaction": {"COMMIT", func(s nonce.Store, _ nonce.Snapshot) error {
			_, err := s.Locked(ctx, nonce.Need{Signer: signer}, plan)
			return err
		}, nonce.Unknown, "(2,2)"},
		"the write of a locked transaction": {"never sent", func(s nonce.Store, _ nonce.Snapshot) error {
			_, err := s.Locked(ctx, nonce.Need{Signer: signer}, func(at nonce.Snapshot) (nonce.Change, error) {
				proxy.Refuse()
				proxy.Forward()
				return plan(at)
			})
			return err
		}, nonce.NotSent, "(1,2)"},
		"the beginning of a locked transaction": {"BEGIN", func(s nonce.Store, _ nonce.Snapshot) error {
			_, err := s.Locked(ctx, nonce.Need{Signer: signer}, plan)
			return err
		}, nonce.NotSent, "(1,2)"},
	} {
		t.Run(name, func(t *testing.T) {
			direct, s, p := proxied(t)
			proxy = p
			first := acquire(t, s, alice, long, nonce.Need{Signer: signer})
			if _, err := s.Release(t.Context(), alice, nil); err != nil { // prepares it
				t.Fatal(err)
			}
			if !commit(t, s, alice, handOut(first, 1)) {
				t.Fatal("refused")
			}
			at := acquire(t, s, alice, long, nonce.Need{Signer: signer})
			answered := proxy.CutReplies(tt.cut)
			err := tt.run(s, at)
			if err == nil || nonce.OutcomeOf(err) != tt.outcome {
				t.Errorf("got %v, want outcome %v", err, tt.outcome)
			}
			if tt.outcome == nonce.Unknown {
				<-answered
			}
			var got string
			conn := dial(t, direct)
			// A new token waits for what is still under way, as the service does.
			execute(t, conn, `SELECT 1 FROM signer_nonce_state FOR UPDATE`)
			if err := conn.QueryRow(t.Context(), `SELECT (next_nonce, fencing_token)::text FROM signer_nonce_state`).Scan(&got); err != nil {
				t.Fatal(err)
			}
			if got != tt.changes {
				t.Errorf("next and token are %s, want %s", got, tt.changes)
			}
			if err := s.Ping(t.Context()); err != nil {
				t.Errorf("the next call: %v", err)
			}
		})
	}
}

func TestABackendThatIsEndedDuringACommitLeavesItUnknownAndNothingElse(t *testing.T) {
	url := migrated(t)
	s := openStore(t, url)
	at := acquire(t, s, alice, long, nonce.Need{Signer: signer})
	admin := dial(t, url)
	// The commit waits for this row, and is ended there.
	tx, err := dial(t, url).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `SELECT 1 FROM signer_nonce_state FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := s.Commit(t.Context(), alice, long, []nonce.Change{handOut(at, 1)})
		done <- err
	}()
	await(t, "the commit to be ended", func() bool {
		execute(t, admin, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`)
		return len(done) > 0
	})
	if err := <-done; err != nil && nonce.OutcomeOf(err) != nonce.Unknown {
		t.Errorf("got %v", err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := all(t, s, signer, ""); got.Next != 0 || got.Version != at.Version {
		t.Errorf("got %+v", got)
	}
	if !commit(t, s, alice, handOut(at, 1)) {
		t.Error("refused after that")
	}
}

func TestAServerThatIsAwayIsSaidToBeSoBeforeAnythingIsSent(t *testing.T) {
	_, s, proxy := proxied(t)
	at := acquire(t, s, alice, long, nonce.Need{Signer: signer})
	proxy.Refuse()
	_ = s.Ping(t.Context()) // finds the connection broken
	asked := time.Now()
	for range 5 {
		_, err := s.Commit(t.Context(), alice, long, []nonce.Change{handOut(at, 1)})
		if nonce.OutcomeOf(err) != nonce.NotSent {
			t.Errorf("got %v", err)
		}
	}
	if took := time.Since(asked); took > 2*time.Second {
		t.Errorf("it took %v", took)
	}
	proxy.Forward()
	if !commit(t, s, alice, handOut(at, 1)) {
		t.Error("refused when it was back")
	}
}

func TestACommitLeavesOutRowsThatOthersHaveLocked(t *testing.T) {
	url := migrated(t)
	s := openStore(t, url+"&lock_timeout=0") // which is not for the URL to say
	snaps, err := s.Acquire(t.Context(), alice, long, []nonce.Need{{Signer: "a"}, {Signer: "b"}, {Signer: "c"}})
	if err != nil {
		t.Fatal(err)
	}
	tx, err := dial(t, url).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `SELECT 1 FROM signer_nonce_state WHERE signer = 'b' FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	const rounds = 20
	began := time.Now()
	for round := range rounds {
		changes := []nonce.Change{handOut(snaps[0], 1), handOut(snaps[1], 1), handOut(snaps[2], 1)}
		if round%2 == 1 {
			changes[2] = asked(changes[2], fmt.Sprint(round))
		}
		res, err := s.Commit(t.Context(), alice, long, changes)
		if err != nil || !res.Applied[0] || res.Applied[1] || !res.Applied[2] {
			t.Fatalf("round %d: got %v %v", round, res.Applied, err)
		}
		for _, i := range []int{0, 2} {
			snaps[i].Version, snaps[i].Next, snaps[i].Held = snaps[i].Version+1, snaps[i].Next+1, snaps[i].Held+1
		}
	}
	// lock_timeout is 100 ms; not every commit may pay for finding out.
	if took := time.Since(began); took > rounds*100*time.Millisecond {
		t.Errorf("%d commits took %v: each waited for the outsider", rounds, took)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !commit(t, s, alice, handOut(snaps[1], 1)) {
		t.Error("refused when the lock was gone")
	}
}

func TestAReleaseWaitsForARowThatAnotherHasLocked(t *testing.T) {
	url := migrated(t)
	s := openStore(t, url)
	snaps, err := s.Acquire(t.Context(), alice, long, []nonce.Need{{Signer: "a"}, {Signer: "b"}, {Signer: "c"}})
	if err != nil {
		t.Fatal(err)
	}
	terms := make([]nonce.ReleaseTerm, len(snaps))
	for i := range terms {
		terms[i] = nonce.ReleaseTerm{ID: snaps[i].ID, Token: snaps[i].Lease.Token}
	}
	tx, err := dial(t, url).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `SELECT 1 FROM signer_nonce_state WHERE signer = 'b' FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	n, err := s.Release(t.Context(), alice, terms)
	if n != 2 || err == nil || nonce.OutcomeOf(err) != nonce.Aborted {
		t.Errorf("got %d, %v while one row is locked, want 2 and an error that says so", n, err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n, err := s.Release(t.Context(), alice, terms); n != 1 || err != nil {
		t.Errorf("got %d, %v when the lock was gone, want 1", n, err)
	}
}

// TestStatementsOverManySignersDoNotDeadlock runs those that lock many rows, in
// any order of names, against each other.
func TestStatementsOverManySignersDoNotDeadlock(t *testing.T) {
	url := migrated(t)
	// Sooner than lock_timeout, which would else end a circle first.
	execute(t, dial(t, url), `DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET deadlock_timeout TO 5', current_database()); END $$`)
	const nodes, rounds, signers = 4, 15, 40
	var committed sync.Map
	var work sync.WaitGroup
	for i := range nodes {
		s := openStore(t, url)
		h := lease.Holder{Node: fmt.Sprint("node", i), Incarnation: 1}
		work.Go(func() {
			rng := rand.New(rand.NewPCG(1, uint64(i)))
			for range rounds {
				needs := make([]nonce.Need, signers)
				for j, k := range rng.Perm(2 * signers)[:signers] {
					needs[j].Signer = fmt.Sprintf("s%02d", k)
				}
				snaps, err := s.Acquire(t.Context(), h, over, needs)
				if err != nil {
					aborted(t, err)
					continue
				}
				var changes []nonce.Change
				var terms []nonce.ReleaseTerm
				for j := range snaps {
					if snaps[j].Acquired {
						changes = append(changes, handOut(snaps[j], 1))
						terms = append(terms, nonce.ReleaseTerm{ID: snaps[j].ID, Token: snaps[j].Lease.Token})
					}
				}
				if _, err := s.Commit(t.Context(), h, over, changes); err != nil {
					aborted(t, err)
				} else {
					committed.Store(i, true)
				}
				if _, err := s.Release(t.Context(), h, terms); err != nil {
					aborted(t, err)
				}
			}
		})
	}
	work.Wait()
	for i := range nodes {
		if _, ok := committed.Load(i); !ok {
			t.Errorf("node %d committed nothing", i)
		}
	}
	var holes int
	err := dial(t, url).QueryRow(t.Context(), `
		SELECT count(*) FROM signer_nonce_state s
		WHERE next_nonce <> (SELECT count(*) FROM signer_nonce_allocation a WHERE a.signer_id = s.signer_id)`).Scan(&holes)
	if err != nil || holes != 0 {
		t.Errorf("%d signers with holes, %v", holes, err)
	}
}

// aborted fails the test unless the error is one of a lock waited for too long,
// which is no circle.
func aborted(t *testing.T, err error) {
	t.Helper()
	e, ok := errors.AsType[*pgconn.PgError](err)
	if nonce.OutcomeOf(err) != nonce.Aborted || !ok || e.Code != "55P03" {
		t.Error(err)
	}
}
