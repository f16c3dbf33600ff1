package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"noncegate/scripts/loadtest/process"
	"noncegate/scripts/loadtest/result"
	"noncegate/scripts/loadtest/traffic"
)

// restartCmd restarts gateways one after the other under a load of clients that reconnect and retry by request id.
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

	nodes    []*child
	restarts []result.Restarted
}

const (
	// maxWaiting is how many submissions wait for gateways that are away. Each costs a goroutine; what is due beyond them is counted as
	// never sent.
	maxWaiting = 50_000
	// morePatience is how much longer a client tries than a restart may take.
	morePatience = 30 * time.Second
	// errorGrace is how long requests may still be answered once a gateway did not come back.
	errorGrace = 2 * time.Second
)

func (c *restartCmd) Run(ctx context.Context, p *program) error {
	urls, wrongGateway := c.gateways()
	criteria, wrong := (&lostFlags{c.failedFlags, -1}).criteria()
	in, err := c.access()
	if err := cmp.Or(err, wrongGateway, wrong, c.signerFlags.validate(), c.reportFlags.validate(), c.processFlags.validate(), usage(
		addresses("gateway", "ws://127.0.0.1:8080/ws", urls...),
		rule{len(c.Ready) != 0 && len(c.Ready) != len(c.Gateway), "--ready must be given once for each --gateway, or not at all"},
		connectionsRule(c.Connections),
		rule{!(c.Rate > 0 && c.Rate <= 1e6), "--rate must be above 0 and at most 1e+06 submissions a second"},
		rule{c.Before <= 0 || c.After <= 0, "--before and --after must be above 0"},
		roundsRule(c.Rounds),
	)); err != nil {
		return err
	}
	steady := traffic.Steady{
		URLs: urls, Access: in, Clients: c.Connections, Rate: c.Rate, Patience: c.StopTimeout + startTimeout + morePatience,
		MaxWaiting: maxWaiting, Signers: c.signers(), Progress: p.progress,
	}
	return p.single(ctx, &c.reportFlags, criteria, func() (*result.Run, []result.Verdict, error) {
		run, err := c.drill(ctx, p, steady)
		if run == nil {
			return nil, nil, err
		}
		return run, c.verdicts(run), err
	})
}

// gateways reads the flags that name gateways. An error is a usageError.
func (c *restartCmd) gateways() (urls []string, err error) {
	for i, text := range c.Gateway {
		url, line, ok := strings.Cut(text, "=")
		if !ok {
			return nil, usageError{fmt.Errorf("--gateway: %q is not like ws://127.0.0.1:8080/ws=COMMAND", text)}
		}
		n, err := newChild("--gateway", url, line, url)
		if err != nil {
			return nil, err
		}
		n.ready = append(n.ready, process.Handshakes(url))
		if i < len(c.Ready) {
			n.ready[0] = process.AnswersOK(c.Ready[i])
			n.served = append(n.served, c.Ready[i])
		}
		c.nodes, urls = append(c.nodes, n), append(urls, url)
	}
	return urls, nil
}

// drill starts all gateways, makes the load, restarts them, and ends them.
func (c *restartCmd) drill(ctx context.Context, p *program, steady traffic.Steady) (run *result.Run, err error) {
	dir, err := os.MkdirTemp("", "loadtest")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	defer func() {
		for _, n := range c.nodes {
			err = errors.Join(err, n.end(ctx, c.StopTimeout))
		}
	}()
	for _, n := range c.nodes {
		// Only the first time: what one that was killed has left of itself may still be going when its successor starts.
		if err := process.Vacant(ctx, n.served...); err != nil {
			return nil, fmt.Errorf("--gateway: %w", err)
		}
		if err := n.start(ctx, p, dir); err != nil {
			return nil, err
		}
	}
	if steady.Verify, err = traffic.NewRecorder(ctx, steady.URLs, steady.Access, steady.Signers); err != nil {
		return nil, err
	}
	load, err := steady.Start(ctx)
	if err != nil {
		return nil, err
	}
	observer := c.pages(steady.URLs, steady.Access).Start(ctx)
	observer.Begin()
	err = c.roll(ctx, p, load, dir)
	patience := ctx
	if err != nil { // a gateway that stays away is not waited for
		limited, cancel := context.WithTimeout(ctx, errorGrace)
		defer cancel()
		patience = limited
	}
	run = load.Stop(patience)
	run.Nodes = observer.End()
	run.Restart.Gateways, run.Interrupted = c.restarts, ctx.Err() != nil
	if err == nil {
		run.Verify, err = steady.Verify.Judge(ctx, run.Interrupted)
	}
	return run, err
}

// roll restarts one gateway after the other. An error is one that the drill cannot go on after; it is none when ctx ends.
func (c *restartCmd) roll(ctx context.Context, p *program, load *traffic.SteadyLoad, dir string) error {
	began := time.Now()
	err := process.Sleep(ctx, c.Before)
	for i := 0; i < c.Rounds*len(c.nodes) && err == nil; i++ {
		load.Enter(traffic.During)
		err = c.restart(ctx, p, c.nodes[i%len(c.nodes)], dir, began)
		load.Enter(traffic.After)
		if err == nil {
			err = process.Sleep(ctx, c.After)
		}
	}
	if ctx.Err() != nil {
		return nil
	}
	return err
}

func (c *restartCmd) restart(ctx context.Context, p *program, n *child, dir string, began time.Time) error {
	asked := time.Now()
	r := result.Restarted{Gateway: n.name, At: asked.Sub(began).Seconds()}
	if err := n.end(ctx, c.StopTimeout); err != nil {
		r.Wrong = err.Error()
	}
	ended := time.Now()
	err := n.start(ctx, p, dir)
	r.EndSeconds, r.StartSeconds = ended.Sub(asked).Seconds(), time.Since(ended).Seconds()
	if err == nil {
		c.restarts = append(c.restarts, r)
	}
	return err
}

func (c *restartCmd) verdicts(run *result.Run) []result.Verdict {
	want, well := c.Rounds*len(c.nodes), 0
	for _, r := range c.restarts {
		if r.Wrong == "" {
			well++
		}
	}
	return []result.Verdict{
		{Name: "requests whose outcome stayed unknown", Want: "none", Got: fmt.Sprint(run.Failed), Passed: run.Failed == 0},
		{
			Name: "gateways that ended when asked to and came back", Want: fmt.Sprintf("%d of %d", want, want),
			Got: fmt.Sprintf("%d of %d", well, want), Passed: well == want,
		},
	}
}
