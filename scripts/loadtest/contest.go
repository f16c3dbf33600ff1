package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"noncegate/scripts/loadtest/report"
	"noncegate/scripts/loadtest/result"
	"noncegate/scripts/loadtest/traffic"
)

// contest is what a command does that measures two sides in alternation.
type contest struct {
	title    string
	files    *reportFlags
	criteria report.Criteria // of each run
	sides    [2]string
	rounds   int
	andBack  bool            // every second round begins with the second side
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
	for round, side := range result.Alternate(c.rounds, len(c.sides), c.andBack) {
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
	err = errors.Join(err, p.write(c.files, both, report.OfComparison(both)))
	if ctx.Err() == nil && err == nil && failed(both) {
		return errFailed
	}
	return interruptedOr(ctx, err)
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
	r.Median = result.Median(r.Rounds)
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
