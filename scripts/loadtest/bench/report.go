//go:build unix

package bench

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/dustin/go-humanize"

	"noncegate/scripts/loadtest/report"
	"noncegate/scripts/loadtest/result"
)

// Report is everything a bench found out. Its JSON form is what machines read, so a field keeps its name.
type Report struct {
	Host     Host    `json:"host"`
	Settings string  `json:"settings"` // of the bench and of the servers
	Seconds  float64 `json:"seconds"`
	// Interrupted says that the bench was ended from outside: rows have fewer rounds than asked for, or none.
	Interrupted bool    `json:"interrupted,omitempty"`
	Rows        []Row   `json:"rows"`
	Scenes      []Scene `json:"scenes"`
}

// Row is a figure of one side over that of another, or alone, and its target: one of the two bounds.
type Row struct {
	Name    string    `json:"name"`
	What    string    `json:"what"`
	Scene   string    `json:"scene"`
	Over    string    `json:"over"`            // side
	Under   string    `json:"under,omitempty"` // side it is divided by; empty: the figure alone
	Figure  Figure    `json:"figure"`
	AtLeast float64   `json:"atLeast,omitempty"`
	AtMost  float64   `json:"atMost,omitempty"`
	Values  []float64 `json:"values"` // one a round
	Median  float64   `json:"median"`
	Verdict string    `json:"verdict"`       // met, missed, or void
	Why     string    `json:"why,omitempty"` // it is void

	over, under side
	times       int  // of the bench's duration is measured, where what is measured takes time to show; 0: 1
	once        bool // one round is enough
	long        bool // measured only when it is asked for
}

// The verdicts of a Row.
const (
	Met    = "met"
	Missed = "missed"
	Void   = "void"
)

// Scene is what was measured in alternation.
type Scene struct {
	Name  string `json:"name"`
	Sides []Side `json:"sides"`
}

// Side is what was found of servers under a load.
type Side struct {
	Name    string   `json:"name"`
	Samples []Sample `json:"samples"` // one a round
}

// Sample is what one measurement found.
type Sample struct {
	Figures map[Figure]float64 `json:"figures"`
	Notes   []string           `json:"notes,omitempty"`
	Void    string             `json:"void,omitempty"` // why the figures count for nothing; empty: they do
}

// Figure is one number of a sample, by its name in JSON.
type Figure string

// The figures of rows.
const (
	perSecond     Figure = "perSecond" // acknowledged
	p50           Figure = "p50Ms"
	p99           Figure = "p99Ms"
	handOutP50    Figure = "handOutP50Ms"
	handOutP99    Figure = "handOutP99Ms"
	perConnection Figure = "bytesPerConnection" // resident memory that an idle connection adds
	passed        Figure = "passed"             // 1 of a soak in which nothing was wrong, else -1
)

// write is a figure that stands alone.
func (f Figure) write(v float64) string {
	switch f {
	case perSecond:
		return whole(v) + "/s"
	case perConnection:
		return strconv.FormatFloat(v/(1<<10), 'f', 1, 64) + " KiB"
	case passed:
		return map[bool]string{true: "PASS", false: "FAIL"}[v > 0]
	}
	return fixed(v) + " ms"
}

// add takes in what another load found at the same time: the sum of what they carry, and the latency of the worse.
func (s *Sample) add(o Sample) {
	if s.Figures == nil {
		s.Figures = make(map[Figure]float64)
	}
	for f, v := range o.Figures {
		s.Figures[f] = max(s.Figures[f], v)
		if f == perSecond {
			s.Figures[f] += min(s.Figures[f], v)
		}
	}
	s.Notes, s.Void = append(s.Notes, o.Notes...), cmp.Or(s.Void, o.Void)
}

// String is the sample in a line.
func (s Sample) String() string {
	if s.Void != "" {
		return "VOID: " + s.Void
	}
	var texts []string
	for _, f := range slices.Sorted(maps.Keys(s.Figures)) {
		texts = append(texts, string(f)+" "+f.write(s.Figures[f]))
	}
	return strings.Join(append(texts, s.Notes...), ", ")
}

// IsVoid reports whether a row counts for nothing, and why the first one does.
func (r *Report) IsVoid() (why string, void bool) {
	for _, row := range r.Rows {
		if row.Verdict == Void {
			return row.Name + ": " + row.Why, true
		}
	}
	return "", false
}

