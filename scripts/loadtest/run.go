package main

import (
	"context"

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
	if c.Verify {
		load.Verify = verify.NewRecorder()
	}
	return p.single(ctx, single{files: &c.reportFlags, criteria: criteria, measure: func() (*result.Run, error) {
		run, err := p.loaded(ctx, c.metrics(c.URL), load)
		if run == nil {
			return nil, advised(err)
		}
		if c.Verify && err == nil {
			run.Verify, err = p.check(ctx, load.Verify, run, c.URL, load.Access)
		}
		return run, err
	}})
}
