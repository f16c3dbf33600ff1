package fairness

import (
	"math/rand/v2"
	"slices"
	"testing"

	"noncegate/nonce"
	"noncegate/nonce/rules"
)

// TestOpenHoldsAreThoseNeitherMarkedNorDue compares the count with a plain list.
func TestOpenHoldsAreThoseNeitherMarkedNorDue(t *testing.T) {
	const most = 20
	rng := rand.New(rand.NewPCG(3, 3))
	now := int64(1_000_000_000)
	o := NewHolds(func() int64 { return now })
	open := make(map[nonce.Principal][]int64)
	refused := 0
	for range 5000 {
		p := nonce.Principal(1 + rng.IntN(3))
		open[p] = slices.DeleteFunc(open[p], func(d int64) bool { return d <= now })
		switch rng.IntN(4) {
		case 0, 1:
			op := &nonce.Request{Kind: nonce.KindAllocate, Principal: p, Count: 1 + rng.IntN(4), MaxOpen: most}
			if got, want := o.Reserve(op, op.Count), len(open[p])+op.Count <= most; got != want {
				t.Fatalf("%d more for who has %d of %d: %v", op.Count, len(open[p]), most, got)
			} else if !got {
				refused++
				continue
			}
			if rng.IntN(5) == 0 {
				o.Release(p, op.Count)
				continue
			}
			until := now + 1000*int64(1+rng.IntN(30))
			o.Settle(op, &rules.Answer{Wrote: true, Claimed: op.Count, Until: until})
			for range op.Count {
				open[p] = append(open[p], until)
			}
		case 2:
			ends := rules.Ended{Holder: p, Until: now + 3_600_000} // another node's
			if n := len(open[p]); n > 0 && rng.IntN(4) > 0 {
				i := rng.IntN(n)
				ends.Until = open[p][i]
				open[p] = slices.Delete(open[p], i, i+1)
			}
			a := &rules.Answer{Wrote: true, Status: nonce.Consumed, Ends: ends}
			if rng.IntN(3) == 0 { // extended
				a.Status, a.Until = nonce.Held, now+1000*int64(40+rng.IntN(30))
				if ends.Until < now+3_600_000 {
					open[p] = append(open[p], a.Until)
				}
			}
			o.Settle(&nonce.Request{Kind: nonce.KindMarkUsed}, a)
		default:
			now += rng.Int64N(1500)
			o.Sweep()
		}
	}
	if refused == 0 {
		t.Error("nothing was refused")
	}
	now += 120_000
	if o.Sweep(); len(o.of) != 0 {
		t.Errorf("%d principals are remembered, and none has a hold", len(o.of))
	}
}
