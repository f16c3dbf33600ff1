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

// Report is everything a bench found out. Its JSON form is what machines read, so a field
// keeps its name.
type Report struct {
	Host     Host              `json:"host"`
	Settings map[string]string `json:"settings"` // of the bench and of the servers
	Seconds  float64           `json:"seconds"`
	// Interrupted says that the bench was ended from outside: rows have fewer rounds than
	// asked for, or none.
	Interrupted bool    `json:"interrupted,omitempty"`
	Rows        []Row   `json:"rows"`
	Scenes      []Scene `json:"scenes"`
}

// Row is a figure of one side over that of another, or alone, and its target: one of the two
// bounds.
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

	long bool // measured only when it is asked for
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
	About string `json:"about"`
	Sides []Side `json:"sides"`
}

// Side is what was found of servers under a load.
type Side struct {
	Name    string   `json:"name"`
	Samples []Sample `json:"samples"` // one a round
}

// Sample is what one measurement found. A figure that was not measured is 0.
type Sample struct {
	Acknowledged  int64    `json:"acknowledged"`
	PerSecond     float64  `json:"perSecond"` // acknowledged
	P50Ms         float64  `json:"p50Ms"`
	P99Ms         float64  `json:"p99Ms"`
	HandOutP50Ms  float64  `json:"handOutP50Ms"`
	HandOutP99Ms  float64  `json:"handOutP99Ms"`
	Resident      float64  `json:"residentBytes,omitempty"`      // of the servers, right after the load
	PerConnection float64  `json:"bytesPerConnection,omitempty"` // resident memory that an idle connection adds
	Notes         []string `json:"notes,omitempty"`
	Verdict       string   `json:"verdict,omitempty"` // of a soak: PASS, or FAIL and why
	Void          string   `json:"void,omitempty"`    // why the figures count for nothing; empty: they do
}

// add takes in what another load found at the same time.
func (s *Sample) add(o Sample) {
	s.Acknowledged += o.Acknowledged
	s.PerSecond += o.PerSecond
	s.P50Ms, s.P99Ms = max(s.P50Ms, o.P50Ms), max(s.P99Ms, o.P99Ms)
	s.HandOutP50Ms, s.HandOutP99Ms = max(s.HandOutP50Ms, o.HandOutP50Ms), max(s.HandOutP99Ms, o.HandOutP99Ms)
	s.Notes, s.Void = append(s.Notes, o.Notes...), cmp.Or(s.Void, o.Void)
}

// String is the sample in a line.
func (s Sample) String() string {
	switch {
	case s.Void != "":
		return "VOID: " + s.Void
	case s.PerConnection != 0:
		return perConnection.write(s.PerConnection) + " a connection"
	}
	return strings.TrimSpace(fmt.Sprintf("%s/s, p50 %s ms, p99 %s ms %s", whole(s.PerSecond), fixed(s.P50Ms), fixed(s.P99Ms), s.Verdict))
}

// Figure is one number of a sample, by its name in JSON.
type Figure string

// The figures of rows.
const (
	perSecond     Figure = "perSecond"
	p50           Figure = "p50Ms"
	p99           Figure = "p99Ms"
	handOutP50    Figure = "handOutP50Ms"
	handOutP99    Figure = "handOutP99Ms"
	perConnection Figure = "bytesPerConnection"
	passed        Figure = "verdict" // 1 for PASS, and -1 for FAIL: what is 0 was not measured
)

func (f Figure) of(s Sample) float64 {
	if f == passed && s.Verdict != pass {
		return -1
	}
	return map[Figure]float64{
		perSecond: s.PerSecond, p50: s.P50Ms, p99: s.P99Ms, handOutP50: s.HandOutP50Ms, handOutP99: s.HandOutP99Ms,
		perConnection: s.PerConnection, passed: 1,
	}[f]
}

