package rounds

import (
	"fmt"
	"strings"
	"testing"
)

func TestSidesAreMeasuredInAlternation(t *testing.T) {
	for _, c := range []struct {
		order Order
		want  string
	}{
		{Same, "1a 1b 1c 2a 2b 2c 3a 3b 3c"},
		{BackAndForth, "1a 1b 1c 2c 2b 2a 3a 3b 3c"},
	} {
		var got []string
		for round, side := range Alternate(3, 3, c.order) {
			got = append(got, fmt.Sprintf("%d%c", round+1, 'a'+side))
		}
		if text := strings.Join(got, " "); text != c.want {
			t.Errorf("order %d: %s, want %s", c.order, text, c.want)
		}
	}
	for round, side := range Alternate(3, 3, Same) {
		if round > 0 || side > 1 {
			t.Fatalf("it goes on to %d, %d", round, side)
		}
		if side == 1 {
			break
		}
	}
}

func TestMedianOfNothingIsZero(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   float64
	}{{nil, 0}, {[]float64{3}, 3}, {[]float64{4, 1}, 2.5}, {[]float64{9, 1, 2}, 2}} {
		if got := Median(c.values); got != c.want {
			t.Errorf("median of %v = %v, want %v", c.values, got, c.want)
		}
	}
}
