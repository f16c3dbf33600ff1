// Package report judges a run on criteria and shows it: as text for people, and as one HTML page with plots that needs no network and no
// script.
//
// What it promises: a run in which nothing was acknowledged is never a success; what came from outside (addresses, reasons, names of
// counters) is shown and never obeyed, neither by a terminal nor by a browser. What it does not: it measures nothing. Nothing here starts a
// goroutine or keeps state.
package report

import (
	"bytes"
	"cmp"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/dustin/go-humanize"
	"github.com/wcharczuk/go-chart/v2"

	"noncegate/scripts/loadtest/result"
)

//go:embed page.html.tmpl
var pageSource string

// pageTemplate never changes, and may be executed by many at a time.
var pageTemplate = template.Must(template.New("page").Parse(pageSource))

// Table is a heading and rows of cells. Each row has a cell for each of Head.
type Table struct {
	Head []string
	Rows [][]string
}

// add adds a row. Whole numbers and others are written as a person reads them.
func (t *Table) add(cells ...any) {
	var row []string
	for _, cell := range cells {
		switch v := cell.(type) {
		case int64:
			cell = count(v)
		case float64:
			cell = number(v)
		}
		row = append(row, fmt.Sprint(cell))
	}
	t.Rows = append(t.Rows, row)
}

// Text writes the table in columns.
func (t Table) Text(w io.Writer) error { return t.write(w, "", "\t", "") }

// Markdown writes the table as Markdown, in columns too.
func (t Table) Markdown(w io.Writer) error {
	ruled := Table{t.Head, slices.Insert(slices.Clone(t.Rows), 0, slices.Repeat([]string{"---"}, len(t.Head)))}
	return ruled.write(w, "| ", "\t | ", "\t |")
}

func (t Table) write(w io.Writer, left, between, right string) error {
	columns := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	if right != "" {
		columns.Init(w, 0, 0, 0, ' ', 0)
	}
	for _, row := range append([][]string{t.Head}, t.Rows...) {
		fmt.Fprintln(columns, left+strings.Join(row, between)+right) // told of by Flush
	}
	return columns.Flush()
}

// part is what is shown of a run or of a comparison, in text and on a page alike.
type part struct {
	Title  string
	Tables []Table
	Plots  []plot // on a page alone
	Lines  []string
	Failed bool
}

// Report is a run or a comparison to be shown.
type Report struct{ parts []part }

// Of is the report of a run.
func Of(run *result.Run) Report { return Report{[]part{partOf(run)}} }

// OfComparison is the report of a comparison: what came of it, and on a page also each run by itself.
func OfComparison(c *result.Comparison) Report {
	r := Report{[]part{summaryOf(c)}}
	for _, run := range c.Runs {
		r.parts = append(r.parts, partOf(run))
	}
	return r
}

// HTML writes everything as one page.
func (r Report) HTML(w io.Writer) error { return pageTemplate.Execute(w, r.parts) }

// Text writes the first part for people, the verdicts last, and only what a terminal shows.
func (r Report) Text(w io.Writer) error {
	p := r.parts[0]
	var text strings.Builder
	fmt.Fprintln(&text, p.Title)
	for _, t := range p.Tables {
		if len(t.Rows) > 0 {
			fmt.Fprintln(&text)
			t.Text(&text) // to memory
		}
	}
	fmt.Fprintln(&text)
	for _, line := range p.Lines {
		fmt.Fprintln(&text, line)
	}
	_, err := io.WriteString(w, strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) || r == '\n' {
			return r
		}
		return '\uFFFD'
	}, text.String()))
	return err
}

