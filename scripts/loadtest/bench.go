//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"noncegate/scripts/loadtest/bench"
)

// benchCmd measures the table of the README.
type benchCmd struct {
	Rows []string `placeholder:"NAME,…" help:"Rows to measure, or all. engine are those of the performance engine. Default: all but those that fill a database first, the soaks, and those about holds that end, a greedy client and PostgreSQL out of reach. docs/bench.md lists them."`
	benchFlags
	Soak     time.Duration `default:"10m" help:"How long a soak lasts, which is the rows soak and soak-wal, and engine-lag and engine-memory. Its peak is found before, in three tenths of the time."`
	JSON     string        `name:"json" default:"bin/bench.json" type:"path" help:"File for everything that was measured, for machines."`
	Markdown string        `default:"bin/bench.md" type:"path" help:"File for the tables in Markdown."`
}

const quickSoak = 20 * time.Second

// scaleCmd measures how the cost grows.
type scaleCmd struct {
	Only []string `placeholder:"NAME,…" help:"What to measure: connections, signers. Default: both. The second fills databases with up to 20 million allocations."`
	benchFlags
	JSON     string `name:"json" default:"bin/scale.json" type:"path" help:"File for everything that was measured, for machines."`
	Markdown string `default:"bin/scale.md" type:"path" help:"File for the tables in Markdown."`
}

// nodesCmd measures many nodes over one PostgreSQL.
type nodesCmd struct {
	Only     []string      `placeholder:"NAME,…" help:"What to measure: throughput, idle, calls. Default: all."`
	Rounds   int           `default:"5" help:"How often each side is measured; every second round goes backwards. Idle signers are looked at once."`
	Warmup   time.Duration `default:"1s" help:"Time before throughput is measured."`
	Duration time.Duration `default:"4s" help:"Time measured."`
	Idle     time.Duration `default:"60s" help:"How long the nodes are watched while nobody asks them for anything."`
	Quick    bool          `help:"A look in a fraction of the time: 2 rounds of 1s, and 10s with idle signers. Not for figures that are quoted."`
	JSON     string        `name:"json" default:"bin/nodes.json" type:"path" help:"File for everything that was measured, for machines."`
	Markdown string        `default:"bin/nodes.md" type:"path" help:"File for the tables in Markdown."`
}

type benchFlags struct {
	Rounds   int           `default:"5" help:"How often each side is measured; every second round goes backwards."`
	Warmup   time.Duration `default:"1s" help:"Time before measuring."`
	Duration time.Duration `default:"4s" help:"Time measured; some rows take a multiple of it."`
	Idle     time.Duration `default:"15s" help:"How long connections are left alone before their memory is read."`
	Quick    bool          `help:"A look in a fraction of the time: 2 rounds of 1s. Not for figures that are quoted."`
}

func (f *benchFlags) config(only []string, progress io.Writer) bench.Config {
	c := bench.Config{Only: only, Rounds: f.Rounds, Warmup: f.Warmup, Duration: f.Duration, Idle: f.Idle, Progress: progress}
	if f.Quick {
		c.Rounds, c.Warmup, c.Duration, c.Idle = 2, 300*time.Millisecond, time.Second, 3*time.Second
	}
	return c
}

func (c *benchCmd) Run(ctx context.Context, p *program) error {
	cfg := c.config(c.Rows, p.stderr)
	cfg.Soak = c.Soak
	if c.Quick {
		cfg.Soak = quickSoak
	}
	r, err := bench.Run(ctx, cfg)
	return p.benched(ctx, r, err, c.JSON, c.Markdown)
}

func (c *scaleCmd) Run(ctx context.Context, p *program) error {
	r, err := bench.Scale(ctx, c.config(c.Only, p.stderr))
	return p.benched(ctx, r, err, c.JSON, c.Markdown)
}

func (c *nodesCmd) Run(ctx context.Context, p *program) error {
	cfg := bench.Config{Only: c.Only, Rounds: c.Rounds, Warmup: c.Warmup, Duration: c.Duration, Idle: c.Idle, Progress: p.stderr}
	if c.Quick {
		cfg.Rounds, cfg.Warmup, cfg.Duration, cfg.Idle = 2, 500*time.Millisecond, time.Second, 10*time.Second
	}
	r, err := bench.Nodes(ctx, cfg)
	return p.benched(ctx, r, err, c.JSON, c.Markdown)
}

// benched reports a bench, and says how it ends the program: a target that was
// missed is a figure like another, a measurement that is void is a failure.
func (p *program) benched(ctx context.Context, r *bench.Report, err error, jsonPath, markdownPath string) error {
	if _, ok := errors.AsType[*bench.ConfigError](err); ok {
		return &usageError{err}
	}
	if r == nil && ctx.Err() != nil {
		return errInterrupted
	}
	if r == nil {
		return err
	}
	err = errors.Join(err, r.WriteText(p.stdout))
	for path, write := range map[string]func(io.Writer) error{jsonPath: r.WriteJSON, markdownPath: r.WriteMarkdown} {
		err = errors.Join(err, os.MkdirAll(filepath.Dir(path), 0o755), writeTo(path, write))
	}
	why, void := r.IsVoid()
	switch {
	case err != nil:
		return err
	case r.Interrupted:
		return errInterrupted
	case void:
		return fmt.Errorf("a measurement is void: %s", why)
	}
	return nil
}
