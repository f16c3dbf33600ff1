//go:build unix

package bench

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"noncegate/scripts/loadtest/rounds"
	"noncegate/scripts/loadtest/table"
	"noncegate/scripts/loadtest/traffic"
)

// Report is everything a bench found out. Its JSON form is what machines read, so
// a field keeps its name.
type Report struct {
	Host     Host              `json:"host"`
	Settings map[string]string `json:"settings"` // of the bench and of the stores
	Seconds  float64           `json:"seconds"`
	// Interrupted says that the bench was ended from outside: rows have fewer
	// rounds than asked for, or none.
	Interrupted bool    `json:"interrupted,omitempty"`
	Rows        []Row   `json:"rows,omitempty"`
	Scenes      []Scene `json:"scenes"`
}

// Row is one line of the table.
type Row struct {
	Name   string    `json:"name"`
	What   string    `json:"what"`
	Scene  string    `json:"scene"`
	Over   string    `json:"over"`            // side
	Under  string    `json:"under,omitempty"` // side it is divided by; empty: the figure alone
	Figure string    `json:"figure"`          // field of Sample
	Unit   string    `json:"unit,omitempty"`  // of a figure alone
	Target *Target   `json:"target,omitempty"`
	Values []float64 `json:"values"` // one a round
	Median float64   `json:"median"`
	// Verdict is met, missed, void, or empty without a target.
	Verdict string `json:"verdict,omitempty"`
	Why     string `json:"why,omitempty"` // it is void

	figure figure
	long   bool   // measured only when it is asked for
	group  string // a name by which it is asked for with others
}

// The verdicts of a Row.
const (
	Met    = "met"
	Missed = "missed"
	Void   = "void"
)

// Target is what the median should be.
type Target struct {
	AtLeast float64 `json:"atLeast,omitempty"`
	AtMost  float64 `json:"atMost,omitempty"`
}

// met reports whether a median is on the right side; a target names one bound.
func (t Target) met(median float64) bool {
	if t.AtMost > 0 {
		return median <= t.AtMost
	}
	return median >= t.AtLeast
}

// Scene is what was measured in alternation.
type Scene struct {
	Name  string `json:"name"`
	About string `json:"about"`
	Sides []Side `json:"sides"`

	// factor times the bench's duration is measured; 0 is 1. More where what is
	// measured takes time to show.
	factor int
	once   bool                     // one round is enough, and its sides are measured together or not at all
	layout func(*Scene) table.Table // of its table; nil: that of most
}

// Side is one server under one load.
type Side struct {
	Name    string   `json:"name"`
	Samples []Sample `json:"samples"` // one a round

	server string // one of the kinds of servers
	load   traffic.Load
	stored stored // what the store holds before; only gateway-postgres has any
	drive  drive  // nil: plain

	// nodes are the gateways of a cluster over one fresh PostgreSQL, which is measured
	// instead of one server: then of the above there is only the name.
	nodes      []nodeKind
	driveNodes func(ctx context.Context, cl *cluster, c Config) (Sample, error)
}

// Sample is what one measurement found. A figure that was not measured is 0.
type Sample struct {
	Acknowledged int64   `json:"acknowledged"`
	PerSecond    float64 `json:"perSecond"` // acknowledged
	P50Ms        float64 `json:"p50Ms"`
	P99Ms        float64 `json:"p99Ms"`
	// Resident is the server's resident memory right after the load, in bytes;
	// 0 where there is no /proc.
	Resident float64 `json:"residentBytes,omitempty"`
	// PerConnection is the resident memory an idle connection adds, in bytes.
	PerConnection float64 `json:"bytesPerConnection,omitempty"`
	// Notes are figures beside the point, such as how many slow clients were
	// kicked.
	Notes map[string]float64 `json:"notes,omitempty"`
	// Verdict is that of a soak: PASS, or FAIL and why.
	Verdict string `json:"verdict,omitempty"`
	// Void says why the figures count for nothing, empty when they do.
	Void string `json:"void,omitempty"`
}

// String is the sample in a line.
func (s Sample) String() string {
	if s.Void != "" {
		return "VOID: " + s.Void
	}
	if s.PerConnection != 0 {
		return kibibytes(s.PerConnection) + " a connection"
	}
	if s.PerSecond == 0 {
		return s.counts()
	}
	text := fmt.Sprintf("%s/s, p50 %s ms, p99 %s ms", whole(s.PerSecond), milli(s.P50Ms), milli(s.P99Ms))
	if s.Verdict != "" {
		text += ", " + s.Verdict
	}
	return text
}

// counts is what was noted in a line, but for what never happened.
func (s Sample) counts() string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(s.Notes)) {
		if v := s.Notes[name]; v != 0 {
			parts = append(parts, name+" "+rate(v))
		}
	}
	return strings.Join(parts, "; ")
}

// IsVoid reports whether a row or a measurement counts for nothing, and why the
// first one does.
func (r *Report) IsVoid() (why string, void bool) {
	for _, row := range r.Rows {
		if row.Verdict == Void {
			return row.Name + ": " + row.Why, true
		}
	}
	for _, scene := range r.Scenes {
		for _, side := range scene.Sides {
			if why := side.void(); why != "" {
				return scene.Name + ", " + side.Name + ": " + why, true
			}
		}
	}
	return "", false
}

func (s *Side) void() string {
	for _, sample := range s.Samples {
		if sample.Void != "" {
			return sample.Void
		}
	}
	return ""
}

// judge fills in the rows from what was measured. A row that was not reached is
// void.
func judge(rows []Row, scenes []Scene) []Row {
	out := slices.Clone(rows)
	for i := range out {
		r := &out[i]
		r.Figure = r.figure.name
		if r.Under == "" {
			r.Unit = r.figure.unit
		}
		at := slices.IndexFunc(scenes, func(s Scene) bool { return s.Name == r.Scene })
		if at < 0 {
			r.Verdict, r.Why = Void, "not measured"
		} else {
			r.judge(scenes[at])
		}
	}
	return out
}

// judge computes values, median and verdict. A round in which a side was void
// gives no value.
func (r *Row) judge(s Scene) {
	over, under := s.side(r.Over), s.side(r.Under)
	for i, sample := range over.Samples {
		value, err := r.figure.of(sample), sample.Void
		if r.Under != "" {
			if i == len(under.Samples) {
				break // interrupted amid a round
			}
			divisor := r.figure.of(under.Samples[i])
			err = cmp.Or(err, under.Samples[i].Void)
			if divisor == 0 {
				err = cmp.Or(err, "nothing to divide by")
			} else {
				value /= divisor
			}
		}
		if err != "" {
			r.Why = cmp.Or(r.Why, err)
			continue
		}
		r.Values = append(r.Values, value)
	}
	r.Median = rounds.Median(r.Values)
	switch {
	case r.Why != "":
		r.Verdict = Void
	case len(r.Values) == 0:
		r.Verdict, r.Why = Void, "not measured"
	case r.Target == nil:
	case r.Target.met(r.Median):
		r.Verdict = Met
	default:
		r.Verdict = Missed
	}
}

// side finds a side, one without samples when it is not there.
func (s *Scene) side(name string) *Side {
	for i := range s.Sides {
		if s.Sides[i].Name == name {
			return &s.Sides[i]
		}
	}
	return &Side{Name: name}
}

// medianOf is the median of one figure over the samples that count.
func (s *Side) medianOf(f figure) float64 {
	var values []float64
	for _, sample := range s.Samples {
		if sample.Void == "" {
			values = append(values, f.of(sample))
		}
	}
	return rounds.Median(values)
}
