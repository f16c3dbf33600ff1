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
	bench.Config
	Quick    bool   `help:"A look in a fraction of the time: 2 rounds of 1s. Not for figures that are quoted."`
	JSON     string `name:"json" default:"bin/bench.json" type:"path" help:"File for everything that was measured, for machines."`
	Markdown string `default:"bin/bench.md" type:"path" help:"File for the tables in Markdown."`
}

// Run measures and reports: a target that was missed is a figure like another, a measurement that is void is a failure.
func (c *benchCmd) Run(ctx context.Context, p *program) error {
	c.Progress = p.stderr
	if c.Quick {
		c.Rounds, c.Warmup, c.Duration, c.Idle, c.Soak = 2, 300*time.Millisecond, time.Second, 3*time.Second, 20*time.Second
	}
	r, err := bench.Run(ctx, c.Config)
	if r == nil {
		return interruptedOr(ctx, err)
	}
	err = errors.Join(err, r.WriteMarkdown(p.stdout))
	toJSON := func(w io.Writer) error { return writeJSON(w, r) }
	for path, write := range map[string]func(io.Writer) error{c.JSON: toJSON, c.Markdown: r.WriteMarkdown} {
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
