package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"noncegate/scripts/loadtest/report"
	"noncegate/scripts/loadtest/result"
	"noncegate/scripts/loadtest/rounds"
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

// comparison is runs of two sides in alternation.
type comparison struct {
	Title  string
	Runs   []*result.Run
	sides  []string         // of the runs
	Ratios []ratio          // once judged
	Missed map[string]int64 // events that slow clients were told they missed, by name of the run

	Verdicts []result.Verdict // of the ratios, and of what cut it short; each run has its own besides

	cut         string // name of the run that an error cut short; empty: none
	interrupted bool
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
	if err != nil {
		c.cut = name
	}
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
	r.Median = rounds.Median(r.Rounds)
	c.Ratios = append(c.Ratios, r)
	return r
}

// judge adds the verdict on a ratio, of which there must be at least one round;
// of a comparison that somebody ended before there was one it is not known.
func (c *comparison) judge(r ratio, want string, limit float64) {
	v := result.Verdict{
		Name: r.Name + ", median of the rounds", Want: fmt.Sprintf("%s %.2f", want, limit), Got: "there is no round to tell by",
	}
	switch {
	case len(r.Rounds) == 0 && c.interrupted:
		v.Passed, v.Unknown = true, true
	case len(r.Rounds) > 0:
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

// failed reports whether a criterion was missed, by a run or by a ratio, or a run
// could not be made.
func (c *comparison) failed() bool {
	for _, v := range c.Verdicts {
		if !v.Passed {
			return true
		}
	}
	for _, run := range c.Runs {
		if !run.Passed() {
			return true
		}
	}
	return len(c.Runs) == 0
}

// judged reports whether there was a criterion for the two sides together that
// could be looked at.
func (c *comparison) judged() bool {
	return slices.ContainsFunc(c.Verdicts, func(v result.Verdict) bool { return !v.Unknown })
}

// outcome is how the comparison ended, in a word or a few.
func (c *comparison) outcome() string {
	switch {
	case c.failed():
		return "failed"
	case c.interrupted && !c.judged():
		return "not judged: interrupted"
	case !c.judged():
		return "not judged: no criterion on the ratios was given"
	case c.interrupted:
		return "passed (interrupted: judged on the rounds until then)"
	}
	return "passed"
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
	c.interrupted = ctx.Err() != nil
	if err != nil && !c.interrupted {
		what, _, _ := strings.Cut(err.Error(), "\n")
		c.Verdicts = append(c.Verdicts, result.Verdict{Name: c.cut, Want: "no error", Got: what})
	}
	judge(c)
	if written := out.write(c.forms()); written != nil {
		return errors.Join(err, written)
	}
	switch {
	case ctx.Err() != nil:
		return errInterrupted
	case err != nil:
		return err
	case c.failed():
		return errFailed
	}
	return nil
}
