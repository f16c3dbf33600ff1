package report

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"noncegate/scripts/loadtest/result"
	"noncegate/scripts/loadtest/table"
)

//go:embed page.html.tmpl
var pageSource string

// pageTemplate never changes, and may be executed by many at a time.
var pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{
	"count": count, "number": number, "milli": milli, "percent": percent, "mebibytes": mebibytes,
	"direction": direction, "ofGrowth": ofGrowth, "mark": verdictClass, "sign": verdictSign,
}).Parse(pageSource))

type pageView struct {
	Title    string
	Summary  *Summary        // nil for one run
	Compared *comparisonView // nil for one run
	Runs     []runView
}

// HTML writes the run as one page that stands alone: no network, no script,
// legible in light and dark and on a phone.
func HTML(w io.Writer, run *result.Run) error {
	v, err := viewRun(finite(run))
	if err != nil {
		return fmt.Errorf("write HTML report: %w", err)
	}
	return writePage(w, pageView{Title: "Noncegate load test", Runs: []runView{v}})
}

// Summary is what came of several runs together.
type Summary struct {
	Outcome  string // in a word or a few
	Judged   bool   // there was a criterion for all of them together
	Failed   bool   // a criterion was missed, or a run could not be made
	Verdicts []result.Verdict
	Tables   []table.Table
}

// Comparison writes several runs of the same kind as one page like that of HTML:
// the summary first, then side by side, with the others as multiples of the
// first, and then each by itself. Without runs it is an error.
func Comparison(w io.Writer, title string, summary Summary, runs []*result.Run) error {
	if len(runs) == 0 {
		return fmt.Errorf("write HTML report: no run to compare")
	}
	clean := make([]*result.Run, len(runs))
	page := pageView{Title: title, Summary: &summary}
	for i, run := range runs {
		clean[i] = finite(run)
		v, err := viewRun(clean[i])
		if err != nil {
			return fmt.Errorf("write HTML report: %w", err)
		}
		page.Runs = append(page.Runs, v)
	}
	compared, err := compare(clean)
	if err != nil {
		return fmt.Errorf("write HTML report: %w", err)
	}
	page.Compared = compared
	return writePage(w, page)
}

// writePage writes nothing where the page cannot be made.
func writePage(w io.Writer, page pageView) error {
	var out bytes.Buffer
	if err := pageTemplate.Execute(&out, page); err != nil {
		return fmt.Errorf("write HTML report: %w", err)
	}
	if _, err := w.Write(out.Bytes()); err != nil {
		return fmt.Errorf("write HTML report: %w", err)
	}
	return nil
}

func verdictClass(v result.Verdict) string { return strings.ToLower(Mark(v)) }

// verdictSign says by sign and word how a verdict ended, for those who do not
// see colours.
func verdictSign(v result.Verdict) string {
	switch {
	case !v.Passed:
		return "✗ FAIL"
	case v.Unknown:
		return "? unknown"
	}
	return "✓ pass"
}

type runView struct {
	*result.Run
	Heading, When, Outcome string
	Settings               []setting
	Outcomes               []outcomeRow
	Latencies              []spread
	Plots                  []*plotView
	NodeViews              []nodeView
}

type outcomeRow struct {
	What  string
	Count int64
	Share float64 // below 0: none
	Why   []tally
}

type nodeView struct {
	result.Node
	First, Last, Most float64 // memory, bytes
	Moved             []counter
	MovedToo          []counter // those of the runtime and the process
}

type counter struct {
	Name string
	By   float64
}

func viewRun(run *result.Run) (runView, error) {
	v := runView{
		Run: run, Heading: heading(run), When: when(run), Outcome: outcome(run),
		Settings: settings(run), Outcomes: outcomes(run), Latencies: latencies(run),
	}
	for _, p := range plots(run) {
		drawn, err := p.draw()
		if err != nil {
			return runView{}, err
		}
		if drawn != nil {
			v.Plots = append(v.Plots, drawn)
		}
	}
	for _, n := range run.Nodes {
		v.NodeViews = append(v.NodeViews, viewNode(n))
	}
	return v, nil
}

func viewNode(n result.Node) nodeView {
	v := nodeView{Node: n}
	v.First, v.Last, v.Most = memory(n)
	for _, name := range slices.Sorted(maps.Keys(n.Counters)) {
		c := counter{name, n.Counters[name]}
		if strings.HasPrefix(name, "noncegate_") {
			v.Moved = append(v.Moved, c)
		} else {
			v.MovedToo = append(v.MovedToo, c)
		}
	}
	return v
}

