package report

import (
	"fmt"
	"strconv"

	"noncegate/scripts/loadtest/result"
)

type comparisonView struct {
	Names []string
	Rows  []comparisonRow
	Plots []*plotView
}

type comparisonRow struct {
	Name  string
	Cells []string
}

// figure is something that can be said of every run.
type figure struct {
	name  string
	of    func(*result.Run) float64
	write func(float64) string
}

var figures = []figure{
	{"acknowledged/s", func(r *result.Run) float64 { return r.PerSecond }, number},
	{"latency p50, ms", func(r *result.Run) float64 { return r.LatencyMs.P50 }, milli},
	{"latency p95, ms", func(r *result.Run) float64 { return r.LatencyMs.P95 }, milli},
	{"latency p99, ms", func(r *result.Run) float64 { return r.LatencyMs.P99 }, milli},
	{"latency p99.9, ms", func(r *result.Run) float64 { return r.LatencyMs.P999 }, milli},
	{"latency max, ms", func(r *result.Run) float64 { return r.LatencyMs.Max }, milli},
	{"event p99, ms", func(r *result.Run) float64 { return events(r).LatencyMs.P99 }, milli},
	{"events missed", func(r *result.Run) float64 { return float64(events(r).Missed) }, number},
	{"refused", func(r *result.Run) float64 { return float64(r.Refusals()) }, number},
	{"failed", func(r *result.Run) float64 { return float64(r.Failed) }, number},
	{"never sent", func(r *result.Run) float64 { return float64(r.Unsent) }, number},
	{"connections lost", func(r *result.Run) float64 { return float64(result.Sum(r.Lost)) }, number},
	{"slow clients kicked", func(r *result.Run) float64 { return float64(slow(r).Kicked) }, number},
	{"most memory of all gateways", MaxMemory, mebibytes},
}

func events(r *result.Run) result.Events {
	if r.Events == nil {
		return result.Events{}
	}
	return *r.Events
}

func slow(r *result.Run) result.Slow {
	if r.Slow == nil {
		return result.Slow{}
	}
	return *r.Slow
}

// MaxMemory is the largest resident memory of each gateway, all together, in bytes.
func MaxMemory(r *result.Run) float64 {
	var sum float64
	for _, n := range r.Nodes {
		_, _, most := memory(n)
		sum += most
	}
	return sum
}

// compare puts finite runs side by side.
func compare(runs []*result.Run) (*comparisonView, error) {
	v := &comparisonView{}
	for i, run := range runs {
		v.Names = append(v.Names, runName(run, i))
	}
	v.Rows = append(v.Rows, comparisonRow{Name: "outcome"})
	for _, run := range runs {
		v.Rows[0].Cells = append(v.Rows[0].Cells, outcomeWord(run))
	}
	for _, f := range figures {
		if row, any := f.row(runs); any {
			v.Rows = append(v.Rows, row)
		}
	}
	for _, p := range comparisonPlots(runs, v.Names) {
		drawn, err := p.draw()
		if err != nil {
			return nil, err
		}
		if drawn != nil {
			v.Plots = append(v.Plots, drawn)
		}
	}
	return v, nil
}

// row is the figure of each run, and whether any is other than 0.
func (f figure) row(runs []*result.Run) (row comparisonRow, any bool) {
	row.Name = f.name
	first := f.of(runs[0])
	for i, run := range runs {
		v := f.of(run)
		cell := f.write(v)
		if i > 0 && first > 0 {
			cell += " (×" + strconv.FormatFloat(v/first, 'f', 2, 64) + ")"
		}
		row.Cells = append(row.Cells, cell)
		any = any || v != 0
	}
	return row, any
}

func runName(run *result.Run, i int) string {
	if run.Name != "" {
		return run.Name
	}
	return fmt.Sprintf("run %d", i+1)
}

func comparisonPlots(runs []*result.Run, names []string) []plot {
	var all []spread
	throughput := plot{title: "Throughput, acknowledged a second"}
	p99 := plot{title: "Latency p99 over time, ms", log: true, worst: true}
	mem := plot{title: "Resident memory, MiB", worst: true}
	for i, run := range runs {
		all = append(all, spread{names[i], run.LatencyMs})
		throughput.lines = append(throughput.lines, timeline(names[i], run.Timeline, acknowledged))
		p99.lines = append(p99.lines, timeline(names[i], answered(run.Timeline), func(s result.Second) float64 { return s.P99 }))
		for _, n := range run.Nodes {
			name := names[i]
			if len(run.Nodes) > 1 {
				name += " at " + n.Metrics
			}
			mem.lines = append(mem.lines, line{name, scaled(n.Memory, 1.0/(1<<20))})
		}
	}
	return []plot{percentilePlot(all), throughput, p99, mem}
}
