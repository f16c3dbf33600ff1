package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"noncegate/scripts/loadtest/observe"
	"noncegate/scripts/loadtest/report"
	"noncegate/scripts/loadtest/result"
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

func (f *drillFlags) criteria() (report.Criteria, error) {
	all := criteriaFlags{MaxFailedShare: f.MaxFailedShare, MinAcknowledged: f.MinAcknowledged, MaxLost: f.MaxLost}
	return all.criteria()
}

// hooks are what a load calls when its measured time begins and ends, and after
// each second of it.
type hooks struct {
	begin, end func()
	second     func(result.Second)
}

// observed makes a load while the gateways at metrics are observed, with a line
// of progress where somebody looks. A result may come with an error.
func (p *program) observed(ctx context.Context, metrics []string, measure func(hooks) (*result.Run, error)) (*result.Run, error) {
	observer := observe.Start(ctx, metrics)
	line := p.progress()
	var nodes []result.Node
	run, err := measure(hooks{begin: observer.Begin, end: func() { nodes = observer.End() }, second: line.second})
	line.end()
	observer.End() // a load that was not measured has not ended it
	if run != nil {
		run.Nodes = nodes
	}
	return run, err
}

// comparison is runs of two sides in alternation.
type comparison struct {
	Title  string
	Runs   []*result.Run
	sides  []string         // of the runs
	Ratios []ratio          // once judged
	Missed map[string]int64 // events that slow clients were told they missed, by name of the run

	Verdicts []result.Verdict // of the ratios; each run has its own besides
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
	r.Median = median(r.Rounds)
	c.Ratios = append(c.Ratios, r)
	return r
}

// median is the middle of the values, the mean of the middle two, or 0.
func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	if n == 0 {
		return 0
	}
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// judge adds the verdict on a ratio, of which there must be at least one round.
func (c *comparison) judge(r ratio, want string, limit float64) {
	v := result.Verdict{
		Name: r.Name + ", median of the rounds", Want: fmt.Sprintf("%s %.2f", want, limit), Got: "there is no round to tell by",
	}
	if len(r.Rounds) > 0 {
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

func (c *comparison) passed() bool {
	for _, v := range c.Verdicts {
		if !v.Passed {
			return false
		}
	}
	for _, run := range c.Runs {
		if !run.Passed() {
			return false
		}
	}
	return len(c.Runs) > 0
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
	judge(c)
	if written := out.writeComparison(c); written != nil {
		return errors.Join(err, written)
	}
	switch {
	case ctx.Err() != nil:
		return errInterrupted
	case err != nil:
		return err
	case !c.passed():
		return errFailed
	}
	return nil
}

// writeComparison writes a comparison in all forms that were asked for.
func (o *outputs) writeComparison(c *comparison) error {
	var errs []error
	if o.text {
		errs = append(errs, c.text(o.stdout))
	}
	if o.jsonOut != nil {
		errs = append(errs, c.json(o.jsonOut))
	}
	if o.html != nil {
		errs = append(errs, report.Comparison(o.html, c.Title, c.pages()))
	}
	if err := errors.Join(append(errs, o.close())...); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return nil
}

// pages are the runs as they are shown, the verdicts on the ratios with those of
// the last.
func (c *comparison) pages() []*result.Run {
	last := *c.Runs[len(c.Runs)-1]
	last.Verdicts = slices.Concat(last.Verdicts, c.Verdicts)
	return append(slices.Clone(c.Runs[:len(c.Runs)-1]), &last)
}

func (c *comparison) json(w io.Writer) error {
	form := struct {
		Title    string            `json:"title"`
		Runs     []json.RawMessage `json:"runs"`
		Ratios   []ratio           `json:"ratios"`
		Missed   map[string]int64  `json:"missedBySlowClients,omitempty"`
		Verdicts []result.Verdict  `json:"verdicts"`
		Passed   bool              `json:"passed"`
	}{c.Title, []json.RawMessage{}, c.Ratios, c.Missed, c.Verdicts, c.passed()}
	for _, run := range c.Runs {
		var text bytes.Buffer
		if err := report.JSON(&text, run); err != nil {
			return err
		}
		form.Runs = append(form.Runs, text.Bytes())
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(form)
}

func (c *comparison) text(w io.Writer) error {
	var out bytes.Buffer
	fmt.Fprintln(&out, c.Title)
	table := tabwriter.NewWriter(&out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "\tacknowledged/s\tp50 ms\tp95 ms\tp99 ms\tp99.9 ms\trefused\tfailed\tunsent\tlost\tmemory MiB\t")
	for _, r := range c.Runs {
		fmt.Fprintf(table, "%s\t%.0f\t%.2f\t%.2f\t%.2f\t%.2f\t%d\t%d\t%d\t%d\t%.0f\t\n", r.Name, r.PerSecond,
			r.LatencyMs.P50, r.LatencyMs.P95, r.LatencyMs.P99, r.LatencyMs.P999,
			r.Refusals(), r.Failed, r.Unsent, count(r.Lost), mostMemory(r)/(1<<20))
	}
	table.Flush() // to a buffer
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
		mark := "FAIL"
		if v.Passed {
			mark = "pass"
		}
		fmt.Fprintf(&out, "%s     %s: %s (want: %s)\n", mark, v.Name, v.Got, v.Want)
	}
	word := "failed"
	if c.passed() {
		word = "passed"
	}
	fmt.Fprintln(&out, word)
	_, err := w.Write(out.Bytes())
	return err
}

// aside writes what is not in the table: reasons, and what became of slow
// clients.
func (c *comparison) aside(w io.Writer, r *result.Run) {
	line := func(what string, counts map[string]int64) {
		if len(counts) > 0 {
			fmt.Fprintf(w, "  %s: %s: %s\n", r.Name, what, tally(counts))
		}
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

func mostMemory(r *result.Run) (sum float64) {
	for _, n := range r.Nodes {
		var most float64
		for _, point := range n.Memory {
			most = max(most, point.Value)
		}
		sum += most
	}
	return sum
}

func count(by map[string]int64) (sum int64) {
	for _, n := range by {
		sum += n
	}
	return sum
}

// tally lists counts by name.
func tally(counts map[string]int64) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%s %d", name, counts[name]))
	}
	return strings.Join(parts, ", ")
}
