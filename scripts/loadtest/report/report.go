// Package report judges a run on criteria and shows it: as text for people, and as one HTML
// page with plots that needs no network and no script.
//
// What it promises: a run in which nothing was acknowledged is never a success; what came from
// outside (addresses, reasons, names of counters) is shown and never obeyed, neither by a
// terminal nor by a browser. What it does not: it measures nothing.
//
// Nothing here starts a goroutine or keeps state; all functions may be called at the same time,
// Judge for different runs.
package report

import (
	"cmp"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/dustin/go-humanize"

	"noncegate/scripts/loadtest/result"
	"noncegate/scripts/loadtest/table"
)

//go:embed page.html.tmpl
var pageSource string

// pageTemplate never changes, and may be executed by many at a time.
var pageTemplate = template.Must(template.New("page").Parse(pageSource))

// part is what is shown of a run or of a comparison, in text and on a page alike.
type part struct {
	Title  string
	Tables []table.Table
	Plots  []plot // on a page alone
	Lines  []string
	Failed bool
}

// Text writes a run for people, the verdicts last.
func Text(w io.Writer, run *result.Run) error { return writeText(w, partOf(run)) }

// HTML writes a run as one page.
func HTML(w io.Writer, run *result.Run) error { return writePage(w, partOf(run)) }

// ComparisonText writes a comparison for people.
func ComparisonText(w io.Writer, c *result.Comparison) error { return writeText(w, summaryOf(c)) }

// ComparisonHTML writes a comparison as one page: what came of it, and then each run by itself.
func ComparisonHTML(w io.Writer, c *result.Comparison) error {
	parts := []part{summaryOf(c)}
	for _, run := range c.Runs {
		parts = append(parts, partOf(run))
	}
	return writePage(w, parts...)
}

func writePage(w io.Writer, parts ...part) error {
	if err := pageTemplate.Execute(w, parts); err != nil {
		return fmt.Errorf("write HTML report: %w", err)
	}
	return nil
}

// writeText writes everything as plain.
func writeText(w io.Writer, p part) error {
	var text strings.Builder
	fmt.Fprintln(&text, p.Title)
	for _, t := range p.Tables {
		if len(t.Rows) > 0 {
			fmt.Fprintln(&text)
			t.Text(&text, table.Figures) // to memory
		}
	}
	fmt.Fprintln(&text)
	for _, line := range p.Lines {
		fmt.Fprintln(&text, line)
	}
	if _, err := io.WriteString(w, plain(text.String())); err != nil {
		return fmt.Errorf("write text report: %w", err)
	}
	return nil
}

// partOf is what is shown of a run.
func partOf(run *result.Run) part {
	p := part{
		Title:  strings.TrimSpace("loadtest "+run.Command+" "+run.Name) + ", " + run.Started.UTC().Format(time.DateTime) + " UTC, " + seconds(run.Seconds) + " measured",
		Failed: !run.Passed, Plots: plotsOf(run),
		Tables: []table.Table{settings(run), counts(run), latencies(run)},
	}
	if r := run.Restart; r != nil {
		p.Tables = append(p.Tables, restarts(r))
		p.Lines = append(p.Lines, fmt.Sprintf("clients: %s connections closed in order, %s left in time, %s opened again after %s failures; %s unknown calls settled at the end; repeated by request id: %s",
			count(r.Closed), count(r.Drained), count(r.Opened), count(r.Failures), count(r.Settled), cmp.Or(Tally(r.Repeated), "none")))
	}
	for _, n := range run.Nodes {
		p.Tables = append(p.Tables, stages(n), counters(n))
		if n.Missing != "" {
			p.Lines = append(p.Lines, n.Metrics+" "+n.Missing)
		}
		if m := n.Memory; len(m) > 0 {
			p.Lines = append(p.Lines, fmt.Sprintf("%s: memory %s at first, %s at last", n.Metrics, mebibytes(m[0].Value), mebibytes(m[len(m)-1].Value)))
		}
	}
	if v := run.Verify; v != nil {
		for _, sentence := range v.Violations[:min(len(v.Violations), 10)] {
			p.Lines = append(p.Lines, "violation: "+sentence)
		}
	}
	for _, note := range run.Notes {
		p.Lines = append(p.Lines, "note    "+note)
	}
	p.Lines = append(append(p.Lines, verdicts("", run.Verdicts)...), outcome(run))
	return p
}

