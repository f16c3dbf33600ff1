package service_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// anyOp is a random line about few nonces, attempts and request ids, so that ops
// often depend on each other.
func anyOp(r *rand.Rand) string {
	switch r.IntN(12) {
	case 0, 1:
		return fmt.Sprintf("allocate count=%d", 1+r.IntN(3))
	case 2, 3:
		return fmt.Sprintf("allocate count=%d id=%c", 1+r.IntN(2), 'a'+rune(r.IntN(4)))
	case 4, 5, 6:
		return fmt.Sprintf("release %d#%d", r.IntN(8), 1+r.IntN(3))
	case 7, 8:
		return fmt.Sprintf("used %d#%d hash=%d", r.IntN(8), 1+r.IntN(3), 1+r.IntN(2))
	case 9:
		return fmt.Sprintf("floor %d", r.IntN(9))
	case 10:
		return "status"
	}
	return "list"
}

func TestABatchIsAnsweredAsItsOpsWouldBeOneAfterAnother(t *testing.T) {
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 0))
		ops := make([]string, 40)
		for i := range ops {
			ops[i] = anyOp(r)
		}
		var want []string
		for i, way := range ways {
			d := newDisk()
			got := way.run(t, d, ops)
			got = append(got, d.rows(t, signer))
			if i == 0 {
				want = got
			}
			if !slices.Equal(got, want) {
				for j, op := range append(ops, "rows at the end") {
					if got[j] != want[j] {
						t.Fatalf("seed %d, %s, op %d, %s: got %q, want %q as %s answers\n%q", seed, way.name, j, op, got[j], want[j], ways[0].name, ops[:min(j+1, len(ops))])
					}
				}
			}
		}
	}
}