// judge fills in values, median and verdict. A round in which a side was void gives no value and makes the row void.
func (r Row) judge(scenes []Scene) Row {
	over, under := find(scenes, r.Scene, r.Over), find(scenes, r.Scene, r.Under)
	for i, sample := range over {
		value, err := sample.Figures[r.Figure], sample.Void
		if r.Under != "" {
			if i == len(under) {
				break // interrupted amid a round
			}
			err = cmp.Or(err, under[i].Void)
			if divisor := under[i].Figures[r.Figure]; divisor > 0 {
				value /= divisor
			} else {
				err = cmp.Or(err, "nothing to divide by")
			}
		}
		if err != "" {
			r.Why = cmp.Or(r.Why, err)
			continue
		}
		r.Values = append(r.Values, value)
	}
	r.Median = result.Median(r.Values)
	if len(r.Values) == 0 {
		r.Why = cmp.Or(r.Why, "not measured")
	}
	switch {
	case r.Why != "":
		r.Verdict = Void
	case r.AtMost > 0 && r.Median <= r.AtMost, r.AtMost == 0 && r.Median >= r.AtLeast:
		r.Verdict = Met
	default:
		r.Verdict = Missed
	}
	return r
}

// find is the samples of a side, none when it was not measured.
func find(scenes []Scene, scene, side string) []Sample {
	for _, s := range scenes {
		for _, is := range s.Sides {
			if s.Name == scene && is.Name == side {
				return is.Samples
			}
		}
	}
	return nil
}

// median is that of a figure over the samples that count, a dash when there is none.
func (f Figure) median(samples []Sample) string {
	var values []float64
	for _, s := range samples {
		if v, measured := s.Figures[f]; measured && s.Void == "" {
			values = append(values, v)
		}
	}
	if len(values) == 0 {
		return "–"
	}
	return f.write(result.Median(values))
}

// WriteJSON writes the report for machines.
func (r *Report) WriteJSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(r)
}

// WriteMarkdown writes the report for people.
func (r *Report) WriteMarkdown(w io.Writer) error {
	fmt.Fprintf(w, "%s. %s.\n\n", r.Host, r.Settings)
	if r.Interrupted {
		fmt.Fprint(w, "Interrupted: this is what was measured until then.\n\n")
	}
	t := report.Table{Head: []string{"what", "target", "median", "of the rounds", "verdict", "figures"}}
	for _, row := range r.Rows {
		t.Rows = append(t.Rows, row.cells(r.Scenes))
	}
	if err := t.Markdown(w); err != nil {
		return err
	}
	fmt.Fprintln(w)
	t = report.Table{Head: []string{"medians of the rounds", "acknowledged", "p50", "p99", "notes"}}
	for _, scene := range r.Scenes {
		for _, side := range scene.Sides {
			notes := ""
			if n := len(side.Samples); n > 0 {
				notes = strings.Join(append(side.Samples[n-1].Notes, side.Samples[n-1].Void), "; ")
			}
			t.Rows = append(t.Rows, []string{
				scene.Name + ", " + side.Name, perSecond.median(side.Samples), p50.median(side.Samples), p99.median(side.Samples), oneLine(notes),
			})
		}
	}
	return t.Markdown(w)
}

func (r *Row) cells(scenes []Scene) []string {
	write := r.Figure.write
	figures := write(r.Median)
	if r.Under != "" {
		write = fixed
		figures = r.Figure.median(find(scenes, r.Scene, r.Over)) + " ÷ " + r.Figure.median(find(scenes, r.Scene, r.Under))
	}
	target := "≥ " + write(r.AtLeast)
	if r.AtMost > 0 {
		target = "≤ " + write(r.AtMost)
	}
	median, span := "–", "–"
	if len(r.Values) > 0 {
		median = write(r.Median)
		span = fmt.Sprintf("%s … %s (%d)", write(slices.Min(r.Values)), write(slices.Max(r.Values)), len(r.Values))
	}
	return []string{r.What, target, median, span, oneLine(r.Verdict + ": " + r.Why), figures}
}

// oneLine is the first line of a text, safe in a cell.
func oneLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return strings.TrimRight(strings.ReplaceAll(line, "|", "/"), ":; ")
}

func whole(v float64) string { return humanize.Comma(int64(v + 0.5)) }
func fixed(v float64) string { return strconv.FormatFloat(v, 'f', 2, 64) }
