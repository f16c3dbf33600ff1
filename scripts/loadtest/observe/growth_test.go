package observe

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"noncegate/scripts/loadtest/result"
)

// gatewayBounds are the buckets of a gateway's stages, in milliseconds.
var gatewayBounds = []float64{
	0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, math.Inf(1),
}

// sampled is f at each of n seconds.
func sampled(n int, f func(second float64) float64) []result.Point {
	points := make([]result.Point, n)
	for i := range points {
		points[i] = result.Point{At: float64(i + 1), Value: f(float64(i + 1))}
	}
	return points
}

func noise(seed uint64, spread float64) func() float64 {
	r := rand.New(rand.NewPCG(seed, 1))
	return func() float64 { return spread * (2*r.Float64() - 1) }
}

func TestOnlyASeriesThatRisesAllAlongGrows(t *testing.T) {
	n := noise(1, 3)
	for _, c := range []struct {
		name   string
		points []result.Point
		grows  bool
	}{
		{"flat with noise", sampled(60, func(float64) float64 { return 8 + n() }), false},
		{"linear growth with noise", sampled(60, func(s float64) float64 { return 5 + s + n() }), true},
		{"linear growth from nothing", sampled(60, func(s float64) float64 { return s / 10 }), true},
		{"growth that slows down", sampled(60, func(s float64) float64 { return 10 * math.Sqrt(s) }), true},
		{"growth with one spike", sampled(60, func(s float64) float64 {
			if s == 2 {
				return 5000
			}
			return 5 + s
		}), true},
		{"one spike", sampled(60, func(s float64) float64 {
			if s == 59 {
				return 5000
			}
			return 8 + n()
		}), false},
		{"a slow start", sampled(60, func(s float64) float64 {
			if s <= 8 {
				return 400
			}
			return 8 + n()
		}), false},
		{"a quick start", sampled(60, func(s float64) float64 {
			if s <= 8 {
				return 0.1
			}
			return 40 + n()
		}), false},
		{"saw-tooth", sampled(60, func(s float64) float64 { return 5 + 10*math.Mod(s, 10) }), false},
		{"one step up for good", sampled(60, func(s float64) float64 {
			if s <= 24 {
				return 5
			}
			return 40
		}), false},
		{"a queue that grew and was emptied", sampled(60, func(s float64) float64 { return 5 + math.Mod(s, 50) }), false},
		{"falling", sampled(60, func(s float64) float64 { return 100 - s }), false},
		{"all zero", sampled(60, func(float64) float64 { return 0 }), false},
		{"growth within one bucket", sampled(60, func(s float64) float64 { return 10 + s/5 }), false},
		{"growth of less than a millisecond", sampled(60, func(s float64) float64 { return 0.2 + s/100 }), false},
		{"a day of growth", sampled(86_400, func(s float64) float64 { return 5 + s/1000 + n() }), true},
		{"a day of noise", sampled(86_400, func(float64) float64 { return 8 + n() }), false},
	} {
		g := GrowthOf(c.points, gatewayBounds, time.Duration(len(c.points))*time.Second)
		if g.Grows != c.grows || g.Unknown {
			t.Errorf("%s: grows %v, unknown %v; want %v, false (%s)", c.name, g.Grows, g.Unknown, c.grows, g.Why)
		}
	}
}

func TestTheFiguresOfAGrowthAreThoseOfTheSeries(t *testing.T) {
	g := GrowthOf(sampled(30, func(s float64) float64 { return 2 * s }), gatewayBounds, 30*time.Second)
	if g.SlopePerMinute != 120 || g.FirstThird != 11 || g.LastThird != 51 {
		t.Errorf("slope %v, first %v, last %v; want 120, 11, 51", g.SlopePerMinute, g.FirstThird, g.LastThird)
	}
	if want := "slope +58 ms over the run, median of the last third +40 ms on the first's; margin of both 15 ms"; !strings.Contains(g.Why, want) {
		t.Errorf("why = %q, want %q in it", g.Why, want)
	}
}

func TestWhatIsTooShortIsNotSaidToGrow(t *testing.T) {
	for _, n := range []int{0, 1, 2, fewestPoints - 1} {
		g := GrowthOf(sampled(n, func(s float64) float64 { return 100 * s }), gatewayBounds, time.Duration(n)*time.Second)
		if g.Grows || !g.Unknown || g.Why == "" {
			t.Errorf("%d points: %+v, want unknown with a reason", n, g)
		}
	}
	if g := GrowthOf(sampled(fewestPoints, func(s float64) float64 { return 100 * s }), gatewayBounds, time.Minute); !g.Grows {
		t.Errorf("%d points: %+v, want that it grows", fewestPoints, g)
	}
}

func TestAboveTheLargestBucketNoDirectionCanBeTold(t *testing.T) {
	g := GrowthOf(sampled(60, func(float64) float64 { return 10_000 }), gatewayBounds, time.Minute)
	if g.Grows || !g.Unknown {
		t.Errorf("%+v, want unknown", g)
	}
}
