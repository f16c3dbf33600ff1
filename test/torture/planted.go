//go:build unix

package torture

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"noncegate/test/lab/gateway"
	"noncegate/test/lab/history"
)

// plantTexts are the gateways that are known to be wrong. A line # begins one with its name; then come what it needs of a run
// (axis, faults, crowd, args) and the changes of each file: a run of lines with - in front is replaced by the lines with + behind it.
// Those without an axis are not wrong: they are what gateways of runs have for the sake of the runs.
//
//go:embed testdata/plants.txt
var plantTexts string

// plant is a gateway that is known to be wrong: each breaks one sentence of how a commit is fenced, an unknown outcome is settled,
// a log is shipped or lost, a file is written, or of what a client may be told. Runs with it are to notice.
type plant struct {
	Name    string
	Axis    string
	Faults  []string // what brings it to light
	Crowd   bool     // it takes many clients at few signers
	Args    []string // more flags of the nodes that have a Redis
	Patches []gateway.Patch
}

// plants are all of them. A text that is not as it says there is a panic.
var plants = sync.OnceValue(func() (all []plant) {
	var p *plant
	file, fresh := "", true // fresh: the next line with - begins a replacement
	for number, line := range strings.Split(plantTexts, "\n") {
		key, value, _ := strings.Cut(line, ": ")
		switch {
		case line == "":
		case line[0] == '#':
			all = append(all, plant{Name: line[2:]})
			p = &all[len(all)-1]
		case line[0] == '-' && fresh:
			p.Patches, fresh = append(p.Patches, gateway.Patch{File: file, Old: line[1:]}), false
		case line[0] == '-':
			p.Patches[len(p.Patches)-1].Old += "\n" + line[1:]
		case line[0] == '+':
			last := &p.Patches[len(p.Patches)-1]
			if !fresh {
				last.New = line[1:]
			} else {
				last.New += "\n" + line[1:]
			}
			fresh = true
		case key == "axis":
			p.Axis = value
		case key == "faults":
			p.Faults = strings.Fields(value)
		case key == "crowd":
			p.Crowd = true
		case key == "args":
			p.Args = strings.Fields(value)
		case key == "file":
			file, fresh = value, true
		default:
			panic(fmt.Sprintf("testdata/plants.txt:%d: %s", number+1, line))
		}
	}
	return all
})

// patches are those of the plant, and what each gateway on a file must have.
func (p *plant) patches() []gateway.Patch {
	if p.Axis == "sqlite" {
		return slices.Concat(Axis{File: true}.patches(), p.Patches)
	}
	return p.Patches
}

// plantNamed finds a plant, or what gateways of runs have.
func plantNamed(name string) *plant {
	all := plants()
	return &all[slices.IndexFunc(all, func(p plant) bool { return p.Name == name })]
}

// PlantConfig says how plants are tried.
type PlantConfig struct {
	Options
	Dir  string        // where gateways are built
	Keep string        // gets a folder for each plant, with what the runs that noticed leave; "": they leave nothing
	Runs int           // of each, at most: the first that notices is the last
	Load time.Duration // of each run; 0: as long as any
}

var notInNames = regexp.MustCompile(`[^A-Za-z0-9]+`)

// try builds a gateway that is wrong and does runs with it until one notices, and returns how many there were and what rules were
// broken in the last. That a run is void, or that nobody can tell, is not noticed.
func (p *plant) try(ctx context.Context, cfg PlantConfig) (runs int, rules []history.Rule, err error) {
	name := notInNames.ReplaceAllString(p.Name, "-")
	if cfg.Axis, err = AxisNamed(p.Axis); err != nil {
		return 0, nil, err
	}
	if cfg.Gateway, err = cfg.build(ctx, filepath.Join(cfg.Dir, name), p.patches()); err != nil {
		return 0, nil, err
	}
	run := Plan{Options: cfg.Options, Load: cfg.Load, Enough: 1}
	if cfg.Keep != "" {
		run.Dir = filepath.Join(cfg.Keep, name)
	}
	run.EngineArgs = p.Args
	if run.Faults, err = FaultsNamed(p.Faults...); err != nil {
		return 0, nil, err
	}
	if p.Crowd {
		run.Clients, run.HotOnly = 20, true
	}
	for ; runs < cfg.Runs && len(rules) == 0; runs++ {
		run.Seed = uint64(runs)
		res, err := Run(ctx, run)
		if err != nil {
			return runs, nil, err
		}
		rules = slices.DeleteFunc(res.Report.Rules(), func(r history.Rule) bool { return r == history.Void || r == history.Undecided })
	}
	return runs, rules, nil
}

// Planted tries every plant, or those of the axes named, and of these those whose name contains only, and writes a table. It returns
// how many were never caught, and why some could not be tried.
func Planted(ctx context.Context, cfg PlantConfig, axes []string, only string, w io.Writer) (missed int, failed error) {
	fmt.Fprintf(w, "| what is wrong | beside | caught in run | by |\n|---|---|---|---|\n")
	for _, p := range plants() {
		if p.Axis == "" || !strings.Contains(p.Name, only) || len(axes) > 0 && !slices.Contains(axes, p.Axis) {
			continue
		}
		runs, rules, err := p.try(ctx, cfg)
		caught := fmt.Sprint(runs)
		switch {
		case ctx.Err() != nil:
			return missed, errors.Join(failed, err)
		case err != nil:
			failed = errors.Join(failed, fmt.Errorf("%s: %w", p.Name, err))
			caught = "could not be tried"
		case len(rules) == 0:
			missed++
			caught = fmt.Sprintf("none of %d", runs)
		}
		fmt.Fprintf(w, "| %s | %s | %s | %v |\n", p.Name, strings.Join(p.Faults, ", "), caught, rules)
	}
	return missed, failed
}
