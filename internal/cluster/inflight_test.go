package cluster

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"noncegate/nonce"
)

// A way against a plain list of what is under way, with the same random steps.
func TestInflightOpsKeepTheirOrderAndTheirIds(t *testing.T) {
	type item struct {
		q     *nonce.Request
		id    uint64
		stage stage
	}
	rng := rand.New(rand.NewPCG(1, 2))
	w := newInflight(50)
	var model []item
	var ended []uint64
	defer func() {
		for w.order.Len() > 0 {
			w.end(w.first(), nonce.Answered, nil)
		}
		if n := w.shares.Taken(); n > 0 {
			t.Errorf("%d slots are taken by nothing", n)
		}
	}()
	for range 20_000 {
		switch n := rng.IntN(4); {
		case n <= 1 && len(model) < 50:
			q := new(nonce.Request)
			w.add(op{q: q}, time.Time{})
			model = append(model, item{q: q, id: w.lastID, stage: queued})
		case n == 2:
			i := slices.IndexFunc(model, func(m item) bool { return m.stage == queued })
			s := w.takeQueued()
			if (i < 0) != (s == nil) || s != nil && s.q != model[i].q {
				t.Fatal("write gave another op")
			}
			if s != nil {
				model[i].stage = writing
			}
		case n == 3 && len(model) > 0:
			i := rng.IntN(len(model))
			s := w.byID[model[i].id]
			if s == nil || s.q != model[i].q || s.stage != model[i].stage {
				t.Fatalf("slot %+v, want %+v", s, model[i])
			}
			w.end(s, nonce.Answered, nil)
			ended = append(ended, model[i].id)
			model = slices.Delete(model, i, i+1)
		}
		if w.order.Len() != len(model) || len(w.byID) != len(model) {
			t.Fatalf("%d ops with %d ids, want %d", w.order.Len(), len(w.byID), len(model))
		}
		if first := w.first(); (first == nil) != (len(model) == 0) || first != nil && first.q != model[0].q {
			t.Fatal("another op is first")
		}
	}
	for _, id := range ended {
		if w.byID[id] != nil {
			t.Fatalf("id %d names another op now", id)
		}
	}
}
