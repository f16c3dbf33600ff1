package memstore_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"noncegate/lease"
	"noncegate/nonce"
	"noncegate/nonce/memstore"
	"noncegate/nonce/storetest"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// clock is a clock that tests move.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

func TestStoreKeepsTheRulesOnAClockThatTestsMove(t *testing.T) {
	storetest.Run(t, func(*testing.T) storetest.Database {
		c := &clock{now: time.Unix(1_800_000_000, 0)}
		s := memstore.New(c.Now)
		return storetest.Database{Open: func(*testing.T) nonce.Store { return s }, Advance: c.Advance}
	})
}

func TestStoreKeepsTheRulesOnTheRealClock(t *testing.T) {
	storetest.Run(t, func(*testing.T) storetest.Database {
		s := memstore.New(time.Now)
		return storetest.Database{Open: func(*testing.T) nonce.Store { return s }}
	})
}

func TestStoreKeepsTheRulesOfTwoEngines(t *testing.T) {
	storetest.RunEngine(t, func(*testing.T) storetest.Database {
		c := &clock{now: time.Unix(1_800_000_000, 0)}
		s := memstore.New(c.Now)
		return storetest.Database{Open: func(*testing.T) nonce.Store { return s }, Advance: c.Advance}
	})
}

var holder = lease.Holder{Node: "n", Incarnation: 1}

// acquired returns a store and the snapshot of a signer that holder owns.
func acquired(t *testing.T) (*memstore.Store, nonce.Snapshot) {
	t.Helper()
	s := memstore.New(time.Now)
	snaps, err := s.Acquire(t.Context(), holder, time.Hour, []nonce.Need{{Signer: "s"}})
	if err != nil {
		t.Fatal(err)
	}
	return s, snaps[0]
}

func insert(snap nonce.Snapshot) nonce.Change {
	return nonce.Change{
		ID: snap.ID, Signer: snap.Signer, Token: snap.Lease.Token, Version: snap.Version, Next: snap.Next + 1, Held: snap.Held + 1,
		Rows: []nonce.RowChange{{Nonce: snap.Next, Fresh: true, Status: nonce.Held, Attempt: 1, Hold: time.Hour}},
	}
}

func next(t *testing.T, s *memstore.Store) int64 {
	t.Helper()
	snaps, err := s.Load(context.Background(), []nonce.Need{{Signer: "s"}})
	if err != nil {
		t.Fatal(err)
	}
	return snaps[0].Next
}

func TestHooksMakeACommitFailBeforeOrAfterItHappened(t *testing.T) {
	lost := &nonce.StoreError{Outcome: nonce.Unknown, Err: errors.New("lost")}
	fail := func(c memstore.Call) error {
		if c.Op == memstore.OpCommit && len(c.Changes) == 1 && c.Holder == holder {
			return lost
		}
		return nil
	}
	for name, test := range map[string]struct {
		hooks memstore.Hooks
		next  int64
	}{"before": {memstore.Hooks{Before: fail}, 0}, "after": {memstore.Hooks{After: fail}, 1}} {
		s, snap := acquired(t)
		s.SetHooks(test.hooks)
		if _, err := s.Commit(t.Context(), holder, time.Hour, []nonce.Change{insert(snap)}); !errors.Is(err, lost) {
			t.Errorf("%s: got %v, want %v", name, err, lost)
		}
		if got := next(t, s); got != test.next {
			t.Errorf("%s: got next %d, want %d", name, got, test.next)
		}
	}
}

func TestAHookHoldsACallWhileOthersGoOn(t *testing.T) {
	s, snap := acquired(t)
	began, goOn := make(chan struct{}), make(chan struct{})
	s.SetHooks(memstore.Hooks{Before: func(c memstore.Call) error {
		if c.Op == memstore.OpCommit {
			close(began)
			<-goOn
		}
		return nil
	}})
	done := make(chan error)
	go func() {
		_, err := s.Commit(context.Background(), holder, time.Hour, []nonce.Change{insert(snap)})
		done <- err
	}()
	<-began
	if got := next(t, s); got != 0 {
		t.Errorf("while the commit is held: got next %d, want 0", got)
	}
	close(goOn)
	if err := <-done; err != nil {
		t.Error(err)
	}
	if got := next(t, s); got != 1 {
		t.Errorf("after the commit: got next %d, want 1", got)
	}
}

func TestARowLockedBySomebodyElseIsSkipped(t *testing.T) {
	s, snap := acquired(t)
	s.SetHooks(memstore.Hooks{RowLocked: func(signer string) bool { return signer == "s" }})
	res, err := s.Commit(t.Context(), holder, time.Hour, []nonce.Change{insert(snap)})
	if err != nil || !slices.Equal(res.Applied, []bool{false}) {
		t.Errorf("got %v, %v", res.Applied, err)
	}
}

func TestARestoredCopyIsTheStoreOfThen(t *testing.T) {
	s, snap := acquired(t)
	then := s.Backup()
	for range 2 {
		change := insert(snap)
		change.Epoch = s.Epoch()
		if _, err := s.Commit(t.Context(), holder, time.Hour, []nonce.Change{change}); err != nil {
			t.Fatal(err)
		}
		if got := next(t, s); got != 1 {
			t.Errorf("after the commit: got next %d, want 1", got)
		}
		s.SetEpoch(s.Epoch() + 1)
		s.Restore(then)
		if got := next(t, s); got != 0 {
			t.Errorf("after the restore: got next %d, want 0", got)
		}
	}
	if s.Epoch() != 2 {
		t.Errorf("got epoch %d, want 2", s.Epoch())
	}
}

func TestAPruningForAnotherEpochIsNotSent(t *testing.T) {
	s, snap := acquired(t)
	s.SetEpoch(7)
	_, err := s.Prune(t.Context(), holder, nonce.Pruning{Epoch: 6, Pieces: []nonce.PrunePiece{{ID: snap.ID, Token: snap.Lease.Token}}})
	if nonce.OutcomeOf(err) != nonce.NotSent {
		t.Errorf("got %v", err)
	}
}

func TestANodeThatWasNotSeenForADayIsShownNoMoreUnlessItsPatienceIsLongerStill(t *testing.T) {
	c := &clock{now: time.Unix(1_800_000_000, 0)}
	s := memstore.New(c.Now)
	for id, patience := range map[string]time.Duration{"silent": time.Hour, "stubborn": 3 * lease.Remembered} {
		if _, err := s.Register(t.Context(), lease.Presence{Node: id, Patience: patience}); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []int{2, 1} {
		c.Advance(lease.Remembered - time.Minute)
		list, _, err := s.Nodes(t.Context())
		if err != nil || len(list) != want || !list[want-1].Live || list[want-1].Node != "stubborn" {
			t.Errorf("got %+v, %v, want %d nodes", list, err, want)
		}
	}
	if h, err := s.Register(t.Context(), lease.Presence{Node: "silent"}); err != nil || h.Incarnation != 2 {
		t.Errorf("it was forgotten: got %v, %v", h, err)
	}
}
