package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"noncegate/scripts/loadtest/report"
	"noncegate/scripts/loadtest/result"
	"noncegate/scripts/loadtest/rounds"
	"noncegate/scripts/loadtest/table"
)

// drillFlags are the criteria of each single run of a drill. Growth is not among
// them: in a drill a queue may grow, for that is what is tried.
type drillFlags struct {
	failedFlags
	MaxLost int64 `group:"criteria" default:"0" help:"Most connections of well-behaved clients that may end by themselves. -1: not judged."`
}

// failedFlags are the criteria that make sense for every drill.
type failedFlags struct {
	MaxFailedShare  float64 `group:"criteria" default:"0.05" help:"Largest share, 0 to 1, of requests that were refused, failed or never sent."`
	MinAcknowledged int64   `group:"criteria" default:"1000" help:"Fewest acknowledged requests with which a run says anything."`
}

// all are they among the criteria of a run.
func (f *drillFlags) all() *criteriaFlags {
	return &criteriaFlags{MaxFailedShare: f.MaxFailedShare, MinAcknowledged: f.MinAcknowledged, MaxLost: f.MaxLost}
}

// comparison is runs of two sides in alternation.
type comparison struct {
	Title  string
	Runs   []*result.Run
	sides  []string         // of the runs
	Ratios []ratio          // once judged
	Missed map[string]int64 // events that slow clients were told they missed, by name of the run

	Verdicts []result.Verdict // of the ratios, and of what cut it short; each run has its own besides

	cut         string // name of the run that an error cut short; empty: none
	interrupted bool
}

// ratio is a figure of one side over that of the other.
type ratio struct {
	Name   string    `json:"name"`
	Rounds []float64 `json:"rounds"`
	Median float64   `json:"median"` // 0 when there is no round
}

// add takes in what came of a run, judged by itself, and reports whether it was
// the last one, for it was cut short.
func (c *comparison) add(run *result.Run, err error, name, side string, criteria report.Criteria) bool {
	if err != nil {
		c.cut = name
	}
	if run == nil {
		return true
	}
	run.Name = name
	report.Judge(run, criteria)
	c.Runs = append(c.Runs, run)
	c.sides = append(c.sides, side)
	return err != nil || run.Interrupted
}

// ratio adds that of a figure of one side over the other, round by round. A
// round that was cut short, or whose divisor is 0, says nothing.
func (c *comparison) ratio(name, of, over string, figure func(*result.Run) float64) ratio {
	r := ratio{Name: name}
	pairs := map[string][]*result.Run{}
	for i, run := range c.Runs {
		if !run.Interrupted {
			pairs[c.sides[i]] = append(pairs[c.sides[i]], run)
		}
	}
	for i := range min(len(pairs[of]), len(pairs[over])) {
		if divisor := figure(pairs[over][i]); divisor > 0 {
			r.Rounds = append(r.Rounds, figure(pairs[of][i])/divisor)
		}
	}
	r.Median = rounds.Median(r.Rounds)
	c.Ratios = append(c.Ratios, r)
	return r
}

// judge adds the verdict on a ratio, of which there must be at least one round;
// of a comparison that somebody ended before there was one it is not known.
func (c *comparison) judge(r ratio, want string, limit float64) {
	v := result.Verdict{
		Name: r.Name + ", median of the rounds", Want: fmt.Sprintf("%s %.2f", want, limit), Got: "there is no round to tell by",
	}
	switch {
	case len(r.Rounds) == 0 && c.interrupted:
		v.Passed, v.Unknown = true, true
	case len(r.Rounds) > 0:
		v.Got = r.String()
		v.Passed = want == "at most" && r.Median <= limit || want == "at least" && r.Median >= limit
	}
	c.Verdicts = append(c.Verdicts, v)
}

// String is the median, and the least and the most.
func (r ratio) String() string {
	switch len(r.Rounds) {
	case 0:
		return "unknown"
	case 1:
		return fmt.Sprintf("%.2f", r.Median)
	}
	return fmt.Sprintf("%.2f (%.2f … %.2f)", r.Median, slices.Min(r.Rounds), slices.Max(r.Rounds))
}

// failed reports whether a criterion was missed, by a run or by a ratio, or a run
// could not be made.
func (c *comparison) failed() bool {
	return len(c.Runs) == 0 ||
		slices.ContainsFunc(c.Verdicts, func(v result.Verdict) bool { return !v.Passed }) ||
		slices.ContainsFunc(c.Runs, func(r *result.Run) bool { return !r.Passed() })
}

