package main

import (
	"context"
	"errors"
	"fmt"
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
	files    *ReportFlags
	criteria report.Criteria // of each run
	sides    [2]string
	rounds   int
	andBack  bool         // every second round begins with the second side
	load     traffic.Load // of the first run; each run has further signers
	measure  func(side int, load traffic.Load) (*result.Run, error)
	ratios   []result.Ratio // of the second side over the first
}

// contest makes all runs until one is cut short, judges them, reports them, and says how that ends the program.
func (p *program) contest(ctx context.Context, c contest) error {
	if err := c.files.writable(); err != nil {
		return err
	}
	both := &result.Comparison{Title: c.title}
	var sides [2][]*result.Run // those that say something
	var err error
	for round, side := range result.Alternate(c.rounds, len(c.sides), c.andBack) {
		load := c.load
		load.Signers.Base += int64(len(both.Runs)) * int64(load.Signers.Count)
		name := fmt.Sprintf("%s, round %d", c.sides[side], round+1)
		var run *result.Run
		if run, err = c.measure(side, load); run != nil {
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
		r.Compare(sides[1], sides[0], true)
		judgeRatio(both, r, ctx.Err() != nil)
	}
	judgeContest(both, ctx.Err() != nil)
	err = errors.Join(err, p.write(c.files, both, report.OfComparison(both)))
	if ctx.Err() == nil && err == nil && both.Outcome == "FAIL" {
		return errFailed
	}
	return interruptedOr(ctx, err)
}

// judgeRatio adds a ratio and the verdict on its bound, if it has one. Only an interrupted contest may have no round.
func judgeRatio(both *result.Comparison, r result.Ratio, interrupted bool) {
	both.Ratios = append(both.Ratios, r)
	v := result.Verdict{Name: r.Name + ", median of the rounds", Want: r.Bound(report.Fixed), Got: r.Void, Passed: r.Kept()}
	if len(r.Rounds) > 0 {
		v.Got = r.Span(report.Fixed)
	} else if interrupted {
		v.Passed, v.Unknown = true, true
	}
	if v.Want != "" {
		both.Verdicts = append(both.Verdicts, v)
	}
}

// judgeContest says how a comparison ended. It failed when a run or a ratio missed a criterion, or a run could not be made.
func judgeContest(c *result.Comparison, interrupted bool) {
	known := slices.ContainsFunc(c.Verdicts, func(v result.Verdict) bool { return !v.Unknown })
	missed := slices.ContainsFunc(c.Verdicts, func(v result.Verdict) bool { return !v.Passed })
	switch {
	case missed || slices.ContainsFunc(c.Runs, func(r *result.Run) bool { return !r.Passed }):
		c.Outcome = "FAIL"
	case !known && interrupted:
		c.Outcome = "not judged: interrupted"
	case !known:
		c.Outcome = "not judged: no criterion on the ratios was given"
	case interrupted:
		c.Outcome, c.Passed = "PASS (interrupted: judged on the rounds until then)", true
	default:
		c.Outcome, c.Passed = "PASS", true
	}
}

// compareCmd measures two gateways, one after the other, in alternation.
type compareCmd struct {
	A            process.Command `group:"target" required:"" placeholder:"COMMAND" help:"Command of the first gateway. ${command}"`
	B            process.Command `group:"target" required:"" placeholder:"COMMAND" help:"The second one. Both must serve what --url names."`
	LoadFlags    `group:"load"`
	Rounds       int `group:"time" default:"5" help:"How often both are measured, ${fresh}. Every second round begins with B."`
	ProcessFlags `group:"time"`
	ReportFlags  `group:"report"`
	LostFlags    `group:"criteria"`
	MinRatio     float64 `group:"criteria" default:"0" help:"Smallest ratio of acknowledged a second, B over A, ${median}. ${off}"`
	MaxP99Ratio  float64 `name:"max-p99-ratio" group:"criteria" default:"0" help:"Largest ratio of the p99, B over A, ${median}. ${off}"`
}

// Validate is called by the parser.
func (c *compareCmd) Validate() error {
	negative := rule{c.MinRatio < 0 || c.MaxP99Ratio < 0, "--min-ratio and --max-p99-ratio must not be negative"}
	return first(roundsRule(c.Rounds), negative)
}

func (c *compareCmd) Run(ctx context.Context, p *program) error {
	sides := []*process.Server{{Name: "A", Command: c.A}, {Name: "B", Command: c.B}}
	for _, side := range sides {
		side.URLs, side.Ready = c.URLs, c.URLs
	}
	return p.contest(ctx, contest{
		title: fmt.Sprintf("A: %s; B: %s", c.A, c.B), files: &c.ReportFlags, criteria: c.criteria(),
		sides: [2]string{"A", "B"}, rounds: c.Rounds, andBack: true, load: c.Load,
		measure: func(side int, load traffic.Load) (*result.Run, error) {
			return c.measure(ctx, p, sides[side], load)
		},
		ratios: []result.Ratio{
			{Name: "acknowledged a second, B over A", Figure: result.PerSecond, AtLeast: c.MinRatio},
			{Name: "p99, B over A", Figure: result.P99, AtMost: c.MaxP99Ratio},
		},
	})
}

// measure starts one side, loads it, and ends it. Where another server answers at its address the error is process.ErrTaken.
func (c *compareCmd) measure(ctx context.Context, p *program, side *process.Server, load traffic.Load) (run *result.Run, err error) {
	if err := side.Vacant(ctx); err != nil {
		return nil, fmt.Errorf("--url: %w", err)
	}
	defer func() { err = errors.Join(err, c.stop(ctx, side)) }()
	if err := p.start(ctx, side); err != nil {
		return nil, err
	}
	return p.loaded(ctx, &c.ReportFlags, load)
}

// ProcessFlags say how gateways that a command starts are treated.
type ProcessFlags struct {
	StopTimeout time.Duration `default:"30s" help:"How long a gateway may take to end once it is asked to; then it is killed."`
}

// Validate is called by the parser.
func (f *ProcessFlags) Validate() error {
	return first(rule{f.StopTimeout <= 0, "--stop-timeout must be above 0"})
}

// start starts a gateway. It is to be stopped also when it is not ready.
func (p *program) start(ctx context.Context, s *process.Server) error {
	err := s.Start(ctx)
	if err == nil {
		p.say("%s runs as process %d", s.Name, s.Pid())
	}
	return err
}

// stop stops a gateway. That it had to be killed is an error, but not when ctx has ended.
func (f *ProcessFlags) stop(ctx context.Context, s *process.Server) error {
	if err := s.Stop(f.StopTimeout); ctx.Err() == nil {
		return err
	}
	return nil
}

// slowCmd shows what slow clients do to others. They are connected on both sides, so that the gateway has the same connections.
type slowCmd struct {
	URLs        []string          `name:"url" group:"target" sep:"none" default:"ws://127.0.0.1:8080/ws" help:"${url}"`
	Access      traffic.Access    `embed:"" group:"target"`
	Connections int               `group:"load" default:"1000" help:"Clients, the slow ones among them."`
	SlowShare   float64           `group:"load" default:"0.2" help:"Share of the clients that misbehaves, above 0 and below 1."`
	Behaviour   traffic.Behaviour `group:"load" default:"stop" enum:"stop,trickle" help:"${behaviour}"`
	Rate        float64           `group:"load" default:"1000" help:"${slow_rate}"`
	Subscribers int               `group:"load" default:"0" help:"${witnesses}"`
	Signers     traffic.Signers   `embed:"" group:"load"`
	Rounds      int               `group:"time" default:"3" help:"How often both are measured, first without slow clients, ${fresh}."`
	Warmup      time.Duration     `group:"time" default:"2s" help:"Time before measuring, in each run."`
	Duration    time.Duration     `group:"time" default:"30s" help:"Time measured, in each run."`
	ReportFlags `group:"report"`
	LostFlags   `group:"criteria"`
	MaxP99Ratio float64 `name:"max-p99-ratio" group:"criteria" default:"1.2" help:"${slow_ratio}"`
}

// load is that of all clients.
func (c *slowCmd) load() traffic.Load {
	return traffic.Load{
		URLs: c.URLs, Access: c.Access, Connections: c.Connections, Inflight: 1, Rate: c.Rate, Signers: c.Signers,
		Subscribers: c.Subscribers, Warmup: c.Warmup, Duration: c.Duration,
	}.Beside(c.SlowShare, c.Behaviour)
}

// Validate is called by the parser.
func (c *slowCmd) Validate() error {
	load := c.load()
	return first(
		targetsRule(c.URLs),
		rule{!(c.SlowShare > 0 && c.SlowShare < 1), "--slow-share must be above 0 and below 1"},
		connectionsRule(c.Connections),
		rule{load.Slow.Clients < 1 || load.Connections < 1, "--connections must be enough for a slow client and a healthy one at --slow-share"},
		rule{!(c.Rate > 0 && c.Rate <= 1e9), "--rate must be above 0 and at most 1e+09: a closed loop hides what slow clients cause"},
		subscribersRule(c.Subscribers),
		signersRule(c.Signers),
		roundsRule(c.Rounds),
		rule{c.Warmup < 0 || c.Duration <= 0, "--warmup must not be negative, and --duration must be above 0"},
		rule{c.MaxP99Ratio <= 0, "--max-p99-ratio must be above 0"},
	)
}

func (c *slowCmd) Run(ctx context.Context, p *program) error {
	load := c.load()
	return p.contest(ctx, contest{
		title: fmt.Sprintf("%d healthy clients without and with %d slow ones (%s)", load.Connections, load.Slow.Clients, c.Behaviour),
		files: &c.ReportFlags, criteria: c.criteria(), sides: [2]string{"without slow clients", "with slow clients"}, rounds: c.Rounds,
		load: load,
		measure: func(side int, load traffic.Load) (*result.Run, error) {
			load.Slow.Misbehave = side == 1
			run, err := p.loaded(ctx, &c.ReportFlags, load)
			if run == nil {
				return nil, advised(err)
			}
			run.Command = "slow"
			return run, err
		},
		ratios: []result.Ratio{
			{Name: "healthy p50, with slow clients over without", Figure: result.P50},
			{Name: "healthy p99, with slow clients over without", Figure: result.P99, AtMost: c.MaxP99Ratio},
		},
	})
}