// write is a figure that stands alone.
func (f Figure) write(v float64) string {
	switch f {
	case perSecond:
		return whole(v) + "/s"
	case perConnection:
		return strconv.FormatFloat(v/(1<<10), 'f', 1, 64) + " KiB"
	case passed:
		return map[bool]string{true: pass, false: "FAIL"}[v > 0]
	}
	return fixed(v) + " ms"
}

// IsVoid reports whether a row counts for nothing, and why the first one does.
func (r *Report) IsVoid() (why string, void bool) {
	i := slices.IndexFunc(r.Rows, func(row Row) bool { return row.Verdict == Void })
	if i < 0 {
		return "", false
	}
	return r.Rows[i].Name + ": " + r.Rows[i].Why, true
}

// judge fills in values, median and verdict. A round in which a side was void gives no value
// and makes the row void.
func (r Row) judge(scenes []Scene) Row {
	over, under := find(scenes, r.Scene, r.Over), find(scenes, r.Scene, r.Under)
	for i, sample := range over {
		value, err := r.Figure.of(sample), sample.Void
		if r.Under != "" {
			if i == len(under) {
				break // interrupted amid a round
			}
			err = cmp.Or(err, under[i].Void)
			if divisor := r.Figure.of(under[i]); divisor > 0 {
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
		if v := f.of(s); s.Void == "" && v != 0 {
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
	var settings []string
	for _, key := range slices.Sorted(maps.Keys(r.Settings)) {
		settings = append(settings, key+" "+r.Settings[key])
	}
	fmt.Fprintf(w, "%s. Settings: %s.\n\n", r.Host, strings.Join(settings, "; "))
	if r.Interrupted {
		fmt.Fprint(w, "Interrupted: this is what was measured until then.\n\n")
	}
	if err := r.rowTable().Markdown(w); err != nil {
		return err
	}
	fmt.Fprintln(w)
	return r.sceneTable().Markdown(w)
}

func (r *Report) rowTable() report.Table {
	t := report.Table{Head: []string{"what", "target", "median", "of the rounds", "verdict", "figures"}}
	for _, row := range r.Rows {
		write := row.Figure.write
		if row.Under != "" {
			write = fixed
		}
		target := "≥ " + write(row.AtLeast)
		if row.AtMost > 0 {
			target = "≤ " + write(row.AtMost)
		}
		median, span, figures := "–", "–", row.Figure.median(find(r.Scenes, row.Scene, row.Over))
		if len(row.Values) > 0 {
			median = write(row.Median)
			span = fmt.Sprintf("%s … %s (%d)", write(slices.Min(row.Values)), write(slices.Max(row.Values)), len(row.Values))
		}
		if row.Under != "" {
			figures += " ÷ " + row.Figure.median(find(r.Scenes, row.Scene, row.Under))
		}
		t.Rows = append(t.Rows, []string{row.What, target, median, span, strings.TrimSuffix(row.Verdict+": "+oneLine(row.Why), ": "), figures})
	}
	return t
}

// sceneTable has the medians of each side.
func (r *Report) sceneTable() report.Table {
	t := report.Table{Head: []string{"medians of the rounds", "acknowledged", "p50", "p99", "MiB", "notes"}}
	for _, scene := range r.Scenes {
		for _, side := range scene.Sides {
			notes, mib := "", "–"
			if last := len(side.Samples) - 1; last >= 0 {
				s := side.Samples[last]
				notes = oneLine(strings.Join(append(slices.DeleteFunc([]string{s.Void, s.Verdict}, func(n string) bool { return n == "" }), s.Notes...), "; "))
				mib = fixed(s.Resident / (1 << 20))
			}
			t.Rows = append(t.Rows, []string{
				scene.Name + ", " + side.Name, perSecond.median(side.Samples), p50.median(side.Samples), p99.median(side.Samples), mib, notes,
			})
		}
	}
	return t
}

// oneLine is the first line of a text, safe in a cell.
func oneLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return strings.ReplaceAll(line, "|", "/")
}

func whole(v float64) string { return humanize.Comma(int64(v + 0.5)) }
func fixed(v float64) string { return strconv.FormatFloat(v, 'f', 2, 64) }
