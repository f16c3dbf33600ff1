package main

import (
	"context"
	"errors"
	"fmt"

	"noncegate/scripts/loadtest/access"
	"noncegate/scripts/loadtest/report"
	"noncegate/scripts/loadtest/result"
	"noncegate/scripts/loadtest/verify"
)

// runCmd loads gateways once.
type runCmd struct {
	loadFlags
	Verify bool `group:"load" help:"Check every answer, and afterwards read every signer through the gateway: no nonce handed out twice, every one accounted for, request ids answered the same."`
	reportFlags
	criteriaFlags
}

// Run implements the command.
func (c *runCmd) Run(ctx context.Context, p *program) error {
	load, err := c.load()
	if err != nil {
		return err
	}
	criteria, err := c.criteria()
	if err != nil {
		return err
	}
	if err := c.reportFlags.validate(); err != nil {
		return err
	}
	out, err := c.open(p)
	if err != nil {
		return err
	}
	defer out.close()
	if c.Verify {
		load.Verify = verify.NewRecorder()
	}
	run, err := p.observed(ctx, c.metrics(c.URL), func(h hooks) (*result.Run, error) {
		load.BeginMeasure, load.EndMeasure, load.Progress = h.begin, h.end, h.second
		return load.Run(ctx)
	})
	if run == nil {
		return advised(err)
	}
	if c.Verify && err == nil {
		run.Verify, err = p.check(ctx, load.Verify, run, c.URL, load.Access)
	}
	report.Judge(run, criteria)
	if written := out.write(run); written != nil {
		return errors.Join(err, written)
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
