package fairness

import (
	"testing"

	"noncegate/nonce"
)

func TestOnePrincipalAloneMayFillTheQueue(t *testing.T) {
	for _, p := range []nonce.Principal{0, 1} {
		s := NewSlots(16)
		for i := range 16 {
			if !s.Reserve(p) {
				t.Errorf("%d: no slot after %d", p, i)
			}
		}
		if s.Reserve(p) {
			t.Errorf("%d: a slot more than there are", p)
		}
	}
}

func TestWhoComesToAFullQueueFindsAPlaceAndTheGreedyOneDoesNot(t *testing.T) {
	s := NewSlots(64)
	for s.Reserve(1) {
	}
	for i := range 8 { // an eighth
		if !s.Reserve(2) {
			t.Fatalf("the modest one has %d slots, and finds no other", i)
		}
	}
	if s.Reserve(2) || s.Reserve(3) || s.Reserve(0) {
		t.Error("a slot beyond the eighth")
	}
	for s.of[1].has > 32 {
		if s.Reserve(1) {
			t.Fatalf("the greedy one has %d slots, and finds another", s.of[1].has)
		}
		s.Leave(1)
	}
	for s.Reserve(2) {
	}
	if s.of[2].has != 32 {
		t.Errorf("the second has %d of 64 slots, want a half", s.of[2].has)
	}
	for s.Reserve(1) {
	}
	if s.of[1].has != 32 {
		t.Errorf("the first has %d of 64 slots, want a half", s.of[1].has)
	}
	if !s.Reserve(3) || s.Reserve(1) || s.Reserve(2) {
		t.Error("a third does not make the shares of two smaller")
	}
	for range 32 {
		s.Leave(1)
		s.Leave(2)
	}
	if s.Leave(3); s.Taken() != 0 || s.active != 0 {
		t.Errorf("%d slots and %d principals are left", s.Taken(), s.active)
	}
	for p := range nonce.Principal(10_000) {
		if !s.Reserve(4 + p) {
			t.Fatal("no slot in an empty queue")
		}
		s.Leave(4 + p)
	}
	if len(s.of) > 2*keptShares {
		t.Errorf("%d principals are remembered, and none has a slot", len(s.of))
	}
}
