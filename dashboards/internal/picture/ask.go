//go:build unix

package main

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"

	"noncegate/dashboards/internal/boards"
	"noncegate/dashboards/internal/rig"
)

// line is one line of a chart.
type line struct {
	name    string
	samples []rig.Sample
}

// ask is what a panel's queries are answered.
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

// busiest puts the lines that move before those that are 0 throughout, of which a
// closed set of labels has many.
func busiest(lines []line) []line {
	idle := func(l line) int {
		if slices.ContainsFunc(l.samples, func(s rig.Sample) bool { return s.Value != 0 }) {
			return 0
		}
		return 1
	}
	return slices.SortedStableFunc(slices.Values(lines), func(a, b line) int { return cmp.Compare(idle(a), idle(b)) })
}

// unbroken cuts a line where it is no number, as a percentile of nothing is.
func unbroken(samples []rig.Sample) (parts [][]rig.Sample) {
	var part []rig.Sample
	for _, s := range append(samples, rig.Sample{Value: math.NaN()}) {
		if !math.IsNaN(s.Value) && !math.IsInf(s.Value, 0) {
			part = append(part, s)
			continue
		}
		if len(part) > 1 {
			parts = append(parts, part)
		}
		part = nil
	}
	return parts
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
	if v >= 100 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.3g", v)
}