func outcomes(run *result.Run) []outcomeRow {
	all := requests(run)
	rows := []outcomeRow{
		{"acknowledged", run.Acknowledged, share(run.Acknowledged, all), nil},
		{"refused", run.Refusals(), share(run.Refusals(), all), tallies(run.Refused)},
		{"failed, outcome unknown", run.Failed, share(run.Failed, all), nil},
		{"due and never sent", run.Unsent, share(run.Unsent, all), nil},
		{"connections opened", run.Opened, -1, nil},
		{"connections lost", result.Sum(run.Lost), -1, tallies(run.Lost)},
	}
	if e := run.Events; e != nil {
		rows = append(rows, outcomeRow{"events received", e.Received, -1, nil}, outcomeRow{"events missed", e.Missed, -1, nil},
			outcomeRow{"events of no known request", e.Unmatched, -1, nil})
	}
	if s := run.Slow; s != nil {
		rows = append(rows, outcomeRow{"slow clients (" + s.Behaviour + ")", int64(s.Clients), -1, tallies(s.Ended)},
			outcomeRow{"slow clients kicked", s.Kicked, -1, nil})
	}
	return rows
}

// plots are the drawings of a run, in the order they are read.
func plots(run *result.Run) []plot {
	out := []plot{
		percentilePlot(latencies(run)),
		{title: "Throughput, requests a second", lines: []line{
			timeline("acknowledged", run.Timeline, acknowledged),
			unlessZero(timeline("refused", run.Timeline, func(s result.Second) float64 { return perSecond(s.Refused, s) })),
			unlessZero(timeline("failed", run.Timeline, func(s result.Second) float64 { return perSecond(s.Failed, s) })),
		}},
		latencyPlot(run.Timeline),
	}
	out = append(out, stagePlots(run.Nodes)...)
	mem := plot{title: "Resident memory, MiB", worst: true}
	for _, n := range run.Nodes {
		mem.lines = append(mem.lines, line{n.Metrics, scaled(n.Memory, 1.0/(1<<20))})
	}
	return append(out, mem)
}

func percentilePlot(all []spread) plot {
	p := plot{
		title: "Latency by percentile, ms", log: true,
		labels: []string{"p50", "p90", "p95", "p99", "p99.9", "max"},
	}
	for _, l := range all {
		if l.Count == 0 {
			continue
		}
		values := []float64{l.P50, l.P90, l.P95, l.P99, l.P999, l.Max}
		one := line{Name: l.Name}
		for i, v := range values {
			one.points = append(one.points, result.Point{At: float64(i), Value: v})
		}
		p.lines = append(p.lines, one)
	}
	return p
}

func latencyPlot(seconds []result.Second) plot {
	seconds = answered(seconds)
	return plot{title: "Latency over time, ms", log: true, worst: true, lines: []line{
		timeline("p50", seconds, func(s result.Second) float64 { return s.P50 }),
		timeline("p95", seconds, func(s result.Second) float64 { return s.P95 }),
		timeline("p99", seconds, func(s result.Second) float64 { return s.P99 }),
		timeline("max", seconds, func(s result.Second) float64 { return s.Max }),
	}}
}

func acknowledged(s result.Second) float64 { return perSecond(s.Acknowledged, s) }

// perSecond is n a second; the last one of a run may be shorter than others.
func perSecond(n int64, s result.Second) float64 {
	if s.Seconds <= 0 {
		return float64(n)
	}
	return float64(n) / s.Seconds
}

// answered are the seconds that have a latency.
func answered(seconds []result.Second) []result.Second {
	return slices.DeleteFunc(slices.Clone(seconds), func(s result.Second) bool { return s.Acknowledged == 0 })
}

// stagePlots has one drawing for each stage, with a line for each gateway.
func stagePlots(nodes []result.Node) []plot {
	var out []plot
	for _, n := range nodes {
		for _, s := range n.Stages {
			i := slices.IndexFunc(out, func(p plot) bool { return p.title == stageTitle(s.Name) })
			if i < 0 {
				i = len(out)
				out = append(out, plot{title: stageTitle(s.Name), log: true, worst: true})
			}
			out[i].lines = append(out[i].lines, line{n.Metrics, s.Second})
		}
	}
	return out
}

func stageTitle(name string) string { return name + ", p95 of each second" }

func timeline(name string, seconds []result.Second, value func(result.Second) float64) line {
	l := line{Name: name}
	for _, s := range seconds {
		l.points = append(l.points, result.Point{At: s.At, Value: value(s)})
	}
	return l
}

// unlessZero is the line, or nothing where it is 0 throughout.
func unlessZero(l line) line {
	if !slices.ContainsFunc(l.points, func(p result.Point) bool { return p.Value != 0 }) {
		l.points = nil
	}
	return l
}

func scaled(points []result.Point, by float64) []result.Point {
	out := slices.Clone(points)
	for i := range out {
		out[i].Value *= by
	}
	return out
}

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