// judged reports whether there was a criterion for the two sides together that
// could be looked at.
func (c *comparison) judged() bool {
	return slices.ContainsFunc(c.Verdicts, func(v result.Verdict) bool { return !v.Unknown })
}

// outcome is how the comparison ended, in a word or a few.
func (c *comparison) outcome() string {
	switch {
	case c.failed():
		return "failed"
	case c.interrupted && !c.judged():
		return "not judged: interrupted"
	case !c.judged():
		return "not judged: no criterion on the ratios was given"
	case c.interrupted:
		return "passed (interrupted: judged on the rounds until then)"
	}
	return "passed"
}

// compared judges a comparison, reports it, and says how it ends the program. err
// is what cut it short; without any run there is nothing but that to say.
func (p *program) compared(ctx context.Context, c *comparison, out *outputs, err error, judge func(*comparison)) error {
	if len(c.Runs) == 0 {
		if ctx.Err() != nil {
			return errInterrupted
		}
		return err
	}
	c.interrupted = ctx.Err() != nil
	if err != nil && !c.interrupted {
		what, _, _ := strings.Cut(err.Error(), "\n")
		c.Verdicts = append(c.Verdicts, result.Verdict{Name: c.cut, Want: "no error", Got: what})
	}
	judge(c)
	if written := out.write(c.forms()); written != nil {
		return errors.Join(err, written)
	}
	switch {
	case ctx.Err() != nil:
		return errInterrupted
	case err != nil:
		return err
	case c.failed():
		return errFailed
	}
	return nil
}

func (c *comparison) forms() forms {
	return forms{
		text: c.text, json: c.json,
		html: func(w io.Writer) error { return report.Comparison(w, c.Title, c.summary(), c.Runs) },
	}
}

func (c *comparison) summary() report.Summary {
	s := report.Summary{
		Outcome: c.outcome(), Judged: c.judged(), Failed: c.failed(), Verdicts: c.Verdicts, Tables: []table.Table{c.ratioTable()},
	}
	if slow := c.slowTable(); len(slow.Rows) > 0 {
		s.Tables = append(s.Tables, slow)
	}
	return s
}

