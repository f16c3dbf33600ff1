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

	"noncegate/test/lab/history"
)

// Plan is one run.
type Plan struct {
	Seed    uint64
	Faults  []Fault
	Load    time.Duration // how long clients work at least; 0: 6s, with a chain 10s
	Enough  int           // acknowledged calls that they work on for, up to five times as long; 0: as many as a run must have
	Clients int           // 0: 9
	HotOnly bool          // clients use the hot signers only
	Options
	Dir     string // where a run that failed leaves what it has, in a folder named by its seed; "": nowhere
	KeepAll bool   // keeps it of a run that did not fail as well
}

// MinAcknowledged is the least number of calls that must have happened for a run to count.
const MinAcknowledged = 1000

// Result is what came of a run.
type Result struct {
	Faults []string // names
	Said   []string // by the faults: what they did, and when
	Report *history.Report
	Took   time.Duration
	// Quiet is how long it took until the last hold had ended, with nobody asking, and Overdue by how much one of them was late.
	Quiet, Overdue time.Duration
	Kept           string // folder of what was kept; "": nothing

	mayBeLate time.Duration // how long a hold may be overdue once everything is healed
}

// OK reports whether nothing was found.
func (r *Result) OK() bool { return r.Report.OK() }

// prepare fills in what the plan leaves open, and what its faults need.
func (p *Plan) prepare(res *Result) error {
	p.Enough, p.Clients = cmp.Or(p.Enough, MinAcknowledged+MinAcknowledged/10), cmp.Or(p.Clients, 9)
	if p.Load == 0 {
		p.Load = 6 * time.Second
		if p.Chain {
			p.Load = 10 * time.Second
		}
	}
	res.mayBeLate = maxOverdue
	for _, f := range p.Faults {
		switch {
		case f.Engine && !p.Engine || f.Chain && !p.Chain || f.File != p.File:
			return fmt.Errorf("fault %s is not of the axis %s", f.Name, p.Name)
		case f.Offsets && !p.Clock:
			return fmt.Errorf("fault %s needs a gateway that was built for it", f.Name)
		case f.Offsets:
			p.Offsets = []time.Duration{2 * leaseTTL, -2 * leaseTTL, 0}
		}
		res.Faults = append(res.Faults, f.Name)
		res.mayBeLate += f.Overdue
		p.spares, p.replica = max(p.spares, f.Spares), p.replica || f.Replica
	}
	p.seed = p.Seed
	return nil
}

// Run does one run. Its error says that the run could not be done; what the judge finds is in the result.
func Run(ctx context.Context, p Plan) (*Result, error) {
	started, res := time.Now(), new(Result)
	if err := p.prepare(res); err != nil {
		return nil, err
	}
	c, err := startCluster(ctx, p.Options)
	if err != nil {
		return nil, fmt.Errorf("start a cluster: %w", err)
	}
	defer c.close()
	h := &history.History{GraceMs: grace.Milliseconds(), RowsBehind: p.Engine, Seed: p.Seed, Name: strings.Join(res.Faults, "+")}
	if c.engineRedis != nil {
		if err := c.begin(ctx, p.Faults); err != nil {
			return nil, fmt.Errorf("switch up: %w", err)
		}
	}
	stuck, err := c.load(ctx, p, h)
	if err != nil {
		return nil, err
	}
	found, err := c.finish(ctx, res, h)
	if err != nil {
		return nil, err
	}
	if c.chain != nil {
		found = append(found, c.chain.judge(h)...)
	}
	for _, n := range c.nodes {
		n.end(syscall.SIGKILL)
	}
	res.Report = history.Check(h, history.Limits{MinAcknowledged: MinAcknowledged, MaxOverdue: res.mayBeLate})
	if c.engineRedis != nil {
		found = append(found, c.engineRedis.judge(p.Faults, h)...)
	}
	res.Said = h.Faults
	res.Report.Violations = append(res.Report.Violations, found...)
	c.judge(res, stuck, h)
	res.Took = time.Since(started)
	if p.Dir != "" && (p.KeepAll || !res.OK()) {
		res.Kept = filepath.Join(p.Dir, fmt.Sprintf("seed-%d-%s", p.Seed, h.Name))
		err = c.keep(res, h)
	}
	return res, err
}

// judge adds what is not in a history.
func (c *cluster) judge(res *Result, stuck []string, h *history.History) {
	add := func(rule history.Rule, signer, text string) {
		res.Report.Violations = append(res.Report.Violations, history.Violation{Rule: rule, Signer: signer, Text: text})
	}
	for _, signer := range stuck {
		add(history.Stuck, signer, "nobody serves it once all is healed")
	}
	if res.Overdue > res.mayBeLate {
		add(history.Hole, "", fmt.Sprintf("a hold was overdue by %v when it was ended", res.Overdue))
	}
	for _, n := range c.nodes {
		for _, problem := range n.found() {
			add(history.Alarm, "", problem)
		}
	}
	for i := range h.Calls {
		word, _, _ := strings.Cut(h.Calls[i].Reason, " ")
		if c.file != nil && h.Calls[i].Outcome == history.Refused && !slices.Contains(excused, word) {
			add(history.Alarm, h.Calls[i].Signer, h.Calls[i].String()+": "+h.Calls[i].Detail)
		}
	}
}

// excused are the reasons that a gateway on a file may refuse the clients for.
var excused = []string{"conflict", "not_found", "unavailable", "draining"}

