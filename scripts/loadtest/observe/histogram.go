package observe

import (
	"math"
	"slices"

	dto "github.com/prometheus/client_model/go"
)

// cumulative is a classic histogram: counts[i] observations were at most
// bounds[i], the last bound is +Inf. Without bounds it is nothing at all.
type cumulative struct {
	bounds []float64 // seconds, rising
	counts []uint64
}

// plus adds another histogram of the same buckets; one that is broken, or has
// others, is left out: half of a sum would be worse than none of it.
func (c cumulative) plus(h *dto.Histogram) cumulative {
	next := cumulative{}
	for _, b := range h.GetBucket() {
		if !math.IsInf(b.GetUpperBound(), 1) {
			next.bounds = append(next.bounds, b.GetUpperBound())
			next.counts = append(next.counts, b.GetCumulativeCount())
		}
	}
	next.bounds = append(next.bounds, math.Inf(1))
	next.counts = append(next.counts, h.GetSampleCount())
	sound := len(next.bounds) > 1 && slices.IsSorted(next.bounds) && slices.IsSorted(next.counts)
	switch {
	case !sound:
		return c
	case c.bounds == nil:
		return next
	case !slices.Equal(c.bounds, next.bounds):
		return c
	}
	for i, n := range c.counts {
		next.counts[i] += n
	}
	return next
}

// since is what was observed after earlier. Where any count went back, the
// gateway was another process in between, and all of c is new.
func (c cumulative) since(earlier cumulative) cumulative {
	if !slices.Equal(c.bounds, earlier.bounds) {
		return c
	}
	delta := cumulative{bounds: c.bounds, counts: make([]uint64, len(c.counts))}
	for i, n := range c.counts {
		if n < earlier.counts[i] {
			return c
		}
		delta.counts[i] = n - earlier.counts[i]
	}
	// Between two readings of one process every bucket grows by no more than the
	// next. Where that fails the two are of different processes.
	if !slices.IsSorted(delta.counts) {
		return c
	}
	return delta
}

// and joins what was observed in two times that follow each other.
func (c cumulative) and(next cumulative) cumulative {
	if !slices.Equal(c.bounds, next.bounds) {
		if next.bounds == nil {
			return c
		}
		return next
	}
	sum := cumulative{bounds: c.bounds, counts: slices.Clone(c.counts)}
	for i, n := range next.counts {
		sum.counts[i] += n
	}
	return sum
}

func (c cumulative) count() int64 {
	if len(c.counts) == 0 {
		return 0
	}
	return int64(c.counts[len(c.counts)-1])
}

// quantile is the q-th quantile (above 0, up to 1) in seconds, found as Prometheus'
// histogram_quantile does: by a straight line through the bucket it falls in, and
// the largest finite bound for what lies above it. It is 0 where nothing was
// observed.
func (c cumulative) quantile(q float64) float64 {
	total := c.count()
	if total == 0 {
		return 0
	}
	rank := q * float64(total)
	i := slices.IndexFunc(c.counts, func(n uint64) bool { return float64(n) >= rank })
	if i < 0 || i == len(c.counts)-1 {
		return c.bounds[len(c.bounds)-2]
	}
	lower, below := 0.0, 0.0
	if i > 0 {
		lower, below = c.bounds[i-1], float64(c.counts[i-1])
	}
	return lower + (c.bounds[i]-lower)*(rank-below)/(float64(c.counts[i])-below)
}