// outcome is the run's end in a few words.
func outcome(run *result.Run) string {
	s := map[bool]string{true: "PASS", false: "FAIL"}[run.Passed]
	if run.Interrupted {
		s += " (interrupted: judged on what was measured until then)"
	}
	return s
}

// verdicts has a line for each.
func verdicts(of string, all []result.Verdict) (lines []string) {
	for _, v := range all {
		mark := "pass"
		switch {
		case !v.Passed:
			mark = "FAIL"
		case v.Unknown:
			mark = "unknown"
		}
		lines = append(lines, fmt.Sprintf("%-7s %s%s: %s (want: %s)", mark, of, v.Name, v.Got, v.Want))
	}
	return lines
}

// settings are those of the load.
func settings(run *result.Run) table.Table {
	l := run.Load
	pace := "closed loop"
	if l.Rate > 0 {
		pace = "open loop, " + number(l.Rate) + map[bool]string{true: " submissions/s, each an allocation and its mark", false: " requests/s"}[run.Restart != nil]
	}
	t := table.Table{Head: []string{"setting", ""}}
	add := func(name, format string, args ...any) {
		t.Rows = append(t.Rows, []string{name, fmt.Sprintf(format, args...)})
	}
	add("targets", "%s", strings.Join(run.Targets, ", "))
	add("connections", "%s, %s in flight each", count(int64(l.Connections)), count(int64(l.Inflight)))
	add("pace", "%s", pace)
	add("signers", "%s from base %d", count(int64(l.Signers)), l.SignerBase)
	if l.Zipf > 0 {
		add("zipf", "%g", l.Zipf)
	}
	var mix []string
	for _, name := range slices.Sorted(maps.Keys(l.Mix)) {
		mix = append(mix, name+" "+percent(l.Mix[name]))
	}
	if len(mix) > 0 {
		add("mix", "%s", strings.Join(mix, ", "))
	}
	if l.Subscribers > 0 {
		add("subscribers", "%s", count(int64(l.Subscribers)))
	}
	add("time", "ramp-up %s, warm-up %s, duration %s", seconds(l.RampUp), seconds(l.Warmup), seconds(l.Duration))
	return t
}

// counts are what became of requests, connections and events.
func counts(run *result.Run) table.Table {
	all := run.Acknowledged + run.Unserved()
	t := table.Table{Head: []string{"requests", "number", "share", ""}}
	add := func(name string, n int64, of int64, remark string) {
		t.Rows = append(t.Rows, []string{name, count(n), percent(share(n, of)), remark})
	}
	add("acknowledged", run.Acknowledged, all, number(run.PerSecond)+"/s")
	add("refused", run.Refusals(), all, Tally(run.Refused))
	add("failed", run.Failed, all, "")
	add("unsent", run.Unsent, all, "")
	add("connections lost", result.Sum(run.Lost), run.Opened, Tally(run.Lost))
	if e := run.Events; e != nil {
		add("events missed", e.Missed, e.Missed+e.Received, count(e.Unmatched)+" of no known request")
	}
	if s := run.Slow; s != nil {
		add("slow clients kicked", s.Kicked, int64(s.Clients), fmt.Sprintf("%s, %s reconnects, %s events missed; ended: %s", s.Behaviour, count(s.Reconnects), count(s.Missed), Tally(s.Ended)))
	}
	return t
}

