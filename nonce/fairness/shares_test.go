package fairness_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"noncegate/nonce"
	"noncegate/nonce/fairness"
)

const hostile, worker, third = nonce.Principal(1), nonce.Principal(2), nonce.Principal(3)

// take takes n for a principal, which must be possible at once.
func take(t *testing.T, s *fairness.Shares, p nonce.Principal, n int64) {
	t.Helper()
	if ok, _ := s.Try(p, n); !ok {
		t.Fatalf("%d refused to principal %d, with %d of %d taken", n, p, s.Taken(), s.Capacity())
	}
}

func TestWhoComesFindsRoomWhateverAnotherHolds(t *testing.T) {
	s := fairness.NewShares(48, 0, 1000)
	for n := int64(0); ; n++ {
		if ok, crowded := s.Try(hostile, 1); !ok {
			if n != 36 || !crowded {
				t.Fatalf("a principal that is alone has %d of 48, crowded %v; want 36, because that is its share", n, crowded)
			}
			break
		}
	}
	take(t, s, worker, 12)
	if ok, crowded := s.Try(third, 1); ok || crowded {
		t.Errorf("a third one: %v, %v; want that there is no room", ok, crowded)
	}
	s.Release(hostile, 1)
	take(t, s, third, 1)
	if ok, _ := s.Try(hostile, 1); ok {
		t.Error("who has more than its share got more")
	}
}

func TestWhoHadSomeLatelyCountsAmongThoseWhoShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fairness.NewShares(48, 0, 0).Linger(time.Second)
		take(t, s, hostile, 36)
		take(t, s, worker, 1)
		s.Release(worker, 1)
		s.Release(hostile, 36)
		for _, c := range []struct {
			after time.Duration
			most  int64
		}{{0, 18}, {time.Second - 1, 18}, {2 * time.Second, 36}} {
			time.Sleep(c.after)
			take(t, s, hostile, c.most)
			if ok, crowded := s.Try(hostile, 1); ok || !crowded {
				t.Errorf("%v later more than %d were granted: %v, crowded %v", c.after, c.most, ok, crowded)
			}
			s.Release(hostile, c.most)
		}
	})
}

func TestEachMayHaveTheLeastHoweverManyThereAre(t *testing.T) {
	s := fairness.NewShares(100, 20, 0)
	for p := range nonce.Principal(40) {
		take(t, s, p+1, 1)
	}
	take(t, s, hostile, 19) // a fortieth of 75 is 1
	if ok, crowded := s.Try(hostile, 1); ok || !crowded {
		t.Errorf("beyond the least: %v, %v", ok, crowded)
	}
}

func TestWithoutAuthenticationAllMayBeTaken(t *testing.T) {
	s := fairness.NewShares(8, 0, 0)
	take(t, s, 0, 8)
	if ok, _ := s.Try(0, 1); ok {
		t.Error("more than there is")
	}
}

// claims waits in order for a principal, each in a goroutine of its own.
func claims(s *fairness.Shares, p nonce.Principal, n int, granted *[]nonce.Principal, mu *sync.Mutex) {
	for range n {
		go func() {
			if s.Acquire(context.Background(), p, 1) == nil {
				mu.Lock()
				*granted = append(*granted, p)
				mu.Unlock()
			}
		}()
		synctest.Wait()
	}
}

func TestWhoHasLeastIsServedFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var granted []nonce.Principal
		s := fairness.NewShares(4, 0, 1000)
		take(t, s, 0, 4)
		claims(s, hostile, 10, &granted, &mu)
		claims(s, worker, 2, &granted, &mu)
		for range 2 { // of what nobody's calls hold
			s.Release(0, 1)
			synctest.Wait()
		}
		if want := []nonce.Principal{hostile, worker}; !slices.Equal(granted, want) {
			t.Fatalf("granted to %v, want %v: each one", granted, want)
		}
		s.Release(worker, 1)
		synctest.Wait()
		if granted[2] != worker {
			t.Errorf("then to %d, want the one that has nothing", granted[2])
		}
		s.Release(worker, 1)
		s.Release(0, 2)
		synctest.Wait()
		for range 8 {
			s.Release(hostile, 1)
			synctest.Wait()
		}
		if len(granted) < 11 || s.Waits() > 1 {
			t.Errorf("%d granted, %d wait still", len(granted), s.Waits())
		}
		for s.Taken() > 0 {
			s.Release(hostile, 1)
			synctest.Wait()
		}
		if s.Waits() != 0 {
			t.Errorf("%d wait for what nobody has", s.Waits())
		}
	})
}

func TestALargeClaimIsNotPassedOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var granted []nonce.Principal
		s := fairness.NewShares(10, 0, 1000)
		take(t, s, third, 4)
		large := make(chan error, 1)
		go func() { large <- s.Acquire(t.Context(), worker, 10) }()
		synctest.Wait()
		claims(s, hostile, 3, &granted, &mu)
		if len(granted) != 0 {
			t.Error("smaller claims passed the one that came first")
		}
		s.Release(third, 4)
		synctest.Wait()
		if len(large) != 1 || <-large != nil || len(granted) != 0 {
			t.Fatal("the large claim was not granted when there was room")
		}
		s.Release(worker, 10)
		synctest.Wait()
		if len(granted) != 3 {
			t.Errorf("%d of those behind it were granted, want 3", len(granted))
		}
	})
}

func TestAWaitEndsWithItsContextAndHoldsNobodyUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var granted []nonce.Principal
		s := fairness.NewShares(10, 0, 2)
		take(t, s, third, 4)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		large := make(chan error, 1)
		go func() { large <- s.Acquire(ctx, worker, 8) }()
		synctest.Wait()
		claims(s, hostile, 1, &granted, &mu)
		if err := s.Acquire(t.Context(), third, 9); !errors.Is(err, fairness.ErrCrowded) {
			t.Errorf("beyond those that may wait: %v", err)
		}
		if err := <-large; !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the wait ended with %v", err)
		}
		synctest.Wait()
		if len(granted) != 1 || s.Taken() != 5 || s.Waits() != 0 {
			t.Errorf("%d granted, %d taken, %d wait", len(granted), s.Taken(), s.Waits())
		}
	})
}

func TestSharesNeverExceedTheirCapacityAndLoseNothing(t *testing.T) {
	s := fairness.NewShares(20, 0, 1000)
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			p, rnd := nonce.Principal(i%5), rand.New(rand.NewPCG(1, uint64(i)))
			for range 500 {
				n := int64(1 + rnd.IntN(20))
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rnd.IntN(200))*time.Microsecond)
				if s.Acquire(ctx, p, n) == nil {
					if taken := s.Taken(); taken > 20 {
						t.Errorf("%d of 20 are taken", taken)
					}
					s.Release(p, n)
				}
				cancel()
			}
		})
	}
	all.Wait()
	if s.Taken() != 0 || s.Waits() != 0 {
		t.Errorf("left over: %d taken, %d wait", s.Taken(), s.Waits())
	}
	take(t, s, hostile, 20)
}
