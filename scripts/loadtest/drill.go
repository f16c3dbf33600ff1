package main

import (
	"context"
	"errors"
	"fmt"

	"noncegate/scripts/loadtest/access"
	"noncegate/scripts/loadtest/observe"
	"noncegate/scripts/loadtest/report"
	"noncegate/scripts/loadtest/result"
	"noncegate/scripts/loadtest/rounds"
	"noncegate/scripts/loadtest/traffic"
	"noncegate/scripts/loadtest/verify"
)

// single is what a command does that makes one run.
type single struct {
	files    *reportFlags
	criteria report.Criteria
	measure  func() (*result.Run, error)        // a run may come with an error
	verdicts func(*result.Run) []result.Verdict // beside the criteria; nil: none
	forms    func(*result.Run) forms            // nil: those of any run
}

// single makes the run, judges it, reports it, and says how it ends the program.
func (p *program) single(ctx context.Context, d single) error {
	out, err := d.files.open(p)
	if err != nil {
		return err
	}
	defer out.close()
	run, err := d.measure()
	if run == nil {
		if ctx.Err() != nil {
			return errInterrupted
		}
		return err
	}
	report.Judge(run, d.criteria)
	if d.verdicts != nil {
		run.Verdicts = append(run.Verdicts, d.verdicts(run)...)
	}
	written := formsOf(run)
	if d.forms != nil {
		written = d.forms(run)
	}
	if failed := out.write(written); failed != nil {
		return errors.Join(err, failed)
	}
	return outcome(run, err)
}

// outcome is how a run that was reported ends the program.
func outcome(run *result.Run, err error) error {
	switch {
	case run.Interrupted:
		return errInterrupted
	case err != nil:
		return err
	case !run.Passed():
		return errFailed
	}
	return nil
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
	measure  func(side int, name string, signers traffic.Signers) (*result.Run, error)
	missed   map[string]int64 // see comparison; filled in by measure
	judge    func(*comparison)
}

// contest makes all runs until one is cut short, and ends as compared does.
func (p *program) contest(ctx context.Context, c contest) error {
	out, err := c.files.open(p)
	if err != nil {
		return err
	}
	defer out.close()
	both := &comparison{Title: c.title, Missed: c.missed}
	for round, side := range rounds.Alternate(c.rounds, len(c.sides), c.order) {
		signers := c.signers
		signers.Base += int64(len(both.Runs)) * int64(signers.Count)
		name := fmt.Sprintf("%s, round %d", c.sides[side], round+1)
		run, err := c.measure(side, name, signers)
		if cutShort := both.add(run, err, name, c.sides[side], c.criteria); cutShort {
			return p.compared(ctx, both, out, err, c.judge)
		}
	}
	return p.compared(ctx, both, out, nil, c.judge)
}

// hooks are what a load calls when its measured time begins and ends, and after
// each second of it.
type hooks struct {
	begin, end func()
	second     func(result.Second)
}

// observed makes a load while the gateways at metrics are observed, with a line
// of progress where somebody looks. A result may come with an error.
func (p *program) observed(ctx context.Context, metrics []string, measure func(hooks) (*result.Run, error)) (*result.Run, error) {
	observer := observe.Start(ctx, metrics)
	line := p.progress()
	run, err := measure(hooks{begin: observer.Begin, end: func() { observer.End() }, second: line.second})
	line.end()
	nodes := observer.End() // the same once more; of a load that was not measured, why there is nothing
	if run != nil {
		run.Nodes = nodes
	}
	return run, err
}

// loaded makes a load observed. What it is to call itself when the measured time
// begins is called, too.
func (p *program) loaded(ctx context.Context, metrics []string, load traffic.Load) (*result.Run, error) {
	begin := load.BeginMeasure
	return p.observed(ctx, metrics, func(h hooks) (*result.Run, error) {
		load.BeginMeasure, load.EndMeasure, load.Progress = h.begin, h.end, h.second
		if begin != nil {
			load.BeginMeasure = func() {
				h.begin()
				begin()
			}
		}
		return load.Run(ctx)
	})
}

// check finishes the verification of a run that is over. A run that was
// interrupted is judged by its answers alone.
func (p *program) check(ctx context.Context, recorder *verify.Recorder, run *result.Run, urls []string, in access.Access) (*result.Verify, error) {
	if run.Interrupted {
		return recorder.Result(), nil
	}
	line := p.progress()
	defer line.end()
	v, err := recorder.Check(ctx, urls, in, line.signers)
	if ctx.Err() != nil {
		run.Interrupted, err = true, nil
	}
	if err != nil {
		v.Incomplete = err.Error()
		err = fmt.Errorf("the run is over, but could not be verified: %w", err)
	}
	return v, err
}
