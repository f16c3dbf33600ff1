//go:build unix

package bench

import (
	"strconv"

	"noncegate/scripts/loadtest/rounds"
	"noncegate/scripts/loadtest/table"
)

// callsTable has a line for each side and phase.
func (s *Scene) callsTable() table.Table {
	t := table.Table{Head: []string{"for 1,000 calls, median of the rounds", "calls"}}
	for _, note := range callNotes {
		t.Head = append(t.Head, note.name)
	}
	for i := range s.Sides {
		side := &s.Sides[i]
		for _, phase := range callPhases {
			line := []string{side.Name + ", " + phase, side.count(noteOf(phase, "calls"), whole)}
			for _, note := range callNotes {
				line = append(line, side.count(noteOf(phase, note.name), rate))
			}
			t.Rows = append(t.Rows, line)
		}
	}
	return t
}

// idleTable has a line for each side.
func (s *Scene) idleTable() table.Table {
	t := table.Table{Head: []string{"while nobody asks"}}
	for _, note := range idleNotes {
		t.Head = append(t.Head, note.name)
	}
	for i := range s.Sides {
		line := []string{s.Sides[i].Name}
		for _, note := range idleNotes {
			line = append(line, s.Sides[i].count(note.name, whole))
		}
		t.Rows = append(t.Rows, line)
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
		return write(rounds.Median(values))
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
