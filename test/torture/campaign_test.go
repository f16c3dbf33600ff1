//go:build unix

package torture

import "testing"

func TestEachCombinationIsWithoutForwardingOnceInThreePasses(t *testing.T) {
	for _, n := range []uint64{53, 153, 360} {
		off := make([]int, n)
		for seed := range 3 * n {
			if forwardOf(seed, n) == "off" {
				off[seed%n]++
			}
		}
		for i, times := range off {
			if times != 1 {
				t.Errorf("of %d combinations number %d was without forwarding %d times", n, i, times)
			}
		}
		if forwardOf(2, n) == forwardOf(3, n) {
			t.Errorf("of %d combinations a part of a pass has forwarding always", n)
		}
	}
}
