// Command gateway is a Noncegate gateway and the small tools that go with it.
//
// gateway help lists the commands. Settings are flags, environment variables or lines of a YAML
// file, in this order of precedence. A wrong setting, or a variable NONCEGATE_… that is none, ends
// the program with one sentence and exit code 2, any other failure with one sentence and exit
// code 1. SIGINT and SIGTERM end a command in an orderly way, a second signal at once.
//
// Where to begin reading: main.go, config.go, app.go (start and stop); what the commands ask
// a gateway is internal/admin.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"

	"noncegate/client"
	"noncegate/wire"
)

// Exit codes.
const (
	exitOK      = 0
	exitFailure = 1 // something went wrong while running
	exitUsage   = 2 // a wrong command, argument or setting
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // from then on a signal ends the process
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run is the program but for signals and the process itself.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	p := &program{stdout: stdout, stderr: stderr, serve: serve, migrate: migrate}
	return p.run(ctx, args)
}

// program is what the commands share. Its functions are fields so that tests
// can run everything around them.
type program struct {
	stdout, stderr io.Writer

	serve   func(ctx context.Context, cfg *Config, log *slog.Logger, stdout io.Writer) error
	migrate func(ctx context.Context, cfg *StoreConfig, log *slog.Logger) error
}

// commands is the command line.
type commands struct {
	Serve   serveCmd   `cmd:"" help:"Run a gateway. serve --help lists all settings."`
	Call    callCmd    `cmd:"" help:"Send one request to a gateway and print its result as JSON."`
	Watch   watchCmd   `cmd:"" help:"Print the events of signers, one JSON line each, until interrupted."`
	Nodes   nodesCmd   `cmd:"" help:"Show the nodes that share a store: state, shards each owns, last seen."`
	Signer  signerCmd  `cmd:"" help:"Look at signers (show, list), and say what became of a nonce (floor, release, consume, repair)."`
	Shard   shardCmd   `cmd:"" help:"Show the shards of a store (list), and move one to another node (move)."`
	Node    nodeCmd    `cmd:"" help:"End a node in order (drain)."`
	Job     jobCmd     `cmd:"" help:"The same act on many signers: release-unknown, floors, list, show, cancel."`
	Look    lookCmd    `cmd:"" help:"Print as JSON what the console shows: overview, findings, settings, audit, principals, keys, me."`
	Console consoleCmd `cmd:"" help:"Print a link to the web console of a gateway, good once and for a minute."`
	Engine  engineCmd  `cmd:"" help:"Show the performance engine (status), and work on it (switch, reconcile, replay)."`
	Key     keyCmd     `cmd:"" help:"API keys: create, list, revoke."`
	Migrate migrateCmd `cmd:"" help:"Bring the schema of the store up to date. serve does it by itself."`
	Doctor  doctorCmd  `cmd:"" help:"Ask gateways, and what they need, what is wrong and what to do about it."`
	Export  exportCmd  `cmd:"" help:"Write all signers of a store to a file of JSON lines, as they are at one moment."`
	Import  importCmd  `cmd:"" help:"Take the signers of such a file into a store that has none of them: all, or nothing."`
	Version versionCmd `cmd:"" help:"Print the version."`
	Help    helpCmd    `cmd:"" help:"Print the help, of everything or of one command."`

	PrintVersion kong.VersionFlag `name:"version" env:"-" help:"Print the version."`
}

type serveCmd struct {
	Config Config `embed:""`
}

// Run implements the command.
func (c *serveCmd) Run(ctx context.Context, p *program, kctx *kong.Context, file *settingsFile) error {
	c.Config.inForce = settingsInForce(kctx, file)
	return p.serve(ctx, &c.Config, c.Config.Logger(p.stderr), p.stdout)
}

// run parses args, runs the command they name and returns the exit code.
func (p *program) run(ctx context.Context, args []string) int {
	if len(args) == 0 || args[0] == "help" && !slices.Contains(args, "--help") {
		args = append(slices.Clone(args[min(1, len(args)):]), "--help")
	}
	var helped bool
	file := new(settingsFile)
	parser, err := kong.New(new(commands),
		kong.Name("gateway"),
		kong.Description("A WebSocket gateway that hands out blockchain nonces."),
		kong.Writers(p.stdout, p.stderr),
		kong.Exit(func(int) { helped = true }), // only --help and --version exit
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, FlagsLast: true, NoExpandSubcommands: true, WrapUpperBound: 110}),
		kong.Groups(groups),
		kong.Vars{"version": versionLine()},
		kong.PostBuild(addHelp),
		kong.WithBeforeApply(checkRules),
		kong.DefaultEnvars("NONCEGATE"),
		kong.WithHyphenPrefixedParameters(true), // as a number below zero is
		kong.Resolvers(file),
		kong.BindTo(ctx, (*context.Context)(nil)),
		kong.Bind(p, file),
	)
	if err != nil {
		return p.fail(err, exitFailure)
	}
	kctx, err := parser.Parse(args)
	switch {
	case helped:
		return exitOK
	case err != nil:
		return p.fail(sentence(err, file), exitUsage)
	}
	if err := unknownVariable(kctx.Model, os.Environ()); err != nil {
		return p.fail(err, exitUsage)
	}
	err = kctx.Run()
	if wrong, ok := errors.AsType[*settingError](err); ok {
		return p.fail(located(wrong, file, kctx), exitUsage)
	}
	if err != nil {
		return p.fail(err, exitFailure)
	}
	return exitOK
}

// fail says the error on stderr: a refusal of a gateway as its JSON, everything
// else as a sentence.
func (p *program) fail(err error, code int) int {
	if refusal, ok := refusedWith(err); ok {
		fmt.Fprintf(p.stderr, "%s\n", refusal)
	} else {
		fmt.Fprintln(p.stderr, "gateway:", err)
	}
	return code
}

// refusedWith returns the JSON of a gateway's refusal. It is none while the
// outcome is unknown: a later refusal does not settle it.
func refusedWith(err error) (text []byte, ok bool) {
	if _, unknown := errors.AsType[*client.UnknownOutcomeError](err); unknown {
		return nil, false
	}
	refusal, ok := errors.AsType[*wire.Error](err)
	if !ok {
		return nil, false
	}
	text, err = wire.Marshal(refusal)
	return text, err == nil
}

// sentence is an error of parsing without the path of the command that kong
// puts before it, and with where the setting came from.
func sentence(err error, file *settingsFile) error {
	wrong, ok := errors.AsType[*settingError](err)
	parse, parsed := errors.AsType[*kong.ParseError](err)
	if ok && parsed {
		return located(wrong, file, parse.Context)
	}
	flag, unknown := strings.CutPrefix(err.Error(), "unknown flag -")
	switch {
	case unknown && flag != "" && '0' <= flag[0] && flag[0] <= '9':
		return errors.New("an argument is below zero; none may be")
	case unknown && parsed && parse.Context.Command() == "":
		return fmt.Errorf("%w; settings follow a command, such as gateway serve", err)
	}
	said := strings.ReplaceAll(err.Error(), "%!q(<nil>)", "nothing") // of a duration that is missing
	if name, _, ofValue := strings.Cut(strings.TrimPrefix(said, "--"), ": "); ofValue && parsed && !strings.Contains(said, "(from envar ") {
		said += file.origin(parse.Context, name)
	}
	return errors.New(said)
}

func located(wrong *settingError, file *settingsFile, kctx *kong.Context) error {
	return errors.New(wrong.Error() + file.origin(kctx, wrong.flag))
}
