//go:build unix

package torture

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"noncegate/test/lab/history"
	"noncegate/test/lab/patroni"
	"noncegate/test/lab/pgtest"
	"noncegate/test/lab/stored"
)

// Options are what many runs share.
type Options struct {
	Axis
	Postgres   *pgtest.Server
	Patroni    *patroni.Cluster // of the axis that has it
	Gateway    string           // the program, made by Build
	Forward    string           // given to --forward; "": on
	EngineArgs []string         // more flags of the nodes that have a Redis, over the run's own
}

// Plan is one run.
type Plan struct {
	Options
	Seed    uint64
	Faults  []Fault
	Load    time.Duration // how long clients work at least; 0: 6s, with a chain 10s
	Enough  int64         // acknowledged calls that they work on for, up to five times as long; 0: as many as a run must have
	Clients int           // 0: 9
	HotOnly bool          // clients use the hot signers only
	Dir     string        // where a run that failed leaves what it has, in a folder named by its seed; "": nowhere
	KeepAll bool          // keeps it of a run that did not fail as well
}

// minAcknowledged is the least number of calls that must have happened for a run to count.
const minAcknowledged = 1000

// Result is what came of a run.
type Result struct {
	Report *history.Report
	Took   time.Duration
	Said   []string // by the faults: what they did, and when
	Kept   string   // folder of what was kept; "": nothing
}

func (p *Plan) prepare() error {
	load := 6 * time.Second
	switch {
	case p.Chain:
		load = 10 * time.Second
	case p.Failover && p.Patroni == nil:
		return errors.New("the axis patroni has no cluster of Patroni")
	case p.Failover:
		load = 20 * time.Second
	}
	p.Load, p.Enough, p.Clients = cmp.Or(p.Load, load), cmp.Or(p.Enough, minAcknowledged*11/10), cmp.Or(p.Clients, 9)
	for _, f := range p.Faults {
		if !p.takes(f) {
			return fmt.Errorf("the axis %s cannot have the fault %s", p.Name, f.Name)
		}
	}
	return nil
}

func (p *Plan) has(such func(Fault) bool) bool { return slices.ContainsFunc(p.Faults, such) }

// setsBack reports whether the store may lose what it had confirmed.
func (p *Plan) setsBack() bool { return p.has(func(f Fault) bool { return f.SetsBack }) }

// mayBeLate is how long a hold may be overdue once everything is healed.
func (p *Plan) mayBeLate() time.Duration {
	late := maxOverdue
	for _, f := range p.Faults {
		late += f.Overdue
	}
	return late
}

// Run does one run. Its error says that the run could not be done; what the judge finds is in the result.
func Run(ctx context.Context, p Plan) (*Result, error) {
	started := time.Now()
	if err := p.prepare(); err != nil {
		return nil, err
	}
	c, err := startCluster(ctx, p)
	if err != nil {
		return nil, err
	}
	defer c.close()
	c.h.Name = names(p.Faults)
	if err := c.live(ctx); err != nil {
		return nil, err
	}
	c.judge()
	r := history.Check(c.h, history.Limits{MinAcknowledged: minAcknowledged, MaxOverdue: p.mayBeLate()})
	r.Violations = append(r.Violations, c.found...)
	res := &Result{Report: r, Took: time.Since(started), Said: c.h.Faults}
	if p.Dir != "" && (p.KeepAll || !r.OK()) {
		res.Kept = filepath.Join(p.Dir, fmt.Sprintf("seed-%d-%s", p.Seed, c.h.Name))
		err = c.keep(res)
	}
	return res, err
}

// live is all of a run but its judgement: work beside faults, the end of what is held, and the reading of what is stored.
func (c *cluster) live(ctx context.Context) error {
	if c.has(func(f Fault) bool { return f.Down }) {
		c.engineRedis.held.Add(1) // until the fault is over
	} else if c.engineRedis != nil {
		if err := c.up(ctx); err != nil {
			return fmt.Errorf("switch up: %w", err)
		}
	}
	if err := c.work(ctx); err != nil {
		return err
	}
	if err := c.finish(ctx); err != nil {
		return err
	}
	for _, n := range c.nodes {
		n.end(syscall.SIGKILL)
	}
	return nil
}

// wrong notes a violation that the history does not show.
func (c *cluster) wrong(rule history.Rule, signer, format string, args ...any) {
	c.found = append(c.found, history.Violation{Rule: rule, Signer: signer, Text: fmt.Sprintf(format, args...)})
}

// excused are the reasons that a gateway on a file may refuse the clients for.
var excused = []string{"conflict", "not_found", "unavailable", "draining"}

// judge notes what is wrong apart from the history.
func (c *cluster) judge() {
	if c.chain != nil {
		c.found = append(c.found, c.chain.judge(c.h)...)
	}
	if c.engineRedis != nil {
		c.judgeLosses()
	}
	if c.Failover {
		c.judgeOutages()
		names := c.noticed()
		for i := range c.h.Setbacks {
			c.h.Setbacks[i].Noticed = names
		}
	}
	for _, n := range c.nodes {
		for _, problem := range n.found() {
			c.wrong(history.Alarm, "", "%s", problem)
		}
	}
	for i := range c.h.Calls {
		call := &c.h.Calls[i]
		word, _, _ := strings.Cut(call.Reason, " ")
		if c.file != nil && call.Outcome == history.Refused && !slices.Contains(excused, word) {
			c.wrong(history.Alarm, call.Signer, "%v: %s", call, call.Detail)
		}
	}
}

