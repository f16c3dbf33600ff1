//go:build unix

package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/dustin/go-humanize"

	"noncegate/scripts/loadtest/table"
)

// WriteJSON writes the report for machines.
func (r *Report) WriteJSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(r)
}

// WriteText writes the report for a terminal.
func (r *Report) WriteText(w io.Writer) error {
	return r.write(w, "", func(w io.Writer, t table.Table) error { return t.Text(w, table.Left) })
}

// WriteMarkdown writes the report for a README.
func (r *Report) WriteMarkdown(w io.Writer) error {
	return r.write(w, "### ", func(w io.Writer, t table.Table) error { return t.Markdown(w) })
}

// write writes all parts, each table by put.
func (r *Report) write(w io.Writer, heading string, put func(io.Writer, table.Table) error) error {
	text := new(strings.Builder)
	var settings []string
	for _, key := range slices.Sorted(maps.Keys(r.Settings)) {
		settings = append(settings, key+" "+r.Settings[key])
	}
	fmt.Fprintf(text, "%s. Settings: %s.\n", r.Host, strings.Join(settings, "; "))
	if r.Interrupted {
		fmt.Fprintln(text, "\nInterrupted: this is what was measured until then.")
	}
	if len(r.Rows) > 0 {
		fmt.Fprintln(text)
		if err := put(text, r.rowTable()); err != nil {
			return err
		}
	}
	for _, scene := range r.Scenes {
		fmt.Fprintf(text, "\n%s%s: %s\n\n", heading, scene.Name, scene.About)
		if err := put(text, scene.table()); err != nil {
			return err
		}
	}
	_, err := io.WriteString(w, text.String())
	return err
}

func (r *Report) rowTable() table.Table {
	t := table.Table{Head: []string{"what", "target", "median", "of the rounds", "verdict", "figures"}}
	for _, row := range r.Rows {
		verdict := row.Verdict
		if row.Why != "" {
			verdict += ": " + oneLine(row.Why)
		}
		t.Rows = append(t.Rows, []string{
			row.What, row.Target.text(row.Unit), cell(row.Median, row.amount), row.span(), verdict, r.figures(row),
		})
	}
	return t
}

func (t *Target) text(unit string) string {
	switch {
	case t == nil:
		return "–"
	case unit == unitVerdict:
		return pass
	case t.AtMost > 0:
		return "≤ " + Row{Unit: unit}.amount(t.AtMost)
	}
	return "≥ " + Row{Unit: unit}.amount(t.AtLeast)
}

// unitVerdict is the unit of a figure that is PASS or FAIL.
const unitVerdict = "verdict"

// amount is a value of the row: a ratio, or in the unit of the row.
func (r Row) amount(v float64) string {
	switch {
	case r.Unit == "bytes":
		return kibibytes(v)
	case r.Unit == unitVerdict && v > 0:
		return pass
	case r.Unit == unitVerdict:
		return "FAIL"
	case r.Unit != "":
		return whole(v) + " " + r.Unit
	case v >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return strconv.FormatFloat(v, 'f', 2, 64)
}

// span is the least and the most of the rounds.
func (r Row) span() string {
	if len(r.Values) == 0 {
		return "–"
	}
	return fmt.Sprintf("%s … %s (%d)", r.amount(slices.Min(r.Values)), r.amount(slices.Max(r.Values)), len(r.Values))
}

// figures are the medians that a ratio is made of, in their units.
func (r *Report) figures(row Row) string {
	i := slices.IndexFunc(r.Scenes, func(s Scene) bool { return s.Name == row.Scene })
	if i < 0 || row.Under == "" {
		return "–"
	}
	f, write := perSecond, func(v float64) string { return whole(v) + "/s" }
	if row.Figure == p50.name || row.Figure == p99.name {
		f, write = p99, func(v float64) string { return milli(v) + " ms" }
	}
	if row.Figure == p50.name {
		f = p50
	}
	scene := &r.Scenes[i]
	return cell(scene.side(row.Over).medianOf(f), write) + " ÷ " + cell(scene.side(row.Under).medianOf(f), write)
}

// table is the scene as it is laid out, else the medians of its sides.
func (s *Scene) table() table.Table {
	if s.layout != nil {
		return s.layout(s)
	}
	t := table.Table{Head: []string{"median of the rounds", "acknowledged/s", "p50 ms", "p99 ms", "resident MiB", "notes"}}
	for _, side := range s.Sides {
		line := []string{
			side.Name, cell(side.medianOf(perSecond), whole), cell(side.medianOf(p50), milli),
			cell(side.medianOf(p99), milli), cell(side.medianOf(resident), mebibytes), side.notes(),
		}
		t.Rows = append(t.Rows, line)
	}
	return t
}

// notes are the medians of what was noted beside the figures.
func (s *Side) notes() string {
	var parts []string
	if why := s.void(); why != "" {
		parts = append(parts, "void: "+oneLine(why))
	}
	for _, sample := range s.Samples {
		if sample.Verdict != "" && sample.Void == "" {
			parts = append(parts, oneLine(sample.Verdict))
		}
	}
	if v := s.medianOf(perConnection); v != 0 {
		parts = append(parts, kibibytes(v)+" a connection")
	}
	names := make(map[string]float64)
	for _, sample := range s.Samples {
		if sample.Void == "" {
			maps.Copy(names, sample.Notes)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		note := figure{of: func(s Sample) float64 { return s.Notes[name] }}
		parts = append(parts, name+" "+rate(s.medianOf(note)))
	}
	return strings.Join(parts, "; ")
}

// oneLine is the first line of a text, safe in a cell.
func oneLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return strings.ReplaceAll(line, "|", "/")
}

// cell is a figure, or a dash when it was not measured.
func cell(v float64, write func(float64) string) string {
	if v == 0 {
		return "–"
	}
	return write(v)
}

func whole(v float64) string     { return humanize.Comma(int64(v + 0.5)) }
func milli(v float64) string     { return strconv.FormatFloat(v, 'f', 2, 64) }
func mebibytes(v float64) string { return strconv.FormatFloat(v/(1<<20), 'f', 1, 64) }
func kibibytes(v float64) string { return strconv.FormatFloat(v/(1<<10), 'f', 1, 64) + " KiB" }
