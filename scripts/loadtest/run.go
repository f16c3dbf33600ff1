package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"

	"noncegate/scripts/loadtest/result"
	"noncegate/scripts/loadtest/traffic"
	"noncegate/scripts/loadtest/verify"
)

// runCmd loads gateways once.
type runCmd struct {
	loadFlags
	Verify bool `group:"load" help:"Check every answer, and afterwards read every signer through the gateway: no nonce handed out twice, every one accounted for, request ids answered the same."`
	reportFlags
	criteriaFlags
}

func (c *runCmd) Run(ctx context.Context, p *program) error {
	load, err := c.load()
	if err := cmp.Or(err, c.criteriaFlags.validate(), c.reportFlags.validate()); err != nil {
		return err
	}
	if c.Verify {
		load.Verify = verify.NewRecorder()
	}
	return p.single(ctx, single{files: &c.reportFlags, criteria: c.criteria(), measure: func() (*result.Run, error) {
		run, err := p.loaded(ctx, c.pages(c.URL, load.Access), load)
		if run == nil {
			return nil, advised(err)
		}
		if c.Verify && err == nil {
			run.Verify, err = p.check(ctx, load.Verify, run, c.URL, load.Access)
		}
		return run, err
	}})
}

// verifyCmd reads signers and judges them, without a load of its own.
type verifyCmd struct {
	targetFlags
	signerFlags
	JSON string `name:"json" group:"report" placeholder:"FILE" help:"Write the result as JSON to this file; - for standard output instead of the text."`
}

// errNothing is the end of a verification that had nothing to look at.
var errNothing = errors.New("none of these signers has an allocation, so nothing was verified; see --signer-base and --signers")

func (c *verifyCmd) Run(ctx context.Context, p *program) error {
	// The rules for addresses and signers are those of a load.
	like := traffic.Load{URLs: c.URL, Connections: 1, Inflight: 1, Duration: 1, Signers: traffic.Signers{Base: c.SignerBase, Count: c.Signers}}
	if err := asUsage(like.Validate()); err != nil {
		return err
	}
	in, err := c.access()
	if err != nil {
		return err
	}
	out, err := (&reportFlags{JSON: c.JSON}).open(p)
	if err != nil {
		return err
	}
	line := p.progress()
	v, err := verify.Accounting(ctx, c.URL, in, c.SignerBase, c.Signers, line.signers)
	line.end()
	if v.Signers == 0 && v.ViolationCount == 0 && err != nil && ctx.Err() == nil {
		return advised(err) // there is nothing else to say
	}
	written := out.write(forms{
		text: func(w io.Writer) error { return c.text(w, v) },
		json: func(w io.Writer) error { return writeJSON(w, v) },
	})
	if written != nil {
		return written
	}
	switch {
	case ctx.Err() != nil:
		return errInterrupted
	case v.ViolationCount > 0:
		return errors.Join(err, errFailed)
	case err == nil && v.Allocations == 0:
		return errNothing
	}
	return err
}

func (c *verifyCmd) text(w io.Writer, v *result.Verify) error {
	found := "every nonce is accounted for"
	switch {
	case v.ViolationCount > 0:
		found = fmt.Sprintf("%d violations", v.ViolationCount)
	case v.Signers < int64(c.Signers):
		found = "nothing wrong so far"
	}
	if _, err := fmt.Fprintf(w, "%d of %d signers read, %d allocations: %s\n", v.Signers, c.Signers, v.Allocations, found); err != nil {
		return err
	}
	for _, sentence := range v.Violations {
		if _, err := fmt.Fprintln(w, "  "+sentence); err != nil {
			return err
		}
	}
	return nil
}
