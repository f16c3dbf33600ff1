package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// version is set at release with -ldflags "-X main.version=1.2.3".
var version string

// buildVersion names the program: the version set at release, else what the Go
// toolchain recorded.
func buildVersion() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}

// helpCmd is in the list of commands; run makes it the same as --help of another one.
type helpCmd struct {
	Command []string `arg:"" optional:"" sep:"none" help:"A command, such as key create. Without one, the commands are listed."`
}

type versionCmd struct{}

// Run implements the command.
func (versionCmd) Run(p *program) error {
	_, err := fmt.Fprintln(p.stdout, versionLine())
	return err
}

// versionLine is what the command and --version print.
func versionLine() string {
	return fmt.Sprintf("gateway %s %s %s/%s", buildVersion(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
