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
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"noncegate/test/lab/history"
	"noncegate/test/torture"
)

type cli struct {
	Campaign campaignCmd `cmd:"" help:"Runs over all faults of an axis, and pairs of them; goes on where it was stopped."`
	Run      runCmd      `cmd:"" help:"One run."`
	Planted  plantedCmd  `cmd:"" help:"Gateways that are known to be wrong, and how many runs notice."`
	Faults   faultsCmd   `cmd:"" help:"The table of faults."`
	Check    checkCmd    `cmd:"" help:"Judge a history that was kept."`
}

func main() {
	// The first signal ends a run in order, a second at once.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	k := kong.Parse(new(cli), kong.Name("torture"), kong.UsageOnError())
	k.BindTo(ctx, (*context.Context)(nil))
	k.FatalIfErrorf(k.Run())
}

// with does something with what runs of an axis need: its gateways, or one that was built already, and a PostgreSQL.
func with(ctx context.Context, axis, forward, gateway string, do func(torture.Options) error) error {
	a, err := torture.AxisNamed(axis)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "torture")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if a.File && gateway != "" {
		return errors.New("--gateway: the axis sqlite needs a gateway whose disk is traced, and builds it")
	}
	o := torture.Options{Axis: a, Forward: forward, Gateway: gateway}
	if gateway == "" {
		if err := torture.Build(ctx, &o, dir); err != nil {
			return err
		}
	}
	if a.File {
		return do(o)
	}
	if o.Postgres, err = torture.StartPostgres(ctx); err != nil {
		return err
	}
	return errors.Join(do(o), o.Postgres.Close())
}

type campaignCmd struct {
	Axis   []string      `default:"postgres,engine,chain,sqlite" help:"One campaign for each."`
	Passes int           `default:"1" help:"How often each combination of faults is broken, those already done included."`
	Dir    string        `default:"torture-out" help:"Where the state is kept, and what failed runs leave; a folder for each axis."`
	Limit  time.Duration `default:"0" help:"Stop each campaign after this time; 0: never."`
	builtCmd
}

func (c *campaignCmd) Run(ctx context.Context) error {
	var failures []error
	for _, axis := range c.Axis {
		err := with(ctx, axis, "both", c.Gateway, func(o torture.Options) error {
			failed, err := torture.Campaign(ctx, torture.CampaignConfig{
				Passes: c.Passes, Dir: filepath.Join(c.Dir, axis), Limit: c.Limit, Options: o, Out: os.Stdout,
			})
			if err == nil && failed > 0 {
				err = fmt.Errorf("%s: %d runs failed", axis, failed)
			}
			return err
		})
		if failures = append(failures, err); ctx.Err() != nil {
			break
		}
	}
	return errors.Join(failures...)
}

// builtCmd has a gateway that was built already.
type builtCmd struct {
	Gateway string `help:"A gateway that was built already, instead of a new one; its clock is never wrong."`
}

type runCmd struct {
	Axis    string   `arg:"" help:"The axis: postgres, engine, chain or sqlite."`
	Seed    uint64   `arg:"" help:"Seed; without --faults it also says which."`
	Faults  []string `help:"Names of the faults."`
	Dir     string   `default:"torture-out" help:"Where everything of the run is kept."`
	Forward string   `default:"" help:"Given to the gateways' --forward."`
	builtCmd
}

func (c *runCmd) Run(ctx context.Context) error {
	return with(ctx, c.Axis, c.Forward, c.Gateway, func(o torture.Options) error {
		p := torture.Plan{Seed: c.Seed, Faults: o.ForSeed(c.Seed), Options: o, Dir: c.Dir, KeepAll: true}
		if len(c.Faults) > 0 {
			var err error
			if p.Faults, err = torture.FaultsNamed(c.Faults...); err != nil {
				return err
			}
		}
		res, err := torture.Run(ctx, p)
		if err != nil {
			return err
		}
		fmt.Printf("%s: %v, kept in %s\n", strings.Join(res.Faults, ", "), res.Took, res.Kept)
		res.Report.Print(os.Stdout)
		if !res.OK() {
			return fmt.Errorf("%d violations", len(res.Report.Violations))
		}
		return nil
	})
}

type plantedCmd struct {
	Axis []string `help:"Only those of these axes."`
	Runs int      `default:"5" help:"Runs of each at most."`
	All  bool     `help:"Do all runs, instead of those until one has noticed."`
	Only string   `help:"Only those whose name contains this."`
	Dir  string   `help:"Where everything of the runs is kept; nowhere if empty."`
}

func (c *plantedCmd) Run(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "torture")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	pg, err := torture.StartPostgres(ctx)
	if err != nil {
		return err
	}
	cfg := torture.PlantConfig{Options: torture.Options{Postgres: pg}, Dir: dir, Keep: c.Dir, Runs: c.Runs, UntilCaught: !c.All}
	missed, err := torture.Planted(ctx, cfg, c.Axis, c.Only, os.Stdout)
	if err == nil && missed > 0 {
		err = fmt.Errorf("%d were never caught", missed)
	}
	return errors.Join(err, pg.Close())
}

type faultsCmd struct{}

func (faultsCmd) Run() error {
	torture.WriteFaults(os.Stdout)
	return nil
}

type checkCmd struct {
	File string `arg:"" type:"existingfile" help:"history.json of a run."`
}

func (c *checkCmd) Run() error {
	h, err := history.Load(c.File)
	if err != nil {
		return err
	}
	r := history.Check(h, history.Limits{MinAcknowledged: torture.MinAcknowledged, MaxOverdue: time.Minute})
	r.Print(os.Stdout)
	if !r.OK() {
		return fmt.Errorf("%d violations", len(r.Violations))
	}
	return nil
}
