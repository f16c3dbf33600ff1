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

// wantedRatio is a figure of the second side over that of the first, and what its median must be.
type wantedRatio struct {
	result.Ratio
	figure func(*result.Run) float64
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

// judge adds the ratio and, where there is a bound, the verdict on it. There must be a round that says something, unless the contest
// was interrupted.
func (w wantedRatio) judge(both *result.Comparison, sides [2][]*result.Run, interrupted bool) {
	w.Compare(w.figure, sides[1], sides[0], true)
	both.Ratios = append(both.Ratios, w.Ratio)
	v := result.Verdict{Name: w.Name + ", median of the rounds", Want: w.Bound(report.Fixed), Got: w.Void, Passed: w.Kept()}
	if len(w.Rounds) > 0 {
		v.Got = w.Span(report.Fixed)
	} else if interrupted {
		v.Passed, v.Unknown = true, true
	}
	if v.Want != "" {
		both.Verdicts = append(both.Verdicts, v)
	}
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
