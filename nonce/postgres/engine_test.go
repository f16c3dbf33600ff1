package postgres_test

import (
	"errors"
	"strings"
	"testing"

	"noncegate/lease"
	"noncegate/nonce"
)

func TestTheLocksOfFlushShardsEndWithTheirSession(t *testing.T) {
	url := migrated(t)
	s := openStore(t, url)
	lock, err := s.FlushLock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if got, err := lock.TryShard(t.Context(), 1); err != nil || !got {
		t.Fatalf("got %t, %v", got, err)
	}
	next, err := s.FlushLock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer next.Close()
	execute(t, dial(t, url), `SELECT pg_terminate_backend(pid, 10000) FROM pg_locks WHERE locktype = 'advisory' AND granted`)
	await(t, "the lock", func() bool {
		got, err := next.TryShard(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		return got
	})
	if got, err := lock.TryShard(t.Context(), 1); err == nil {
		t.Errorf("the session that was ended: got %t", got)
	}
	if err := lock.Alive(t.Context()); err == nil {
		t.Error("the session that was ended is alive")
	}
}

// TestTheClusterDoesNotGoUpWithANodeOfBefore: such a node would commit to signers of
func TestTheClusterDoesNotGoUpWithANodeOfBefore(t *testing.T) {
	url := migrated(t)
	s := openStore(t, url)
	conn := dial(t, url)
	h, err := s.Register(t.Context(), lease.Presence{Node: "old", Patience: long})
	if err != nil {
		t.Fatal(err)
	}
	move := func(to nonce.EngineState) error {
		at, err := s.EngineState(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		_, err = s.SwitchEngine(t.Context(), nonce.SwitchTerm{FromGeneration: at.Generation, To: to})
		return err
	}
	level := func() (n int) {
		if err := conn.QueryRow(t.Context(), `SELECT breaking_level FROM noncegate_schema`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	execute(t, conn, `UPDATE gateway_node SET engines = 1`)
	for _, to := range []nonce.EngineState{nonce.StateDualWrite, nonce.StatePerformance} {
		if err := move(to); !errors.Is(err, nonce.ErrOldNodes) {
			t.Errorf("to %s beside a node of before: got %v", to, err)
		}
	}
	if err := s.Leave(t.Context(), h); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		to    nonce.EngineState
		level int
	}{
		{nonce.StateDualWrite, 1}, {nonce.StatePerformance, 2}, {nonce.StateDrain, 2}, {nonce.StateReliable, 1},
	} {
		if err := move(step.to); err != nil || level() != step.level {
			t.Errorf("to %s: breaking level %d, want %d, %v", step.to, level(), step.level, err)
		}
	}
	if _, err := s.Register(t.Context(), lease.Presence{Node: "old", Patience: long}); err != nil || move(nonce.StateDualWrite) != nil {
		t.Error("the node came back with this version, and is taken for one of before")
	}
}

// TestHandOutsUpdateTheSignersRowInPlace: no index of the engines may end that.
func TestHandOutsUpdateTheSignersRowInPlace(t *testing.T) {
	url := migrated(t)
	s := openStore(t, url+"&application_name=writing&pool_max_conns=1")
	snaps := entered(t, s, 1, "performance")
	at := acquire(t, s, alice, long, nonce.Need{Signer: signer})
	const writes = 20
	for range writes {
		if !commit(t, s, alice, handOut(at, 1)) || apply(t, s, flushOf(snaps[0], 1)) != nonce.FlushApplied {
			t.Fatal("refused")
		}
		at, snaps[0] = all(t, s, signer, ""), all(t, s, "performance", "")
	}
	if err := s.Close(); err != nil { // a session hands in its counts before it is gone
		t.Fatal(err)
	}
	conn := dial(t, url)
	await(t, "the session to end", func() bool {
		var n int
		err := conn.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity WHERE application_name = 'writing'`).Scan(&n)
		return err == nil && n == 0
	})
	var updated, hot int
	err := conn.QueryRow(t.Context(), `SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'signer_nonce_state'`).Scan(&updated, &hot)
	if err != nil || updated < 2*writes || updated-hot > 4 {
		t.Errorf("%d of %d updates were in place, %v", hot, updated, err)
	}
}

func TestMovesAreOneRoundTrip(t *testing.T) {
	raw := migrated(t)
	relay := newRelay(t, server.Addr())
	s := openStore(t, relay.url(t, raw)+"&pool_max_conns=1")
	names := strings.Fields("a b c d e f")
	snaps := entered(t, s, 2, names...)
	for round := range 2 { // the first prepares the statements
		terms, blocks := make([]nonce.MoveTerm, len(names)), make([]nonce.ReserveTerm, len(names))
		events := make([]nonce.FlushEvent, len(names))
		for i := range names {
			snaps[i] = all(t, s, names[i], "")
			terms[i], blocks[i], events[i] = moveOf(snaps[i]), nonce.ReserveTerm{ID: snaps[i].ID, Token: snaps[i].Lease.Token, Ceiling: 100}, flushOf(snaps[i], 2)
		}
		for _, step := range []struct {
			name string
			run  func() error
		}{
			{"reserve", func() error {
				_, _, err := s.Reserve(t.Context(), alice, long, long, long, blocks)
				return err
			}},
			{"apply", func() error {
				verdicts, err := s.Apply(t.Context(), long, events)
				for i := range verdicts {
					if terms[i].Version++; verdicts[i] != nonce.FlushApplied {
						t.Errorf("got verdict %d", verdicts[i])
					}
				}
				return err
			}},
			{"return", func() error {
				done, err := s.Return(t.Context(), alice, terms)
				for i := range done {
					if !done[i] {
						t.Errorf("%s did not return", names[i])
					}
				}
				return err
			}},
			{"enter", func() error {
				_, _, err := s.Enter(t.Context(), alice, long, long, long, terms)
				return err
			}},
			{"versions", func() error {
				_, err := s.Versions(t.Context(), []int64{1, 2})
				return err
			}},
			{"copy", func() error {
				_, err := s.Copy(t.Context(), snaps[0].ID, 0, "", 10)
				return err
			}},
			{"entered", func() error {
				_, _, err := s.Entered(t.Context(), 0, 10)
				return err
			}},
			{"state", func() error {
				_, err := s.EngineState(t.Context())
				return err
			}},
			{"lose", func() error {
				if round == 0 {
					_, err := s.Lose(t.Context(), alice, long, nil)
					return err
				}
				_, err := s.Lose(t.Context(), alice, long, blocks)
				return err
			}},
		} {
			before := relay.trips.Load()
			if err := step.run(); err != nil {
				t.Fatalf("%s: %v", step.name, err)
			}
			if got := relay.trips.Load() - before; round > 0 && got != 1 {
				t.Errorf("%s: %d round trips, want 1", step.name, got)
			}
		}
	}
}
