package nonce

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
)

func TestHoldsRememberWhatAMapWould(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var h holds
	model := make(map[int64]heldRow)
	for step := range 20_000 {
		r := heldRow{nonce: rng.Int64N(200), attempt: rng.Int64(), deadlineMicros: 1 + rng.Int64N(1e6)}
		if step%3 == 0 {
			h.drop(r.nonce)
			delete(model, r.nonce)
		} else {
			h.put(r)
			model[r.nonce] = r
		}
		row, ok := h.row(r.nonce)
		if want, known := model[r.nonce]; ok != known || ok && (row.Attempt != want.attempt || row.HeldUntil.UnixMicro() != want.deadlineMicros) {
			t.Fatalf("step %d: nonce %d is %+v, %t, want %+v, %t", step, r.nonce, row, ok, want, known)
		}
		var first int64
		for _, m := range model {
			if first == 0 || m.deadlineMicros < first {
				first = m.deadlineMicros
			}
		}
		if got := h.first(); got != first {
			t.Fatalf("step %d: the first deadline is %d, want %d", step, got, first)
		}
	}
	want := slices.SortedFunc(maps.Values(model), func(a, b heldRow) int { return int(a.nonce - b.nonce) })
	if !slices.Equal(h, want) {
		t.Errorf("got %v, want %v", h, want)
	}
}
