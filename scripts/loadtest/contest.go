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

// wantedRatio is a figure of the second side over that of the first, round by round, and what its median must be; a
// bound of 0 is none.
type wantedRatio struct {
	name            string
	figure          func(*result.Run) float64
	atLeast, atMost float64
}

func perSecondOf(r *result.Run) float64 { return r.PerSecond }
func p50Of(r *result.Run) float64       { return r.LatencyMs.P50 }
func p99Of(r *result.Run) float64       { return r.LatencyMs.P99 }

// contest makes all runs until one is cut short, judges them, reports them, and says how that ends the program. Without
// any run there is nothing to say but what cut it short.
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
	judgeContest(both, ctx.Err() != nil)
	err = errors.Join(err, p.write(c.files, both, report.OfComparison(both)))
	if ctx.Err() == nil && err == nil && both.Outcome == "FAIL" {
		return errFailed
	}
	return interruptedOr(ctx, err)
}

// judge adds the ratio and, where there is a bound, the verdict on it. A round whose divisor is 0 says nothing; there
// must be at least one that does, unless the contest was interrupted.
func (w wantedRatio) judge(both *result.Comparison, sides [2][]*result.Run, interrupted bool) {
	r := result.Ratio{Name: w.name}
	for i := range min(len(sides[0]), len(sides[1])) {
		if divisor := w.figure(sides[0][i]); divisor > 0 {
			r.Rounds = append(r.Rounds, w.figure(sides[1][i])/divisor)
		}
	}
	r.Median = result.Median(r.Rounds)
	both.Ratios = append(both.Ratios, r)
	v := result.Verdict{Name: w.name + ", median of the rounds", Got: "there is no round to tell by", Unknown: interrupted, Passed: interrupted}
	switch {
	case w.atMost > 0:
		v.Want = fmt.Sprintf("at most %.2f", w.atMost)
	case w.atLeast > 0:
		v.Want = fmt.Sprintf("at least %.2f", w.atLeast)
	default:
		return
	}
	if len(r.Rounds) > 0 {
		v.Got, v.Unknown = fmt.Sprintf("%.2f (%.2f … %.2f)", r.Median, slices.Min(r.Rounds), slices.Max(r.Rounds)), false
		v.Passed = r.Median >= w.atLeast && (w.atMost == 0 || r.Median <= w.atMost)
	}
	both.Verdicts = append(both.Verdicts, v)
}

// judgeContest says how a comparison ended, in a few words. It failed when a criterion was missed, by a run or by a
// ratio, or a run could not be made.
func judgeContest(c *result.Comparison, interrupted bool) {
	known := slices.ContainsFunc(c.Verdicts, func(v result.Verdict) bool { return !v.Unknown })
	switch {
	case slices.ContainsFunc(c.Verdicts, func(v result.Verdict) bool { return !v.Passed }),
		slices.ContainsFunc(c.Runs, func(r *result.Run) bool { return !r.Passed }):
		c.Outcome = "FAIL"
	case !known && interrupted:
		c.Outcome = "not judged: interrupted"
	case !known:
		c.Outcome = "not judged: no criterion on the ratios was given"
	default:
		c.Outcome, c.Passed = "PASS", true
		if interrupted {
			c.Outcome += " (interrupted: judged on the rounds until then)"
		}
	}
}
