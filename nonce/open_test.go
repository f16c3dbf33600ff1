package nonce

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// TestOpenHoldsAreThoseNeitherMarkedNorDue compares the count with a plain list.
func TestOpenHoldsAreThoseNeitherMarkedNorDue(t *testing.T) {
	const most = 20
	rng := rand.New(rand.NewPCG(3, 3))
	now := time.UnixMicro(1_000_000_000)
	o := newOpenHolds(func() time.Time { return now })
	open := make(map[Principal][]time.Time)
	refused := 0
	for range 5000 {
		p := Principal(1 + rng.IntN(3))
		open[p] = slices.DeleteFunc(open[p], func(d time.Time) bool { return !d.After(now) })
		switch rng.IntN(4) {
		case 0, 1:
			op := &Op{Kind: KindAllocate, Principal: p, Count: 1 + rng.IntN(4), MaxOpen: most}
			if got, want := o.claim(op), len(open[p])+op.Count <= most; got != want {
				t.Fatalf("%d more for who has %d of %d: %v", op.Count, len(open[p]), most, got)
			} else if !got {
				refused++
				continue
			}
			if rng.IntN(5) == 0 {
				o.unclaim(op)
				continue
			}
			op.wrote, op.Nonces, op.HeldUntil = true, make([]int64, op.Count), now.Add(time.Duration(1+rng.IntN(30))*time.Second)
			o.settle(op)
			for range op.Count {
				open[p] = append(open[p], op.HeldUntil)
			}
		case 2:
			op := &Op{Kind: KindMarkUsed, wrote: true, endsOf: p, endsAt: now.Add(time.Hour)} // another node's
			if n := len(open[p]); n > 0 && rng.IntN(4) > 0 {
				i := rng.IntN(n)
				op.endsAt = open[p][i]
				open[p] = slices.Delete(open[p], i, i+1)
			}
			o.settle(op)
		default:
			now = now.Add(time.Duration(rng.IntN(1500)) * time.Millisecond)
			o.sweep()
		}
	}
	if refused == 0 {
		t.Error("nothing was refused")
	}
	now = now.Add(time.Minute)
	if o.sweep(); len(o.of) != 0 {
		t.Errorf("%d principals are remembered, and none has a hold", len(o.of))
	}
}
