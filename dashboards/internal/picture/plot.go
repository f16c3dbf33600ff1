//go:build unix

package main

import (
	"bytes"
	"html/template"
	"math"
	"time"

	"github.com/wcharczuk/go-chart/v2"
	"github.com/wcharczuk/go-chart/v2/drawing"

	"noncegate/dashboards/internal/boards"
	"noncegate/dashboards/internal/rig"
)

const (
	chartHeight = 184
	legends     = 9 // as many as fit beneath a chart
)

// colors are Grafana's classic palette, or nearly so.
func colors() []string {
	return []string{"7eb26d", "eab839", "6ed0e0", "ef843c", "e24d42", "1f78c1", "ba43a9", "705da0", "508642", "cca300", "447ebc", "c15c17", "890f02", "0a437c"}
}

// plot draws the lines of a panel as an SVG of the width.
func plot(panel boards.Panel, lines []line, width int, from, to time.Time) (template.HTML, []legend, error) {
	var series []chart.Series
	var names []legend
	top := 0.0
	for i, l := range busiest(lines, legends) {
		color := colors()[i%len(colors())]
		names = append(names, legend{l.name, "#" + color})
		for _, part := range unbroken(l.samples) {
			series = append(series, curve(part, drawing.ColorFromHex(color)))
			for _, s := range part {
				top = max(top, s.Value)
			}
		}
	}
	if top == 0 {
		top = 1
	}
	c := chart.Chart{
		Width: width, Height: chartHeight, Series: series,
		Background: chart.Style{Padding: chart.Box{Top: 8, Left: 8, Right: 12, Bottom: 4}},
		XAxis: chart.XAxis{
			Style: axisStyle(), Range: &chart.ContinuousRange{Min: float64(from.UnixNano()), Max: float64(to.UnixNano())},
			ValueFormatter: chart.TimeValueFormatterWithFormat("15:04:05"),
		},
		YAxis: chart.YAxis{
			Style: axisStyle(), AxisType: chart.YAxisSecondary, Range: &chart.ContinuousRange{Min: 0, Max: top * 1.05},
			ValueFormatter: func(v any) string { return format(panel.Unit, v.(float64)) },
			GridMajorStyle: chart.Style{StrokeColor: drawing.ColorFromHex("e4e7eb"), StrokeWidth: 1},
			Ticks:          ticks(panel.Unit, top*1.05),
		},
	}
	var svg bytes.Buffer
	if err := c.Render(chart.SVG, &svg); err != nil {
		return "", nil, err
	}
	return template.HTML(svg.String()), names, nil // our own, and numbers
}

func axisStyle() chart.Style {
	return chart.Style{FontSize: 7.5, FontColor: drawing.ColorFromHex("57606a"), StrokeColor: drawing.ColorFromHex("d8dde3")}
}

// ticks are four steps up to the top.
func ticks(unit string, top float64) []chart.Tick {
	var all []chart.Tick
	for i := range 5 {
		v := top * float64(i) / 4
		all = append(all, chart.Tick{Value: v, Label: format(unit, v)})
	}
	return all
}

func curve(samples []rig.Sample, color drawing.Color) chart.Series {
	ts := chart.TimeSeries{Style: chart.Style{StrokeColor: color, StrokeWidth: 1.4, FillColor: color.WithAlpha(16)}}
	for _, s := range samples {
		ts.XValues, ts.YValues = append(ts.XValues, s.At), append(ts.YValues, s.Value)
	}
	return ts
}

// unbroken cuts a line where it is no number, as a percentile of nothing is.
func unbroken(samples []rig.Sample) (parts [][]rig.Sample) {
	var part []rig.Sample
	for _, s := range samples {
		if !math.IsNaN(s.Value) && !math.IsInf(s.Value, 0) {
			part = append(part, s)
			continue
		}
		if len(part) > 1 {
			parts = append(parts, part)
		}
		part = nil
	}
	if len(part) > 1 {
		parts = append(parts, part)
	}
	return parts
}
