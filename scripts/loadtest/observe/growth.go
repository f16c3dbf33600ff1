package observe

import (
	"fmt"
	"math"
	"slices"
	"time"

	"noncegate/scripts/loadtest/result"
)

// A stage grows when both its slope over the whole run and its last third against its first exceed the largest of these
// margins. They are wide on purpose: a verdict fails a run, so noise must not reach it, while a queue that really grows
// without end crosses them within the run.
const (
	fewestPoints   = 12  // that can tell a direction: three thirds of four
	maxPoints      = 600 // that the slope is taken over; more are joined, for it looks at every pair
	absoluteMargin = 1   // milliseconds, which nobody notices
	relativeMargin = 0.5 // of the first third
)

// GrowthOf tells whether a series in milliseconds grows steadily over a time of length elapsed.
//
// Two figures must agree. The Theil–Sen slope, the median of the slopes of all pairs of points, times the time the
// series spans: a spike, or a start that is slower or faster than the rest, moves few pairs and so hardly moves it. And
// the median of the last third less the median of the first: a saw-tooth has the same in each. Both must exceed the
// margin, which is the largest of one millisecond, half of the first third, and the width of the bucket that the first
// third lies in (bounds, in seconds), because within one bucket a percentile is only interpolated.
//
// A series of fewer than twelve points, or one that begins at the largest bucket, cannot tell, which is not "grows".
func GrowthOf(series []result.Point, bounds []float64, elapsed time.Duration) result.Growth {
	if len(series) < fewestPoints {
		return result.Growth{Unknown: true, Why: fmt.Sprintf("too short to tell: %d points in %.0f s, %d are needed",
			len(series), elapsed.Seconds(), fewestPoints)}
	}
	points := fold(series)
	third := len(points) / 3
	perSecond := slope(points)
	g := result.Growth{SlopePerMinute: 60 * perSecond, FirstThird: medianOf(points[:third]), LastThird: medianOf(points[len(points)-third:])}
	rise, change := perSecond*(points[len(points)-1].At-points[0].At), g.LastThird-g.FirstThird
	bucket, last := bucketWidth(bounds, g.FirstThird)
	if last {
		g.Unknown, g.Why = true, fmt.Sprintf("cannot tell: the first third is at the largest bucket, %.3g ms", g.FirstThird)
		return g
	}
	margin := max(absoluteMargin, relativeMargin*g.FirstThird, bucket)
	g.Grows = rise > margin && change > margin
	g.Why = fmt.Sprintf("Theil–Sen slope %+.3g ms over the run, median of the last third %+.3g ms on the first's; margin of both %.3g ms", rise, change, margin)
	return g
}

// bucketWidth is the width in milliseconds of the bucket that v lies in, and whether v is at or beyond the largest
// finite bound, where every larger value looks the same.
func bucketWidth(bounds []float64, v float64) (width float64, last bool) {
	lower := 0.0
	for _, bound := range bounds {
		if upper := 1000 * bound; !math.IsInf(upper, 1) {
			if v < upper {
				return upper - lower, false
			}
			lower = upper
		}
	}
	return 0, len(bounds) > 0
}

// slope is the Theil–Sen slope, in units of value a second.
func slope(points []result.Point) float64 {
	var slopes []float64
	for i, p := range points {
		for _, q := range points[i+1:] {
			if q.At > p.At {
				slopes = append(slopes, (q.Value-p.Value)/(q.At-p.At))
			}
		}
	}
	return result.Median(slopes)
}

func medianOf(points []result.Point) float64 {
	var values []float64
	for _, p := range points {
		values = append(values, p.Value)
	}
	return result.Median(values)
}

// fold joins neighbours to their median until there are at most maxPoints.
func fold(points []result.Point) (out []result.Point) {
	for part := range slices.Chunk(points, (len(points)+maxPoints-1)/maxPoints) {
		out = append(out, result.Point{At: part[0].At, Value: medianOf(part)})
	}
	return out
}
