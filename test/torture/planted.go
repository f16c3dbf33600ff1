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

// caught says how often the checker noticed one plant, and by which rules.
type caught struct {
	plant plant
	runs  int
	times int
	rules map[string]int
}

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

// tryPlant builds a gateway that is wrong and does some runs with it.
func tryPlant(ctx context.Context, cfg PlantConfig, wrong plant) (*caught, error) {
	name := notInNames.ReplaceAllString(wrong.Name, "-")
	exe := filepath.Join(cfg.Dir, name)
	patches, flags := wrong.Patches, []string{"-race"}
	if wrong.File {
		patches, flags = slices.Concat(wrong.axis().patches(), patches), nil
	}
	if err := gateway.Build(ctx, exe, patches, flags...); err != nil {
		return nil, err
	}
	faults, err := FaultsNamed(wrong.Faults...)
	if err != nil {
		return nil, err
	}
	cfg.Gateway, cfg.Axis, cfg.EngineArgs, cfg.Points = exe, wrong.axis(), wrong.Args, imagePoints
	c := &caught{plant: wrong, rules: make(map[string]int)}
	for seed := range uint64(cfg.Runs) {
		p := Plan{Seed: seed, Faults: faults, Load: cfg.Load, Enough: 1, Exactly: true, Options: cfg.Options, KeepAll: true}
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
		c.count(res)
		if cfg.UntilCaught && c.times > 0 {
			break
		}
	}
	return c, nil
}

var notInNames = regexp.MustCompile(`[^A-Za-z0-9]+`)

// count adds a run. That it is void, or that nobody can tell, is not a catch.
func (c *caught) count(res *Result) {
	rules := slices.DeleteFunc(res.Report.Rules(), func(r history.Rule) bool { return r == history.Void || r == history.Undecided })
	for _, r := range rules {
		c.rules[string(r)]++
	}
	c.runs++
	if len(rules) > 0 {
		c.times++
	}
}

// Planted tries every plant, or those of the axes named, and of these those whose name contains
// only, and writes the table. It returns how many were never caught.
func Planted(ctx context.Context, cfg PlantConfig, axes []string, only string, w io.Writer) (missed int, err error) {
	fmt.Fprintf(w, "| what is wrong | beside | caught | by (runs) |\n|---|---|---|---|\n")
	for _, p := range plants() {
		if !strings.Contains(p.Name, only) || len(axes) > 0 && !slices.Contains(axes, p.axis().Name) {
			continue
		}
		c, err := tryPlant(ctx, cfg, p)
		if err != nil {
			return missed, err
		}
		if c.times == 0 {
			missed++
		}
		beside := "nothing else"
		if len(p.Faults) > 0 {
			beside = strings.Join(slices.Compact(slices.Clone(p.Faults)), ", ")
		}
		fmt.Fprintf(w, "| %s | %s | %d of %d | %s |\n", p.Name, beside, c.times, c.runs, counts(c.rules))
	}
	return missed, nil
}
