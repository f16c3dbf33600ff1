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

func (c *compareCmd) Run(ctx context.Context, p *program) error {
	load, err := c.load()
	criteria, wrong := c.lostFlags.criteria()
	a, wrongA := newChild("--a", "A", c.A, c.URL...)
	b, wrongB := newChild("--b", "B", c.B, c.URL...)
	if err := cmp.Or(err, wrongA, wrongB, wrong, c.reportFlags.validate(), c.processFlags.validate(), usage(
		roundsRule(c.Rounds),
		rule{c.MinRatio < 0 || c.MaxP99Ratio < 0, "--min-ratio and --max-p99-ratio must not be negative"},
	)); err != nil {
		return err
	}
	for _, url := range c.URL {
		a.ready, b.ready = append(a.ready, process.Handshakes(url)), append(b.ready, process.Handshakes(url))
	}
	return p.contest(ctx, contest{
		title: "A: " + c.A + "; B: " + c.B, files: &c.reportFlags, criteria: criteria,
		sides: [2]string{"A", "B"}, rounds: c.Rounds, andBack: true, signers: load.Signers,
		measure: func(side int, signers traffic.Signers) (*result.Run, error) {
			load.Signers = signers
			return c.measure(ctx, p, []*child{a, b}[side], load)
		},
		ratios: []wantedRatio{
			{result.Ratio{Name: "acknowledged a second, B over A", AtLeast: c.MinRatio}, perSecondOf},
			{result.Ratio{Name: "p99, B over A", AtMost: c.MaxP99Ratio}, p99Of},
		},
	})
}

// measure starts one side, loads it, and ends it. Where another server answers at its address the error is
// process.ErrTaken.
func (c *compareCmd) measure(ctx context.Context, p *program, side *child, load traffic.Load) (run *result.Run, err error) {
	dir, err := os.MkdirTemp("", "loadtest")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	if err := process.Vacant(ctx, load.URLs...); err != nil {
		return nil, fmt.Errorf("--url: %w", err)
	}
	defer func() { err = errors.Join(err, side.end(ctx, c.StopTimeout)) }()
	if err := side.start(ctx, p, dir); err != nil {
		return nil, err
	}
	return p.loaded(ctx, c.pages(load.URLs, load.Access), load)
}

// processFlags say how gateways that a command starts are treated.
type processFlags struct {
	StopTimeout time.Duration `group:"time" default:"30s" help:"How long a gateway may take to end once it is asked to; then it is killed."`
}

func (f *processFlags) validate() error {
	return usage(rule{f.StopTimeout <= 0, "--stop-timeout must be above 0"})
}

// startTimeout is how long a gateway may take until it is ready.
const startTimeout = time.Minute

// child is a gateway that a command starts, maybe several times.
type child struct {
	name    string
	command []string
	served  []string // URLs that nobody may answer at before it is started
	ready   []func(context.Context) error
	running *process.Process // nil: it does not run
}

// newChild makes the child of a command line that a flag has. An error is a usageError.
func newChild(flag, name, line string, served ...string) (*child, error) {
	words, err := process.Split(line)
	if err != nil {
		return nil, usageError{fmt.Errorf("%s: %w", flag, err)}
	}
	return &child{name: name, command: words, served: served}, nil
}

// start starts a gateway, its output in a folder, and waits until it is ready. It is to be ended also when it is not.
func (c *child) start(ctx context.Context, p *program, dir string) (err error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if c.running, err = process.Start(c.command, filepath.Join(dir, fmt.Sprintf("%p.log", c))); err == nil {
		p.say("%s runs as process %d", c.name, c.running.Pid())
		for _, ready := range c.ready {
			err = cmp.Or(err, c.running.WaitReady(ctx, ready))
		}
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", c.name, err)
	}
	return err
}

// end ends the gateway if it runs. That it had to be killed is an error, but not when ctx has ended.
func (c *child) end(ctx context.Context, grace time.Duration) error {
	if c == nil || c.running == nil {
		return nil
	}
	err := c.running.Stop(grace)
	c.running = nil
	if err == nil || ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("%s: %w", c.name, err)
}
