package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"noncegate/scripts/loadtest/process"
	"noncegate/scripts/loadtest/result"
	"noncegate/scripts/loadtest/traffic"
)

// commandRule is how a command of a gateway is written.
const commandRule = `Its words are separated by spaces; what stands between two ' or two " is taken as it is. No shell runs it, so it must be the gateway itself.`

// compareCmd measures two gateways, one after the other, in alternation.
type compareCmd struct {
	A string `name:"a" group:"target" required:"" placeholder:"COMMAND" help:"Command of the first gateway. ${command_rule}"`
	B string `name:"b" group:"target" required:"" placeholder:"COMMAND" help:"Command of the second gateway. Both must serve what --url names."`
	loadFlags
	Rounds int `group:"time" default:"5" help:"How often both are measured, each time on signers that nobody had before. Every second round begins with B."`
	processFlags
	reportFlags
	lostFlags
	MinRatio    float64 `group:"criteria" default:"0" help:"Smallest ratio of acknowledged requests a second, B over A, the median of the rounds. 0: not judged."`
	MaxP99Ratio float64 `name:"max-p99-ratio" group:"criteria" default:"0" help:"Largest ratio of the p99 latencies, B over A, the median of the rounds. 0: not judged."`
}

// processFlags say how gateways that a command starts are treated.
type processFlags struct {
	StartTimeout time.Duration `group:"time" default:"60s" help:"How long a gateway may take until it is ready."`
	StopTimeout  time.Duration `group:"time" default:"30s" help:"How long a gateway may take to end once it is asked to; then it is killed."`
	LogDir       string        `group:"report" type:"path" placeholder:"DIR" help:"Where the output of the gateways is kept. Default: it is thrown away, but for the end of it when something goes wrong."`
}

func (f *processFlags) validate() error {
	return usage(rule{f.StartTimeout <= 0 || f.StopTimeout <= 0, "--start-timeout and --stop-timeout must be above 0"})
}

// start starts a gateway and waits until it is ready. A gateway that runs and is not comes
// with the error.
func (f *processFlags) start(ctx context.Context, p *program, name string, command []string, log string, ready ...func(context.Context) error) (*process.Process, error) {
	gateway, err := process.Start(command, log)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	p.say("%s runs as process %d", name, gateway.Pid())
	ctx, cancel := context.WithTimeout(ctx, f.StartTimeout)
	defer cancel()
	for _, is := range ready {
		if err := gateway.WaitReady(ctx, is); err != nil {
			return gateway, fmt.Errorf("%s: %w", name, err)
		}
	}
	return gateway, nil
}

// logs is the folder for the output of gateways, and what to call at the end.
func (f *processFlags) logs() (dir string, done func(), err error) {
	if f.LogDir != "" {
		if err := os.MkdirAll(f.LogDir, 0o755); err != nil {
			return "", nil, usageError{fmt.Errorf("--log-dir: %w", err)}
		}
		return f.LogDir, func() {}, nil
	}
	dir, err = os.MkdirTemp("", "loadtest")
	return dir, func() { os.RemoveAll(dir) }, err
}

func (c *compareCmd) Run(ctx context.Context, p *program) error {
	load, err := c.load()
	a, wrongA := words("--a", c.A)
	b, wrongB := words("--b", c.B)
	criteria, wrong := (&criteriaFlags{lostFlags: c.lostFlags}).criteria()
	err = cmp.Or(err, wrongA, wrongB, wrong, c.reportFlags.validate(), c.processFlags.validate(), usage(
		roundsRule(c.Rounds),
		rule{c.MinRatio < 0 || c.MaxP99Ratio < 0, "--min-ratio and --max-p99-ratio must not be negative"},
	))
	if err != nil {
		return err
	}
	logs, done, err := c.logs()
	if err != nil {
		return err
	}
	defer done()
	sides, commands := [2]string{"A", "B"}, [2][]string{a, b}
	return p.contest(ctx, contest{
		title: "A: " + c.A + "; B: " + c.B, files: &c.reportFlags, criteria: criteria,
		sides: sides, rounds: c.Rounds, andBack: true, signers: load.Signers,
		measure: func(side int, signers traffic.Signers) (*result.Run, error) {
			load.Signers = signers
			return c.measure(ctx, p, sides[side], commands[side], load, filepath.Join(logs, sides[side]+".log"))
		},
		ratios: []wantedRatio{
			{name: "acknowledged a second, B over A", figure: perSecondOf, atLeast: c.MinRatio},
			{name: "p99, B over A", figure: p99Of, atMost: c.MaxP99Ratio},
		},
	})
}

// words are those of a command that a flag names.
func words(flag, command string) ([]string, error) {
	words, err := process.Split(command)
	if err != nil {
		return nil, usageError{fmt.Errorf("%s: %w", flag, err)}
	}
	return words, nil
}

// measure starts one side, loads it, and ends it. Where somebody else serves its
// address the error is process.ErrTaken.
func (c *compareCmd) measure(ctx context.Context, p *program, name string, command []string, load traffic.Load, log string) (run *result.Run, err error) {
	if err := process.Vacant(ctx, load.URLs...); err != nil {
		return nil, fmt.Errorf("--url: %w", err)
	}
	var ready []func(context.Context) error
	for _, url := range load.URLs {
		ready = append(ready, process.Handshakes(url))
	}
	gateway, err := c.start(ctx, p, name, command, log, ready...)
	if gateway != nil {
		defer func() {
			if stopped := gateway.Stop(c.StopTimeout); stopped != nil && ctx.Err() == nil {
				err = errors.Join(err, fmt.Errorf("%s: %w", name, stopped))
			}
		}()
	}
	if err != nil {
		return nil, err
	}
	return p.loaded(ctx, c.pages(load.URLs, load.Access), load)
}