// load lets clients work and faults happen, and then asks for every signer once more. It returns those that nobody serves.
func (c *cluster) load(ctx context.Context, p Plan, h *history.History) (stuck []string, err error) {
	began := time.Now()
	h.BeganAt = began.UnixMilli()
	load := &workload{hotOnly: p.HotOnly}
	workers := make([]*worker, p.Clients)
	stop := make(chan struct{})
	var all sync.WaitGroup
	for i := range workers {
		workers[i] = c.newWorker(i, p.Seed, uint64(1000+i), began, load)
		all.Go(func() { workers[i].run(ctx, stop) })
	}
	payers := c.payers(p, began, load)
	for _, p := range payers {
		all.Go(func() { p.run(ctx, stop) })
	}
	looking, look := context.WithCancel(ctx)
	var looker sync.WaitGroup
	if c.file == nil {
		looker.Go(func() { h.Samples = c.sample(looking, began) })
	}
	if c.engineRedis != nil {
		looker.Go(func() { c.keepUp(looking) })
	}
	err = c.breakThings(ctx, p, began, load, h)
	if err == nil {
		p.goOn(ctx, began, func() bool {
			return load.acknowledged.Load() >= int64(p.Enough) && (c.chain == nil || c.chain.mined.Load() >= 2*minMined)
		})
	}
	if err == nil && c.engineRedis != nil {
		err = c.outlastDoubt(ctx)
	}
	close(stop)
	all.Wait()
	last := c.newWorker(p.Clients, p.Seed, 0, began, load)
	if err == nil {
		stuck = last.probe(ctx)
	}
	if c.chain != nil && err == nil {
		h.Chain = c.settleChain(ctx, p, began, load, payers)
	}
	look()
	looker.Wait()
	for _, w := range workers {
		h.Calls = append(h.Calls, w.calls...)
	}
	h.Calls = append(h.Calls, last.calls...)
	return stuck, errors.Join(err, ctx.Err())
}

// goOn waits until clients have worked for long enough, and on a machine that is busy until enough came of it.
func (p *Plan) goOn(ctx context.Context, began time.Time, enough func() bool) {
	lasts(ctx, p.Load-time.Since(began))
	for ctx.Err() == nil && time.Since(began) < 5*p.Load && !enough() {
		lasts(ctx, 5*poll)
	}
}

// probeTimeout is how long after the faults were healed a signer may not be served.
const probeTimeout = leaseTTL + 4*time.Second

// probe allocates for every signer, at any node, and returns those for which that was refused for too long.
func (c *client) probe(ctx context.Context) (stuck []string) {
	defer c.close()
	until := time.Now().Add(probeTimeout)
	for i := range signers {
		name := signerName(i)
		for served := false; !served; {
			for _, n := range c.nodes {
				done, _, err := c.do(ctx, n, false, history.Call{Kind: history.Allocate, Signer: name, Count: 1, HoldMs: holdTTL.Milliseconds()})
				served = served || err == nil && done[0].Outcome == history.Happened
			}
			if !served && (time.Now().After(until) || ctx.Err() != nil) {
				stuck = append(stuck, name)
				break
			}
			if !served {
				lasts(ctx, 5*poll)
			}
		}
	}
	return stuck
}

// After a start without faults come the faults, and after the last one a while without.
const (
	calmBefore = 700 * time.Millisecond
	calmAfter  = 1200 * time.Millisecond
)

// breakThings runs the plan's faults beside one another, each at a time of its own.
func (c *cluster) breakThings(ctx context.Context, p Plan, began time.Time, load *workload, h *history.History) error {
	var mu sync.Mutex
	errs := make([]error, len(p.Faults))
	var all sync.WaitGroup
	for i, f := range p.Faults {
		rnd := rand.New(rand.NewPCG(p.Seed, uint64(i)))
		b := &breaker{cluster: c, load: load, rnd: rnd, began: began, mu: &mu, said: &h.Faults, shifts: &h.Shifts}
		if f.do == nil {
			b.note("clocks are wrong by %v", p.Offsets)
			continue
		}
		all.Go(func() {
			lasts(ctx, calmBefore+b.between(0, 1200*time.Millisecond))
			errs[i] = f.do(ctx, b)
		})
	}
	all.Wait()
	lasts(ctx, calmAfter)
	return errors.Join(errs...)
}

// fileSettles is how long after the load a gateway on a file has had time to end all holds.
const fileSettles = maxHold + grace + 2*time.Second

// finish waits for the last hold to end and reads what is stored.
func (c *cluster) finish(ctx context.Context, res *Result, h *history.History) (found []history.Violation, err error) {
	if c.file != nil {
		lasts(ctx, fileSettles)
		c.nodes[0].end(syscall.SIGTERM)
		if h.Final, err = c.final(ctx); err != nil && ctx.Err() == nil {
			found, err = []history.Violation{{Rule: history.HoldLost, Text: fmt.Sprintf("the file cannot be read: %v", err)}}, nil
		}
		return found, err
	}
	if res.Quiet, res.Overdue, err = c.quiet(ctx); err != nil {
		return nil, err
	}
	if c.engineRedis != nil {
		if found, err = c.settleEngine(ctx, h); err != nil {
			return nil, err
		}
	}
	h.Final, err = c.final(ctx)
	return found, err
}

// keep saves what helps to understand a run: the logs and, of a file, the traces and what is stored; a report; the history.
func (c *cluster) keep(res *Result, h *history.History) error {
	var said strings.Builder
	fmt.Fprintf(&said, "seed %d, faults %s, %v\n\n%s\n\n", h.Seed, strings.Join(res.Faults, " + "), res.Took, strings.Join(h.Faults, "\n"))
	res.Report.Print(&said)
	return errors.Join(
		os.RemoveAll(res.Kept), os.CopyFS(res.Kept, os.DirFS(c.room.Dir())),
		os.WriteFile(filepath.Join(res.Kept, "report.txt"), []byte(said.String()), 0o644),
		h.Save(filepath.Join(res.Kept, "history.json")),
		res.Report.SavePictures(res.Kept),
	)
}
