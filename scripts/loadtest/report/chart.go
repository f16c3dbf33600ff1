package report

import (
	"bytes"
	"fmt"
	"html/template"
	"math"
	"slices"
	"strconv"

	"github.com/wcharczuk/go-chart/v2"

	"noncegate/scripts/loadtest/result"
	"noncegate/scripts/loadtest/rounds"
)

// The drawing's own units. The page scales it to the width there is; twice the
// usual size, because the library rounds positions to whole units.
const (
	chartWidth  = 960
	chartHeight = 440
	// Labels are given the room of this size, which is what a phone shows them
	// at; elsewhere they are smaller.
	chartText = 30
	// More points than this a line cannot show.
	maxPoints = 400
	// Lines beyond this look like an earlier one.
	lineStyles = 8
)

type line struct {
	Name   string
	points []result.Point
}

// Style is the number of the line's style in the page's style sheet.
func (plotView) Style(i int) int { return i % lineStyles }

type plot struct {
	title, note string
	lines       []line
	log         bool     // logarithmic upwards, for what spans decades
	labels      []string // names of x = 0, 1, …; nil: x is seconds
	worst       bool     // of points that share a place the largest is shown, else their mean
}

type plotView struct {
	Title, Note string
	Lines       []line
	SVG         template.HTML
}

// draw makes the drawing; a plot without points has none. Only figures and words
// of ours are in it, since the library does not escape text; names are the
// page's to write.
func (p plot) draw() (*plotView, error) {
	p.lines = slices.DeleteFunc(slices.Clone(p.lines), func(l line) bool { return len(l.points) == 0 })
	if len(p.lines) == 0 {
		return nil, nil
	}
	folded := 1
	for i, l := range p.lines {
		var group int
		p.lines[i].points, group = result.Fold(l.points, maxPoints, p.worst)
		folded = max(folded, group)
	}
	var svg bytes.Buffer
	c := p.chart()
	if err := c.Render(chart.SVG, &svg); err != nil {
		return nil, fmt.Errorf("draw %s: %w", p.title, err)
	}
	v := &plotView{Title: p.title, Note: p.note, Lines: p.lines, SVG: template.HTML(svg.Bytes())}
	if folded > 1 {
		how := "mean"
		if p.worst {
			how = "largest"
		}
		v.Note += fmt.Sprintf(" Each point is the %s of %d.", how, folded)
	}
	return v, nil
}

// chart lays the plot out. Everything has a class and no colour, so that the page's
// style sheet can colour it for light and dark. The axis on the left is what
// the library calls the secondary one; it takes its range from the ticks of the
// primary, which is hidden.
func (p plot) chart() chart.Chart {
	x, y := p.axes()
	text := chart.Style{ClassName: "axis", FontSize: chartText, StrokeWidth: 1}
	none := chart.Hidden()
	c := chart.Chart{
		Width: chartWidth, Height: chartHeight, DPI: 72, // one point is one unit
		Background: chart.Style{ClassName: "background", Padding: chart.Box{Top: 20, Left: 10, Right: 30, Bottom: 10}},
		Canvas:     chart.Style{ClassName: "canvas"},
		XAxis:      chart.XAxis{Style: text, Ticks: x, GridMajorStyle: none, GridMinorStyle: none},
		YAxis:      chart.YAxis{Style: none, Ticks: y},
		YAxisSecondary: chart.YAxis{
			Style: text, Ticks: y, GridMajorStyle: none, GridMinorStyle: none, Zero: chart.GridLine{Style: none},
		},
		Series: gridLines(x, y),
	}
	floor := y[0].Value
	for i, l := range p.lines {
		for _, piece := range pieces(l.points, p.labels != nil) {
			var xs, ys []float64
			for _, point := range piece {
				xs = append(xs, point.At)
				ys = append(ys, max(floor, p.height(point.Value)))
			}
			c.Series = append(c.Series, series("line l"+strconv.Itoa(i%lineStyles), xs, ys))
		}
	}
	return c
}

// gridLines are at every tick above the axis. They are series like the data,
// because the library gives its own grid lines no class.
func gridLines(x, y []chart.Tick) []chart.Series {
	var out []chart.Series
	for _, t := range y[1:] {
		out = append(out, series("grid", []float64{x[0].Value, x[len(x)-1].Value}, []float64{t.Value, t.Value}))
	}
	return out
}

func series(class string, xs, ys []float64) chart.Series {
	return chart.ContinuousSeries{
		YAxis: chart.YAxisSecondary, XValues: xs, YValues: ys,
		// The style sheet says how it looks; without colour and width the
		// library would draw nothing.
		Style: chart.Style{ClassName: class, StrokeWidth: 1, StrokeColor: chart.ColorBlack},
	}
}

func (p plot) height(v float64) float64 {
	if p.log {
		return math.Log10(v) // -Inf for 0, which the caller lifts to the floor
	}
	return v
}

