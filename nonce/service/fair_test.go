package service

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"noncegate/nonce"
)

// queueOf makes a queue of ops of principals, numbered in order of arrival.
func queueOf(who ...nonce.Principal) *fairQueue {
	q := new(fairQueue)
	for i, p := range who {
		q.push(&task{op: &nonce.Op{Principal: p, Nonce: int64(i)}})
	}
	return q
}

func many(p nonce.Principal, n int) []nonce.Principal { return slices.Repeat([]nonce.Principal{p}, n) }

// counted is how many ops of each principal a batch has.
func counted(batch []*task) map[nonce.Principal]int {
	n := make(map[nonce.Principal]int)
	for _, op := range batch {
		n[op.op.Principal]++
	}
	return n
}

func TestTheModestOnesOpIsInTheNextBatchWhateverTheGreedyOneQueued(t *testing.T) {
	for _, greedy := range []int{20, 1000, 4000} {
		q := queueOf(append(many(1, greedy), 2)...)
		batch := q.take(16, time.Now())
		if n := counted(batch); n[2] != 1 || n[1] != 15 {
			t.Errorf("with %d before it the batch has %v", greedy, n)
		}
		if last := batch[15].op; last.Principal != 2 {
			t.Errorf("the order of arrival is lost: the last is of %d", last.Principal)
		}
	}
}

func TestABatchIsShortWhileSeveralMeetAndAsLongAsItMayBeForOneAlone(t *testing.T) {
	for _, c := range []struct {
		who  []nonce.Principal
		want map[nonce.Principal]int
	}{
		{append(many(1, 1000), 2), map[nonce.Principal]int{1: 127, 2: 1}},
		{append(many(1, 100), 2), map[nonce.Principal]int{1: 100, 2: 1}},
		{slices.Concat(many(1, 100), many(2, 100), many(3, 100)), map[nonce.Principal]int{1: 64, 2: 64, 3: 64}},
		{many(1, 1000), map[nonce.Principal]int{1: 1000}},
		{many(0, 1500), map[nonce.Principal]int{0: 1024}},
	} {
		if got := counted(queueOf(c.who...).take(1024, time.Now())); !maps.Equal(got, c.want) {
			t.Errorf("of %d ops the batch has %v, want %v", len(c.who), got, c.want)
		}
	}
}

// TestBatchesStayShortForAWhileAfterPrincipalsMet: the one who brings an op now and then waits
// for the batch under way, in which it has none.
func TestBatchesStayShortForAWhileAfterPrincipalsMet(t *testing.T) {
	q, now := queueOf(append(many(1, 3000), 2)...), time.Now()
	for _, c := range []struct {
		after time.Duration
		want  int
	}{{0, 128}, {mixedFor / 2, 128}, {mixedFor, 1024}} {
		if got := len(q.take(1024, now.Add(c.after))); got != c.want {
			t.Errorf("%v after they met a batch has %d ops, want %d", c.after, got, c.want)
		}
	}
}

func TestABatchThatHasRoomForAllIsInOrderOfArrival(t *testing.T) {
	q := queueOf(1, 2, 1, 3, 2)
	for i, op := range q.take(5, time.Now()) {
		if op.op.Nonce != int64(i) {
			t.Errorf("at %d is %d", i, op.op.Nonce)
		}
	}
}

func TestABatchIsDividedEquallyAndWhoHasLessIsServedInFull(t *testing.T) {
	for i, c := range []struct {
		who  []nonce.Principal
		most int
		want string
	}{
		{slices.Concat(many(1, 100), many(2, 100)), 10, "map[1:5 2:5]"},
		{slices.Concat(many(1, 100), many(2, 3), many(3, 100)), 10, "map[1:4 2:3 3:3]"},
		{slices.Concat(many(1, 1), many(2, 2), many(3, 3), many(4, 90)), 12, "map[1:1 2:2 3:3 4:6]"},
		{slices.Concat(many(1, 9), many(0, 9)), 4, "map[0:2 1:2]"},
		{many(7, 30), 4, "map[7:4]"},
		{slices.Concat(many(1, 9), many(2, 9), many(3, 9)), 2, "map[1:1 2:1]"},
	} {
		got := make(map[uint64]int)
		for p, n := range counted(queueOf(c.who...).take(c.most, time.Now())) {
			got[uint64(p)] = n
		}
		if fmt.Sprint(got) != c.want {
			t.Errorf("case %d: got %v, want %s", i, got, c.want)
		}
	}
}

// TestNobodyWaitsForLongerThanThereAreOthers: with batches of one op, of which there
// is nothing to divide.
func TestNobodyWaitsForLongerThanThereAreOthers(t *testing.T) {
	q := queueOf(slices.Concat(many(1, 50), many(2, 50), many(3, 50), many(4, 5))...)
	var order []nonce.Principal
	for range 20 {
		order = append(order, q.take(1, time.Now())[0].op.Principal)
	}
	if want := slices.Repeat([]nonce.Principal{1, 2, 3, 4}, 5); !slices.Equal(order, want) {
		t.Errorf("got %v, want %v", order, want)
	}
}

