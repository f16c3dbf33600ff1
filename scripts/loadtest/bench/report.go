//go:build unix

package bench

import (
	"cmp"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/dustin/go-humanize"

	"noncegate/scripts/loadtest/report"
	"noncegate/scripts/loadtest/result"
	"noncegate/scripts/loadtest/traffic"
)

// Report is everything a bench found out. Its JSON form is what machines read, so a field keeps its name.
type Report struct {
	Host     Host    `json:"host"`
	Settings string  `json:"settings"` // of the bench and of the servers
	Seconds  float64 `json:"seconds"`
	// Interrupted says that the bench was ended from outside: rows have fewer rounds than asked for, or none.
	Interrupted bool      `json:"interrupted,omitempty"`
	Rows        []Outcome `json:"rows"`
	Scenes      []*Scene  `json:"scenes"`
}

// Outcome is what was found of a row.
type Outcome struct {
	result.Ratio
	What    string `json:"what"`
	Scene   string `json:"scene"`
	Over    string `json:"over"`            // side
	Under   string `json:"under,omitempty"` // side it is divided by; empty: the figure alone
	Figure  string `json:"figure"`
	Verdict string `json:"verdict"` // met, missed, or void

	figure  figure
	figures string // medians of the sides
}

// The verdicts of an Outcome.
const (
	Met    = "met"
	Missed = "missed"
	Void   = "void"
)

// Scene is what was measured in alternation.
type Scene struct {
	Name  string  `json:"name"`
	Sides []*Side `json:"sides"`

	times int // of the bench's duration is measured
	once  bool
}

// Side is what was found of servers under a load.
type Side struct {
	Name string        `json:"name"`
	Runs []*result.Run `json:"runs"` // one a round

	side
}

// figure is one number of a run, and how it is written alone.
type figure struct {
	result.Figure
	write func(float64) string
}

// The figures of rows.
var (
	perSecond     = figure{result.PerSecond, func(v float64) string { return whole(v) + "/s" }}
	p50           = figure{result.P50, milliseconds}
	p99           = figure{result.P99, milliseconds}
	handOutP50    = figure{result.Figure{Name: "handOutP50Ms", Of: func(r *result.Run) float64 { return handOuts(r).P50 }}, milliseconds}
	handOutP99    = figure{result.Figure{Name: "handOutP99Ms", Of: func(r *result.Run) float64 { return handOuts(r).P99 }}, milliseconds}
	perConnection = figure{result.Figure{Name: "bytesPerConnection", Of: func(r *result.Run) float64 { return r.BytesPerConnection }},
		kibibytes}
	passed  = figure{result.Figure{Name: "passed", Of: passes}, func(v float64) string { return outcome[v > 0] }}
	outcome = map[bool]string{true: "PASS", false: "FAIL"}
)

func whole(v float64) string        { return humanize.Comma(int64(v + 0.5)) }
func milliseconds(v float64) string { return report.Fixed(v) + " ms" }
func kibibytes(v float64) string    { return strconv.FormatFloat(v/(1<<10), 'f', 1, 64) + " KiB" }

func handOuts(r *result.Run) result.Latency { return r.Methods[traffic.Allocate.String()].LatencyMs }

// passes is 1 of a run in which nothing was wrong, else -1.
func passes(r *result.Run) float64 {
	if r.Passed {
		return 1
	}
	return -1
}

func told(r *result.Run) string {
	line := "VOID: " + r.Void
	switch {
	case r.BytesPerConnection > 0:
		line = kibibytes(r.BytesPerConnection) + " a connection"
	case r.Void == "":
		line = fmt.Sprintf("%s/s, p50 %.2f ms, p99 %.2f ms", whole(r.PerSecond), r.LatencyMs.P50, r.LatencyMs.P99)
	}
	return strings.Join(append([]string{line}, r.Notes...), ", ")
}

// IsVoid reports whether a row counts for nothing, and why the first one does.
func (r *Report) IsVoid() (why string, void bool) {
	for _, row := range r.Rows {
		if row.Verdict == Void {
			return row.Name + ": " + row.Void, true
		}
	}
	return "", false
}

// judge says what came of a row whose sides were measured.
func (r *Row) judge() Outcome {
	o := Outcome{
		Ratio: result.Ratio{Name: r.Name, Figure: r.figure.Figure, AtLeast: r.AtLeast, AtMost: r.AtMost}, What: r.What, Scene: r.Scene,
		Over: r.measured[0].Name, Figure: r.figure.Name, figure: r.figure, figures: r.figure.median(r.measured[0].Runs), Verdict: Missed,
	}
	if len(r.measured) > 1 {
		under := r.measured[1]
		o.Under, o.figures = under.Name, o.figures+" ÷ "+r.figure.median(under.Runs)
		o.Compare(r.measured[0].Runs, under.Runs, true)
	} else {
		o.Compare(r.measured[0].Runs, nil, false)
	}
	switch {
	case o.Void != "":
		o.Verdict = Void
	case o.Kept():
		o.Verdict = Met
	}
	return o
}

// median is that of a figure over the runs that count and have it, a dash when there is none.
func (f figure) median(runs []*result.Run) string {
	alone := result.Ratio{Figure: f.Figure}
	if alone.Compare(runs, nil, false); alone.Median == 0 {
		return "–"
	}
	return f.write(alone.Median)
}

// WriteMarkdown writes the report for people.
func (r *Report) WriteMarkdown(w io.Writer) error {
	fmt.Fprintf(w, "%s. %s.\n\n", r.Host, r.Settings)
	if r.Interrupted {
		fmt.Fprint(w, "Interrupted: this is what was measured until then.\n\n")
	}
	t := report.Table{Head: []string{"what", "target", "median of the rounds", "verdict", "figures"}}
	for _, o := range r.Rows {
		write, span := report.Fixed, "–"
		if o.Under == "" {
			write = o.figure.write
		}
		if len(o.Rounds) > 0 {
			span = o.Span(write)
		}
		t.Rows = append(t.Rows, []string{o.What, o.Bound(write), span, oneLine(o.Verdict + ": " + o.Void), o.figures})
	}
	if err := t.Markdown(w); err != nil {
		return err
	}
	fmt.Fprintln(w)
	t = report.Table{Head: []string{"medians of the rounds", "acknowledged", "p50", "p99", "notes"}}
	for _, scene := range r.Scenes {
		for _, s := range scene.Sides {
			notes := ""
			if n := len(s.Runs); n > 0 {
				notes = cmp.Or(s.Runs[n-1].Void, strings.Join(s.Runs[n-1].Notes, "; "))
			}
			t.Rows = append(t.Rows, []string{
				scene.Name + ", " + s.Name, perSecond.median(s.Runs), p50.median(s.Runs), p99.median(s.Runs), oneLine(notes),
			})
		}
	}
	return t.Markdown(w)
}

func oneLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return strings.TrimRight(strings.ReplaceAll(line, "|", "/"), ":; ")
}
