package report

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/dustin/go-humanize"

	"noncegate/scripts/loadtest/result"
)

// count writes a whole number in groups of three.
func count(n int64) string { return humanize.Comma(n) }

// number writes a figure as a person reads it: whole where it is large or whole,
// three digits else.
func number(v float64) string {
	switch {
	case math.IsNaN(v) || math.IsInf(v, 0):
		return "–"
	case math.Abs(v) >= 100 && math.Abs(v) < 1e15, v == math.Trunc(v) && math.Abs(v) < 1e15:
		return count(int64(math.Round(v)))
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}

// milli writes milliseconds: three digits, and never finer than a microsecond.
func milli(v float64) string {
	switch {
	case math.IsNaN(v) || math.IsInf(v, 0):
		return "–"
	case v == 0:
		return "0"
	case math.Abs(v) >= 100:
		return number(v)
	case math.Abs(v) >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	case math.Abs(v) >= 1:
		return strconv.FormatFloat(v, 'f', 2, 64)
	}
	return strconv.FormatFloat(v, 'f', 3, 64)
}

// percent writes a share of 0 to 1.
func percent(v float64) string {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return "–"
	}
	if v > 0 && v < 0.0001 {
		return "<0.01 %"
	}
	return strconv.FormatFloat(math.Round(v*10_000)/100, 'f', -1, 64) + " %"
}

func mebibytes(v float64) string { return strconv.FormatFloat(v/(1<<20), 'f', 1, 64) + " MiB" }

func seconds(v float64) string { return number(math.Round(v*10)/10) + " s" }

// plain is s with everything that a terminal could take for an order replaced.
func plain(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '\uFFFD'
	}, s)
}

// Mark is the word for how a verdict ended.
func Mark(v result.Verdict) string {
	switch {
	case !v.Passed:
		return "FAIL"
	case v.Unknown:
		return "unknown"
	}
	return "pass"
}

// outcome is the run's end in a word or a few.
func outcome(run *result.Run) string {
	s := outcomeWord(run)
	if names := failed(run); len(names) > 0 {
		s += ": " + strings.Join(names, ", ")
	}
	if run.Interrupted {
		s += " (interrupted: judged on what was measured until then)"
	}
	return s
}

func outcomeWord(run *result.Run) string {
	switch {
	case len(run.Verdicts) == 0:
		return "not judged"
	case run.Passed():
		return "PASS"
	}
	return "FAIL"
}

func failed(run *result.Run) []string {
	var names []string
	for _, v := range run.Verdicts {
		if !v.Passed {
			names = append(names, v.Name)
		}
	}
	return names
}

func heading(run *result.Run) string {
	name := "loadtest"
	if run.Command != "" {
		name += " " + run.Command
	}
	if run.Name != "" {
		name += " (" + run.Name + ")"
	}
	return name
}

// when says when the run began and how long it measured.
func when(run *result.Run) string {
	s := seconds(run.Seconds) + " measured"
	if run.Started.IsZero() {
		return s
	}
	return run.Started.UTC().Format(time.DateTime) + " UTC, " + s
}

type setting struct{ Name, Value string }

// settings are those of the load that say something.
func settings(run *result.Run) []setting {
	l := run.Load
	pace := "closed loop"
	if l.Rate > 0 {
		pace = "open loop, " + number(l.Rate) + " requests/s"
		if run.Command == "restart" {
			pace = "open loop, " + number(l.Rate) + " submissions/s, most of them two requests: an allocation and its mark"
		}
	}
	connections := fmt.Sprintf("%s, %s in flight each", count(int64(l.Connections)), count(int64(l.Inflight)))
	if l.MaxOpen > 0 {
		connections = fmt.Sprintf("come and go, at most %s at a time (--max-open)", count(int64(l.MaxOpen)))
	}
	out := []setting{
		{"targets", strings.Join(run.Targets, ", ")},
		{"connections", connections},
		{"pace", pace},
		{"signers", fmt.Sprintf("%s from base %d", count(int64(l.Signers)), l.SignerBase)},
	}
	if l.Distribution != "" {
		out[3].Value += ", " + l.Distribution
	}
	if mix := mixText(l.Mix); mix != "" {
		out = append(out, setting{"mix", mix})
	}
	if l.Subscribers > 0 {
		out = append(out, setting{"subscribers", count(int64(l.Subscribers))})
	}
	times := fmt.Sprintf("warm-up %s, duration %s", seconds(l.Warmup), seconds(l.Duration))
	if l.RampUp > 0 {
		times = "ramp-up " + seconds(l.RampUp) + ", " + times
	}
	return append(out, setting{"time", times})
}

func mixText(mix map[string]float64) string {
	var sum float64
	for _, part := range mix {
		sum += part
	}
	if !(sum > 0) {
		return ""
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(mix)) {
		parts = append(parts, name+" "+percent(mix[name]/sum))
	}
	return strings.Join(parts, ", ")
}

type tally struct {
	Name  string
	Count int64
}

// tallies lists counts by reason, the largest first.
func tallies(counts map[string]int64) []tally {
	var out []tally
	for name, n := range counts {
		out = append(out, tally{name, n})
	}
	slices.SortFunc(out, func(a, b tally) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Name, b.Name))
	})
	return out
}

// Tally lists counts by reason in a line, the largest first.
func Tally(counts map[string]int64) string {
	var parts []string
	for _, t := range tallies(counts) {
		parts = append(parts, t.Name+" "+count(t.Count))
	}
	return strings.Join(parts, ", ")
}

type spread struct {
	Name string
	result.Latency
}

// latencies lists the distributions of a run, the whole first, and the phases in
// their order.
func latencies(run *result.Run) []spread {
	out := []spread{{"all replies", run.LatencyMs}}
	for _, name := range slices.Sorted(maps.Keys(run.Methods)) {
		out = append(out, spread{name, run.Methods[name].LatencyMs})
	}
	for _, p := range run.Phases {
		out = append(out, spread{p.Name, p.LatencyMs})
	}
	if run.Events != nil {
		out = append(out, spread{"events at subscribers", run.Events.LatencyMs})
	}
	return out
}

// memory sums up the resident memory of a node: first, last and largest, bytes.
func memory(n result.Node) (first, last, largest float64) {
	if len(n.Memory) == 0 {
		return 0, 0, 0
	}
	for _, p := range n.Memory {
		largest = max(largest, p.Value)
	}
	return n.Memory[0].Value, n.Memory[len(n.Memory)-1].Value, largest
}

// ofGrowth writes one of the figures of a growth, a dash where there was nothing
// to take it from.
func ofGrowth(g result.Growth, v float64) string {
	if g.Unknown && v == 0 {
		return "–"
	}
	return milli(v)
}

func direction(g result.Growth) string {
	switch {
	case g.Grows:
		return "GROWS"
	case g.Unknown:
		return "unknown"
	}
	return "no"
}
