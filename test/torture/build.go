//go:build unix

package torture

import (
	"context"

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

// BuildWithClock makes a gateway with the race detector, whose clock may be wrong.
func BuildWithClock(ctx context.Context, exe string) error { return build(ctx, exe, wrongClock()) }

func build(ctx context.Context, exe string, patches []gateway.Patch) error {
	return gateway.Build(ctx, exe, patches, "-race")
}