// pieces cuts a line where points are missing, so that no line is drawn through
// a time that nobody measured. A single point becomes a short line, which can be
// seen.
func pieces(points []result.Point, categories bool) [][]result.Point {
	var usual []float64
	for i := 1; i < len(points); i++ {
		usual = append(usual, points[i].At-points[i-1].At)
	}
	gap := math.Inf(1)
	if len(usual) > 0 && !categories {
		gap = max(2.5, 2.5*rounds.Median(usual))
	}
	var out [][]result.Point
	begin := 0
	for i := 1; i <= len(points); i++ {
		if i == len(points) || points[i].At-points[i-1].At > gap {
			out = append(out, points[begin:i])
			begin = i
		}
	}
	for i, piece := range out {
		if len(piece) == 1 {
			wider := piece[0]
			wider.At += 0.3
			out[i] = []result.Point{piece[0], wider}
		}
	}
	return out
}

// axes are the ticks of both axes, which are also their ranges: two or more
// each, rising, the first and the last at or beyond the data.
func (p plot) axes() (x, y []chart.Tick) {
	low, high, last := math.Inf(1), 0.0, 0.0
	for _, l := range p.lines {
		for _, point := range l.points {
			last = max(last, point.At)
			high = max(high, point.Value)
			if point.Value > 0 {
				low = min(low, point.Value)
			}
		}
	}
	return p.across(last), p.upwards(low, high)
}

func (p plot) across(last float64) []chart.Tick {
	if p.labels == nil {
		return timeTicks(last)
	}
	ticks := make([]chart.Tick, len(p.labels))
	for i, label := range p.labels {
		ticks[i] = chart.Tick{Value: float64(i), Label: label}
	}
	return ticks
}

func (p plot) upwards(low, high float64) []chart.Tick {
	if p.log && high > 0 {
		return logTicks(low, high)
	}
	return linearTicks(high)
}

// linearTicks are four to seven ticks from 0 to at least high.
func linearTicks(high float64) []chart.Tick {
	if !(high > 0) {
		high = 1
	}
	step := niceStep(high / 5)
	var ticks []chart.Tick
	for i := 0.0; ; i++ {
		ticks = append(ticks, chart.Tick{Value: i * step, Label: tickLabel(i * step)})
		if i*step >= high*(1-1e-9) {
			return ticks
		}
	}
}

// logTicks are at 1, 2 and 5 of each decade, or the decades alone where those
// would be many. Values are logarithms.
func logTicks(low, high float64) []chart.Tick {
	mantissas := []float64{1, 2, 5}
	if math.Log10(high/low) > 2.5 {
		mantissas = []float64{1}
	}
	var ticks []chart.Tick
	for decade := math.Floor(math.Log10(low)); ; decade++ {
		for _, m := range mantissas {
			v := m * math.Pow(10, decade)
			t := chart.Tick{Value: math.Log10(v), Label: tickLabel(v)}
			if v <= low*(1+1e-9) {
				ticks = []chart.Tick{t} // none so far was needed
				continue
			}
			ticks = append(ticks, t)
			if v >= high*(1-1e-9) {
				return ticks
			}
		}
	}
}

// timeTicks are from 0 to the end of a run of that many seconds, in seconds,
// minutes or hours. The last one may lie beyond the end.
func timeTicks(last float64) []chart.Tick {
	unit, name := 1.0, " s"
	switch {
	case last > 3*3600:
		unit, name = 3600, " h"
	case last > 300:
		unit, name = 60, " min"
	}
	step := max(1, niceStep(last/unit/6))
	var ticks []chart.Tick
	for i := 0.0; ; i++ {
		ticks = append(ticks, chart.Tick{Value: i * step * unit, Label: tickLabel(i*step) + name})
		if i > 0 && i*step*unit >= last {
			break
		}
	}
	// The drawing ends with the run, unless the tick after it is close.
	if end := &ticks[len(ticks)-1]; end.Value > 1.1*last && last > ticks[len(ticks)-2].Value {
		*end = chart.Tick{Value: last}
	}
	return ticks
}

// niceStep is the least of 1, 2 and 5 times a power of ten that is at least v.
func niceStep(v float64) float64 {
	if !(v > 0) {
		return 1
	}
	decade := math.Pow(10, math.Floor(math.Log10(v)))
	for _, m := range []float64{1, 2, 5} {
		if m*decade >= v*(1-1e-9) {
			return m * decade
		}
	}
	return 10 * decade
}

// tickLabel writes a round number short.
func tickLabel(v float64) string {
	for _, unit := range []struct {
		size float64
		name string
	}{{1e9, "G"}, {1e6, "M"}, {1e3, "k"}} {
		if v >= 10*unit.size || (v >= unit.size && math.Mod(v, unit.size) == 0) {
			return strconv.FormatFloat(v/unit.size, 'g', 4, 64) + unit.name
		}
	}
	return strconv.FormatFloat(v, 'g', 4, 64)
}
