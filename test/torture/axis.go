//go:build unix

package torture

import (
	"context"
	_ "embed"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"noncegate/test/lab/gateway"
)

// Axis is what gateways run on in a campaign: which store and engine they have, and what stands beside them.
type Axis struct {
	Name string
	// Engine gives the nodes of mode worker-queue a Redis, and the performance engine serves.
	Engine bool
	// Chain gives the gateways a chain, and clients who pay on it.
	Chain bool
	// File has one gateway on SQLite, whose disk forgets what was not synced.
	File bool
	// Failover has the gateways on the PostgreSQL of Patroni, which fails over.
	Failover bool
}

// Axes are all there are, the first being nodes on PostgreSQL with nothing beside it.
var Axes = []Axis{{Name: "postgres"}, {Name: "engine", Engine: true}, {Name: "chain", Chain: true}, {Name: "sqlite", File: true}, {Name: "patroni", Failover: true}}

// AxisNamed finds an axis by its name.
func AxisNamed(name string) (Axis, error) {
	var all []string
	for _, a := range Axes {
		if a.Name == name {
			return a, nil
		}
		all = append(all, a.Name)
	}
	return Axis{}, fmt.Errorf("there is no axis %q, but %s", name, strings.Join(all, ", "))
}

// takes reports whether runs of the axis can have a fault.
func (a Axis) takes(f Fault) bool {
	return f.Of == a.Name || f.Of == "" && !a.File && !a.Failover && !(a.Engine && f.NoEngine)
}

// drawn are the faults that campaigns of the axis draw, in the order in which they number them: its own, and those that it shares with
// postgres, which has no others.
func (a Axis) drawn() (own, others []Fault) {
	for _, f := range faults {
		switch {
		case f.Directed || !a.takes(f):
		case f.Of == a.Name || a.Name == Axes[0].Name:
			own = append(own, f)
		default:
			others = append(others, f)
		}
	}
	return own, others
}

// Combinations are what a pass of a campaign breaks, each once: the faults that are the axis' own alone and in pairs, and with the
// performance engine or a chain each beside each of PostgreSQL's that it can be beside; those alone too beside a chain. A failover takes
// half a minute, and what is beside it is short of it: those are alone.
func (a Axis) Combinations() (all [][]Fault) {
	own, others := a.drawn()
	alone := own
	if a.Chain {
		alone = slices.Concat(own, others)
	}
	for i := range alone {
		all = append(all, alone[i:i+1])
	}
	for i := range own {
		if a.Failover {
			break
		}
		for _, other := range slices.Concat(own[i+1:], others) {
			all = append(all, []Fault{own[i], other})
		}
	}
	return all
}

// ForSeed is the run of a seed: one combination after the other, and again from the beginning with other random numbers. A third of
// the seeds do not forward: in three passes each combination has been without forwarding once, and a part of a pass has both.
func (o Options) ForSeed(seed uint64) Plan {
	all := o.Combinations()
	n := uint64(len(all))
	o.Forward = []string{"on", "on", "off"}[(seed/n+seed%n)%3]
	return Plan{Options: o, Seed: seed, Faults: all[seed%n]}
}

// clockEnv names the environment variable by which a gateway with a wrong clock is told how many nanoseconds its wall clock, and not
// its monotonic one, is ahead of the system's. Without it the clock is right.
const clockEnv = "TORTURE_CLOCK_OFFSET"

//go:embed testdata/forgetfulvfs.go
var forgetfulVFS string

// patches are what a gateway has for the sake of the runs of an axis, also one that is right: a clock that may be wrong, or a
// disk that forgets what was not synced. On a file it also writes the log of SQLite back every 50 pages, so that a run of a second crashes in and between many
// checkpoints; the product's 8192 pages are never reached in it.
func (a Axis) patches() []gateway.Patch {
	if a.File {
		forgets := append(slices.Clone(plantNamed("forgetful disk").Patches), gateway.Patch{File: "nonce/sqlite/forgetfulvfs.go", New: forgetfulVFS})
		return append(forgets, plantNamed("busy checkpoints").Patches...)
	}
	return plantNamed("wrong clock").Patches
}

// build makes a gateway of the axis in a folder, and returns its path: with the race detector, or where more calls a second are
// wanted, on a file, without it.
func (a Axis) build(ctx context.Context, dir string, patches []gateway.Patch) (exe string, err error) {
	var flags []string
	if !a.File {
		flags = []string{"-race"}
	}
	exe = filepath.Join(dir, "gateway-"+a.Name)
	return exe, gateway.Build(ctx, exe, patches, flags...)
}

// Prepare sets the axis of runs, and builds their gateway in a folder.
func (o *Options) Prepare(ctx context.Context, axis, dir string) (err error) {
	if o.Axis, err = AxisNamed(axis); err == nil {
		o.Gateway, err = o.build(ctx, dir, o.patches())
	}
	return err
}
