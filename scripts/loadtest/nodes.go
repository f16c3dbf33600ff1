//go:build unix

package main

import (
	"context"
	"time"

	"noncegate/scripts/loadtest/bench"
)

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

// Run implements the command.
func (c *nodesCmd) Run(ctx context.Context, p *program) error {
	cfg := bench.Config{Only: c.Only, Rounds: c.Rounds, Warmup: c.Warmup, Duration: c.Duration, Idle: c.Idle, Progress: p.stderr}
	if c.Quick {
		cfg.Rounds, cfg.Warmup, cfg.Duration, cfg.Idle = 2, 500*time.Millisecond, time.Second, 10*time.Second
	}
	r, err := bench.Nodes(ctx, cfg)
	return p.benched(ctx, r, err, c.JSON, c.Markdown)
}
