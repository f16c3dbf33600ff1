//go:build unix

package main

import (
	"image"
	"image/color"
	"image/png"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"noncegate/dashboards/internal/boards"
	"noncegate/dashboards/internal/rig"
)

func TestValuesAreWrittenInTheUnitOfTheirPanel(t *testing.T) {
	for want, v := range map[string]struct {
		unit  string
		value float64
	}{
		"0 s": {"s", 0}, "250 µs": {"s", 250e-6}, "1.5 ms": {"s", 0.0015}, "2 s": {"s", 2},
		"12.3 %": {"percentunit", 0.123}, "64 KiB": {"bytes", 65536}, "1.8 K req/s": {"reqps", 1800},
		"3 rows/s": {"rowsps", 3}, "7": {"short", 7}, "1.2 M": {"short", 1_200_000},
	} {
		if got := format(v.unit, v.value); got != want {
			t.Errorf("%v %s is written %q, want %q", v.value, v.unit, got, want)
		}
	}
}

func TestAStatHasTheColourOfItsThreshold(t *testing.T) {
	p := boards.Panel{Unit: "percentunit", Orange: 0.01, Red: 0.05}
	one := func(v float64) []line { return []line{{samples: []rig.Sample{{Value: 9}, {Value: v}}}} }
	green, orange, red := color3(p, one(0.001)), color3(p, one(0.01)), color3(p, one(0.06))
	if green == orange || orange == red || green == red {
		t.Errorf("green %s, orange %s, red %s", green, orange, red)
	}
	if number, _ := stat(p, nil); number != "No data" {
		t.Errorf("nothing is shown as %q", number)
	}
}

func color3(p boards.Panel, lines []line) string {
	_, c := stat(p, lines)
	return c
}

func samples(values ...float64) (all []rig.Sample) {
	for i, v := range values {
		all = append(all, rig.Sample{At: time.Unix(int64(i), 0), Value: v})
	}
	return all
}

func TestALineIsCutWhereItIsNoNumber(t *testing.T) {
	got := unbroken(samples(1, 2, math.NaN(), 3, math.Inf(1), 4, 5, 6))
	if len(got) != 2 || len(got[0]) != 2 || len(got[1]) != 3 {
		t.Errorf("got %v, want 1 2 and 4 5 6; a single point is no line", got)
	}
}

func TestLinesThatMoveComeBeforeThoseThatDoNot(t *testing.T) {
	got := busiest([]line{{"zero", samples(0, 0)}, {"moves", samples(0, 1)}, {"other zero", samples(0)}}, 2)
	if len(got) != 2 || got[0].name != "moves" || got[1].name != "zero" {
		t.Errorf("got %v", got)
	}
}

func TestAChartHasItsLinesAndALegend(t *testing.T) {
	p := boards.Panel{Unit: "s", Title: "any"}
	for name, lines := range map[string][]line{
		"lines": {{"p50", samples(1, 2, 3)}, {"p99", samples(2, 4, 6)}},
		"zeros": {{"p50", samples(0, 0, 0)}, {"p99", samples(0, 0, 0)}},
	} {
		svg, names, err := plot(p, lines, 400, time.Unix(0, 0), time.Unix(2, 0))
		if err != nil || !strings.HasPrefix(string(svg), "<svg") || len(names) != 2 || names[0].Color == names[1].Color {
			t.Errorf("%s: %v, legend %v, %.40s", name, err, names, svg)
		}
	}
}

func TestAPictureIsWrittenInItsCommonestColours(t *testing.T) {
	dir := t.TempDir()
	from, to := filepath.Join(dir, "from.png"), filepath.Join(dir, "to.png")
	full := image.NewRGBA(image.Rect(0, 0, 40, 40))
	for i := range 40 * 40 {
		full.Set(i%40, i/40, color.RGBA{uint8(i % 250), uint8(i / 250 % 3), 7, 255})
	}
	for x := range 40 {
		full.Set(x, 0, color.RGBA{255, 255, 255, 255})
	}
	out, err := os.Create(from)
	if err == nil {
		err = png.Encode(out, full)
	}
	if err == nil {
		err = out.Close()
	}
	if err == nil {
		err = shrink(from, to)
	}
	if err != nil {
		t.Fatal(err)
	}
	in, err := os.Open(to)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	got, err := png.Decode(in)
	if err != nil {
		t.Fatal(err)
	}
	if r, _, b, _ := got.At(5, 0).RGBA(); r != 0xffff || b != 0xffff {
		t.Errorf("white became %v", got.At(5, 0))
	}
	if p, ok := got.ColorModel().(color.Palette); !ok || len(p) > 256 {
		t.Errorf("a picture of %T", got.ColorModel())
	}
}
