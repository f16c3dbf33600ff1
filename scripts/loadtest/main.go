// Command loadtest makes load for gateways and measures them.
//
// loadtest --help lists the commands, loadtest COMMAND --help every flag with its default. It exits with 0 when every criterion was met, 1
// when one was not or something went wrong, 2 on a wrong command line, and 130 when it was interrupted, after it has reported what it had
// until then. SIGINT and SIGTERM end a command in an orderly way, a second signal at once.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"
	"github.com/gorilla/websocket"
	"github.com/mattn/go-isatty"

	"noncegate/client"
	"noncegate/scripts/loadtest/process"
	"noncegate/scripts/loadtest/report"
	"noncegate/scripts/loadtest/result"
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

// runCmd loads gateways once.
type runCmd struct {
	LoadFlags   `group:"load"`
	Verify      bool `group:"load" help:"${verify}"`
	ReportFlags `group:"report"`
	LostFlags   `group:"criteria"`
	MaxE2EP99   time.Duration `name:"max-e2e-p99" group:"criteria" default:"0s" help:"${max_e2e}"`
	GrowthCheck bool          `group:"criteria" default:"true" negatable:"" help:"${growth}"`
}

// Validate is called by the parser.
func (c *runCmd) Validate() error {
	return first(rule{c.MaxE2EP99 < 0, "--max-e2e-p99 must not be negative"})
}

func (c *runCmd) Run(ctx context.Context, p *program) error {
	load, criteria := c.Load, c.criteria()
	criteria.MaxE2EP99, criteria.Growth = c.MaxE2EP99, c.GrowthCheck
	return p.single(ctx, &c.ReportFlags, criteria, func() (run *result.Run, _ []result.Verdict, err error) {
		if c.Verify {
			if load.Verify, err = traffic.NewRecorder(ctx, c.URLs, load.Access, load.Signers); err != nil {
				return nil, nil, advised(err)
			}
		}
		run, err = p.loaded(ctx, &c.ReportFlags, load)
		if run != nil && err == nil && c.Verify {
			run.Verify, err = load.Verify.Judge(ctx, run.Interrupted)
		}
		return run, nil, advised(err)
	})
}

// measured makes a run, which may come with an error and with verdicts of its own.
type measured func() (*result.Run, []result.Verdict, error)

// single makes a run, judges it, reports it, and says how it ends the program.
func (p *program) single(ctx context.Context, files *ReportFlags, criteria report.Criteria, measure measured) error {
	if err := files.writable(); err != nil {
		return err
	}
	run, verdicts, err := measure()
	if run == nil {
		return interruptedOr(ctx, err)
	}
	report.Judge(run, criteria, verdicts...)
	err = errors.Join(err, p.write(files, run, report.Of(run)))
	switch {
	case run.Interrupted:
		return errInterrupted
	case err == nil && !run.Passed:
		return errFailed
	}
	return err
}

func interruptedOr(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return errInterrupted
	}
	return err
}

func (p *program) progress(s result.Second) {
	p.say("%4.0f s  %8d/s  p50 %.2f  p99 %.2f ms  refused %d  failed %d", s.At+s.Seconds, s.Acknowledged, s.P50, s.P99, s.Refused, s.Failed)
}

// loaded makes a load while the pages of its gateways are read. A result may come with an error.
func (p *program) loaded(ctx context.Context, f *ReportFlags, load traffic.Load) (*result.Run, error) {
	observer := f.pages(load.URLs, load.Access).Start(ctx)
	load.BeginMeasure, load.EndMeasure, load.Progress = observer.Begin, func() { observer.End() }, p.progress
	run, err := load.Run(ctx)
	nodes := observer.End() // the same once more; of a load that was not measured, why there is nothing
	if run != nil {
		run.Nodes = nodes
	}
	return run, err
}

// writable looks whether files can be written, so that a wrong path is told at once. What they had stays until there is a result.
func (f *ReportFlags) writable() error {
	for flag, path := range map[string]string{"--json": f.JSON, "--html": f.HTML} {
		if path == "" || path == "-" {
			continue
		}
		opened, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o644)
		if err != nil {
			return usageError{fmt.Errorf("%s cannot be written: %w", flag, err)}
		}
		opened.Close() // nothing was written
	}
	return nil
}

// write writes what was found, and its report in all forms that the flags ask for.
func (p *program) write(f *ReportFlags, found any, r report.Report) (err error) {
	toJSON := func(w io.Writer) error { return writeJSON(w, found) }
	if f.JSON == "-" {
		err = toJSON(p.stdout)
	} else {
		err = errors.Join(r.Text(p.stdout), writeTo(f.JSON, toJSON))
	}
	if err = errors.Join(err, writeTo(f.HTML, r.HTML)); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return nil
}

// writeTo writes a file, none without a path.
func writeTo(path string, write func(io.Writer) error) error {
	if path == "" {
		return nil
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Close())
}

func writeJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// advised adds to the error of a load on gateways that run already what is wrong most often.
func advised(err error) error {
	if err == nil {
		return nil
	}
	dial, _ := errors.AsType[*client.DialError](err)
	switch {
	// Windows has an error number of its own.
	case errors.Is(err, syscall.ECONNREFUSED), strings.Contains(err.Error(), "actively refused it"):
		return fmt.Errorf("%w; is the gateway running? (make run)", err)
	case dial != nil && dial.Status == http.StatusNotFound, strings.Contains(err.Error(), websocket.ErrBadHandshake.Error()+": 404"):
		return fmt.Errorf("%w; a gateway takes WebSockets at /ws", err)
	}
	return err
}
