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

// benchCmd measures the gateway beside its reference servers.
type benchCmd struct {
	Rows     []string      `placeholder:"NAME,…" help:"Rows to measure, or all. Default: all but the soak and the one that fills a database first. docs/bench.md lists them."`
	Rounds   int           `default:"5" help:"How often each side is measured; every second round goes backwards."`
	Warmup   time.Duration `default:"1s" help:"Time before measuring."`
	Duration time.Duration `default:"5s" help:"Time measured; some rows take a multiple of it."`
	Idle     time.Duration `default:"15s" help:"How long connections are left alone before their memory is read."`
	Soak     time.Duration `default:"10m" help:"How long the soak lasts. Its peak is found before, in three tenths of the time."`
	Quick    bool          `help:"A look in a fraction of the time: 2 rounds of 1s. Not for figures that are quoted."`
	JSON     string        `name:"json" default:"bin/bench.json" type:"path" help:"File for everything that was measured, for machines."`
	Markdown string        `default:"bin/bench.md" type:"path" help:"File for the tables in Markdown."`
}

// Run measures and reports: a target that was missed is a figure like another, a measurement
// that is void is a failure.
func (c *benchCmd) Run(ctx context.Context, p *program) error {
	cfg := bench.Config{Only: c.Rows, Rounds: c.Rounds, Warmup: c.Warmup, Duration: c.Duration, Idle: c.Idle, Soak: c.Soak, Progress: p.stderr}
	if c.Quick {
		cfg.Rounds, cfg.Warmup, cfg.Duration, cfg.Idle, cfg.Soak = 2, 300*time.Millisecond, time.Second, 3*time.Second, 20*time.Second
	}
	r, err := bench.Run(ctx, cfg)
	if _, ok := errors.AsType[*bench.ConfigError](err); ok {
		return usageError{err}
	}
	if r == nil {
		return interruptedOr(ctx, err)
	}
	err = errors.Join(err, r.WriteMarkdown(p.stdout))
	for path, write := range map[string]func(io.Writer) error{c.JSON: r.WriteJSON, c.Markdown: r.WriteMarkdown} {
		err = errors.Join(err, os.MkdirAll(filepath.Dir(path), 0o755), writeTo(path, write))
	}
	if why, void := r.IsVoid(); err == nil && void && !r.Interrupted {
		return fmt.Errorf("a measurement is void: %s", why)
	}
	if err == nil && r.Interrupted {
		return errInterrupted
	}
	return err
}
