//go:build unix

package torture

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"noncegate/test/lab/gateway"
	"noncegate/test/lab/history"
)

// PlantConfig says how plants are tried.
type PlantConfig struct {
	Options
	Dir  string // where gateways are built
	Keep string // where everything of the runs goes; "": nowhere
	Runs int    // of each
	// UntilCaught ends the runs with the first that noticed.
	UntilCaught bool
	Load        time.Duration // of each run; 0: as long as any
}

// caught says how often the judge noticed one plant, and by which rules.
type caught struct {
	runs, times int
	rules       map[string]int
}

var notInNames = regexp.MustCompile(`[^A-Za-z0-9]+`)

// try builds a gateway that is wrong and does some runs with it. That one is void, or that nobody can tell, is not a catch.
func (wrong *plant) try(ctx context.Context, cfg PlantConfig) (*caught, error) {
	name := notInNames.ReplaceAllString(wrong.Name, "-")
	axis, err := AxisNamed(wrong.Axis)
	if err != nil {
		return nil, err
	}
	flags := []string{"-race"}
	if axis.File {
		flags = nil
	}
	cfg.Gateway, cfg.Axis, cfg.EngineArgs = filepath.Join(cfg.Dir, name), axis, wrong.Args
	if err := gateway.Build(ctx, cfg.Gateway, wrong.patches(), flags...); err != nil {
		return nil, err
	}
	faults, err := FaultsNamed(wrong.Faults...)
	if err != nil {
		return nil, err
	}
	c := &caught{rules: make(map[string]int)}
	for c.runs < cfg.Runs && !(cfg.UntilCaught && c.times > 0) {
		p := Plan{Seed: uint64(c.runs), Faults: faults, Load: cfg.Load, Enough: 1, Options: cfg.Options, KeepAll: true}
		if cfg.Keep != "" {
			p.Dir = filepath.Join(cfg.Keep, name)
		}
		if wrong.Crowd {
			p.Clients, p.HotOnly = 20, true
		}
		res, err := Run(ctx, p)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", wrong.Name, err)
		}
		rules := slices.DeleteFunc(res.Report.Rules(), func(r history.Rule) bool { return r == history.Void || r == history.Undecided })
		for _, r := range rules {
			c.rules[string(r)]++
		}
		c.runs++
		c.times += min(len(rules), 1)
	}
	return c, nil
}

// Planted tries every plant, or those of the axes named, and of these those whose name contains only, and writes a table. It returns
// how many were never caught.
func Planted(ctx context.Context, cfg PlantConfig, axes []string, only string, w io.Writer) (missed int, err error) {
	fmt.Fprintf(w, "| what is wrong | beside | caught | by (runs) |\n|---|---|---|---|\n")
	for _, p := range plants() {
		if p.Axis == "" || !strings.Contains(p.Name, only) || len(axes) > 0 && !slices.Contains(axes, p.Axis) {
			continue
		}
		c, err := p.try(ctx, cfg)
		if err != nil {
			return missed, err
		}
		if c.times == 0 {
			missed++
		}
		fmt.Fprintf(w, "| %s | %s | %d of %d | %s |\n", p.Name, strings.Join(p.Faults, ", "), c.times, c.runs, counts(c.rules))
	}
	return missed, nil
}
