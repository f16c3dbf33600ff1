package report

import (
	"math"
	"testing"
)

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
