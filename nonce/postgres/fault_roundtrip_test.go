package postgres_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"noncegate/nonce"
)

// TestABatchIsOneRoundTripWhateverTheNumberOfSigners counts what a client waits
// for, once the statements are prepared.
func TestABatchIsOneRoundTripWhateverTheNumberOfSigners(t *testing.T) {
	raw := migrated(t)
	relay := newRelay(t, server.Addr())
	s := openStore(t, relay.url(t, raw)+"&pool_max_conns=1")
	const signers = 300
	needs := make([]nonce.Need, signers)
	for i := range needs {
		needs[i] = nonce.Need{Signer: fmt.Sprint("s", i), Released: 5, Due: 5, Nonces: []int64{0, 1}, RequestIDs: []string{"r"}}
	}
	var snaps []nonce.Snapshot
	read := func() error {
		got, err := s.Load(t.Context(), needs)
		snaps = got
		return err
	}
	write := func(change func(i int, s nonce.Snapshot) nonce.Change) func() error {
		return func() error {
			changes := make([]nonce.Change, signers)
			for i := range changes {
				changes[i] = change(i, snaps[i])
			}
			res, err := s.Commit(t.Context(), alice, long, changes)
			for i, ok := range res.Applied {
				if !ok {
					t.Fatalf("change %d was not applied", i)
				}
			}
			return err
		}
	}
	for round := range 2 { // the first prepares the statements
		for _, step := range []struct {
			name  string
			trips int64
			run   func() error
		}{
			{"acquire", 1, func() error {
				_, err := s.Acquire(t.Context(), alice, long, needs)
				return err
			}},
			{"load", 1, read},
			{"new nonces only", 1, write(func(_ int, s nonce.Snapshot) nonce.Change { return handOut(s, 1) })},
			{"load", 1, read},
			{"all kinds", 1, write(func(i int, s nonce.Snapshot) nonce.Change { return kindOf(i, s, fmt.Sprint("r", round)) })},
			{"release", 1, func() error {
				_, err := s.Release(t.Context(), alice, []nonce.ReleaseTerm{{ID: snaps[0].ID, Token: 1}, {ID: snaps[1].ID, Token: 1}})
				return err
			}},
			{"locked: load, write, commit", 3, func() error {
				_, err := s.Locked(t.Context(), needs[0], func(s nonce.Snapshot) (nonce.Change, error) { return handOut(s, 1), nil })
				return err
			}},
		} {
			before := relay.trips.Load()
			if err := step.run(); err != nil {
				t.Fatalf("%s: %v", step.name, err)
			}
			if got := relay.trips.Load() - before; round > 0 && got != step.trips {
				t.Errorf("%s: %d round trips, want %d", step.name, got, step.trips)
			}
		}
	}
}

// kindOf is one of all kinds of changes, by turns.
func kindOf(i int, s nonce.Snapshot, requestID string) nonce.Change {
	c := asked(handOut(s, 1), requestID)
	switch i % 4 {
	case 0:
		return nonce.Change{ID: s.ID, Signer: s.Signer, Token: s.Lease.Token, Version: s.Version, Check: true}
	case 1:
		c.Floor, c.BelowFloor = c.Next, true
	case 2:
		for _, row := range s.Rows {
			if row.Status == nonce.Held {
				c.Held--
				c.Rows = append(c.Rows, nonce.RowChange{
					Nonce: row.Nonce, FromStatus: nonce.Held, FromAttempt: row.Attempt,
					Status: nonce.Consumed, Attempt: row.Attempt, TxHash: nonce.TxHash{1},
				})
				break
			}
		}
	}
	return c
}

// TestAKnownRequestIDCostsOneMoreRoundTrip: ids are taken for new ones, until one
// proves to be known. For a second they are then looked for first.
func TestAKnownRequestIDCostsOneMoreRoundTrip(t *testing.T) {
	raw := migrated(t)
	relay := newRelay(t, server.Addr())
	s := openStore(t, relay.url(t, raw)+"&pool_max_conns=1")
	try := func(ids ...string) (applied []bool, trips int64) {
		t.Helper()
		changes := make([]nonce.Change, len(ids))
		for i, id := range ids {
			changes[i] = asked(handOut(acquire(t, s, alice, long, nonce.Need{Signer: fmt.Sprint("s", i)}), 1), id)
		}
		before := relay.trips.Load()
		res, err := s.Commit(t.Context(), alice, long, changes)
		if err != nil {
			t.Fatal(err)
		}
		return res.Applied, relay.trips.Load() - before
	}
	expect := func(what string, want []bool, most int64, ids ...string) {
		t.Helper()
		if got, trips := try(ids...); !slices.Equal(got, want) || trips > most {
			t.Errorf("%s: applied %v with %d round trips, want %v and at most %d", what, got, trips, want, most)
		}
	}
	const prepare = 1 // the first use of a statement
	expect("new ids", []bool{true, true, true}, 1+prepare, "a", "b", "c")
	expect("new ids", []bool{true, true, true}, 1, "d", "e", "f")
	began := time.Now()
	expect("one known", []bool{true, false, true}, 2+prepare, "g", "b", "h")
	got, trips := try("g", "i", "h")
	if !slices.Equal(got, []bool{false, true, false}) || time.Since(began) < time.Second && trips != 1 {
		t.Errorf("known ids within a second: applied %v with %d round trips, want the second and one", got, trips)
	}
}