// latencies lists the distributions of a run, the whole first.
func latencies(run *result.Run) table.Table {
	t := table.Table{Head: []string{"latency, ms", "count", "mean", "p50", "p90", "p95", "p99", "p99.9", "max"}}
	add := func(name string, l result.Latency) {
		row := []string{name, count(l.Count)}
		for _, v := range []float64{l.Mean, l.P50, l.P90, l.P95, l.P99, l.P999, l.Max} {
			row = append(row, milli(v))
		}
		t.Rows = append(t.Rows, row)
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

func restarts(r *result.Restart) table.Table {
	t := table.Table{Head: []string{"restarts", "at, s", "ended after, s", "ready again after, s", ""}}
	for _, g := range r.Gateways {
		t.Rows = append(t.Rows, []string{g.Gateway, number(g.At), number(g.EndSeconds), number(g.StartSeconds), strings.Join(strings.Fields(g.Wrong), " ")})
	}
	return t
}

// stages are those of a gateway.
func stages(n result.Node) table.Table {
	t := table.Table{Head: []string{"stages of " + n.Metrics, "count", "p50", "p95", "p99", "first third", "last third", "slope/min", "grows"}}
	for _, s := range n.Stages {
		g := s.Growth
		grows := map[bool]string{true: "GROWS", false: "no"}[g.Grows]
		if g.Unknown {
			grows = "unknown"
		}
		t.Rows = append(t.Rows, []string{s.Name, count(s.Count), milli(s.P50), milli(s.P95), milli(s.P99), milli(g.FirstThird), milli(g.LastThird), milli(g.SlopePerMinute), grows})
	}
	return t
}

// counters are those of a gateway that moved.
func counters(n result.Node) table.Table {
	t := table.Table{Head: []string{"counter", "by"}}
	for _, name := range slices.Sorted(maps.Keys(n.Counters)) {
		if strings.HasPrefix(name, "noncegate_") {
			t.Rows = append(t.Rows, []string{name, number(n.Counters[name])})
		}
	}
	return t
}

// summaryOf is what is shown of a comparison beside its runs.
func summaryOf(c *result.Comparison) part {
	runs := table.Table{Head: []string{"", "acknowledged/s", "p50 ms", "p95 ms", "p99 ms", "refused", "failed", "unsent", "lost", "memory MiB", "slow clients", "kicked", "dropped", "missed"}}
	p := part{Title: c.Title, Failed: !c.Passed}
	for _, r := range c.Runs {
		l, most := r.LatencyMs, 0.0
		for _, n := range r.Nodes {
			for _, point := range n.Memory {
				most = max(most, point.Value)
			}
		}
		row := []string{r.Name, number(r.PerSecond), milli(l.P50), milli(l.P95), milli(l.P99)}
		for _, n := range []int64{r.Refusals(), r.Failed, r.Unsent, result.Sum(r.Lost)} {
			row = append(row, count(n))
		}
		slow, missed := "", ""
		if s := r.Slow; s != nil {
			slow, missed = fmt.Sprintf("%d saw 4001", s.Kicked), count(s.Missed)
		}
		runs.Rows = append(runs.Rows, append(row, number(most/(1<<20)), slow, number(Moved(r, "noncegate_kicked_total")), number(Moved(r, "noncegate_dropped_total")), missed))
		for _, v := range r.Verdicts {
			if !v.Passed {
				p.Lines = append(p.Lines, verdicts(r.Name+": ", []result.Verdict{v})...)
			}
		}
		for _, note := range r.Notes {
			p.Lines = append(p.Lines, "note    "+r.Name+": "+note)
		}
	}
	ratios := table.Table{Head: []string{"ratio", "median", "rounds"}}
	for _, r := range c.Ratios {
		var each []string
		for _, v := range r.Rounds {
			each = append(each, strconv.FormatFloat(v, 'f', 2, 64))
		}
		ratios.Rows = append(ratios.Rows, []string{r.Name, strconv.FormatFloat(r.Median, 'f', 2, 64), strings.Join(each, ", ")})
	}
	p.Tables = []table.Table{runs, ratios}
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

// number writes a figure as a person reads it: whole where it is large or whole, three digits
// else.
func number(v float64) string {
	if v >= 100 || v == float64(int64(v)) {
		return count(int64(v + 0.5))
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}

// milli writes milliseconds, never finer than a microsecond.
func milli(v float64) string {
	digits := 2
	switch {
	case v >= 100:
		return number(v)
	case v < 1:
		digits = 3
	}
	return strconv.FormatFloat(v, 'f', digits, 64)
}

// percent writes a share of 0 to 1.
func percent(v float64) string {
	if v > 0 && v < 0.0001 {
		return "<0.01 %"
	}
	return strconv.FormatFloat(float64(int64(v*10_000+0.5))/100, 'f', -1, 64) + " %"
}

func mebibytes(v float64) string { return strconv.FormatFloat(v/(1<<20), 'f', 1, 64) + " MiB" }

func seconds(v float64) string { return strconv.FormatFloat(v, 'f', 1, 64) + " s" }

// plain is s with everything but lines that a terminal could take for an order replaced.
func plain(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) || r == '\n' {
			return r
		}
		return '\uFFFD'
	}, s)
}
