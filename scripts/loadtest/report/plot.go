package report

import (
	"bytes"
	"fmt"
	"html/template"

	"github.com/wcharczuk/go-chart/v2"

	"noncegate/scripts/loadtest/result"
)

// plot is lines over the measured time.
type plot struct {
	Title string
	lines []line
}

// line has a name of ours, since the library does not escape what it writes.
type line struct {
	name   string
	points []result.Point
}

// plotsOf are the plots of a run: throughput and latency second by second, and for each gateway how long its stages
// took and its memory.
func plotsOf(run *result.Run) []plot {
	var acknowledged, refused, p50, p99 []result.Point
	for _, s := range run.Timeline {
		each := max(s.Seconds, 0.001)
		acknowledged = append(acknowledged, result.Point{At: s.At, Value: float64(s.Acknowledged) / each})
		refused = append(refused, result.Point{At: s.At, Value: float64(s.Refused+s.Failed) / each})
		p50 = append(p50, result.Point{At: s.At, Value: s.P50})
		p99 = append(p99, result.Point{At: s.At, Value: s.P99})
	}
	plots := []plot{
		{"Requests a second", []line{{"acknowledged", acknowledged}, {"refused or failed", refused}}},
		{"Latency of the acknowledged, ms", []line{{"p50", p50}, {"p99", p99}}},
	}
	for _, n := range run.Nodes {
		queues, memory := plot{Title: "Stages of " + n.Metrics + ", p95, ms"}, []result.Point{}
		for _, s := range n.Stages {
			queues.lines = append(queues.lines, line{s.Name, s.Second})
		}
		for _, p := range n.Memory {
			memory = append(memory, result.Point{At: p.At, Value: p.Value / (1 << 20)})
		}
		plots = append(plots, queues, plot{"Memory of " + n.Metrics + ", MiB", []line{{"resident", memory}}})
	}
	return plots
}

// SVG is the drawing, "" of a plot without points.
func (p plot) SVG() (template.HTML, error) {
	last, high := 1.0, 1e-3
	c := chart.Chart{
		Width: 900, Height: 300, DPI: 72, XAxis: chart.XAxis{Name: "s"},
		Background: chart.Style{Padding: chart.Box{Top: 30, Left: 10, Right: 20, Bottom: 10}}, // the legend is above
	}
	for _, l := range p.lines {
		if len(l.points) == 0 {
			continue
		}
		s := chart.ContinuousSeries{Name: l.name}
		for _, point := range l.points {
			s.XValues, s.YValues = append(s.XValues, point.At), append(s.YValues, point.Value)
			last, high = max(last, point.At), max(high, point.Value)
		}
		c.Series = append(c.Series, s)
	}
	if len(c.Series) == 0 {
		return "", nil
	}
	c.XAxis.Range = &chart.ContinuousRange{Max: last}
	c.YAxis.Range = &chart.ContinuousRange{Max: high * 1.05}
	c.Elements = []chart.Renderable{chart.LegendThin(&c)}
	var svg bytes.Buffer
	if err := c.Render(chart.SVG, &svg); err != nil {
		return "", fmt.Errorf("draw %s: %w", p.Title, err)
	}
	return template.HTML(svg.Bytes()), nil
}
