package report

import (
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/wcharczuk/go-chart/v2"

	"noncegate/scripts/loadtest/result"
)

func labels(ticks []chart.Tick) string {
	var out []string
	for _, t := range ticks {
		out = append(out, t.Label)
	}
	return strings.Join(out, " ")
}

func TestTicksAreRoundAndReachBeyondTheData(t *testing.T) {
	for _, c := range []struct {
		name, want string
		ticks      []chart.Tick
	}{
		{"linear", "0 5k 10k 15k", linearTicks(10_001)},
		{"linear, just full", "0 2k 4k 6k 8k 10k", linearTicks(10_000)},
		{"linear, small", "0 0.01 0.02 0.03 0.04 0.05", linearTicks(0.05)},
		{"linear, nothing", "0 0.2 0.4 0.6 0.8 1", linearTicks(0)},
		{"logarithmic", "1 2 5 10", logTicks(1.7, 8)},
		{"logarithmic, many decades", "0.01 0.1 1 10 100", logTicks(0.03, 90)},
		{"logarithmic, one value", "1 2", logTicks(1.5, 1.5)},
		{"logarithmic, one round value", "5 10", logTicks(5, 5)},
		{"a minute", "0 s 10 s 20 s 30 s 40 s 50 s 60 s", timeTicks(59)},
		{"ten minutes", "0 min 2 min 4 min 6 min 8 min 10 min", timeTicks(600)},
		{"a day", "0 h 5 h 10 h 15 h 20 h 25 h", timeTicks(86_400)},
		{"no time", "0 s 1 s", timeTicks(0)},
	} {
		if got := labels(c.ticks); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
	if last := timeTicks(42)[5]; last.Value != 42 || last.Label != "" {
		t.Errorf("a run of 42 s ends at %+v, want at 42 without label", last)
	}
}

func TestTicksOfAnySizeRiseAndEnd(t *testing.T) {
	for exponent := -12; exponent <= 15; exponent++ {
		for _, m := range []float64{1, 1.5, 2, 4.999, 5, 9.99} {
			v := m * math.Pow(10, float64(exponent))
			for name, ticks := range map[string][]chart.Tick{
				"linear": linearTicks(v), "logarithmic": logTicks(v/1000, v), "flat": logTicks(v, v), "time": timeTicks(v),
			} {
				for i := 1; i < len(ticks); i++ {
					if !(ticks[i].Value > ticks[i-1].Value) {
						t.Fatalf("%s ticks up to %v: %v", name, v, ticks)
					}
				}
				if len(ticks) < 2 || len(ticks) > 12 {
					t.Errorf("%s ticks up to %v: there are %d", name, v, len(ticks))
				}
			}
		}
	}
}

func TestNoLineIsDrawnThroughATimeThatNobodyMeasured(t *testing.T) {
	var points []result.Point
	for _, at := range []float64{0, 1, 2, 3, 9, 10, 20} {
		points = append(points, result.Point{At: at, Value: 1})
	}
	var got []int
	for _, piece := range pieces(points, false) {
		got = append(got, len(piece))
	}
	if want := []int{4, 2, 2}; len(got) != 3 || got[0] != want[0] || got[1] != want[1] || got[2] != want[2] {
		t.Errorf("pieces of %v points, want %v", got, want)
	}
	if got := len(pieces(points, true)); got != 1 {
		t.Errorf("%d pieces of categories, want one", got)
	}
}

func TestPointsThatShareAPlaceShowTheirWorstOrTheirMean(t *testing.T) {
	var points []result.Point
	for i := range 10 {
		points = append(points, result.Point{At: float64(i), Value: float64(i)})
	}
	for _, c := range []struct {
		worst bool
		want  float64
	}{{true, 4}, {false, 2}} {
		got, group := result.Fold(points, 2, c.worst)
		if len(got) != 2 || group != 5 || got[0].Value != c.want || got[1].At != 5 {
			t.Errorf("worst %v: %v in groups of %d, want two of five, the first %v", c.worst, got, group, c.want)
		}
	}
	if got, group := result.Fold(points, 10, true); len(got) != 10 || group != 1 {
		t.Errorf("what fits was joined: %v", got)
	}
}

func TestAPlotOfNothingIsNotDrawn(t *testing.T) {
	if v, err := (plot{title: "x", lines: []line{{Name: "empty"}}}).draw(); v != nil || err != nil {
		t.Errorf("%v, %v; want neither", v, err)
	}
}

func TestALogarithmicPlotShowsAZeroAtItsFloor(t *testing.T) {
	p := plot{title: "x", log: true, lines: []line{{Name: "a", points: []result.Point{{At: 0, Value: 0}, {At: 1, Value: 10}}}}}
	v, err := p.draw()
	if err != nil {
		t.Fatal(err)
	}
	for _, point := range regexp.MustCompile(`[ML] (-?\d+) (-?\d+)`).FindAllStringSubmatch(string(v.SVG), -1) {
		x, errX := strconv.Atoi(point[1])
		y, errY := strconv.Atoi(point[2])
		if errX != nil || errY != nil || x < 0 || x > chartWidth || y < 0 || y > chartHeight {
			t.Errorf("%q is not on the drawing", point[0])
		}
	}
}

func TestAShortLastSecondIsShownAtItsRate(t *testing.T) {
	seconds := []result.Second{{Acknowledged: 100, Seconds: 1}, {At: 1, Acknowledged: 20, Seconds: 0.2}, {At: 2, Acknowledged: 7}}
	got := timeline("", seconds, acknowledged).points
	for i, want := range []float64{100, 100, 7} {
		if got[i].Value != want {
			t.Errorf("second %d: %v a second, want %v", i, got[i].Value, want)
		}
	}
}

func TestFiguresAreWrittenAsPeopleReadThem(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{count(0), "0"}, {count(999), "999"}, {count(1000), "1,000"}, {count(-1234567), "-1,234,567"},
		{count(math.MinInt64), "-9,223,372,036,854,775,808"},
		{number(0), "0"}, {number(12.345), "12.3"}, {number(1234.5), "1,235"}, {number(-7), "-7"}, {number(1e18), "1e+18"},
		{number(math.NaN()), "–"}, {number(math.Inf(-1)), "–"},
		{milli(0), "0"}, {milli(0.0475), "0.048"}, {milli(1.234), "1.23"}, {milli(12.34), "12.3"}, {milli(4315), "4,315"}, {milli(math.NaN()), "–"},
		{percent(0), "0 %"}, {percent(0.05), "5 %"}, {percent(0.00001), "<0.01 %"}, {percent(1), "100 %"}, {percent(math.Inf(1)), "–"},
		{seconds(30.02), "30 s"}, {seconds(0.25), "0.3 s"}, {mebibytes(1 << 20), "1.0 MiB"},
		{plain("a\x1b[0m\nb"), "a\uFFFD[0m\uFFFDb"}, {mixText(map[string]float64{"b": 0}), ""}, {mixText(map[string]float64{"b": 1, "a": 3}), "a 75 %, b 25 %"},
	} {
		if c.got != c.want {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
}
