//go:build unix

package torture

import (
	"fmt"
	"slices"
	"strings"
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
}

// Axes are all there are, the first being nodes on PostgreSQL with nothing beside it.
var Axes = []Axis{{Name: "postgres"}, {Name: "engine", Engine: true}, {Name: "chain", Chain: true}, {Name: "sqlite", File: true}}

// AxisNamed finds an axis by its name.
func AxisNamed(name string) (Axis, error) {
	var names []string
	for _, a := range Axes {
		if a.Name == name {
			return a, nil
		}
		names = append(names, a.Name)
	}
	return Axis{}, fmt.Errorf("there is no axis %q, but %s", name, strings.Join(names, ", "))
}

// own are the faults that only this axis can have, in the order in which campaigns number them.
func (a Axis) own() []Fault {
	return slices.DeleteFunc(slices.Clone(faults), func(f Fault) bool {
		return f.Directed || f.Engine != a.Engine || f.Chain != a.Chain || f.File != a.File
	})
}

// Combinations are what a pass of a campaign breaks, each once: the faults that are the axis' own alone and in pairs, and with the
// performance engine or a chain each beside each of PostgreSQL's that it can be beside; those alone too beside a chain.
func (a Axis) Combinations() (all [][]Fault) {
	own, others := a.own(), []Fault(nil)
	if a.Engine || a.Chain {
		others = slices.DeleteFunc(Axes[0].own(), func(f Fault) bool { return a.Engine && f.NoEngine })
	}
	alone := own
	if a.Chain {
		alone = slices.Concat(own, others)
	}
	for i := range alone {
		all = append(all, alone[i:i+1])
	}
	for i := range own {
		for _, other := range slices.Concat(own[i+1:], others) {
			all = append(all, []Fault{own[i], other})
		}
	}
	return all
}

// ForSeed is what is broken in the run of a seed: one combination after the other, and again
// from the beginning with other random numbers.
func (a Axis) ForSeed(seed uint64) []Fault {
	all := a.Combinations()
	return all[seed%uint64(len(all))]
}
