//go:build unix

package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
)

// NodesReport is what Nodes found out. The scenes whose figures are counts have
// them in the notes of their samples, and tables of their own.
type NodesReport struct{ Report }

// WriteJSON writes the report for machines.
func (r *NodesReport) WriteJSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(r)
}

// WriteText writes the report for a terminal.
func (r *NodesReport) WriteText(w io.Writer) error {
	report, counts := r.split()
	if err := report.WriteText(w); err != nil {
		return err
	}
	for _, s := range counts {
		fmt.Fprintf(w, "\n%s: %s\n\n", s.Name, s.About)
		tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		t := s.countTable()
		for _, line := range append([][]string{t.head}, t.lines...) {
			fmt.Fprintln(tw, strings.Join(line, "\t"))
		}
		if err := tw.Flush(); err != nil {
			return err
		}
	}
	return nil
}

// WriteMarkdown writes the report for a README.
func (r *NodesReport) WriteMarkdown(w io.Writer) error {
	report, counts := r.split()
	if err := report.WriteMarkdown(w); err != nil {
		return err
	}
	for _, s := range counts {
		var text strings.Builder
		fmt.Fprintf(&text, "\n### %s: %s\n\n", s.Name, s.About)
		t := s.countTable()
		lines := [][]string{t.head, slices.Repeat([]string{"---"}, len(t.head))}
		for _, line := range append(lines, t.lines...) {
			fmt.Fprintf(&text, "| %s |\n", strings.Join(line, " | "))
		}
		if _, err := io.WriteString(w, text.String()); err != nil {
			return err
		}
	}
	return nil
}

// split takes the scenes that have tables of their own out of the report.
func (r *NodesReport) split() (rest *Report, counts []Scene) {
	report := r.Report
	report.Scenes = nil
	for _, s := range r.Scenes {
		if s.Name == nodesThroughput {
			report.Scenes = append(report.Scenes, s)
		} else {
			counts = append(counts, s)
		}
	}
	return &report, counts
}

// countTable is the table of a scene that is about counts.
func (s *Scene) countTable() table {
	if s.Name == nodesIdle {
		return s.idleTable()
	}
	return s.callsTable()
}

// callsTable has a line for each side and phase.
func (s *Scene) callsTable() table {
	t := table{head: []string{"for 1,000 calls, median of the rounds", "calls"}}
	for _, note := range callNotes {
		t.head = append(t.head, note.name)
	}
	for i := range s.Sides {
		side := &s.Sides[i]
		for _, phase := range callPhases {
			line := []string{side.Name + ", " + phase, side.count(noteOf(phase, "calls"), whole)}
			for _, note := range callNotes {
				line = append(line, side.count(noteOf(phase, note.name), rate))
			}
			t.lines = append(t.lines, line)
		}
	}
	return t
}

// idleTable has a line for each side.
func (s *Scene) idleTable() table {
	t := table{head: []string{"while nobody asks"}}
	for _, note := range idleNotes {
		t.head = append(t.head, note.name)
	}
	for i := range s.Sides {
		line := []string{s.Sides[i].Name}
		for _, note := range idleNotes {
			line = append(line, s.Sides[i].count(note.name, whole))
		}
		t.lines = append(t.lines, line)
	}
	return t
}

// count is the median of what was noted, a dash when no measurement counts. Unlike
// other figures one that is 0 was measured.
func (s *Side) count(note string, write func(float64) string) string {
	var values []float64
	for _, sample := range s.Samples {
		if v, ok := sample.Notes[note]; ok && sample.Void == "" {
			values = append(values, v)
		}
	}
	switch why := s.void(); {
	case len(values) > 0:
		return write(median(values))
	case why != "":
		return Void
	}
	return "–"
}

// rate is a count for 1,000 calls: few of them with more digits, so that what is
// rare does not look like never.
func rate(v float64) string {
	switch {
	case v == 0:
		return "0"
	case v < 1:
		return strconv.FormatFloat(v, 'g', 2, 64)
	case v < 100:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return whole(v)
}
