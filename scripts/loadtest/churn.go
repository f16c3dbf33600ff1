package main

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"noncegate/scripts/loadtest/observe"
	"noncegate/scripts/loadtest/result"
	"noncegate/scripts/loadtest/traffic"
	"noncegate/scripts/loadtest/wait"
)

// churnCmd lets clients come and go, and looks at what they leave behind.
type churnCmd struct {
	targetFlags
	Rate     float64 `group:"load" default:"100" help:"Connections a second that are opened, latency counted from when each was due."`
	Requests int     `group:"load" default:"5" help:"Allocations each makes, one after the other, before it leaves."`
	Abrupt   float64 `group:"load" default:"0.3" help:"Share, 0 to 1, that leaves by a reset instead of a close."`
	MaxOpen  int     `group:"load" default:"1000" help:"Most connections at a time; a client that is due while there are as many is counted as never sent."`
	signerFlags
	Duration time.Duration `group:"time" default:"30s" help:"Time over which clients come."`
	Settle   time.Duration `group:"time" default:"15s" help:"How long the gateway may take, once the last has left, to have no more connections and goroutines than before; and how long at most is waited before the first for it to have become quiet."`
	reportFlags
	drillFlags
}

// The margins within which a gateway counts as what it was before. Goroutines of
// its pools come and go; memory is compared with that of halfway, when every pool
// has been filled, since a process does not give back what it may need again.
const (
	goroutineMargin      = 20
	goroutineMarginShare = 0.1
	memoryMargin         = 16 << 20
	memoryMarginShare    = 0.1
)

// gauges are what a gateway says of itself at a moment.
type gauges struct{ connections, goroutines, memory float64 }

func (c *churnCmd) Run(ctx context.Context, p *program) error {
	churn, err := c.churn()
	if err := cmp.Or(err, c.all().validate(), c.reportFlags.validate()); err != nil {
		return err
	}
	pages := c.pages(c.URL, churn.Access)
	var before []reading
	measure := func() (*result.Run, error) {
		before = c.quiet(ctx, pages)
		run, err := p.observed(ctx, pages, func(h hooks) (*result.Run, error) {
			churn.BeginMeasure, churn.EndMeasure, churn.Progress = h.begin, h.end, h.second
			return churn.Run(ctx)
		})
		return run, advised(err)
	}
	judge := func(run *result.Run) (verdicts []result.Verdict) {
		if len(pages.URLs) == 0 {
			return []result.Verdict{leftUnknown("no /metrics was asked (--metrics)")}
		}
		for i, url := range pages.URLs {
			verdicts = append(verdicts, c.judge(ctx, pages, url, before[i], run.Nodes)...)
		}
		return verdicts
	}
	return p.single(ctx, single{files: &c.reportFlags, criteria: c.all().criteria(), measure: measure, verdicts: judge})
}

// churn is the load the flags ask for. An error is a *usageError.
func (c *churnCmd) churn() (traffic.Churn, error) {
	in, err := c.access()
	churn := traffic.Churn{
		URLs: c.URL, Access: in, Rate: c.Rate, Requests: c.Requests, Abrupt: c.Abrupt, MaxOpen: c.MaxOpen,
		Signers: traffic.Signers{Base: c.SignerBase, Count: c.Signers}, Duration: c.Duration,
	}
	return churn, cmp.Or(err, usage(rule{c.Settle < 0, "--settle must not be negative"}), asUsage(churn.Validate()))
}

// reading is what was read of a gateway, or why nothing was.
type reading struct {
	gauges
	err error
}

// quiet reads what each gateway is before the drill, once what an earlier load
// has left behind is gone: else that would be what it may have afterwards.
func (c *churnCmd) quiet(ctx context.Context, pages observe.Pages) []reading {
	all := make([]reading, len(pages.URLs))
	var reading sync.WaitGroup
	for i, url := range pages.URLs {
		reading.Go(func() { all[i].gauges, all[i].err = quietest(ctx, pages, url, c.Settle) })
	}
	reading.Wait()
	return all
}

// quietFor is how long a gateway must not have become any smaller to be quiet.
const quietFor = time.Second