func partOf(run *result.Run) part {
	p := part{
		Title: fmt.Sprintf("%s, %s UTC, %s s measured",
			strings.TrimSpace("loadtest "+run.Command+" "+run.Name), run.Started.UTC().Format(time.DateTime), number(run.Seconds)),
		Failed: !run.Passed, Plots: plotsOf(run), Tables: []Table{settings(run), counts(run), latencies(run)},
	}
	say := func(format string, args ...any) { p.Lines = append(p.Lines, fmt.Sprintf(format, args...)) }
	if r := run.Restart; r != nil {
		p.Tables = append(p.Tables, restarts(r))
		say("clients: %s connections closed in order, %s left in time, %s opened again after %s failures; repeated by request id: %s",
			count(r.Closed), count(r.Drained), count(r.Opened), count(r.Failures), cmp.Or(Tally(r.Repeated), "none"))
	}
	for _, n := range run.Nodes {
		p.Tables = append(p.Tables, stages(n), counters(n))
		if n.Missing != "" {
			say("%s %s", n.Metrics, n.Missing)
		}
		if m := n.Memory; len(m) > 0 {
			say("%s: memory %s at first, %s at last", n.Metrics, humanize.IBytes(uint64(m[0].Value)), humanize.IBytes(uint64(m[len(m)-1].Value)))
		}
	}
	if v := run.Verify; v != nil {
		for _, sentence := range v.Violations[:min(len(v.Violations), 10)] {
			say("violation: %s", sentence)
		}
	}
	for _, note := range run.Notes {
		say("note    %s", note)
	}
	outcome := map[bool]string{true: "PASS", false: "FAIL"}[run.Passed]
	if run.Interrupted {
		outcome += " (interrupted: judged on what was measured until then)"
	}
	p.Lines = append(append(p.Lines, verdicts("", run.Verdicts)...), outcome)
	return p
}

func verdicts(of string, all []result.Verdict) (lines []string) {
	for _, v := range all {
		mark := map[bool]string{true: "unknown", false: "pass"}[v.Unknown]
		if !v.Passed {
			mark = "FAIL"
		}
		lines = append(lines, fmt.Sprintf("%-7s %s%s: %s (want: %s)", mark, of, v.Name, v.Got, v.Want))
	}
	return lines
}

func settings(run *result.Run) Table {
	l, pace := run.Load, "closed loop"
	switch {
	case l.Rate > 0 && run.Restart != nil:
		pace = "open loop, " + number(l.Rate) + " submissions/s, each an allocation and its mark"
	case l.Rate > 0:
		pace = "open loop, " + number(l.Rate) + " requests/s"
	}
	var mix []string
	for _, name := range slices.Sorted(maps.Keys(l.Mix)) {
		mix = append(mix, name+" "+percent(l.Mix[name]))
	}
	return Table{Head: []string{"setting", ""}, Rows: [][]string{
		{"targets", strings.Join(run.Targets, ", ")},
		{"connections", fmt.Sprintf("%s, %d in flight each", count(int64(l.Connections)), l.Inflight)},
		{"subscribers", count(int64(l.Subscribers))},
		{"pace", pace},
		{"signers", fmt.Sprintf("%s from base %d", count(int64(l.Signers)), l.SignerBase)},
		{"mix", cmp.Or(strings.Join(mix, ", "), "-")},
		{"time", fmt.Sprintf("ramp-up %s s, warm-up %s s, duration %s s", number(l.RampUp), number(l.Warmup), number(l.Duration))},
	}}
}

// counts are what became of requests, connections and events.
func counts(run *result.Run) Table {
	all := run.Acknowledged + run.Unserved()
	t := Table{Head: []string{"requests", "number", "share", ""}}
	add := func(name string, n, of int64, remark string) { t.add(name, n, percent(share(n, of)), remark) }
	add("acknowledged", run.Acknowledged, all, number(run.PerSecond)+"/s")
	add("refused", run.Refusals(), all, Tally(run.Refused))
	add("failed", run.Failed, all, "")
	add("unsent", run.Unsent, all, "")
	add("connections lost", result.Sum(run.Lost), run.Opened, Tally(run.Lost))
	if e := run.Events; e != nil {
		add("events missed", e.Missed, e.Missed+e.Received, count(e.Unmatched)+" of no known request")
	}
	if s := run.Slow; s != nil {
		remark := fmt.Sprintf("%s, %s reconnects, %s events missed; ended: %s", s.Behaviour, count(s.Reconnects), count(s.Missed), Tally(s.Ended))
		add("slow clients kicked", s.Kicked, int64(s.Clients), remark)
	}
	return t
}

