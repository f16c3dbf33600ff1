package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"noncegate/scripts/loadtest/process"
	"noncegate/scripts/loadtest/report"
	"noncegate/scripts/loadtest/result"
	"noncegate/scripts/loadtest/traffic"
)

// contest is what a command does that measures two sides in alternation.
type contest struct {
	title    string
	files    *reportFlags
	criteria report.Criteria // of each run
	sides    [2]string
	rounds   int
	andBack  bool            // every second round begins with the second side
	signers  traffic.Signers // of the first run; each run has further ones
	measure  func(side int, signers traffic.Signers) (*result.Run, error)
	ratios   []wantedRatio
}

// wantedRatio is a figure of the second side over that of the first, and what its median must be.
type wantedRatio struct {
	result.Ratio
	figure func(*result.Run) float64
}

func perSecondOf(r *result.Run) float64 { return r.PerSecond }
func p50Of(r *result.Run) float64       { return r.LatencyMs.P50 }
func p99Of(r *result.Run) float64       { return r.LatencyMs.P99 }

// contest makes all runs until one is cut short, judges them, reports them, and says how that ends the program. Without any run there is
// nothing to say but what cut it short.
func (p *program) contest(ctx context.Context, c contest) error {
	if err := c.files.writable(); err != nil {
		return err
	}
	both := &result.Comparison{Title: c.title}
	var sides [2][]*result.Run // those that say something
	var err error
	for round, side := range result.Alternate(c.rounds, len(c.sides), c.andBack) {
		signers := c.signers
		signers.Base += int64(len(both.Runs)) * int64(signers.Count)
		name := fmt.Sprintf("%s, round %d", c.sides[side], round+1)
		var run *result.Run
		if run, err = c.measure(side, signers); run != nil {
			run.Name = name
			report.Judge(run, c.criteria)
			both.Runs = append(both.Runs, run)
		}
		if err != nil && ctx.Err() == nil {
			what, _, _ := strings.Cut(err.Error(), "\n")
			both.Verdicts = append(both.Verdicts, result.Verdict{Name: name, Want: "no error", Got: what})
		}
		if run == nil || err != nil || run.Interrupted {
			break
		}
		sides[side] = append(sides[side], run)
	}
	if len(both.Runs) == 0 {
		return interruptedOr(ctx, err)
	}
	for _, r := range c.ratios {
		r.judge(both, sides, ctx.Err() != nil)
	}
	judgeContest(both, ctx.Err() != nil)
	err = errors.Join(err, p.write(c.files, both, report.OfComparison(both)))
	if ctx.Err() == nil && err == nil && both.Outcome == "FAIL" {
		return errFailed
	}
	return interruptedOr(ctx, err)
}

// judge adds the ratio and, where there is a bound, the verdict on it. There must be a round that says something, unless the contest was
// interrupted.
func (w wantedRatio) judge(both *result.Comparison, sides [2][]*result.Run, interrupted bool) {
	w.Compare(w.figure, sides[1], sides[0], true)
	both.Ratios = append(both.Ratios, w.Ratio)
	v := result.Verdict{Name: w.Name + ", median of the rounds", Want: w.Bound(report.Fixed), Got: w.Void, Passed: w.Kept()}
	if len(w.Rounds) > 0 {
		v.Got = w.Span(report.Fixed)
	} else if interrupted {
		v.Passed, v.Unknown = true, true
	}
	if v.Want != "" {
		both.Verdicts = append(both.Verdicts, v)
	}
}

// judgeContest says how a comparison ended, in a few words. It failed when a criterion was missed, by a run or by a ratio, or a run could
// not be made.
func judgeContest(c *result.Comparison, interrupted bool) {
	known := slices.ContainsFunc(c.Verdicts, func(v result.Verdict) bool { return !v.Unknown })
	switch {
	case slices.ContainsFunc(c.Verdicts, func(v result.Verdict) bool { return !v.Passed }),
		slices.ContainsFunc(c.Runs, func(r *result.Run) bool { return !r.Passed }):
		c.Outcome = "FAIL"
	case !known && interrupted:
		c.Outcome = "not judged: interrupted"
	case !known:
		c.Outcome = "not judged: no criterion on the ratios was given"
	default:
		c.Outcome, c.Passed = "PASS", true
		if interrupted {
			c.Outcome += " (interrupted: judged on the rounds until then)"
		}
	}
}

// commandRule is how a command of a gateway is written.
const commandRule = `Its words are separated by spaces; what stands between two ' or two " is taken as it is.` +
	` No shell runs it, so it must be the gateway itself.`

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

// measure starts one side, loads it, and ends it. Where another server answers at its address the error is process.ErrTaken.
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

