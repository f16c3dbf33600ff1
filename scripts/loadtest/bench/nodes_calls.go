//go:build unix

package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"noncegate/client"
	"noncegate/scripts/loadtest/observe"
	"noncegate/scripts/loadtest/traffic"
)

const (
	callClients   = 16
	callsInflight = 16
)

// callers are Go clients of a cluster, which take its nodes in turn.
type callers []*client.Client

func (cl *cluster) openCallers(ctx context.Context, n int) (callers, error) {
	urls := cl.urls()
	var all callers
	for i := range n {
		c, err := client.Dial(ctx, urls[i%len(urls)], client.Config{NoRequestIDs: true})
		if err != nil {
			return nil, errors.Join(fmt.Errorf("connect to %s: %w", urls[i%len(urls)], err), all.close())
		}
		all = append(all, c)
	}
	return all, nil
}

func (cs callers) close() error {
	var errs []error
	for _, c := range cs {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

// ask allocates with all clients, each with as many calls under way, until next
// says for each of them that there is no further signer, and returns how many
// calls that took.
func (cs callers) ask(ctx context.Context, inflight int, hold time.Duration, next func(client, worker int) func() (signer string, more bool)) (int64, error) {
	var calls atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	for i, c := range cs {
		for worker := range inflight {
			g.Go(func() error {
				signers := next(i, worker)
				for signer, more := signers(); more; signer, more = signers() {
					if _, err := c.Allocate(ctx, client.AllocateRequest{Signer: signer, Hold: hold}); err != nil {
						return err
					}
					calls.Add(1)
				}
				return nil
			})
		}
	}
	err := g.Wait()
	return calls.Load(), err
}

// each names numbers from first on in steps.
func each(signers traffic.Signers, order []int, first, step int) func() (string, bool) {
	at := first - step
	return func() (string, bool) {
		at += step
		if at >= len(order) {
			return "", false
		}
		return signers.Name(order[at]), true
	}
}

// The names under which calls are noted, in the order of the table. All but the
// first are for 1,000 calls.
var callNotes = []struct {
	name string
	of   func(observe.Metrics) float64
}{
	{"acquisitions", func(f observe.Metrics) float64 {
		return f["noncegate_lease_acquire_total{acquired}"] + f["noncegate_lease_acquire_total{takeover}"]
	}},
	{"held elsewhere", func(f observe.Metrics) float64 { return f["noncegate_lease_acquire_total{held}"] }},
	{"version conflicts", func(f observe.Metrics) float64 { return f["noncegate_version_conflicts_total"] }},
	{"fenced", func(f observe.Metrics) float64 { return f.All("noncegate_fence_rejects_total") }},
	{"forwarded", func(f observe.Metrics) float64 { return f["noncegate_forwarded_total{answered}"] }},
	{"not_owner", func(f observe.Metrics) float64 { return f["noncegate_refused_total{not_owner}"] }},
	{"commits", func(f observe.Metrics) float64 { return f["noncegate_commit_seconds"] }},
}

// The two times of the calls, as their notes begin.
var callPhases = []string{"at first", "after that"}

// noteOf is the note of a figure in a phase.
func noteOf(phase, name string) string { return phase + ", " + name }

// randomCalls asks for signers at random nodes: first each client for each signer
// once, in an order of its own, then at random.
func randomCalls(signers traffic.Signers) func(context.Context, *cluster, Config) (Sample, error) {
	return func(ctx context.Context, cl *cluster, c Config) (s Sample, err error) {
		cs, err := cl.openCallers(ctx, callClients)
		if err != nil {
			return Sample{}, err
		}
		defer func() { err = errors.Join(err, cs.close()) }()
		s.Notes = make(map[string]float64)
		orders := make([][]int, len(cs))
		for i := range orders {
			orders[i] = rand.New(rand.NewPCG(1, uint64(i))).Perm(signers.Count)
		}
		err = cl.phase(ctx, &s, cs, callPhases[0], func(client, worker int) func() (string, bool) {
			return each(signers, orders[client], worker, callsInflight)
		})
		if err != nil {
			return s, err
		}
		var begun sync.Once
		var end time.Time
		err = cl.phase(ctx, &s, cs, callPhases[1], func(client, worker int) func() (string, bool) {
			begun.Do(func() { end = time.Now().Add(c.Duration) }) // now that the figures were read
			rng := rand.New(rand.NewPCG(uint64(client), uint64(worker)))
			return func() (string, bool) { return signers.Name(rng.IntN(signers.Count)), time.Now().Before(end) }
		})
		return s, err
	}
}

// phase asks, and notes in the sample what that cost.
func (cl *cluster) phase(ctx context.Context, s *Sample, cs callers, name string, next func(client, worker int) func() (string, bool)) error {
	before, err := cl.metrics(ctx)
	if err != nil {
		return err
	}
	calls, err := cs.ask(ctx, callsInflight, 0, next)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	after, err := cl.metrics(ctx)
	if err != nil {
		return err
	}
	s.noteCalls(name, calls, after.Since(before))
	return nil
}

// noteCalls notes what calls of a phase cost.
func (s *Sample) noteCalls(phase string, calls int64, grown observe.Metrics) {
	s.Acknowledged += calls
	s.Notes[noteOf(phase, "calls")] = float64(calls)
	for _, note := range callNotes {
		s.Notes[noteOf(phase, note.name)] = 1000 * note.of(grown) / float64(max(calls, 1))
	}
}
