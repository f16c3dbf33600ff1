package memstore_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"noncegate/lease"
	"noncegate/nonce"
	"noncegate/nonce/memstore"
	"noncegate/nonce/storetest"
)

func TestTheModelKeepsTheRules(t *testing.T) {
	open := func(t *testing.T) storetest.Database {
		var ahead atomic.Int64 // milliseconds
		began := time.UnixMilli(1_790_000_000_000)
		s := memstore.New(2, func() time.Time { return began.Add(time.Duration(ahead.Load()) * time.Millisecond) })
		return storetest.Database{
			Open:    func(*testing.T) nonce.Store { return s },
			Damage:  func(_ *testing.T, name string) { s.Damage(name) },
			Advance: func(d time.Duration) { ahead.Add(d.Milliseconds()) },
		}
	}
	storetest.Run(t, open)
	t.Run("logs", func(t *testing.T) { storetest.RunLogs(t, open) })
}

// owned is a store of which a node has the only shard, with a first write.
func owned(t *testing.T) (*memstore.Store, lease.Holder, nonce.Write) {
	t.Helper()
	s := memstore.New(1, time.Now)
	h, err := s.Register(t.Context(), lease.Presence{Node: "a"})
	if err == nil {
		_, err = s.Renew(t.Context(), h, time.Hour)
	}
	if err != nil {
		t.Fatal(err)
	}
	shards, err := s.Acquire(t.Context(), h, []int{0})
	if err != nil {
		t.Fatal(err)
	}
	return s, h, nonce.Write{Name: "s", Term: lease.ShardTerm{Token: shards[0].Token}, Signer: nonce.Signer{Version: 1}}
}

func version(t *testing.T, s *memstore.Store) int64 {
	t.Helper()
	got, err := s.Load(t.Context(), []nonce.SignerNeed{{Signer: "s"}})
	if err != nil {
		t.Fatal(err)
	}
	return got.Signers[0].Signer.Version
}

func TestACommitOfTheModelBreaksAsItsHooksSay(t *testing.T) {
	broken := func(o nonce.Outcome) func(memstore.Call) error {
		return func(c memstore.Call) error {
			if c.Op == memstore.OpCommit && len(c.Writes) == 1 {
				return &nonce.StoreError{Outcome: o, Err: errors.New("broken")}
			}
			return nil
		}
	}
	for name, c := range map[string]struct {
		hooks   memstore.Hooks
		outcome nonce.Outcome
		version int64
	}{
		"it was not sent":                 {memstore.Hooks{Before: broken(nonce.NotSent)}, nonce.NotSent, 0},
		"it was refused":                  {memstore.Hooks{Before: broken(nonce.Aborted)}, nonce.Aborted, 0},
		"it broke and did not happen":     {memstore.Hooks{Before: broken(nonce.Unknown)}, nonce.Unknown, 0},
		"it happened and nobody was told": {memstore.Hooks{After: broken(nonce.Unknown)}, nonce.Unknown, 1},
	} {
		t.Run(name, func(t *testing.T) {
			s, h, w := owned(t)
			s.SetHooks(c.hooks)
			_, err := s.Commit(t.Context(), h, []nonce.Write{w})
			if err == nil || nonce.OutcomeOf(err) != c.outcome {
				t.Errorf("got %v, want %v", err, c.outcome)
			}
			if got := version(t, s); got != c.version {
				t.Errorf("the signer is at version %d, want %d", got, c.version)
			}
			s.SetHooks(memstore.Hooks{RowLocked: func(name string) bool { return name == "s" }})
			w.Signer.Version = c.version + 1
			if got, err := s.Commit(t.Context(), h, []nonce.Write{w}); err != nil || got.Results[0] != nonce.Moved {
				t.Errorf("of a locked row: %+v, %v", got, err)
			}
		})
	}
}

func TestAModelGoesBackToABackup(t *testing.T) {
	s, h, w := owned(t)
	restore := s.Backup()
	for range 2 {
		if got, err := s.Commit(t.Context(), h, []nonce.Write{w}); err != nil || got.Results[0] != nonce.Applied || version(t, s) != 1 {
			t.Fatalf("got %+v, %v", got, err)
		}
		restore()
		if got := version(t, s); got != 0 {
			t.Errorf("the signer is at version %d", got)
		}
	}
	s.RaiseGeneration()
	if _, err := s.Commit(t.Context(), h, []nonce.Write{w}); err == nil || nonce.OutcomeOf(err) != nonce.NotSent {
		t.Errorf("a belief of before: %v", err)
	}
}
