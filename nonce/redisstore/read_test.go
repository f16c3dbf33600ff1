//go:build unix

package redisstore_test

import (
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"noncegate/nonce"
)

func TestOverdueHoldsAreReadEarliestFirst(t *testing.T) {
	b := seeded(t, server.Client(t))
	for _, hold := range []time.Duration{3 * time.Second, time.Second, 2 * time.Second, time.Minute} {
		b.commit(b.allocate(1, hold))
	}
	b.now = epoch.Add(2 * time.Second) // a hold has ended at its deadline
	numbers := func(s nonce.FastSnapshot) (n []int64) {
		for _, r := range s.Due {
			n = append(n, r.Nonce)
		}
		return n
	}
	if got := numbers(b.read(nonce.Need{Due: 9})); !slices.Equal(got, []int64{1, 2}) {
		t.Errorf("overdue are %v", got)
	}
	s := b.read(nonce.Need{Due: 1, Nonces: []int64{1}})
	if got := numbers(s); !slices.Equal(got, []int64{1}) || len(s.Rows) != 1 {
		t.Errorf("overdue are %v, rows %+v", got, s.Rows)
	}
	b.now = b.now.Add(-time.Microsecond)
	if got := numbers(b.read(nonce.Need{Due: 9})); !slices.Equal(got, []int64{1}) {
		t.Errorf("a microsecond before, overdue are %v", got)
	}
}

func TestARememberedRequestComesWithItsRows(t *testing.T) {
	b := seeded(t, server.Client(t))
	c := b.allocate(2, time.Minute)
	c.Requests = []nonce.Request{{ID: "id", Hash: [16]byte{' ', '1'}, Nonces: []int64{0, 1}, Attempts: []int64{1, 1}}}
	b.commit(c)
	s := b.read(nonce.Need{RequestIDs: []string{"new", "id"}})
	if len(s.Requests) != 1 || len(s.Rows) != 2 {
		t.Errorf("requests %+v, rows %+v", s.Requests, s.Rows)
	}
	same(t, s.Requests[0], c.Requests[0])
}

func TestATakeOverFencesTheOwnerBefore(t *testing.T) {
	b := seeded(t, server.Client(t))
	b.commit(b.allocate(1, time.Minute))
	if s := b.takeOver(6, nonce.Need{}); s.Verdict != nonce.FastDone || s.Version != 11 {
		t.Fatalf("the take-over reads %+v", s)
	}
	b.is(b.try(b.allocate(1, time.Minute)), nonce.FastFenced)
	if s := b.read(nonce.Need{}); s.Verdict != nonce.FastFenced {
		t.Errorf("the old owner reads %+v", s)
	}
	if s := b.takeOver(6, nonce.Need{}); s.Verdict != nonce.FastDone {
		t.Errorf("taken over twice under one token: %d, %v", s.Verdict, s.Err)
	}
	b.belief.Token = 6
	b.commit(b.allocate(1, time.Minute))
}

func TestATakeOverOfLessThanTheStoreHasIsALoss(t *testing.T) {
	b := seeded(t, server.Client(t))
	for name, edit := range map[string]func(*nonce.FastBelief){
		"a lower version":   func(f *nonce.FastBelief) { f.Version++ },
		"an epoch before":   func(f *nonce.FastBelief) { f.Version = nonce.NextEpoch(f.Version) },
		"of another signer": func(f *nonce.FastBelief) { f.ID++ },
	} {
		before, was := dump(t, b.client), b.belief
		edit(&b.belief)
		if s := b.takeOver(6, nonce.Need{}); s.Verdict != nonce.FastLost {
			t.Errorf("%s: %d, %v", name, s.Verdict, s.Err)
		}
		b.belief = was
		same(t, dump(t, b.client), before)
	}
	b.belief.Version = nonce.NextEpoch(10) + 1
	b.seed(nil, nil)
	b.belief.Version = 10
	if s := b.takeOver(6, nonce.Need{}); s.Verdict != nonce.FastLost {
		t.Errorf("a later epoch: %d, %v", s.Verdict, s.Err)
	}
}

