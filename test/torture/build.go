//go:build unix

package torture

import (
	"context"
	_ "embed"
	"path/filepath"
	"slices"

	"noncegate/test/lab/gateway"
)

// clockEnv names the environment variable by which a gateway with a wrong clock is told how many nanoseconds its wall clock, and not
// its monotonic one, is ahead of the system's. Without it the clock is right.
const clockEnv = "TORTURE_CLOCK_OFFSET"

//go:embed testdata/tracingvfs.go
var tracingVFS string

// traced has the store of a file run on the tracing file system, and lets the trace see what it writes without SQLite.
func traced() []gateway.Patch {
	return append(slices.Clone(plantNamed("traced disk").Patches), gateway.Patch{File: "nonce/sqlite/tracingvfs.go", New: tracingVFS})
}

// patches are what a gateway has for the sake of the runs of an axis, also one that is right. On a file it also writes the log of
// SQLite back every 50 pages, so that a run of a second crashes in and between many checkpoints; the product's 8192 pages are never
// reached in it.
func (a Axis) patches() []gateway.Patch {
	if a.File {
		return append(traced(), plantNamed("busy checkpoints").Patches...)
	}
	return plantNamed("wrong clock").Patches
}

// Build makes the gateway of an axis in a folder: with the race detector and a clock that may be wrong, or with a traced disk, where
// more calls a second are wanted.
func Build(ctx context.Context, o *Options, dir string) error {
	o.Gateway, o.Clock = filepath.Join(dir, "gateway-"+o.Name), !o.File
	var flags []string
	if !o.File {
		flags = []string{"-race"}
	}
	return gateway.Build(ctx, o.Gateway, o.patches(), flags...)
}
