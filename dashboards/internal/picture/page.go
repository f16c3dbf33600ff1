//go:build unix

package main

import (
	"bytes"
	"context"
	_ "embed"
	"fmt"
	"html/template"
	"regexp"
	"slices"
	"strings"
	"time"

	"noncegate/dashboards/internal/boards"
	"noncegate/dashboards/internal/rig"
)

//go:embed page.html
var pageHTML string

// The sizes of the page, in pixels. They must fit those in page.html.
const (
	pageWidth   = 1500
	headHeight  = 84
	rowHeight   = 38
	graphHeight = 246
	statHeight  = 118
	gap         = 8
)

// view is what page.html shows.
type view struct {
	Title, Description string
	Rows               []rowView
}

type rowView struct {
	Title string
	Lines [][]panelView
}

type panelView struct {
	Title  string
	Number string // of a stat
	Color  string
	Chart  template.HTML
	Legend []legend
}

type legend struct{ Name, Color string }

// pageOf asks the queries of a dashboard and makes a page of the answers. It returns
// the height of the page too.
func pageOf(ctx context.Context, p *rig.Prometheus, b boards.Board, from, to time.Time) ([]byte, int, error) {
	v := view{Title: b.Title, Description: b.Description}
	height := headHeight
	for _, row := range b.Rows {
		r := rowView{Title: row.Heading()}
		height += rowHeight
		for _, line := range row.Lines() {
			views, err := drawLine(ctx, p, line, from, to)
			if err != nil {
				return nil, 0, err
			}
			r.Lines = append(r.Lines, views)
			height += gap + graphHeight
			if line[0].Kind == boards.Stat {
				height -= graphHeight - statHeight
			}
		}
		v.Rows = append(v.Rows, r)
	}
	page, err := template.New("page").Parse(pageHTML)
	if err != nil {
		return nil, 0, err
	}
	var out bytes.Buffer
	err = page.Execute(&out, v)
	return out.Bytes(), height, err
}

func drawLine(ctx context.Context, p *rig.Prometheus, line []boards.Panel, from, to time.Time) ([]panelView, error) {
	width := (pageWidth - gap) / len(line)
	var views []panelView
	for _, panel := range line {
		lines, err := ask(ctx, p, panel, from, to)
		if err != nil {
			return nil, err
		}
		v := panelView{Title: panel.Title}
		if panel.Kind == boards.Stat {
			v.Number, v.Color = stat(panel, lines)
		} else if v.Chart, v.Legend, err = plot(panel, lines, width-3*gap, from, to); err != nil {
			return nil, fmt.Errorf("%s: %w", panel.Title, err)
		}
		views = append(views, v)
	}
	return views, nil
}

// line is one line of a chart.
type line struct {
	name    string
	samples []rig.Sample
}

func ask(ctx context.Context, p *rig.Prometheus, panel boards.Panel, from, to time.Time) ([]line, error) {
	var lines []line
	for _, q := range panel.Queries {
		got, err := p.QueryRange(ctx, q.Ask(window), from, to, every)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", panel.Title, err)
		}
		for _, s := range got {
			lines = append(lines, line{fill(q.Legend, s.Labels), s.Samples})
		}
	}
	return lines, nil
}

var label = regexp.MustCompile(`\{\{(\w+)\}\}`)

// fill puts the values of labels into a legend.
func fill(text string, labels map[string]string) string {
	return label.ReplaceAllStringFunc(text, func(found string) string { return labels[strings.Trim(found, "{}")] })
}

// stat is the last number of a panel, and the colour of its threshold.
func stat(panel boards.Panel, lines []line) (number, color string) {
	color = "#3f9b4f"
	if len(lines) == 0 {
		return "No data", "#777"
	}
	value := lines[0].samples[len(lines[0].samples)-1].Value
	switch {
	case panel.Red > 0 && value >= panel.Red:
		color = "#c4323f"
	case panel.Orange > 0 && value >= panel.Orange:
		color = "#d9822b"
	}
	return format(panel.Unit, value), color
}

// format writes a value as Grafana does for the unit, or nearly so.
func format(unit string, v float64) string {
	scaled := func(v float64, base float64, units ...string) string {
		i := 0
		for ; i < len(units)-1 && v >= base; i++ {
			v /= base
		}
		return trim(v) + units[i]
	}
	switch unit {
	case "s":
		if v > 0 && v < 1 {
			return scaled(v*1e6, 1000, " µs", " ms")
		}
		return trim(v) + " s"
	case "bytes":
		return scaled(v, 1024, " B", " KiB", " MiB", " GiB")
	case "percentunit":
		return trim(100*v) + " %"
	case "reqps", "ops", "rowsps":
		return scaled(v, 1000, "", " K", " M") + map[string]string{"reqps": " req/s", "ops": " ops/s", "rowsps": " rows/s"}[unit]
	}
	return scaled(v, 1000, "", " K", " M")
}

func trim(v float64) string {
	text := fmt.Sprintf("%.3g", v)
	if v >= 100 {
		text = fmt.Sprintf("%.0f", v)
	}
	return text
}

// busiest puts the lines that move before those that are 0 throughout, of which a
// closed set of labels has many, and keeps what a legend has room for.
func busiest(lines []line, most int) []line {
	moves := func(l line) bool {
		return slices.ContainsFunc(l.samples, func(s rig.Sample) bool { return s.Value != 0 })
	}
	sorted := slices.Clone(lines)
	slices.SortStableFunc(sorted, func(a, b line) int {
		switch {
		case moves(a) == moves(b):
			return 0
		case moves(a):
			return -1
		}
		return 1
	})
	return sorted[:min(len(sorted), most)]
}
