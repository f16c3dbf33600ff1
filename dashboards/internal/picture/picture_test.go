//go:build unix

package main

import (
	"image"
	"image/color"
	"image/png"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/wcharczuk/go-chart/v2"

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
	for value, want := range map[float64]any{0.001: greenColor, 0.01: orangeColor, 0.06: redColor} {
		if _, color := stat(p, []line{{samples: samples(9, value)}}); color != want {
			t.Errorf("%v is %v, want %v", value, color, want)
		}
	}
	if number, _ := stat(p, nil); number != "No data" {
		t.Errorf("nothing is shown as %q", number)
	}
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
	got := busiest([]line{{"zero", samples(0, 0)}, {"moves", samples(0, 1)}, {"other zero", samples(0)}})
	if len(got) != 3 || got[0].name != "moves" || got[1].name != "zero" {
		t.Errorf("got %v", got)
	}
}

func TestAChartHasItsLinesAndALegend(t *testing.T) {
	renderer, err := chart.PNG(400, graphHeight)
	if err != nil {
		t.Fatal(err)
	}
	font, err := chart.GetDefaultFont()
	if err != nil {
		t.Fatal(err)
	}
	p := picture{renderer, time.Unix(0, 0), time.Unix(2, 0)}
	p.SetFont(font)
	p.panel(boards.Panel{Kind: boards.Graph, Unit: "s", Title: "any"}, []line{{"p50", samples(1, 2, 3)}, {"p99", samples(6, 6, 6)}, {"max", samples(0, 0, 0)}}, 0, 0, 400)
	var out chart.ImageWriter
	if err := p.Save(&out); err != nil {
		t.Fatal(err)
	}
	drawn, err := out.Image()
	if err != nil {
		t.Fatal(err)
	}
	legend := graphHeight - 2*legendLine - gap
	for i := range 3 {
		inChart, inLegend := 0, 0
		for x := range 400 {
			for y := range graphHeight {
				if r, g, b, _ := drawn.At(x, y).RGBA(); uint8(r>>8) != lineColor(i).R || uint8(g>>8) != lineColor(i).G || uint8(b>>8) != lineColor(i).B {
					continue
				} else if y < legend {
					inChart++
				} else {
					inLegend++
				}
			}
		}
		if inChart < 20 || inLegend < 12 {
			t.Errorf("line %d: %d points in the chart and %d in the legend", i, inChart, inLegend)
		}
	}
}

func TestAPictureIsWrittenInItsCommonestColours(t *testing.T) {
	to := filepath.Join(t.TempDir(), "to.png")
	full := image.NewRGBA(image.Rect(0, 0, 40, 40))
	for i := range 40 * 40 {
		full.Set(i%40, i/40, color.RGBA{uint8(i % 250), uint8(i / 250 % 3), 7, 255})
	}
	for x := range 40 {
		full.Set(x, 0, color.RGBA{255, 255, 255, 255})
	}
	if err := save(full, to); err != nil {
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
	if p, ok := got.ColorModel().(color.Palette); !ok || len(p) > maxColors {
		t.Errorf("a picture of %T", got.ColorModel())
	}
}
