// Command loadtest makes load for gateways and measures them.
//
// loadtest --help lists the commands, loadtest COMMAND --help every flag with its default. It exits with 0 when every criterion was met, 1
// when one was not or something went wrong, 2 on a wrong command line, and 130 when it was interrupted, after it has reported what it had
// until then. SIGINT and SIGTERM end a command in an orderly way, a second signal at once.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"
	"github.com/mattn/go-isatty"

	"noncegate/scripts/loadtest/process"
	"noncegate/scripts/loadtest/traffic"
)

const (
	exitOK          = 0
	exitFailure     = 1
	exitUsage       = 2
	exitInterrupted = 130
)

// The ways in which a command ends besides an error that is told to people.
var (
	errFailed      = errors.New("a criterion was not met")        // the report has said so
	errInterrupted = errors.New("interrupted before it was over") // what there was is reported
)

// usageError is a wrong command line, told by the flag and the rule it breaks.
type usageError struct{ error }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // from then on a signal ends the process
	p := &program{stdout: os.Stdout, stderr: os.Stderr, terminal: isatty.IsTerminal(os.Stderr.Fd())}
	os.Exit(p.run(ctx, os.Args[1:]))
}

type program struct {
	stdout, stderr io.Writer
	terminal       bool // stderr is one, and gets lines of progress
}

type commands struct {
	Run     runCmd     `cmd:"" help:"Load gateways, and report what they acknowledged, how fast, and what they refused."`
	Slow    slowCmd    `cmd:"" help:"Measure healthy clients without and with clients that misbehave."`
	Restart restartCmd `cmd:"" help:"Restart gateways one after the other under load."`
	Compare compareCmd `cmd:"" help:"Measure two builds or two settings of the gateway in alternation."`
	Bench   benchCmd   `cmd:"" help:"Measure the gateway beside its reference servers."`
}

// run parses args, runs the command they name and returns the exit code.
func (p *program) run(ctx context.Context, args []string) int {
	var helped bool
	parser, err := kong.New(new(commands),
		kong.Name("loadtest"),
		kong.Description("Makes load for gateways and measures them."),
		kong.Writers(p.stdout, p.stderr),
		kong.Exit(func(int) { helped = true }), // only --help exits
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 110}),
		kong.Groups(groups),
		kong.Vars(texts),
		kong.BindTo(ctx, (*context.Context)(nil)),
		kong.Bind(p),
	)
	if err != nil {
		return p.exit(err)
	}
	kctx, err := parser.Parse(args)
	switch {
	case helped:
		return exitOK
	case err != nil:
		return p.exit(usageError{err})
	}
	return p.exit(kctx.Run())
}

// exit says how a command ended, and returns the exit code for it.
func (p *program) exit(err error) int {
	if err == nil {
		return exitOK
	}
	if errors.Is(err, errFailed) {
		return exitFailure
	}
	fmt.Fprintln(p.stderr, "loadtest:", err)
	_, usage := errors.AsType[usageError](err)
	switch {
	case usage, errors.Is(err, process.ErrTaken), errors.Is(err, traffic.ErrUsed):
		return exitUsage
	case errors.Is(err, errInterrupted):
		return exitInterrupted
	}
	return exitFailure
}

// say tells people who look what happens.
func (p *program) say(format string, args ...any) {
	if p.terminal {
		fmt.Fprintf(p.stderr, format+"\n", args...)
	}
}
