package backpressure

import (
	"sync"
	"sync/atomic"
	"testing"
)

func TestTakeIsAllOrNothing(t *testing.T) {
	g := NewGate(4)
	if !g.TryTake(nil, 3) {
		t.Fatal("3 of 4 slots refused")
	}
	if g.TryTake(nil, 2) {
		t.Fatal("2 slots granted where one was left")
	}
	if got := g.Used(); got != 3 {
		t.Fatalf("used %d after a refusal, want 3", got)
	}
	g.Give(nil, 3)
	if !g.TryTake(nil, 4) {
		t.Fatal("an empty gate refused its capacity")
	}
}

func TestShareBoundsOneHolderOnly(t *testing.T) {
	g, greedy, other := NewGate(10), NewShare(6), NewShare(6)
	if !g.TryTake(greedy, 6) || g.TryTake(greedy, 1) {
		t.Fatal("a share of 6 must grant exactly 6")
	}
	if !g.TryTake(other, 4) {
		t.Fatal("slots outside the greedy holder's share refused")
	}
	if g.TryTake(other, 1) {
		t.Fatal("granted beyond the capacity")
	}
	if got := other.Used(); got != 4 {
		t.Fatalf("a refusal of the gate left %d in the share, want 4", got)
	}
	g.Give(greedy, 6)
	g.Give(other, 4)
	if g.Used() != 0 || greedy.Used() != 0 || other.Used() != 0 {
		t.Fatalf("left over: %d, %d, %d", g.Used(), greedy.Used(), other.Used())
	}
}

func TestGateNeverExceedsItsCapacity(t *testing.T) {
	const capacity = 7
	g := NewGate(capacity)
	var inside atomic.Int64
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			s, n := NewShare(5), 1+i%3
			for range 5000 {
				if !g.TryTake(s, n) {
					continue
				}
				if got := inside.Add(int64(n)); got > capacity {
					t.Errorf("%d slots taken of %d", got, capacity)
				}
				inside.Add(-int64(n))
				g.Give(s, n)
			}
		})
	}
	wg.Wait()
	if g.Used() != 0 {
		t.Fatalf("%d slots lost", g.Used())
	}
}

func TestAClosedShareGetsNoMoreAndKeepsNothingOfTheGate(t *testing.T) {
	g, s := NewGate(10), NewShare(6)
	if !g.TryTake(s, 1) || s.Close() || s.Closed() {
		t.Fatal("a share with a slot was closed")
	}
	g.Give(s, 1)
	if !s.Close() || s.Close() || !s.Closed() {
		t.Fatal("an empty share is closed, once")
	}
	if g.TryTake(s, 1) || g.TryTakeSpare(s, 1) || s.Used() != 0 {
		t.Errorf("a closed share has %d slots", s.Used())
	}
	if !g.TryTake(nil, 10) {
		t.Error("a closed share keeps slots from others")
	}
}

func TestAShareIsClosedOrHasAPlaceNeverBoth(t *testing.T) {
	g := NewGate(1000)
	for range 5000 {
		s, closed := NewShare(1), make(chan bool)
		go func() { closed <- s.Close() }()
		took := g.TryTake(s, 1)
		if did := <-closed; took == did {
			t.Fatalf("took %v, closed %v", took, did)
		}
		if took {
			g.Give(s, 1)
		}
	}
}

func TestSparePlacesLeaveHalfOfAGateToOthers(t *testing.T) {
	for capacity, spare := range map[int]int{1: 1, 2: 1, 5: 3, 100: 50} {
		g := NewGate(capacity)
		for i := range spare {
			if !g.TryTakeSpare(nil, 1) {
				t.Fatalf("capacity %d: spare slot %d refused", capacity, i)
			}
		}
		if g.TryTakeSpare(nil, 1) {
			t.Errorf("capacity %d: more than %d spare slots", capacity, spare)
		}
		if !g.TryTake(nil, capacity-spare) {
			t.Errorf("capacity %d: the other %d slots are not there", capacity, capacity-spare)
		}
	}
	if g, s := NewGate(10), NewShare(1); !g.TryTakeSpare(s, 1) || g.TryTakeSpare(s, 1) {
		t.Error("a spare slot beyond the holder's share")
	}
}

func TestPlacesAreGivenBackOnce(t *testing.T) {
	for what, give := range map[string]func(*Gate, *Share){
		"a slot of the gate twice":         func(g *Gate, _ *Share) { g.Give(nil, 2) },
		"a slot of the share twice":        func(g *Gate, s *Share) { g.Give(s, 1); g.TryTake(nil, 1); g.Give(s, 1) },
		"a slot of a share that is closed": func(g *Gate, s *Share) { g.Give(s, 1); s.Close(); g.TryTake(nil, 1); g.Give(s, 1) },
	} {
		t.Run(what, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("nobody noticed")
				}
			}()
			g, s := NewGate(4), NewShare(2)
			if !g.TryTake(s, 1) {
				t.Fatal("an empty gate refused a slot")
			}
			give(g, s)
		})
	}
}
