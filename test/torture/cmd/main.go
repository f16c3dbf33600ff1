//go:build unix

// Command torture breaks things around real gateways and judges what their clients
// saw. See package torture.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"noncegate/test/lab/gateway"
	"noncegate/test/lab/history"
	"noncegate/test/torture"
	"noncegate/test/torture/sqlite"
)

type cli struct {
	Campaign campaignCmd    `cmd:"" help:"Many runs over all faults and pairs of them; goes on where it was stopped."`
	Run      runCmd         `cmd:"" help:"One run."`
	Planted  plantedCmd     `cmd:"" help:"Gateways that are known to be wrong, and how many runs notice."`
	Failover failoverCmd    `cmd:"" help:"For how long signers are not served when their node, or PostgreSQL, is lost."`
	SQLite   sqlite.Command `cmd:"" name:"sqlite" help:"Crashes of a gateway on SQLite: what is on disk, with what was not synced lost."`
	Check    checkCmd       `cmd:"" help:"Judge a history that was kept."`
}

func main() {
	// The first signal ends a run in order, a second at once.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	k := kong.Parse(new(cli), kong.Name("torture"), kong.UsageOnError())
	k.BindTo(ctx, (*context.Context)(nil))
	k.FatalIfErrorf(k.Run())
}

// rig is what runs need: a PostgreSQL and a gateway with a clock that may be wrong.
func rig(ctx context.Context, o torture.Options, exe string) (torture.Options, func(), error) {
	dir, err := os.MkdirTemp("", "torture")
	if err != nil {
		return torture.Options{}, nil, err
	}
	o.Clock = exe == ""
	if o.Clock {
		exe = filepath.Join(dir, "gateway")
		err = torture.BuildWithClock(ctx, exe)
	}
	if err != nil {
		os.RemoveAll(dir)
		return torture.Options{}, nil, err
	}
	o.Gateway = exe
	o.Postgres, err = torture.StartPostgres(ctx)
	if err != nil {
		os.RemoveAll(dir)
		return torture.Options{}, nil, err
	}
	return o, func() {
		if err := o.Postgres.Close(); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		os.RemoveAll(dir)
	}, nil
}

type campaignCmd struct {
	Runs    int           `default:"200" help:"Runs in all, those already done included."`
	First   uint64        `default:"0" help:"Seed of the first."`
	Dir     string        `default:"torture-out" help:"Where the state is kept, and what failed runs leave."`
	Limit   time.Duration `default:"0" help:"Stop after this time; 0: never."`
	Engine  bool          `help:"With a Redis, and the performance engine, and its faults too."`
	Chain   bool          `help:"With a chain, clients who pay on it, and the faults of its nodes too."`
	Gateway string        `help:"A gateway that was built already, instead of a new one; its clock is never wrong."`
	Forward string        `default:"" help:"Given to the gateways' --forward; both: two runs of three with on, one with off, of each combination in three passes."`
}

func (c *campaignCmd) Run(ctx context.Context) error {
	o, end, err := rig(ctx, torture.Options{Forward: c.Forward, Engine: c.Engine, Chain: c.Chain}, c.Gateway)
	if err != nil {
		return err
	}
	defer end()
	failed, err := torture.Campaign(ctx, torture.CampaignConfig{
		Runs: c.Runs, First: c.First, Dir: c.Dir, Limit: c.Limit, Options: o, Out: os.Stdout,
	})
	if err == nil && failed > 0 {
		err = fmt.Errorf("%d runs failed", failed)
	}
	return err
}

type runCmd struct {
	Seed    uint64   `arg:"" help:"Seed; without --faults it also says which."`
	Engine  bool     `help:"With a Redis, and the performance engine."`
	Chain   bool     `help:"With a chain, and clients who pay on it."`
	Gateway string   `help:"A gateway that was built already, instead of a new one."`
	Faults  []string `help:"Names of the faults."`
	Dir     string   `default:"torture-out" help:"Where everything of the run is kept."`
	Forward string   `default:"" help:"Given to the gateways' --forward."`
}

func (c *runCmd) Run(ctx context.Context) error {
	o := torture.Options{Forward: c.Forward, Engine: c.Engine, Chain: c.Chain}
	faults := torture.ForSeed(c.Seed, o)
	if len(c.Faults) > 0 {
		var err error
		if faults, err = torture.FaultsNamed(c.Faults...); err != nil {
			return err
		}
	}
	o, end, err := rig(ctx, o, c.Gateway)
	if err != nil {
		return err
	}
	defer end()
	res, err := torture.Run(ctx, torture.Plan{Seed: c.Seed, Faults: faults, Options: o, Dir: c.Dir, KeepAll: true})
	if err != nil {
		return err
	}
	fmt.Printf("%v, quiet after %v, kept in %s\n", res.Took, res.Quiet, res.Kept)
	res.Report.Print(os.Stdout)
	if !res.OK() {
		return fmt.Errorf("%d violations", len(res.Report.Violations))
	}
	return nil
}

type plantedCmd struct {
	Engine bool   `help:"Only those of the performance engine."`
	Runs   int    `default:"5" help:"Runs of each."`
	Only   string `help:"Only those whose name contains this."`
	Dir    string `help:"Where everything of the runs is kept; nowhere if empty."`
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
	defer pg.Close()
	missed, err := torture.Planted(ctx, torture.PlantConfig{Options: torture.Options{Postgres: pg, Engine: c.Engine}, Dir: dir, Keep: c.Dir, Runs: c.Runs}, c.Only, os.Stdout)
	if err == nil && missed > 0 {
		err = fmt.Errorf("%d were never caught", missed)
	}
	return err
}

type failoverCmd struct {
	Forward string `default:"" help:"Given to the gateways' --forward."`
}

func (c *failoverCmd) Run(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "torture")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	exe := filepath.Join(dir, "gateway") // as it is released, for figures
	if err := gateway.Build(ctx, exe, nil); err != nil {
		return err
	}
	pg, err := torture.StartPostgres(ctx)
	if err != nil {
		return err
	}
	defer pg.Close()
	return torture.Failover(ctx, torture.Options{Postgres: pg, Gateway: exe, Forward: c.Forward}, os.Stdout)
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