func TestOfManyTakersEachVersionIsCommittedByOne(t *testing.T) {
	b := seeded(t, server.Client(t))
	var done atomic.Int64
	var wg sync.WaitGroup
	for taker := range int64(8) {
		wg.Go(func() {
			for round := range int64(20) {
				mine := *b
				mine.belief.Token = 6 + round*8 + taker
				s := mine.takeOver(mine.belief.Token, nonce.Need{})
				if s.Verdict != nonce.FastDone {
					continue
				}
				mine.belief.Version, mine.next, mine.held = s.Version, s.Next, s.Held
				for range 3 {
					c := mine.allocate(1, time.Minute)
					r := mine.try(c)
					if r.Verdict == nonce.FastFenced {
						break
					}
					if r.Verdict != nonce.FastDone {
						t.Error("verdict", r.Verdict, r.Err)
						return
					}
					mine.follow(c)
					done.Add(1)
				}
			}
		})
	}
	wg.Wait()
	s := b.takeOver(1000, nonce.Need{})
	if n := done.Load(); n == 0 || s.Version != 10+n || s.Next != n || s.Held != n {
		t.Errorf("%d commits were acknowledged, and it reads %+v", n, s.Snapshot)
	}
}

func TestASummaryIsInFigures(t *testing.T) {
	b := seeded(t, server.Client(t))
	b.commit(b.allocate(12, time.Minute))
	b.commit(b.mark(0, nonce.Consumed))
	b.commit(b.mark(5, nonce.Released))
	c := b.change()
	c.Floor, c.BelowFloor = 2, true // the hold of nonce 1 is below
	c.Rows = []nonce.RowChange{{Nonce: 11, FromStatus: nonce.Held, FromAttempt: 1, Status: nonce.Held, Attempt: 1, Hold: time.Hour}}
	b.commit(c)
	at := func(now time.Time, want nonce.Summary) {
		t.Helper()
		got, res := b.store.Summary(testContext(t), signer, b.belief.Identity, now)
		b.is(res, nonce.FastDone)
		same(t, got, want)
	}
	at(epoch, nonce.Summary{Exists: true, Next: 12, Floor: 2, Version: 14, Held: 10, Released: 1, Consumed: 1, LowestHeld: 1})
	at(epoch.Add(time.Minute), nonce.Summary{Exists: true, Next: 12, Floor: 2, Version: 14, Held: 1, Released: 9, Consumed: 2, LowestHeld: 11, Overdue: 8})
	at(epoch.Add(time.Hour), nonce.Summary{Exists: true, Next: 12, Floor: 2, Version: 14, Held: 0, Released: 10, Consumed: 2, LowestHeld: -1, Overdue: 9})
}

func TestRowsAreListedLowestFirst(t *testing.T) {
	const n = 4000
	var rows []nonce.Row
	for i := range int64(n) {
		rows = append(rows, nonce.Row{Nonce: i, Status: nonce.Released, Attempt: i, Token: 1})
	}
	b := seeded(t, server.Client(t), rows...)
	for _, tc := range []struct{ from, limit, want int64 }{{0, 10, 0}, {3995, 10, 3995}, {1234, 2000, 1234}, {n, 5, n}} {
		got, res := b.store.Rows(testContext(t), signer, b.belief.Identity, tc.from, int(tc.limit))
		b.is(res, nonce.FastDone)
		if len(got) != int(min(tc.limit, n-tc.want)) {
			t.Fatalf("from %d: %d rows", tc.from, len(got))
		}
		for i, r := range got {
			if r != rows[tc.want+int64(i)] {
				t.Fatalf("from %d, row %d is %+v", tc.from, i, r)
			}
		}
	}
	other := "other"
	_, res := b.store.Rows(testContext(t), other, b.belief.Identity, 0, 1)
	b.is(res, nonce.FastLost)
}
