package main

import (
	"cmp"
	"context"

	"noncegate/scripts/loadtest/result"
	"noncegate/scripts/loadtest/verify"
)

// runCmd loads gateways once.
type runCmd struct {
	loadFlags
	Verify bool `group:"load" help:"Check the answers about some of the signers, and afterwards what the gateway says of these: no nonce handed out twice, every one accounted for, marks kept. The signers must be unused (--signer-base)."`
	reportFlags
	criteriaFlags
}

func (c *runCmd) Run(ctx context.Context, p *program) error {
	load, err := c.load()
	if err := cmp.Or(err, c.criteriaFlags.validate(), c.reportFlags.validate()); err != nil {
		return err
	}
	return p.single(ctx, &c.reportFlags, c.criteria(), func() (*result.Run, []result.Verdict, error) {
		if c.Verify {
			if load.Verify, err = verify.Start(ctx, c.URL, load.Access, c.SignerBase, c.Signers); err != nil {
				return nil, nil, asUsage(advised(err))
			}
		}
		run, err := p.loaded(ctx, c.pages(c.URL, load.Access), load)
		if run == nil || err != nil || load.Verify == nil {
			return run, nil, advised(err)
		}
		run.Verify, err = load.Verify.Judge(ctx, run.Interrupted)
		return run, nil, err
	})
}