func (c *comparison) ratioTable() table.Table {
	t := table.Table{Title: "The ratios", Head: []string{"", "median", "least … most", "rounds"}}
	for _, r := range c.Ratios {
		row := []string{r.Name, "unknown", "–", "–"}
		if len(r.Rounds) > 0 {
			var rounds []string
			for _, v := range r.Rounds {
				rounds = append(rounds, fmt.Sprintf("%.2f", v))
			}
			row = []string{r.Name, fmt.Sprintf("%.2f", r.Median),
				fmt.Sprintf("%.2f … %.2f", slices.Min(r.Rounds), slices.Max(r.Rounds)), strings.Join(rounds, ", ")}
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// slowTable is what became of the slow clients, run by run.
func (c *comparison) slowTable() table.Table {
	t := table.Table{Title: "Closings and drops: what the slow clients saw, and what the gateway counted (…_total)", Head: []string{
		"", "slow clients", "saw close 4001", "kicked_total", "came back", "dropped_total", "told they missed",
	}}
	for _, r := range c.Runs {
		if r.Slow == nil {
			continue
		}
		// Without its figures nobody knows what the gateway did.
		kicked, dropped := "–", "–"
		if slices.ContainsFunc(r.Nodes, func(n result.Node) bool { return len(n.Stages) > 0 }) {
			kicked, dropped = fmt.Sprint(report.Moved(r, "noncegate_kicked_total")), fmt.Sprint(report.Moved(r, "noncegate_dropped_total"))
		}
		t.Rows = append(t.Rows, []string{
			r.Name, fmt.Sprintf("%d (%s)", r.Slow.Clients, r.Slow.Behaviour), fmt.Sprint(r.Slow.Kicked), kicked,
			fmt.Sprint(r.Slow.Reconnects), dropped, fmt.Sprint(c.Missed[r.Name]),
		})
	}
	return t
}

func (c *comparison) json(w io.Writer) error {
	form := struct {
		Title    string            `json:"title"`
		Runs     []json.RawMessage `json:"runs"`
		Ratios   []ratio           `json:"ratios"`
		Missed   map[string]int64  `json:"missedBySlowClients,omitempty"`
		Verdicts []result.Verdict  `json:"verdicts"`
		Outcome  string            `json:"outcome"`
		Passed   bool              `json:"passed"` // judged, and nothing was missed
	}{c.Title, []json.RawMessage{}, c.Ratios, c.Missed, c.Verdicts, c.outcome(), c.judged() && !c.failed()}
	for _, run := range c.Runs {
		var text bytes.Buffer
		if err := report.JSON(&text, run); err != nil {
			return err
		}
		form.Runs = append(form.Runs, text.Bytes())
	}
	return writeJSON(w, form)
}

func (c *comparison) text(w io.Writer) error {
	var out bytes.Buffer
	fmt.Fprintln(&out, c.Title)
	c.runTable().Text(&out, table.Figures) // to memory
	for _, r := range c.Runs {
		c.aside(&out, r)
	}
	for _, r := range c.Ratios {
		fmt.Fprintf(&out, "ratio    %s: %s\n", r.Name, r)
	}
	for _, r := range c.Runs {
		for _, v := range r.Verdicts {
			if !v.Passed {
				fmt.Fprintf(&out, "FAIL     %s: %s: %s (want: %s)\n", r.Name, v.Name, v.Got, v.Want)
			}
		}
	}
	for _, v := range c.Verdicts {
		fmt.Fprintf(&out, "%-8s %s: %s (want: %s)\n", report.Mark(v), v.Name, v.Got, v.Want)
	}
	fmt.Fprintln(&out, c.outcome())
	_, err := w.Write(out.Bytes())
	return err
}

func (c *comparison) runTable() table.Table {
	t := table.Table{Head: []string{"", "acknowledged/s", "p50 ms", "p95 ms", "p99 ms", "p99.9 ms", "refused", "failed", "unsent", "lost", "memory MiB"}}
	for _, r := range c.Runs {
		l := r.LatencyMs
		row := []string{r.Name, fmt.Sprintf("%.0f", r.PerSecond)}
		for _, ms := range []float64{l.P50, l.P95, l.P99, l.P999} {
			row = append(row, fmt.Sprintf("%.2f", ms))
		}
		for _, n := range []int64{r.Refusals(), r.Failed, r.Unsent, result.Sum(r.Lost)} {
			row = append(row, fmt.Sprint(n))
		}
		t.Rows = append(t.Rows, append(row, fmt.Sprintf("%.0f", report.MaxMemory(r)/(1<<20))))
	}
	return t
}

// aside writes what is not in the table: reasons, and what became of slow
// clients.
func (c *comparison) aside(w io.Writer, r *result.Run) {
	line := func(what string, counts map[string]int64) {
		if len(counts) > 0 {
			fmt.Fprintf(w, "  %s: %s: %s\n", r.Name, what, report.Tally(counts))
		}
	}
	for _, note := range r.Notes {
		fmt.Fprintf(w, "  %s: note: %s\n", r.Name, note)
	}
	line("refused", r.Refused)
	line("lost", r.Lost)
	if e := r.Events; e != nil {
		fmt.Fprintf(w, "  %s: events: %d received, %d missed, p99 %.2f ms\n", r.Name, e.Received, e.Missed, e.LatencyMs.P99)
	}
	if s := r.Slow; s != nil {
		fmt.Fprintf(w, "  %s: %d slow clients (%s): %d saw close 4001, %d reconnects, %d events missed\n",
			r.Name, s.Clients, s.Behaviour, s.Kicked, s.Reconnects, c.Missed[r.Name])
		line("their connections ended", s.Ended)
	}
	for _, n := range r.Nodes {
		if n.Missing != "" {
			fmt.Fprintf(w, "  %s: %s: %s\n", r.Name, n.Metrics, n.Missing)
		}
		line("gateway "+n.Metrics, harm(n))
		if len(n.Memory) > 0 {
			fmt.Fprintf(w, "  %s: memory %.0f MiB at first, %.0f at last\n",
				r.Name, n.Memory[0].Value/(1<<20), n.Memory[len(n.Memory)-1].Value/(1<<20))
		}
	}
}

// harm is what a gateway did to slow clients, and refused.
func harm(n result.Node) map[string]int64 {
	counts := map[string]int64{}
	for name, by := range n.Counters {
		short, ok := strings.CutPrefix(name, "noncegate_")
		for _, family := range []string{"kicked_total", "dropped_total", "rejected_total"} {
			if ok && strings.HasPrefix(short, family) {
				counts[short] = int64(by)
			}
		}
	}
	return counts
}
