package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"noncegate/scripts/loadtest/process"
	"noncegate/scripts/loadtest/result"
	"noncegate/scripts/loadtest/traffic"
)

// restartCmd restarts gateways one after the other under a load of clients that
// reconnect and retry by request id.
type restartCmd struct {
	Gateway []string `group:"target" required:"" sep:"none" placeholder:"URL=COMMAND" help:"Address of a gateway and the command that serves it; repeat it for several. ${command_rule}"`
	Ready   []string `group:"target" sep:"none" placeholder:"URL" help:"Address that answers 200 once a gateway is ready, such as http://127.0.0.1:8081/readyz; one for each --gateway, in the same order. Default: a gateway is ready when a WebSocket handshake succeeds."`
	accessFlags
	Connections int     `group:"load" default:"100" help:"Clients."`
	Rate        float64 `group:"load" default:"200" help:"Submissions a second over all clients, each an allocation and its mark, latency counted from when each was due."`
	signerFlags
	Before time.Duration `group:"time" default:"10s" help:"Time under load before the first restart, to compare with."`
	After  time.Duration `group:"time" default:"10s" help:"Time under load after each restart."`
	Rounds int           `group:"time" default:"1" help:"How often each gateway is restarted."`
	processFlags
	reportFlags
	failedFlags
}

// maxWaiting is how many submissions wait for gateways that are away. Each costs
// a goroutine; what is due beyond them is counted as never sent.
const maxWaiting = 50_000

// morePatience is how much longer a client tries than a restart may take.
const morePatience = 30 * time.Second

func (c *restartCmd) Run(ctx context.Context, p *program) error {
	criteria, wrong := (&criteriaFlags{lostFlags: lostFlags{c.failedFlags, -1}}).criteria()
	rolling := &restartDrill{cmd: c, program: p}
	in, err := c.access()
	steady := traffic.Steady{
		Access: in, Clients: c.Connections, Rate: c.Rate, Patience: c.StopTimeout + c.StartTimeout + morePatience,
		MaxWaiting: maxWaiting, Signers: c.signers(),
	}
	parsed := rolling.parse(&steady)
	err = cmp.Or(err, parsed, wrong, c.signerFlags.validate(), c.reportFlags.validate(), c.processFlags.validate(), usage(
		rule{c.Before <= 0 || c.After <= 0, "--before and --after must be above 0"},
		addresses("gateway", "ws://127.0.0.1:8080/ws", steady.URLs...),
		connectionsRule(c.Connections),
		rule{!(c.Rate > 0 && c.Rate <= 1e6), "--rate must be above 0 and at most 1e+06 submissions a second"},
		roundsRule(c.Rounds),
		rule{len(c.Ready) != 0 && len(c.Ready) != len(c.Gateway), "--ready must be given once for each --gateway, or not at all"},
	))
	if err != nil {
		return err
	}
	logs, done, err := c.logs()
	if err != nil {
		return err
	}
	defer done()
	return p.single(ctx, &c.reportFlags, criteria, func() (*result.Run, []result.Verdict, error) {
		run, err := rolling.run(ctx, steady, logs)
		if run == nil {
			return nil, nil, err
		}
		return run, rolling.verdicts(run), err
	})
}

// errorGrace is how long requests may still be answered once a gateway did not
// come back.
const errorGrace = 2 * time.Second

// restartDrill is a rolling restart that runs. It belongs to one goroutine.
type restartDrill struct {
	cmd     *restartCmd
	program *program
	nodes   []*restartNode

	restarts []result.Restarted
}

type restartNode struct {
	url     string
	command []string
	ready   func(context.Context) error
	served  []string // URLs that nobody may answer at before it is started
	log     string
	running *process.Process // nil: it does not run
}

// parse reads the flags that name gateways, and tells the load where they are. An error is a
// usageError.
func (d *restartDrill) parse(load *traffic.Steady) error {
	for i, text := range d.cmd.Gateway {
		url, line, ok := strings.Cut(text, "=")
		if !ok {
			return usageError{fmt.Errorf("--gateway: %q is not like ws://127.0.0.1:8080/ws=COMMAND", text)}
		}
		url = withPath(url)
		command, err := words("--gateway", line)
		if err != nil {
			return err
		}
		n := &restartNode{url: url, command: command, ready: process.Handshakes(url), served: []string{url}}
		if i < len(d.cmd.Ready) {
			n.ready = process.AnswersOK(d.cmd.Ready[i])
			n.served = append(n.served, d.cmd.Ready[i])
		}
		d.nodes = append(d.nodes, n)
		load.URLs = append(load.URLs, url)
	}
	return nil
}

