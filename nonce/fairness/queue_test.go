package fairness

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"noncegate/nonce"
)

// op is one of a principal, numbered in order of arrival.
type op struct {
	of     nonce.Principal
	number int
}

func principalOf(o op) nonce.Principal { return o.of }

// queueOf makes a queue of ops of principals.
func queueOf(who ...nonce.Principal) *Queue[op] {
	q := NewQueue(principalOf)
	for i, p := range who {
		q.Push(op{p, i})
	}
	return q
}

func many(p nonce.Principal, n int) []nonce.Principal { return slices.Repeat([]nonce.Principal{p}, n) }

// counted is how many ops of each principal a batch has.
func counted(batch []op) map[nonce.Principal]int {
	n := make(map[nonce.Principal]int)
	for _, o := range batch {
		n[o.of]++
	}
	return n
}

func TestTheModestOnesOpIsInTheNextBatchWhateverTheGreedyOneQueued(t *testing.T) {
	for _, greedy := range []int{20, 1000, 4000} {
		q := queueOf(append(many(1, greedy), 2)...)
		batch := q.Take(16, time.Now())
		if n := counted(batch); n[2] != 1 || n[1] != 15 {
			t.Errorf("with %d before it the batch has %v", greedy, n)
		}
		if last := batch[15]; last.of != 2 {
			t.Errorf("the order of arrival is lost: the last is of %d", last.of)
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
		if got := counted(queueOf(c.who...).Take(1024, time.Now())); !maps.Equal(got, c.want) {
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
		if got := len(q.Take(1024, now.Add(c.after))); got != c.want {
			t.Errorf("%v after they met a batch has %d ops, want %d", c.after, got, c.want)
		}
	}
}

func TestABatchThatHasRoomForAllIsInOrderOfArrival(t *testing.T) {
	q := queueOf(1, 2, 1, 3, 2)
	for i, o := range q.Take(5, time.Now()) {
		if o.number != i {
			t.Errorf("at %d is %d", i, o.number)
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
		for p, n := range counted(queueOf(c.who...).Take(c.most, time.Now())) {
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
		order = append(order, q.Take(1, time.Now())[0].of)
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
		q, last, pushed, taken := NewQueue(principalOf), make(map[nonce.Principal]int), 0, 0
		principals, most := 1+rng.IntN(6), 1+rng.IntN(12)
		for pushed < 400 || q.Len() > 0 {
			for range rng.IntN(30) {
				if pushed < 400 {
					pushed++
					q.Push(op{nonce.Principal(rng.IntN(principals) * rng.IntN(2)), pushed})
				}
			}
			has, size := counted(q.ops), q.Len()
			batch := q.Take(most, time.Now())
			if taken += len(batch); len(batch) != min(most, size) || q.Len() != size-len(batch) {
				t.Fatalf("%d of %d taken, %d are left", len(batch), size, q.Len())
			}
			for _, o := range batch {
				if o.number <= last[o.of] {
					t.Fatalf("%d of %d after %d", o.number, o.of, last[o.of])
				}
				last[o.of] = o.number
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
