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
	"noncegate/scripts/loadtest/traffic"
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

// all are they among the criteria of a run.
func (f *drillFlags) all() *criteriaFlags {
	return &criteriaFlags{MaxFailedShare: f.MaxFailedShare, MinAcknowledged: f.MinAcknowledged, MaxLost: f.MaxLost}
}

// contest is what a command does that measures two sides in alternation.
type contest struct {
	title    string
	files    *reportFlags
	criteria report.Criteria // of each run
	sides    [2]string
	rounds   int
	order    rounds.Order
	signers  traffic.Signers // of the first run; each run has further ones
	measure  func(side int, signers traffic.Signers) (*result.Run, error)
	ratios   []wantedRatio
}

// wantedRatio is a figure of the second side over that of the first, round by round, and what its
// median must be; a bound of 0 is none.
type wantedRatio struct {
	name            string
	figure          func(*result.Run) float64
	atLeast, atMost float64
}

func perSecondOf(r *result.Run) float64 { return r.PerSecond }
func p50Of(r *result.Run) float64       { return r.LatencyMs.P50 }
func p99Of(r *result.Run) float64       { return r.LatencyMs.P99 }

// contest makes all runs until one is cut short, judges them, reports them, and says how that
// ends the program. Without any run there is nothing to say but what cut it short.
func (p *program) contest(ctx context.Context, c contest) error {
	if err := c.files.writable(); err != nil {
		return err
	}
	both := &result.Comparison{Title: c.title}
	var sides [2][]*result.Run // those that say something
	var err error
	for round, side := range rounds.Alternate(c.rounds, len(c.sides), c.order) {
		signers := c.signers
		signers.Base += int64(len(both.Runs)) * int64(signers.Count)
		name := fmt.Sprintf("%s, round %d", c.sides[side], round+1)
		var run *result.Run
		if run, err = c.measure(side, signers); run != nil {
			run.Name = name
			report.Judge(run, c.criteria)
			both.Runs = append(both.Runs, run)
		}
		if err != nil && ctx.Err() == nil {
			what, _, _ := strings.Cut(err.Error(), "\n")
			both.Verdicts = append(both.Verdicts, result.Verdict{Name: name, Want: "no error", Got: what})
		}
		if run == nil || err != nil || run.Interrupted {
			break
		}
		sides[side] = append(sides[side], run)
	}
	if len(both.Runs) == 0 {
		return interruptedOr(ctx, err)
	}
	for _, r := range c.ratios {
		r.judge(both, sides, ctx.Err() != nil)
	}
	both.Outcome, both.Passed = outcomeOf(both, ctx.Err() != nil)
	if written := p.write(c.files, both); written != nil {
		return errors.Join(err, written)
	}
	switch {
	case ctx.Err() != nil || err != nil:
		return interruptedOr(ctx, err)
	case failed(both):
		return errFailed
	}
	return nil
}

func interruptedOr(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return errInterrupted
	}
	return err
}

// judge adds the ratio and, where there is a bound, the verdict on it. A round whose divisor is 0
// says nothing; there must be at least one that does, unless somebody ended the contest before.
func (w wantedRatio) judge(both *result.Comparison, sides [2][]*result.Run, interrupted bool) {
	r := result.Ratio{Name: w.name}
	for i := range min(len(sides[0]), len(sides[1])) {
		if divisor := w.figure(sides[0][i]); divisor > 0 {
			r.Rounds = append(r.Rounds, w.figure(sides[1][i])/divisor)
		}
	}
	r.Median = rounds.Median(r.Rounds)
	both.Ratios = append(both.Ratios, r)
	want := fmt.Sprintf("at least %.2f", w.atLeast)
	switch {
	case w.atMost > 0:
		want = fmt.Sprintf("at most %.2f", w.atMost)
	case w.atLeast == 0:
		return
	}
	v := result.Verdict{Name: w.name + ", median of the rounds", Want: want, Got: "there is no round to tell by", Unknown: interrupted, Passed: interrupted}
	if len(r.Rounds) > 0 {
		v.Got, v.Unknown = fmt.Sprintf("%.2f (%.2f … %.2f)", r.Median, slices.Min(r.Rounds), slices.Max(r.Rounds)), false
		v.Passed = w.atMost > 0 && r.Median <= w.atMost || w.atMost == 0 && r.Median >= w.atLeast
	}
	both.Verdicts = append(both.Verdicts, v)
}

// failed reports whether a criterion was missed, by a run or by a ratio, or a run could not be
// made.
func failed(c *result.Comparison) bool {
	return slices.ContainsFunc(c.Verdicts, func(v result.Verdict) bool { return !v.Passed }) ||
		slices.ContainsFunc(c.Runs, func(r *result.Run) bool { return !r.Passed })
}

// outcomeOf is how a comparison ended, in a word or a few, and whether it was judged and passed.
func outcomeOf(c *result.Comparison, interrupted bool) (outcome string, passed bool) {
	judged := slices.ContainsFunc(c.Verdicts, func(v result.Verdict) bool { return !v.Unknown })
	switch {
	case failed(c):
		return "FAIL", false
	case !judged && interrupted:
		return "not judged: interrupted", false
	case !judged:
		return "not judged: no criterion on the ratios was given", false
	case interrupted:
		return "PASS (interrupted: judged on the rounds until then)", true
	}
	return "PASS", true
}
