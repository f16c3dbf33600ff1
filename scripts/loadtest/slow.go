package main

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"time"

	"noncegate/scripts/loadtest/result"
	"noncegate/scripts/loadtest/traffic"
)

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

// The two sides of a slow drill. In both the slow clients are connected, so that the gateway has the same connections;
// without, they keep still.
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

// measure makes the healthy load beside slow clients, which misbehave from the begin of the measured time or keep
// still.
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