// slowCmd shows what slow clients do to the others.
type slowCmd struct {
	targetFlags
	Connections int               `group:"load" default:"1000" help:"Clients, the slow ones among them."`
	SlowShare   float64           `group:"load" default:"0.2" help:"Share of the clients that misbehaves, above 0 and below 1."`
	Behaviour   traffic.Behaviour `group:"load" default:"stop" enum:"stop,trickle" help:"What they do once the measured time begins, subscribed to all events and sending: stop (they read nothing any more) or trickle (a few bytes a second)."`
	Rate        float64           `group:"load" default:"1000" help:"Requests a second over all clients, latency counted from when each was due. The share of the slow ones is sent only when they misbehave."`
	Subscribers int               `group:"load" default:"0" help:"Further healthy connections that receive the events of all signers, and must not miss any for the slow ones."`
	signerFlags
	Rounds   int           `group:"time" default:"3" help:"How often both are measured, first without slow clients and then with them, each time on signers that nobody had before."`
	Warmup   time.Duration `group:"time" default:"2s" help:"Time before measuring, in each run."`
	Duration time.Duration `group:"time" default:"30s" help:"Time measured, in each run."`
	reportFlags
	lostFlags
	MaxP99Ratio float64 `name:"max-p99-ratio" group:"criteria" default:"1.2" help:"Largest ratio of the healthy clients' p99 with slow ones over that without, the median of the rounds."`
}

// The two sides of a slow drill. In both the slow clients are connected, so that the gateway has the same connections; without, they keep
// still.
const (
	without = "without slow clients"
	with    = "with slow clients"
)

func (c *slowCmd) Run(ctx context.Context, p *program) error {
	load, slow, err := c.loads()
	criteria, wrong := c.criteria()
	if err := cmp.Or(err, wrong, c.reportFlags.validate()); err != nil {
		return err
	}
	return p.contest(ctx, contest{
		title: fmt.Sprintf("%d healthy clients without and with %d slow ones (%s)", load.Connections, slow.Clients, c.Behaviour),
		files: &c.reportFlags, criteria: criteria, sides: [2]string{without, with}, rounds: c.Rounds, signers: load.Signers,
		measure: func(side int, signers traffic.Signers) (*result.Run, error) {
			load.Signers, slow.Signers = signers, signers
			return c.measure(ctx, p, load, slow, side == 1)
		},
		ratios: []wantedRatio{
			{result.Ratio{Name: "healthy p50, with slow clients over without"}, p50Of},
			{result.Ratio{Name: "healthy p99, with slow clients over without", AtMost: c.MaxP99Ratio}, p99Of},
		},
	})
}

// loads are the healthy clients and the slow ones. An error is a usageError.
func (c *slowCmd) loads() (traffic.Load, traffic.Slow, error) {
	clients := int(math.Round(c.SlowShare * float64(c.Connections)))
	share := float64(clients) / float64(max(c.Connections, 1))
	in, err := c.access()
	load := traffic.Load{
		URLs: c.URL, Access: in, Connections: c.Connections - clients, Inflight: 1, Rate: c.Rate * (1 - share), Signers: c.signers(),
		Subscribers: c.Subscribers, Warmup: c.Warmup, Duration: c.Duration,
	}
	slow := traffic.Slow{URLs: c.URL, Access: in, Clients: clients, Behaviour: c.Behaviour, Rate: c.Rate * share, Signers: c.signers()}
	return load, slow, cmp.Or(err, c.signerFlags.validate(), usage(
		addresses("url", "ws://127.0.0.1:8080/ws", c.URL...),
		rule{!(c.SlowShare > 0 && c.SlowShare < 1), "--slow-share must be above 0 and below 1"},
		connectionsRule(c.Connections),
		rule{clients < 1 || load.Connections < 1, "--connections must be enough for a slow client and a healthy one at this --slow-share"},
		rule{!(c.Rate > 0 && c.Rate <= 1e9), "--rate must be above 0 and at most 1e+09: a closed loop hides what slow clients cause"},
		between("subscribers", c.Subscribers, 0, traffic.MaxConnections),
		roundsRule(c.Rounds),
		rule{c.Warmup < 0 || c.Duration <= 0, "--warmup must not be negative, and --duration must be above 0"},
		rule{c.MaxP99Ratio <= 0, "--max-p99-ratio must be above 0"},
	))
}

// measure makes the healthy load beside slow clients, which misbehave from the begin of the measured time or keep still.
func (c *slowCmd) measure(ctx context.Context, p *program, load traffic.Load, slow traffic.Slow, misbehave bool) (*result.Run, error) {
	group, err := slow.Start(ctx)
	if err != nil {
		return nil, advised(err)
	}
	defer group.Stop()
	if misbehave {
		load.BeginMeasure = group.Misbehave
	}
	run, err := p.loaded(ctx, c.pages(c.URL, load.Access), load)
	counts := group.Stop()
	if run == nil {
		return nil, advised(err)
	}
	run.Command = "slow"
	if misbehave {
		run.Slow = &counts
	}
	return run, err
}
