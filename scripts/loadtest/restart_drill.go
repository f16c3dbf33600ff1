package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"noncegate/scripts/loadtest/process"
	"noncegate/scripts/loadtest/result"
	"noncegate/scripts/loadtest/traffic"
	"noncegate/scripts/loadtest/wait"
)

// errorGrace is how long requests may still be answered once a gateway did not
// come back.
const errorGrace = 2 * time.Second

// restartDrill is a rolling restart that runs. It belongs to one goroutine.
type restartDrill struct {
	cmd   *restartCmd
	say   func(format string, args ...any)
	nodes []*restartNode

	restarts []restarted
	noticed  traffic.Noticed
	repeated map[string]int64
}

// restartNode is one of the gateways.
type restartNode struct {
	url     string
	command []string
	ready   func(context.Context) error
	served  []string // URLs that nobody may answer at before it is started
	log     string
	running *process.Process // nil: it does not run
}

// restarted is how one restart went.
type restarted struct {
	Gateway string  `json:"gateway"`
	At      float64 `json:"at"` // seconds since the load began
	// EndSeconds is from when it was asked to end to when it had, and
	// StartSeconds from then to when it was ready again.
	EndSeconds   float64 `json:"endSeconds"`
	StartSeconds float64 `json:"startSeconds"`
	Wrong        string  `json:"wrong,omitempty"` // it had to be killed, or ended with a status other than 0
}

// parse reads the gateways.
func (d *restartDrill) parse() error {
	for i, text := range d.cmd.Gateway {
		url, command, err := splitGateway(text)
		if err != nil {
			return &usageError{fmt.Errorf("--gateway: %w", err)}
		}
		n := &restartNode{url: url, command: command, ready: process.Handshakes(url), served: []string{url}}
		if len(d.cmd.Ready) > 0 {
			n.ready = process.AnswersOK(d.cmd.Ready[i])
			n.served = append(n.served, d.cmd.Ready[i])
		}
		d.nodes = append(d.nodes, n)
	}
	return nil
}

func (d *restartDrill) urls() []string {
	var urls []string
	for _, n := range d.nodes {
		urls = append(urls, n.url)
	}
	return urls
}

// run starts all gateways, makes the load, restarts them, and ends them.
func (d *restartDrill) run(ctx context.Context, p *program, steady traffic.Steady, logs string) (run *result.Run, err error) {
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
	run, err = p.observed(ctx, d.cmd.metrics(steady.URLs), func(h hooks) (*result.Run, error) {
		steady.Progress = h.second
		load, err := steady.Start(ctx)
		if err != nil {
			return nil, err
		}
		h.begin()
		began := time.Now()
		err = d.roll(ctx, load, began)
		patience := ctx
		if err != nil { // a gateway that stays away is not waited for
			limited, cancel := context.WithTimeout(ctx, errorGrace)
			defer cancel()
			patience = limited
		}
		run := load.Stop(patience)
		h.end()
		d.noticed, d.repeated = load.Noticed(), load.Repeated()
		run.Command, run.Interrupted = "restart", ctx.Err() != nil
		return run, err
	})
	if run == nil || err != nil || run.Interrupted {
		return run, err
	}
	run.Verify, err = p.check(ctx, steady.Verify, run, steady.URLs, steady.Access)
	return run, err
}

// roll restarts one gateway after the other. An error is one that the drill
// cannot go on after; it is none when ctx ends.
func (d *restartDrill) roll(ctx context.Context, load *traffic.SteadyLoad, began time.Time) error {
	if wait.For(ctx, d.cmd.Before) != nil {
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
			if wait.For(ctx, d.cmd.After) != nil {
				return nil
			}
		}
	}
	return nil
}

// restart ends a gateway and starts it again.
func (d *restartDrill) restart(ctx context.Context, n *restartNode, began time.Time) error {
	asked := time.Now()
	r := restarted{Gateway: n.url, At: asked.Sub(began).Seconds()}
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
	running, err := process.Start(n.command, n.log)
	if err != nil {
		return fmt.Errorf("%s: %w", n.url, err)
	}
	n.running = running
	d.say("%s runs as process %d", n.url, running.Pid())
	ctx, cancel := context.WithTimeout(ctx, d.cmd.StartTimeout)
	defer cancel()
	if err := running.WaitReady(ctx, n.ready); err != nil {
		return fmt.Errorf("%s: %w", n.url, err)
	}
	return nil
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

// verdicts are those that only this drill has.
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
