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

	"noncegate/test/torture/history"
)

// Caught says how often the checker noticed one plant, and by which rules.
type Caught struct {
	Plant Plant
	Runs  int
	Times int
	Rules map[string]int
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

// TryPlant builds a gateway that is wrong and does some runs with it.
func TryPlant(ctx context.Context, cfg PlantConfig, plant Plant) (*Caught, error) {
	name := notInNames.ReplaceAllString(plant.Name, "-")
	exe, err := Build(ctx, cfg.Dir, name, plant.Patches...)
	if err != nil {
		return nil, err
	}
	faults, err := FaultsNamed(plant.Faults...)
	if err != nil {
		return nil, err
	}
	cfg.Gateway, cfg.Engine, cfg.Chain, cfg.EngineArgs = exe, plant.Engine, plant.Chain, plant.Args
	c := &Caught{Plant: plant, Rules: make(map[string]int)}
	for seed := range uint64(cfg.Runs) {
		p := Plan{Seed: seed, Faults: faults, Load: cfg.Load, Enough: 1, Options: cfg.Options, KeepAll: true}
		if cfg.Keep != "" {
			p.Dir = filepath.Join(cfg.Keep, name)
		}
		if plant.Crowd {
			p.Clients, p.HotOnly = 20, true
		}
		res, err := Run(ctx, p)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", plant.Name, err)
		}
		c.count(res)
		if cfg.UntilCaught && c.Times > 0 {
			break
		}
	}
	return c, nil
}

var notInNames = regexp.MustCompile(`[^A-Za-z0-9]+`)

// count adds a run. That it is void, or that nobody can tell, is not a catch.
func (c *Caught) count(res *Result) {
	rules := slices.DeleteFunc(res.Report.Rules(), func(r history.Rule) bool { return r == history.Void || r == history.Undecided })
	for _, r := range rules {
		c.Rules[string(r)]++
	}
	c.Runs++
	if len(rules) > 0 {
		c.Times++
	}
}

// Planted tries every plant, or with Engine those of the performance engine, and of these
// those whose name contains only, and writes the table. It returns how many were never
// caught.
func Planted(ctx context.Context, cfg PlantConfig, only string, w io.Writer) (missed int, err error) {
	fmt.Fprintf(w, "| what is wrong | beside | caught | by (runs) |\n|---|---|---|---|\n")
	for _, p := range slices.Concat(Plants, EnginePlants) {
		if !strings.Contains(p.Name, only) || cfg.Engine && !p.Engine {
			continue
		}
		c, err := TryPlant(ctx, cfg, p)
		if err != nil {
			return missed, err
		}
		if c.Times == 0 {
			missed++
		}
		beside := "nothing else"
		if len(p.Faults) > 0 {
			beside = strings.Join(slices.Compact(slices.Clone(p.Faults)), ", ")
		}
		fmt.Fprintf(w, "| %s | %s | %d of %d | %s |\n", p.Name, beside, c.Times, c.Runs, counts(c.Rules))
	}
	return missed, nil
}