// work lets clients work and faults happen, and then asks for every signer once more.
func (c *cluster) work(ctx context.Context) error {
	c.began = time.Now()
	c.h.BeganAt = c.began.UnixMilli()
	working, stop := context.WithCancel(ctx)
	looking, look := context.WithCancel(ctx)
	var all, lookers sync.WaitGroup
	var clients []*worker
	for i := range c.Clients {
		w := c.newWorker(i, uint64(1000+i))
		clients = append(clients, w)
		all.Go(func() { w.repeat(working, c.think(), w.one) })
	}
	payers := c.payers()
	for _, p := range payers {
		all.Go(func() { p.repeat(working, maxChainThink, p.pay) })
	}
	if c.file == nil {
		lookers.Go(func() { c.sample(looking) })
	}
	if c.engineRedis != nil {
		lookers.Go(func() { c.keepUp(looking) })
	}
	if c.setsBack() {
		w := c.newWorker(c.Clients+1, 5000)
		clients = append(clients, w)
		lookers.Go(func() { c.attend(looking, w) })
	}
	err := c.breakThings(ctx)
	if err == nil {
		c.goOn(ctx)
	}
	if err == nil && c.engineRedis != nil {
		err = c.outlastDoubt(ctx)
	}
	stop()
	all.Wait()
	if err == nil {
		last := c.newWorker(c.Clients, 0)
		clients = append(clients, last)
		c.probe(ctx, last)
	}
	if err == nil && c.chain != nil {
		c.h.Chain = c.settleChain(ctx, payers)
	}
	look()
	lookers.Wait()
	for _, w := range clients {
		c.h.Calls = append(c.h.Calls, w.calls...)
	}
	return errors.Join(err, ctx.Err())
}

// goOn waits until clients have worked for long enough, and on a machine that is busy until enough came of it.
func (c *cluster) goOn(ctx context.Context) {
	lasts(ctx, c.Load-time.Since(c.began))
	enough := func() bool {
		return c.load.acknowledged.Load() >= c.Enough && (c.chain == nil || c.chain.mined.Load() >= 2*minMined)
	}
	for ctx.Err() == nil && time.Since(c.began) < 5*c.Load && !enough() {
		lasts(ctx, 5*poll)
	}
}

// probeTimeout is how long after the faults were healed a signer may not be served.
const probeTimeout = leaseTTL + 4*time.Second

// probe allocates for every signer, at any node. One for which that is refused for too long is stuck.
func (c *cluster) probe(ctx context.Context, w *worker) {
	defer w.close()
	until := time.Now().Add(probeTimeout)
	for i := range signers {
		name := signerName(i)
		for served := false; !served; lasts(ctx, poll) {
			for _, n := range c.nodes {
				done, _, err := w.do(ctx, n, false, history.Call{Kind: history.Allocate, Signer: name, Count: 1, HoldMs: holdTTL.Milliseconds()})
				served = served || err == nil && done[0].Outcome == history.Happened
			}
			if !served && (time.Now().After(until) || ctx.Err() != nil) {
				c.wrong(history.Stuck, name, "nobody serves it once all is healed")
				break
			}
		}
	}
}

// After a start without faults come the faults, and after the last one a while without.
const (
	calmBefore = 700 * time.Millisecond
	calmAfter  = 1200 * time.Millisecond
)

// breakThings runs the plan's faults beside one another, each at a time of its own.
func (c *cluster) breakThings(ctx context.Context) error {
	var all errgroup.Group
	for i, f := range c.Faults {
		b := &breaker{cluster: c, rnd: rand.New(rand.NewPCG(c.Seed, uint64(i)))}
		if f.do != nil {
			all.Go(func() error {
				lasts(ctx, calmBefore+b.between(0, 1200*time.Millisecond))
				return f.do(ctx, b)
			})
		}
	}
	err := all.Wait()
	lasts(ctx, calmAfter)
	return err
}

// fileSettles is how long after the load a gateway on a file has had time to end all holds.
const fileSettles = maxHold + grace + 2*time.Second

// finish waits for the last hold to end and reads what is stored.
func (c *cluster) finish(ctx context.Context) (err error) {
	if c.file != nil {
		lasts(ctx, fileSettles)
		c.nodes[0].end(syscall.SIGTERM)
		if c.h.Final, err = stored.SQLite(ctx, c.file.database()); err != nil && ctx.Err() == nil {
			c.wrong(history.HoldLost, "", "the file cannot be read: %v", err)
		}
		return ctx.Err()
	}
	if err := c.quiet(ctx); err != nil {
		return err
	}
	if c.engineRedis != nil {
		if err := c.settleEngine(ctx); err != nil {
			return err
		}
	}
	if c.chain != nil {
		c.h.Chain.Settled = time.Since(c.began)
	}
	c.h.Final, err = stored.Postgres(ctx, c.storeURL())
	return err
}

// keep saves what helps to understand a run: the logs and, of a file, what is stored; a report; the history.
func (c *cluster) keep(res *Result) error {
	var said strings.Builder
	fmt.Fprintf(&said, "seed %d, faults %s, %v\n\n%s\n\n", c.Seed, c.h.Name, res.Took, strings.Join(c.h.Faults, "\n"))
	res.Report.Print(&said)
	return errors.Join(
		os.RemoveAll(res.Kept), os.CopyFS(res.Kept, os.DirFS(c.room.Dir())),
		os.WriteFile(filepath.Join(res.Kept, "report.txt"), []byte(said.String()), 0o644),
		c.h.Save(filepath.Join(res.Kept, "history.json")),
		res.Report.SavePictures(res.Kept),
	)
}