// latencies lists the distributions of a run, the whole first.
func latencies(run *result.Run) Table {
	t := Table{Head: []string{"latency, ms", "count", "mean", "p50", "p90", "p95", "p99", "p99.9", "max"}}
	add := func(name string, l result.Latency) {
		t.add(name, l.Count, l.Mean, l.P50, l.P90, l.P95, l.P99, l.P999, l.Max)
	}
	add("all replies", run.LatencyMs)
	for _, name := range slices.Sorted(maps.Keys(run.Methods)) {
		add(name, run.Methods[name].LatencyMs)
	}
	for _, p := range run.Phases {
		add(p.Name, p.LatencyMs)
	}
	if run.Events != nil {
		add("events at subscribers", run.Events.LatencyMs)
	}
	return t
}

func restarts(r *result.Restart) Table {
	t := Table{Head: []string{"restarts", "at, s", "ended after, s", "ready again after, s", ""}}
	for _, g := range r.Gateways {
		t.add(g.Gateway, g.At, g.EndSeconds, g.StartSeconds, strings.Join(strings.Fields(g.Wrong), " "))
	}
	return t
}

func stages(n result.Node) Table {
	t := Table{Head: []string{"stages of " + n.Metrics, "count", "p50", "p95", "p99", "first third", "last third", "slope/min", "grows"}}
	for _, s := range n.Stages {
		g := s.Growth
		grows := map[bool]string{true: "GROWS", false: "no"}[g.Grows]
		if g.Unknown {
			grows = "unknown"
		}
		t.add(s.Name, s.Count, s.P50, s.P95, s.P99, g.FirstThird, g.LastThird, g.SlopePerMinute, grows)
	}
	return t
}

func counters(n result.Node) Table {
	t := Table{Head: []string{"counter", "by"}}
	for _, name := range slices.Sorted(maps.Keys(n.Counters)) {
		if strings.HasPrefix(name, "noncegate_") {
			t.add(name, n.Counters[name])
		}
	}
	return t
}

// summaryOf is what is shown of a comparison beside its runs.
func summaryOf(c *result.Comparison) part {
	runs := Table{Head: []string{"", "acknowledged/s", "p50 ms", "p95 ms", "p99 ms", "refused", "failed", "unsent", "lost",
		"memory MiB", "slow clients", "kicked", "dropped", "missed"}}
	p := part{Title: c.Title, Failed: !c.Passed}
	for _, r := range c.Runs {
		l, most := r.LatencyMs, 0.0
		for _, n := range r.Nodes {
			for _, point := range n.Memory {
				most = max(most, point.Value)
			}
		}
		var slow, missed any = "", ""
		if s := r.Slow; s != nil {
			slow, missed = fmt.Sprintf("%d saw 4001", s.Kicked), s.Missed
		}
		runs.add(r.Name, r.PerSecond, l.P50, l.P95, l.P99, r.Refusals(), r.Failed, r.Unsent, result.Sum(r.Lost), most/(1<<20), slow,
			Moved(r, "noncegate_kicked_total"), Moved(r, "noncegate_dropped_total"), missed)
		for _, v := range r.Verdicts {
			if !v.Passed {
				p.Lines = append(p.Lines, verdicts(r.Name+": ", []result.Verdict{v})...)
			}
		}
		for _, note := range r.Notes {
			p.Lines = append(p.Lines, "note    "+r.Name+": "+note)
		}
	}
	ratios := Table{Head: []string{"ratio", "median", "rounds"}}
	for _, r := range c.Ratios {
		var each []string
		for _, v := range r.Rounds {
			each = append(each, Fixed(v))
		}
		ratios.add(r.Name, Fixed(r.Median), strings.Join(each, ", "))
	}
	p.Tables = []Table{runs, ratios}
	p.Lines = append(append(p.Lines, verdicts("", c.Verdicts)...), c.Outcome)
	return p
}

