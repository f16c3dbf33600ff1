//go:build unix

package torture

import (
	"context"
	_ "embed"
	"errors"
	"path/filepath"

	"noncegate/test/lab/gateway"
)

// clockEnv names the environment variable by which a gateway built with
// wrongClock is told how many nanoseconds its wall clock is ahead of the system's.
const clockEnv = "TORTURE_CLOCK_OFFSET"

// wrongClock makes the wall clock of a program wrong, not its monotonic one, by
// what clockEnv says. Without the variable nothing changes.
func wrongClock() []gateway.Patch {
	const file = "$GOROOT/src/time/time.go"
	return []gateway.Patch{
		{File: file, Old: "\t\"math/bits\"\n", New: "\t\"math/bits\"\n\t\"syscall\"\n"},
		{File: file,
			Old: "\nfunc Now() Time {\n\tsec, nsec, mono := runtimeNow()\n",
			New: `
var wallOffset = readWallOffset()

func readWallOffset() (seconds int64) {
	text, _ := syscall.Getenv("` + clockEnv + `")
	negative := len(text) > 0 && text[0] == '-'
	for _, digit := range text {
		if digit >= '0' && digit <= '9' {
			seconds = seconds*10 + int64(digit-'0')
		}
	}
	if negative {
		seconds = -seconds
	}
	return seconds / 1e9
}

func Now() Time {
	sec, nsec, mono := runtimeNow()
	sec += wallOffset
`},
	}
}

// busyCheckpoints writes the log of SQLite back every 50 pages, so that a run of a second
// crashes in and between many checkpoints. The product's 8192 pages are never reached in it.
var busyCheckpoints = gateway.Patch{File: "nonce/sqlite/sqlite.go", Old: "checkpointPages = 8192", New: "checkpointPages = 50"}

//go:embed testdata/tracingvfs.go
var tracingVFS string

// traced has the store of a file run on the tracing file system, and lets the trace see what it
// writes without SQLite.
func traced() []gateway.Patch {
	return []gateway.Patch{
		{File: "nonce/sqlite/tracingvfs.go", New: tracingVFS},
		{File: "nonce/sqlite/file.go", Old: "func rewrite(f *os.File) error {\n", New: "func rewrite(of *os.File) error {\n\tf := tracedLog{of}\n"},
	}
}

// patches are what a gateway has for the sake of the runs of an axis, also one that is right.
func (a Axis) patches() []gateway.Patch {
	if a.File {
		return append(traced(), busyCheckpoints)
	}
	return wrongClock()
}

// Build makes the gateways of an axis in a folder: with the race detector and a clock that may
// be wrong, or with a traced disk, where thousands of calls a second are wanted.
func Build(ctx context.Context, o *Options, dir string) error {
	o.Gateway, o.Clock = filepath.Join(dir, "gateway-"+o.Name), !o.File
	if !o.File {
		return build(ctx, o.Gateway, o.patches())
	}
	o.Plain = o.Gateway + "-plain"
	return errors.Join(gateway.Build(ctx, o.Gateway, o.patches()), gateway.Build(ctx, o.Plain, traced()))
}

func build(ctx context.Context, exe string, patches []gateway.Patch) error {
	return gateway.Build(ctx, exe, patches, "-race")
}