// run starts all gateways, makes the load, restarts them, and ends them.
func (d *restartDrill) run(ctx context.Context, steady traffic.Steady, logs string) (run *result.Run, err error) {
	defer func() { err = errors.Join(err, d.end(ctx)) }()
	for i, n := range d.nodes {
		n.log = filepath.Join(logs, fmt.Sprintf("gateway-%d.log", i+1))
		// Only the first time: what one that was killed has left of itself may still
		// be going when its successor starts.
		if err := process.Vacant(ctx, n.served...); err != nil {
			return nil, fmt.Errorf("--gateway: %w", err)
		}
		if err := d.start(ctx, n); err != nil {
			return nil, err
		}
	}
	if steady.Verify, err = traffic.NewRecorder(ctx, steady.URLs, steady.Access, steady.Signers); err != nil {
		return nil, err
	}
	steady.Progress = d.program.progress
	load, err := steady.Start(ctx)
	if err != nil {
		return nil, err
	}
	observer := d.cmd.pages(steady.URLs, steady.Access).Start(ctx)
	observer.Begin()
	err = d.roll(ctx, load, time.Now())
	patience := ctx
	if err != nil { // a gateway that stays away is not waited for
		limited, cancel := context.WithTimeout(ctx, errorGrace)
		defer cancel()
		patience = limited
	}
	run = load.Stop(patience)
	run.Nodes = observer.End()
	run.Restart.Gateways, run.Interrupted = d.restarts, ctx.Err() != nil
	if err == nil {
		run.Verify, err = steady.Verify.Judge(ctx, run.Interrupted)
	}
	return run, err
}

// roll restarts one gateway after the other. An error is one that the drill
// cannot go on after; it is none when ctx ends.
func (d *restartDrill) roll(ctx context.Context, load *traffic.SteadyLoad, began time.Time) error {
	if process.Sleep(ctx, d.cmd.Before) != nil {
		return nil
	}
	for range d.cmd.Rounds {
		for _, n := range d.nodes {
			load.Enter(traffic.During)
			err := d.restart(ctx, n, began)
			load.Enter(traffic.After)
			if ctx.Err() != nil {
				return nil
			}
			if err != nil {
				return err
			}
			if process.Sleep(ctx, d.cmd.After) != nil {
				return nil
			}
		}
	}
	return nil
}

// restart ends a gateway and starts it again.
func (d *restartDrill) restart(ctx context.Context, n *restartNode, began time.Time) error {
	asked := time.Now()
	r := result.Restarted{Gateway: n.url, At: asked.Sub(began).Seconds()}
	if err := n.running.Stop(d.cmd.StopTimeout); err != nil {
		r.Wrong = err.Error()
	}
	n.running = nil
	ended := time.Now()
	err := d.start(ctx, n)
	r.EndSeconds, r.StartSeconds = ended.Sub(asked).Seconds(), time.Since(ended).Seconds()
	if err == nil {
		d.restarts = append(d.restarts, r)
	}
	return err
}

// start starts a gateway and waits until it is ready.
func (d *restartDrill) start(ctx context.Context, n *restartNode) error {
	running, err := d.cmd.start(ctx, d.program, n.url, n.command, n.log, n.ready)
	n.running = running
	return err
}

// end ends all gateways that run. That one had to be killed is an error, but not
// when somebody does not want to wait.
func (d *restartDrill) end(ctx context.Context) error {
	var errs []error
	for _, n := range d.nodes {
		if n.running == nil {
			continue
		}
		if err := n.running.Stop(d.cmd.StopTimeout); err != nil && ctx.Err() == nil {
			errs = append(errs, fmt.Errorf("%s: %w", n.url, err))
		}
	}
	return errors.Join(errs...)
}

func (d *restartDrill) verdicts(run *result.Run) []result.Verdict {
	want := d.cmd.Rounds * len(d.nodes)
	well := 0
	for _, r := range d.restarts {
		if r.Wrong == "" {
			well++
		}
	}
	return []result.Verdict{
		{
			Name: "requests whose outcome stayed unknown", Want: "none", Got: fmt.Sprint(run.Failed), Passed: run.Failed == 0,
		},
		{
			Name: "gateways that ended when asked to and came back", Want: fmt.Sprintf("%d of %d", want, want),
			Got: fmt.Sprintf("%d of %d", well, want), Passed: well == want,
		},
	}
}