// quietest is the least that a gateway has until it becomes no smaller, or the
// limit has passed.
func quietest(ctx context.Context, pages observe.Pages, url string, limit time.Duration) (gauges, error) {
	least, err := readGauges(ctx, pages, url)
	if err != nil {
		return least, err
	}
	began := time.Now()
	for since := began; time.Since(since) < quietFor && time.Since(began) < limit; {
		if wait.For(ctx, gaugePoll) != nil {
			return least, nil
		}
		now, err := readGauges(ctx, pages, url)
		if err != nil {
			return now, err
		}
		if now.connections < least.connections || now.goroutines < least.goroutines {
			since = time.Now()
		}
		least = gauges{min(least.connections, now.connections), min(least.goroutines, now.goroutines), now.memory}
	}
	return least, nil
}

// judge waits until a gateway is what it was before, or is not in time.
func (c *churnCmd) judge(ctx context.Context, pages observe.Pages, url string, before reading, nodes []result.Node) []result.Verdict {
	after, err := before.gauges, before.err
	if err == nil {
		after, err = c.settle(ctx, pages, url, before.gauges)
	}
	if err != nil {
		return []result.Verdict{leftUnknown(err.Error())}
	}
	verdicts := []result.Verdict{
		cameBack("connections", before.connections, after.connections, 0),
		cameBack("goroutines", before.goroutines, after.goroutines, max(goroutineMargin, goroutineMarginShare*before.goroutines)),
	}
	for _, n := range nodes {
		if half := halfway(n.Memory); n.Metrics == url && half > 0 {
			verdicts = append(verdicts, judgeMemory(half, after.memory))
		}
	}
	if len(nodes) > 1 {
		for i := range verdicts {
			verdicts[i].Name += " at " + url
		}
	}
	return verdicts
}

// leftUnknown fails a drill that could not see what it is for.
func leftUnknown(why string) result.Verdict {
	return result.Verdict{Name: "what the clients left behind", Want: "nothing", Got: "not known: " + why}
}

// settle reads a gateway until it has no more than before, or time is over.
func (c *churnCmd) settle(ctx context.Context, pages observe.Pages, url string, before gauges) (gauges, error) {
	ctx, cancel := context.WithTimeout(ctx, c.Settle)
	defer cancel()
	margin := max(goroutineMargin, goroutineMarginShare*before.goroutines)
	for {
		now, err := readGauges(context.WithoutCancel(ctx), pages, url)
		settled := now.connections <= before.connections && now.goroutines <= before.goroutines+margin
		if err != nil || settled || wait.For(ctx, gaugePoll) != nil {
			return now, err
		}
	}
}

func cameBack(what string, before, after, margin float64) result.Verdict {
	return result.Verdict{
		Name: what + " of the gateway afterwards", Want: fmt.Sprintf("at most %.0f, as before", before+margin),
		Got: fmt.Sprintf("%.0f", after), Passed: after <= before+margin,
	}
}

func judgeMemory(half, after float64) result.Verdict {
	limit := half + max(memoryMargin, memoryMarginShare*half)
	return result.Verdict{
		Name: "memory of the gateway afterwards", Want: fmt.Sprintf("at most %.1f MiB, for it was %.1f halfway", limit/(1<<20), half/(1<<20)),
		Got: fmt.Sprintf("%.1f MiB", after/(1<<20)), Passed: after <= limit,
	}
}

// halfway is the value in the middle of the measured time, 0 when there is none.
func halfway(points []result.Point) float64 {
	if len(points) == 0 {
		return 0
	}
	return points[len(points)/2].Value
}

// gaugePoll is how often a gateway is read while something of it is waited for.
const gaugePoll = 100 * time.Millisecond

func readGauges(ctx context.Context, pages observe.Pages, url string) (g gauges, err error) {
	is, err := pages.Read(ctx, url)
	if err != nil {
		return g, err
	}
	for name, to := range map[string]*float64{
		"noncegate_connections": &g.connections, "go_goroutines": &g.goroutines, "process_resident_memory_bytes": &g.memory,
	} {
		v, ok := is[name]
		if !ok {
			return g, fmt.Errorf("%s does not say all of its connections, goroutines and memory: there is no %s", url, name)
		}
		*to = v
	}
	return g, nil
}
