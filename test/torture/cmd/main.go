//go:build unix

// Command torture breaks things around real gateways and judges what their clients saw. See package torture.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"noncegate/test/lab/patroni"
	"noncegate/test/torture"
)

type cli struct {
	Campaign campaignCmd `cmd:"" help:"Runs over all faults of an axis, and pairs of them; goes on where it was stopped."`
	Run      runCmd      `cmd:"" help:"One run."`
	Planted  plantedCmd  `cmd:"" help:"Gateways that are known to be wrong, and how many runs it takes to notice."`
}

func main() {
	// The first signal ends a run in order, a second at once.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	k := kong.Parse(new(cli), kong.Name("torture"), kong.UsageOnError())
	k.BindTo(ctx, (*context.Context)(nil))
	k.FatalIfErrorf(k.Run())
}

// with does something with a PostgreSQL and a folder that do not outlive it, and for the axis patroni with one that fails over.
func with(ctx context.Context, axes []string, do func(o torture.Options, dir string) error) (err error) {
	dir, err := os.MkdirTemp("", "torture")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	pg, err := torture.StartPostgres(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, pg.Close()) }()
	o := torture.Options{Postgres: pg}
	if slices.Contains(axes, "patroni") {
		if o.Patroni, err = patroni.Start(ctx); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, o.Patroni.Close()) }()
	}
	return do(o, dir)
}

type campaignCmd struct {
	Axis   []string      `default:"postgres,engine,chain,sqlite,patroni" help:"One campaign for each."`
	Passes int           `default:"1" help:"How often each combination of faults is broken, those already done included."`
	Dir    string        `default:"torture-out" help:"Where the state is kept, and what failed runs leave; a folder for each axis."`
	Limit  time.Duration `default:"0" help:"Stop each campaign after this time; 0: never."`
}

func (c *campaignCmd) Run(ctx context.Context) error {
	return with(ctx, c.Axis, func(o torture.Options, dir string) error {
		var failures []error
		for _, axis := range c.Axis {
			if ctx.Err() != nil {
				break
			}
			failures = append(failures, c.one(ctx, o, axis, dir))
		}
		return errors.Join(failures...)
	})
}

func (c *campaignCmd) one(ctx context.Context, o torture.Options, axis, dir string) error {
	if err := o.Prepare(ctx, axis, dir); err != nil {
		return err
	}
	failed, err := torture.Campaign(ctx, torture.CampaignConfig{
		Options: o, Passes: c.Passes, Dir: filepath.Join(c.Dir, axis), Limit: c.Limit, Out: os.Stdout,
	})
	if err == nil && failed > 0 {
		err = fmt.Errorf("%s: %d runs failed", axis, failed)
	}
	return err
}

type runCmd struct {
	Axis   string   `arg:"" help:"The axis: postgres, engine, chain, sqlite or patroni."`
	Seed   uint64   `arg:"" help:"Seed; without --faults it also says which."`
	Faults []string `help:"Names of the faults."`
	Times  uint64   `default:"1" help:"So many runs, with this seed and those that follow."`
	Dir    string   `default:"torture-out" help:"Where everything of the run is kept."`
}

func (c *runCmd) Run(ctx context.Context) error {
	faults, err := torture.FaultsNamed(c.Faults...) // a wrong name is told before minutes of building
	if err != nil {
		return err
	}
	return with(ctx, []string{c.Axis}, func(o torture.Options, dir string) error {
		if err := o.Prepare(ctx, c.Axis, dir); err != nil {
			return err
		}
		var failures []error
		for i := range c.Times {
			p := o.ForSeed(c.Seed + i)
			if len(faults) > 0 {
				p.Faults = faults
			}
			failures = append(failures, c.one(ctx, p))
		}
		return errors.Join(failures...)
	})
}

func (c *runCmd) one(ctx context.Context, p torture.Plan) error {
	p.Dir, p.KeepAll = c.Dir, true
	res, err := torture.Run(ctx, p)
	if err != nil {
		return err
	}
	fmt.Printf("%s\n%v, kept in %s\n", strings.Join(res.Said, "\n"), res.Took, res.Kept)
	res.Report.Print(os.Stdout)
	if !res.Report.OK() {
		return fmt.Errorf("seed %d: %d violations", p.Seed, len(res.Report.Violations))
	}
	return nil
}

type plantedCmd struct {
	Axis []string `default:"postgres,engine,chain,sqlite,patroni" help:"Only those of these axes."`
	Runs int      `default:"5" help:"Runs of each at most; the first that notices is the last."`
	Only string   `help:"Only those whose name contains this."`
	Keep string   `help:"Where the runs that noticed leave what failed runs leave; a folder for each gateway."`
}

func (c *plantedCmd) Run(ctx context.Context) error {
	return with(ctx, c.Axis, func(o torture.Options, dir string) error {
		cfg := torture.PlantConfig{Options: o, Dir: dir, Runs: c.Runs, Keep: c.Keep}
		missed, err := torture.Planted(ctx, cfg, c.Axis, c.Only, os.Stdout)
		if missed > 0 {
			err = errors.Join(err, fmt.Errorf("%d were never caught", missed))
		}
		return err
	})
}
