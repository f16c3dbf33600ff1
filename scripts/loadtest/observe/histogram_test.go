package observe

import (
	"math"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/proto"
)

func histogram(counts ...uint64) *dto.Histogram {
	bounds := []float64{0.001, 0.01, 0.1, math.Inf(1)}
	h := &dto.Histogram{SampleCount: proto.Uint64(counts[len(counts)-1])}
	for i, c := range counts {
		h.Bucket = append(h.Bucket, &dto.Bucket{UpperBound: proto.Float64(bounds[i]), CumulativeCount: proto.Uint64(c)})
	}
	return h
}

func of(counts ...uint64) cumulative { return cumulative{}.plus(histogram(counts...)) }

func TestAQuantileLiesOnTheLineThroughItsBucket(t *testing.T) {
	for _, c := range []struct {
		h       cumulative
		q, want float64
	}{
		{of(100, 100, 100, 100), 0.5, 0.0005},
		{of(0, 100, 100, 100), 0.5, 0.0055},
		{of(50, 100, 100, 100), 0.5, 0.001},
		{of(0, 0, 0, 100), 0.5, 0.1}, // above every bound: the largest
		{of(0, 0, 0, 0), 0.5, 0},
		{cumulative{}, 0.5, 0},
	} {
		if got := c.h.quantile(c.q); math.Abs(got-c.want) > 1e-12 {
			t.Errorf("quantile %v of %v = %v, want %v", c.q, c.h.counts, got, c.want)
		}
	}
}

func TestWhatWasObservedInBetweenIsTheDifferenceUnlessTheProcessBeganAnew(t *testing.T) {
	for _, c := range []struct {
		name           string
		earlier, later cumulative
		want           int64
	}{
		{"more of the same", of(1, 2, 3, 4), of(2, 4, 6, 8), 4},
		{"nothing", of(1, 2, 3, 4), of(1, 2, 3, 4), 0},
		{"a total that went back", of(1, 2, 3, 40), of(1, 2, 3, 4), 4},
		{"a bucket that went back", of(3, 3, 3, 3), of(0, 1, 2, 9), 9},
		{"buckets that cannot have grown so", of(0, 2, 3, 3), of(9, 9, 9, 9), 9},
		{"the first of all", cumulative{}, of(1, 2, 3, 4), 4},
	} {
		if got := c.later.since(c.earlier).count(); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}

func TestABrokenHistogramIsLeftOutOfTheSum(t *testing.T) {
	whole := of(1, 2, 3, 4)
	if got := whole.plus(histogram(1, 1, 1, 1)).count(); got != 5 {
		t.Errorf("of two: %d, want 5", got)
	}
	falling := histogram(4, 3, 2, 1)
	noCount := histogram(1, 2, 3, 4)
	noCount.SampleCount = nil
	others := &dto.Histogram{SampleCount: proto.Uint64(3), Bucket: []*dto.Bucket{
		{UpperBound: proto.Float64(7), CumulativeCount: proto.Uint64(3)},
	}}
	for name, h := range map[string]*dto.Histogram{
		"falling": falling, "without count": noCount, "other buckets": others, "empty": {},
	} {
		if got := whole.plus(h).count(); got != 4 {
			t.Errorf("%s: %d, want 4", name, got)
		}
	}
	if got := (cumulative{}).plus(&dto.Histogram{}); got.bounds != nil {
		t.Errorf("of a histogram without buckets: %v, want nothing", got)
	}
}
