package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"noncegate/scripts/loadtest/process"
	"noncegate/scripts/loadtest/result"
	"noncegate/scripts/loadtest/traffic"
)

// restartCmd restarts gateways one after the other under a load of clients that reconnect and retry by request id.
type restartCmd struct {
	Gateway      []servedBy      `group:"target" required:"" sep:"none" placeholder:"URL=COMMAND" help:"${gateway} ${command}"`
	Ready        []string        `group:"target" sep:"none" placeholder:"URL" help:"${ready}"`
	Access       traffic.Access  `embed:"" group:"target"`
	Connections  int             `group:"load" default:"100" help:"Clients."`
	Rate         float64         `group:"load" default:"200" help:"${submissions}"`
	Signers      traffic.Signers `embed:"" group:"load"`
	Before       time.Duration   `group:"time" default:"10s" help:"Time under load before the first restart, to compare with."`
	After        time.Duration   `group:"time" default:"10s" help:"Time under load after each restart."`
	Rounds       int             `group:"time" default:"1" help:"How often each gateway is restarted."`
	ProcessFlags `group:"time"`
	ReportFlags  `group:"report"`
	FailedFlags  `group:"criteria"`

	nodes    []*process.Server
	restarts []result.Restarted
}

// servedBy is the address of a gateway and the command that serves it.
type servedBy struct {
	url     string
	command process.Command
}

// UnmarshalText reads URL=COMMAND.
func (s *servedBy) UnmarshalText(text []byte) error {
	url, line, ok := strings.Cut(string(text), "=")
	if !ok {
		return fmt.Errorf("%q is not like ws://127.0.0.1:8080/ws=COMMAND", text)
	}
	s.url = url
	return s.command.UnmarshalText([]byte(line))
}

const (
	// maxWaiting is how many submissions wait for gateways that are away, each a goroutine; more are never sent.
	maxWaiting = 50_000
	// morePatience is how much longer a client tries than a restart may take.
	morePatience = 30 * time.Second
	// errorGrace is how long requests may still be answered once a gateway did not come back.
	errorGrace = 2 * time.Second
)

// Validate is called by the parser.
func (c *restartCmd) Validate() error {
	return first(
		addresses("gateway", "ws://127.0.0.1:8080/ws", c.urls()...),
		rule{len(c.Ready) != 0 && len(c.Ready) != len(c.Gateway), "--ready must be given once for each --gateway, or not at all"},
		connectionsRule(c.Connections),
		rule{!(c.Rate > 0 && c.Rate <= 1e6), "--rate must be above 0 and at most 1e+06 submissions a second"},
		signersRule(c.Signers),
		rule{c.Before <= 0 || c.After <= 0, "--before and --after must be above 0"},
		roundsRule(c.Rounds),
	)
}

func (c *restartCmd) urls() (urls []string) {
	for _, g := range c.Gateway {
		urls = append(urls, g.url)
	}
	return urls
}

func (c *restartCmd) Run(ctx context.Context, p *program) error {
	for i, g := range c.Gateway {
		n := &process.Server{Name: g.url, Command: g.command, URLs: []string{g.url}, Ready: []string{g.url}}
		if len(c.Ready) > 0 {
			n.URLs, n.Ready = append(n.URLs, c.Ready[i]), c.Ready[i:i+1]
		}
		c.nodes = append(c.nodes, n)
	}
	criteria := (&LostFlags{c.FailedFlags, -1}).criteria()
	return p.single(ctx, &c.ReportFlags, criteria, func() (*result.Run, []result.Verdict, error) {
		run, err := c.drill(ctx, p, traffic.Steady{
			URLs: c.urls(), Access: c.Access, Clients: c.Connections, Rate: c.Rate, Patience: c.StopTimeout + process.StartTimeout + morePatience,
			MaxWaiting: maxWaiting, Signers: c.Signers, Progress: p.progress,
		})
		if run == nil {
			return nil, nil, err
		}
		return run, c.verdicts(run), err
	})
}

// drill starts all gateways, makes the load, restarts them, and ends them.
func (c *restartCmd) drill(ctx context.Context, p *program, steady traffic.Steady) (run *result.Run, err error) {
	defer func() {
		for _, n := range c.nodes {
			err = errors.Join(err, c.stop(ctx, n))
		}
	}()
	for _, n := range c.nodes {
		// Only the first time: what one that was killed has left of itself may still be going when its successor starts.
		if err := n.Vacant(ctx); err != nil {
			return nil, fmt.Errorf("--gateway: %w", err)
		}
		if err := p.start(ctx, n); err != nil {
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
	err = c.roll(ctx, p, load)
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
func (c *restartCmd) roll(ctx context.Context, p *program, load *traffic.SteadyLoad) error {
	began := time.Now()
	err := process.Sleep(ctx, c.Before)
	for i := 0; i < c.Rounds*len(c.nodes) && err == nil; i++ {
		load.Enter(traffic.During)
		err = c.restart(ctx, p, c.nodes[i%len(c.nodes)], began)
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

func (c *restartCmd) restart(ctx context.Context, p *program, n *process.Server, began time.Time) error {
	asked := time.Now()
	r := result.Restarted{Gateway: n.Name, At: asked.Sub(began).Seconds()}
	if err := c.stop(ctx, n); err != nil {
		r.Wrong = err.Error()
	}
	ended := time.Now()
	err := p.start(ctx, n)
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
