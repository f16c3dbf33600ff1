//go:build unix

package torture

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"sync"

	"noncegate/test/lab/gateway"
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

// patches are those of the plant, and what each gateway of its axis must have.
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