// Tally lists counts by reason in a line, the largest first.
func Tally(counts map[string]int64) string {
	reasons := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b))
	})
	for i, reason := range reasons {
		reasons[i] = reason + " " + count(counts[reason])
	}
	return strings.Join(reasons, ", ")
}

func count(n int64) string { return humanize.Comma(n) }

// number writes a figure as a person reads it: whole where it is large or whole, three digits else.
func number(v float64) string {
	if v >= 100 || v == math.Round(v) {
		return count(int64(math.Round(v)))
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}

// Fixed writes a figure with two digits.
func Fixed(v float64) string { return strconv.FormatFloat(v, 'f', 2, 64) }

func percent(v float64) string { return number(100*v) + " %" }

// plot is lines over the measured time. Their names are ours, since the library does not escape what it writes.
type plot struct {
	Title string
	lines []chart.ContinuousSeries
}

// line makes a line of values, of which point tells the two numbers.
func line[T any](name string, values []T, point func(T) (at, value float64)) chart.ContinuousSeries {
	s := chart.ContinuousSeries{Name: name}
	for _, v := range values {
		at, value := point(v)
		s.XValues, s.YValues = append(s.XValues, at), append(s.YValues, value)
	}
	return s
}

// plotsOf are the plots of a run: throughput and latency second by second, and for each gateway how long its stages took and its memory.
func plotsOf(run *result.Run) []plot {
	seconds := func(name string, of func(result.Second) float64) chart.ContinuousSeries {
		return line(name, run.Timeline, func(s result.Second) (float64, float64) { return s.At, of(s) })
	}
	rate := func(n int64, s result.Second) float64 { return float64(n) / max(s.Seconds, 0.001) }
	plots := []plot{{"Requests a second", []chart.ContinuousSeries{
		seconds("acknowledged", func(s result.Second) float64 { return rate(s.Acknowledged, s) }),
		seconds("refused or failed", func(s result.Second) float64 { return rate(s.Refused+s.Failed, s) }),
	}}, {"Latency of the acknowledged, ms", []chart.ContinuousSeries{
		seconds("p50", func(s result.Second) float64 { return s.P50 }),
		seconds("p99", func(s result.Second) float64 { return s.P99 }),
	}}}
	for _, n := range run.Nodes {
		queues := plot{Title: "Stages of " + n.Metrics + ", p95, ms"}
		for _, s := range n.Stages {
			queues.lines = append(queues.lines, line(s.Name, s.Second, func(p result.Point) (float64, float64) { return p.At, p.Value }))
		}
		memory := line("resident", n.Memory, func(p result.Point) (float64, float64) { return p.At, p.Value / (1 << 20) })
		plots = append(plots, queues, plot{"Memory of " + n.Metrics + ", MiB", []chart.ContinuousSeries{memory}})
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
		if l.Len() > 0 {
			c.Series = append(c.Series, l)
			last, high = max(last, slices.Max(l.XValues)), max(high, slices.Max(l.YValues))
		}
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

// Criteria are what a run must meet. The zero value is strict: it tolerates no refusal, no failure and no lost connection.
type Criteria struct {
	MinAcknowledged int64         // below 1 counts as 1: an empty run has failed
	MaxFailedShare  float64       // 0 to 1, of requests refused, failed or never sent, all together; below 0: not judged
	MaxE2EP99       time.Duration // of the events where the run had subscribers, else of the replies; 0: not judged
	MaxLost         int64         // connections that may end before they were told to; below 0: not judged
	Growth          bool          // no stage of any gateway may grow
}

// Judge sets run.Verdicts, one for each criterion and those given, run.Passed and run.Notes. Verify is judged wherever the run has it.
func Judge(run *result.Run, c Criteria, further ...result.Verdict) {
	run.Notes, run.Verdicts = notes(run), nil
	add := func(name, want, got string, passed bool) {
		run.Verdicts = append(run.Verdicts, result.Verdict{Name: name, Want: want, Got: got, Passed: passed})
	}
	least := max(c.MinAcknowledged, 1)
	add("acknowledged requests", "at least "+count(least), count(run.Acknowledged), run.Acknowledged >= least)
	if c.MaxFailedShare >= 0 {
		all, bad := run.Acknowledged+run.Unserved(), run.Unserved()
		add("refused and failed together", fmt.Sprintf("at most %s of all requests", percent(c.MaxFailedShare)),
			fmt.Sprintf("%s (%s of %s)", percent(share(bad, all)), count(bad), count(all)), all > 0 && share(bad, all) <= c.MaxFailedShare)
	}
	if most := float64(c.MaxE2EP99) / float64(time.Millisecond); most > 0 {
		name, got, latency := "E2E p99 (request due to its reply)", "nothing was acknowledged", run.LatencyMs
		if run.Events != nil {
			name, got, latency = "E2E p99 (request due to its event at a subscriber)", "no event reached a subscriber", run.Events.LatencyMs
		}
		if latency.Count > 0 {
			got = number(latency.P99) + " ms"
		}
		add(name, "at most "+number(most)+" ms", got, latency.Count > 0 && latency.P99 <= most)
	}
	if lost := result.Sum(run.Lost); c.MaxLost >= 0 {
		add("connections lost", "at most "+count(c.MaxLost), fmt.Sprintf("%s of %s", count(lost), count(run.Opened)), lost <= c.MaxLost)
	}
	if v := run.Verify; v != nil {
		got := fmt.Sprintf("%s in %s calls about %s signers", count(v.ViolationCount), count(v.Calls), count(v.Signers))
		if v.Incomplete != "" {
			got += "; not everything could be looked at: " + v.Incomplete
		}
		add("answers against the rules", "no violation", got, v.ViolationCount == 0 && v.Incomplete == "" && v.Calls > 0)
	}
	if c.Growth {
		run.Verdicts = append(run.Verdicts, judgeGrowth(run.Nodes)...)
	}
	run.Verdicts = append(run.Verdicts, further...)
	run.Passed = result.Pass(run.Verdicts)
}

// judgeGrowth has a verdict for each stage of each gateway. A gateway without figures fails: it was not seen whether its queues grew.
func judgeGrowth(nodes []result.Node) (verdicts []result.Verdict) {
	if len(nodes) == 0 {
		nodes = []result.Node{{Metrics: "no /metrics was asked", Missing: "(--metrics)"}}
	}
	for _, n := range nodes {
		if len(n.Stages) == 0 {
			got := "not known: " + n.Metrics + " " + cmp.Or(n.Missing, "says nothing of its stages") + "; --no-growth-check leaves this out"
			verdicts = append(verdicts, result.Verdict{Name: "growth of the queues", Want: "none grows", Got: got})
		}
		for _, s := range n.Stages {
			v := result.Verdict{Name: "growth of " + s.Name, Want: "does not grow steadily", Got: s.Growth.Why}
			v.Passed, v.Unknown = !s.Growth.Grows, s.Growth.Unknown
			if len(nodes) > 1 {
				v.Name += " at " + n.Metrics
			}
			verdicts = append(verdicts, v)
		}
	}
	return verdicts
}

// expiredShare is how many holds, as a share of the acknowledged requests, may expire in a run before that is worth a note.
const expiredShare = 0.01

// notes are what to know of a run before its figures are believed.
func notes(run *result.Run) []string {
	expired := Moved(run, "noncegate_holds_expired_total")
	if expired == 0 || expired <= expiredShare*float64(run.Acknowledged) {
		return nil
	}
	return []string{fmt.Sprintf("%s holds expired meanwhile: of an earlier load, or of this one once it had lasted longer than a hold "+
		"(60 s). To end them is work that counts in these figures. Wait a minute between runs, or give each a fresh store.", number(expired))}
}

// Moved is by how much a counter moved, whatever its labels, at all gateways.
func Moved(run *result.Run, name string) (by float64) {
	for _, n := range run.Nodes {
		for counter, grown := range n.Counters {
			if counter == name || strings.HasPrefix(counter, name+"{") {
				by += grown
			}
		}
	}
	return by
}

// share is part of whole, 0 where there is no whole.
func share(part, whole int64) float64 { return float64(part) / float64(max(whole, 1)) }