// TestBatchesHaveEveryOpOnceAndEachPrincipalsInOrder runs random queues, and looks that
// no batch has less than it has room for, and nobody less than an equal part.
func TestBatchesHaveEveryOpOnceAndEachPrincipalsInOrder(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	for range 300 {
		q, last, pushed, taken := new(fairQueue), make(map[nonce.Principal]int64), 0, 0
		principals, most := 1+rng.IntN(6), 1+rng.IntN(12)
		for pushed < 400 || len(q.tasks) > 0 {
			for range rng.IntN(30) {
				if pushed < 400 {
					pushed++
					q.push(&task{op: &nonce.Op{Principal: nonce.Principal(rng.IntN(principals) * rng.IntN(2)), Nonce: int64(pushed)}})
				}
			}
			has, size := counted(q.tasks), len(q.tasks)
			batch := q.take(most, time.Now())
			if taken += len(batch); len(batch) != min(most, size) || len(q.tasks) != size-len(batch) {
				t.Fatalf("%d of %d taken, %d are left", len(batch), size, len(q.tasks))
			}
			for _, op := range batch {
				if op.op.Nonce <= last[op.op.Principal] {
					t.Fatalf("%d of %d after %d", op.op.Nonce, op.op.Principal, last[op.op.Principal])
				}
				last[op.op.Principal] = op.op.Nonce
			}
			got := counted(batch)
			for p, n := range has {
				if got[p] < min(n, len(batch)/len(has)) {
					t.Fatalf("%d has %d of %v in a batch of %d: %v", p, got[p], has, most, got)
				}
			}
			if len(q.favoured) > principals {
				t.Fatalf("%d are remembered of %d", len(q.favoured), principals)
			}
		}
		if taken != pushed {
			t.Fatalf("%d taken of %d", taken, pushed)
		}
	}
}

func TestOnePrincipalAloneMayFillTheQueue(t *testing.T) {
	for _, p := range []nonce.Principal{0, 1} {
		s := &shares{most: 16}
		for i := range 16 {
			if !s.reserve(p) {
				t.Errorf("%d: no place after %d", p, i)
			}
		}
		if s.reserve(p) {
			t.Errorf("%d: a place more than there are", p)
		}
	}
}

func TestWhoComesToAFullQueueFindsAPlaceAndTheGreedyOneDoesNot(t *testing.T) {
	s := &shares{most: 64}
	for s.reserve(1) {
	}
	for i := range 8 { // an eighth
		if !s.reserve(2) {
			t.Fatalf("the modest one has %d places, and finds no other", i)
		}
	}
	if s.reserve(2) || s.reserve(3) || s.reserve(0) {
		t.Error("a place beyond the eighth")
	}
	for s.of[1].has > 32 {
		if s.reserve(1) {
			t.Fatalf("the greedy one has %d places, and finds another", s.of[1].has)
		}
		s.leave(1)
	}
	for s.reserve(2) {
	}
	if s.of[2].has != 32 {
		t.Errorf("the second has %d of 64 places, want a half", s.of[2].has)
	}
	for s.reserve(1) {
	}
	if s.of[1].has != 32 {
		t.Errorf("the first has %d of 64 places, want a half", s.of[1].has)
	}
	if !s.reserve(3) || s.reserve(1) || s.reserve(2) {
		t.Error("a third does not make the shares of two smaller")
	}
	for range 32 {
		s.leave(1)
		s.leave(2)
	}
	if s.leave(3); s.places.Load() != 0 || s.active != 0 {
		t.Errorf("%d places and %d principals are left", s.places.Load(), s.active)
	}
	for p := range nonce.Principal(10_000) {
		if !s.reserve(4 + p) {
			t.Fatal("no place in an empty queue")
		}
		s.leave(4 + p)
	}
	if len(s.of) > 2*keptShares {
		t.Errorf("%d principals are remembered, and none has a place", len(s.of))
	}
}

// BenchmarkQueue is what a queue costs an op: a place, the way through, and the place
// back; batches of 256 out of a queue of 1,024.
func BenchmarkQueue(b *testing.B) {
	for name, principals := range map[string]int{"nobody": 0, "one": 1, "hundred": 100} {
		b.Run(name, func(b *testing.B) {
			s, q := &shares{most: 4096}, new(fairQueue)
			ops := make([]*task, 1024)
			for i := range ops {
				ops[i] = &task{op: new(nonce.Op)}
				if principals > 0 {
					ops[i].op.Principal = nonce.Principal(1 + i%principals)
				}
			}
			free := ops
			for b.Loop() {
				for _, op := range free {
					if !s.reserve(op.op.Principal) {
						b.Fatal("no place")
					}
					q.push(op)
				}
				batch := q.take(256, time.Now())
				free = append(ops[:0], batch...)
				for _, op := range free {
					s.leave(op.op.Principal)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(256*b.N), "ns/op-in-queue")
		})
	}
}
