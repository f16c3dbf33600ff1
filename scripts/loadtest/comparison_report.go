package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"noncegate/scripts/loadtest/report"
	"noncegate/scripts/loadtest/result"
	"noncegate/scripts/loadtest/table"
)

// forms are the ways to write a comparison.
func (c *comparison) forms() forms {
	return forms{
		text: c.text, json: c.json,
		html: func(w io.Writer) error { return report.Comparison(w, c.Title, c.summary(), c.Runs) },
	}
}

// summary is what the HTML report begins with.
func (c *comparison) summary() report.Summary {
	s := report.Summary{
		Outcome: c.outcome(), Judged: c.judged(), Failed: c.failed(), Verdicts: c.Verdicts, Tables: []table.Table{c.ratioTable()},
	}
	if slow := c.slowTable(); len(slow.Rows) > 0 {
		s.Tables = append(s.Tables, slow)
	}
	return s
}

// ratioTable has the ratios, round by round.
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

// runTable has a line for each run.
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
