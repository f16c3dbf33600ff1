package postgres_test

import (
	"fmt"
	"testing"
	"time"

	"noncegate/nonce"
	"noncegate/nonce/postgres"
)

var redis = nonce.Identity{RunID: "run", ReplID: "history"}

// raise makes the cluster ready for signers to enter.
func raise(t testing.TB, s *postgres.Store) {
	t.Helper()
	for _, to := range []nonce.EngineState{nonce.StateDualWrite, nonce.StatePerformance} {
		at, err := s.EngineState(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if at, err = s.SwitchEngine(t.Context(), nonce.SwitchTerm{FromGeneration: at.Generation, To: to}); err != nil {
			t.Fatal(err)
		}
		if err := s.AcceptIdentities(t.Context(), at.Generation, []nonce.Identity{redis}); err != nil {
			t.Fatal(err)
		}
	}
}

func moveOf(s nonce.Snapshot) nonce.MoveTerm {
	return nonce.MoveTerm{ID: s.ID, Token: s.Lease.Token, Version: s.Version, Identity: redis, Ceiling: s.Next + 20}
}

// enter has signers enter that alice owns.
func enter(t testing.TB, s *postgres.Store, snaps ...nonce.Snapshot) {
	t.Helper()
	terms := make([]nonce.MoveTerm, len(snaps))
	for i := range snaps {
		terms[i] = moveOf(snaps[i])
	}
	res, _, err := s.Enter(t.Context(), alice, long, long, long, terms)
	if err != nil {
		t.Fatal(err)
	}
	for i := range res {
		if !res[i].Applied {
			t.Fatalf("%s did not enter", snaps[i].Signer)
		}
	}
}

// entered has alice take signers, hold n nonces of each, and enter them.
func entered(t testing.TB, s *postgres.Store, n int, names ...string) []nonce.Snapshot {
	t.Helper()
	raise(t, s)
	needs := make([]nonce.Need, len(names))
	for i := range needs {
		needs[i].Signer = names[i]
	}
	snaps, err := s.Acquire(t.Context(), alice, long, needs)
	if err != nil {
		t.Fatal(err)
	}
	changes := make([]nonce.Change, len(snaps))
	for i := range snaps {
		changes[i] = handOut(snaps[i], n)
	}
	if _, err := s.Commit(t.Context(), alice, long, changes); err != nil {
		t.Fatal(err)
	}
	if snaps, err = s.Load(t.Context(), needs); err != nil {
		t.Fatal(err)
	}
	enter(t, s, snaps...)
	return snaps
}

// flushOf is the event of n new nonces after a snapshot.
func flushOf(s nonce.Snapshot, n int) nonce.FlushEvent {
	e := nonce.FlushEvent{
		ID: s.ID, Signer: s.Signer, Token: s.Lease.Token, From: s.Version, To: s.Version + 1, At: s.Now,
		Next: s.Next, Floor: s.Floor, Held: s.Held + int64(n),
	}
	for range n {
		e.Rows = append(e.Rows, nonce.FlushRow{Nonce: e.Next, Fresh: true, Status: nonce.Held, Attempt: 1, Token: e.Token, HeldUntil: s.Now.Add(time.Minute)})
		e.Next++
	}
	return e
}

// apply applies one event.
func apply(t testing.TB, s *postgres.Store, e nonce.FlushEvent) nonce.FlushVerdict {
	t.Helper()
	verdicts, err := s.Apply(t.Context(), long, []nonce.FlushEvent{e})
	if err != nil {
		t.Fatal(err)
	}
	return verdicts[0]
}

// workEngines has every method of the performance engine do its part for so many
// signers.
func workEngines(t *testing.T, s *postgres.Store, prefix string, signers int) {
	t.Helper()
	names := make([]string, signers)
	for i := range names {
		names[i] = fmt.Sprintf("%s%03d", prefix, i)
	}
	snaps := entered(t, s, 2, names...)
	events, moves := make([]nonce.FlushEvent, signers), make([]nonce.MoveTerm, signers)
	blocks, ids := make([]nonce.ReserveTerm, signers), make([]int64, signers)
	for i, snap := range snaps {
		events[i], moves[i], ids[i] = flushOf(snap, 2), moveOf(snap), snap.ID
		moves[i].Version++
		blocks[i] = nonce.ReserveTerm{ID: snap.ID, Token: snap.Lease.Token, Ceiling: snap.Next + 5}
		events[i].Requests = []nonce.Remembered{{Request: nonce.Request{ID: "flushed", Nonces: []int64{snap.Next}, Attempts: []int64{1}}, At: snap.Now}}
	}
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	_, _, err := s.Reserve(t.Context(), alice, long, long, long, blocks)
	ok(err)
	verdicts, err := s.Apply(t.Context(), long, events)
	ok(err)
	returned, err := s.Return(t.Context(), alice, moves)
	ok(err)
	enteredAgain, _, err := s.Enter(t.Context(), alice, long, long, long, moves)
	ok(err)
	lost, err := s.Lose(t.Context(), alice, long, blocks)
	ok(err)
	for i := range names {
		if verdicts[i] != nonce.FlushApplied || !returned[i] || !enteredAgain[i].Applied || !lost[i] {
			t.Fatalf("%s: flush %d, returned %t, entered %t, lost %t", names[i], verdicts[i], returned[i], enteredAgain[i].Applied, lost[i])
		}
	}
	_, err = s.Versions(t.Context(), ids)
	ok(err)
	for _, id := range ids[:min(len(ids), 10)] {
		_, err = s.Copy(t.Context(), id, 0, "", 10)
		ok(err)
	}
	_, _, err = s.Entered(t.Context(), 0, 10)
	ok(err)
	_, err = s.EngineState(t.Context())
	ok(err)
}
