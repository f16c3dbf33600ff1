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

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"noncegate/client"
	"noncegate/scripts/loadtest/observe"
	"noncegate/scripts/loadtest/traffic"
	"noncegate/scripts/loadtest/wait"
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

// idleHold is how long the idle signers' nonces are held: the longest that the
// gateway allows, so that none falls due while they are idle.
const idleHold = 10 * time.Minute

// noteTransactions is how many transactions PostgreSQL ended, one way or the other, and
// noteWritten how many rows they wrote. Heartbeats and looks for
// overdue holds are among them.
const (
	noteTransactions = "transactions"
	noteWritten      = "rows written"
)

// idleNotes are what is noted of the idle time, in the order of the table.
var idleNotes = []struct {
	name string
	of   func(observe.Metrics) float64
}{
	{"shards owned", nil}, // counted at the end
	{noteTransactions, nil},
	{noteWritten, nil},
	{"rows read", nil},
	{"heartbeats", func(f observe.Metrics) float64 { return f.All("noncegate_heartbeats_total") }},
	{"leases acquired", func(f observe.Metrics) float64 { return f.All("noncegate_lease_acquire_total") }},
	{"leases renewed", func(f observe.Metrics) float64 { return f.All("noncegate_lease_renew_total") }},
}

// idleSigners asks for each of so many signers once, and looks at what the nodes
// ask of PostgreSQL when nobody asks them any more.
func idleSigners(signers int, before time.Duration) func(context.Context, *cluster, Config) (Sample, error) {
	return func(ctx context.Context, cl *cluster, c Config) (s Sample, err error) {
		if s.Acknowledged, err = cl.touch(ctx, signers); err != nil {
			return s, err
		}
		resume, err := cl.arena.withoutAutovacuum(ctx)
		if err != nil {
			return s, err
		}
		defer func() { err = errors.Join(err, resume()) }()
		if err := wait.For(ctx, before); err != nil {
			return s, err
		}
		is, stored, err := cl.counted(ctx)
		if err != nil {
			return s, err
		}
		if err := wait.For(ctx, c.Idle); err != nil {
			return s, err
		}
		after, storedAfter, err := cl.counted(ctx)
		if err != nil {
			return s, err
		}
		s.Notes = map[string]float64{
			"shards owned":   after["noncegate_shards_owned"],
			noteTransactions: storedAfter.transactions - stored.transactions,
			noteWritten:      storedAfter.written - stored.written,
			"rows read":      storedAfter.read - stored.read,
		}
		for _, note := range idleNotes {
			if note.of != nil {
				s.Notes[note.name] = note.of(after.Since(is))
			}
		}
		return s, nil
	}
}

// touch asks for each signer once, at random nodes.
func (cl *cluster) touch(ctx context.Context, n int) (calls int64, err error) {
	cs, err := cl.openCallers(ctx, callClients)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, cs.close()) }()
	order := rand.New(rand.NewPCG(1, 2)).Perm(n)
	const inflight = 4 * callsInflight
	return cs.ask(ctx, inflight, idleHold, func(client, worker int) func() (string, bool) {
		return each(traffic.Signers{Count: n}, order, client*inflight+worker, len(cs)*inflight)
	})
}

// storeCounts are what PostgreSQL counts of a database, since it was made.
type storeCounts struct{ transactions, written, read float64 }

// counted is what the nodes and PostgreSQL say.
func (cl *cluster) counted(ctx context.Context) (is observe.Metrics, stored storeCounts, err error) {
	if is, err = cl.metrics(ctx); err != nil {
		return nil, stored, err
	}
	database, err := pgx.ParseConfig(cl.database)
	if err != nil {
		return nil, stored, err
	}
	err = cl.arena.admin.QueryRow(ctx, `
SELECT xact_commit + xact_rollback, tup_inserted + tup_updated + tup_deleted, tup_returned + tup_fetched
FROM pg_stat_database WHERE datname = $1`, database.Database).
		Scan(&stored.transactions, &stored.written, &stored.read)
	if err != nil {
		err = fmt.Errorf("what PostgreSQL counts: %w", err)
	}
	return is, stored, err
}

// withoutAutovacuum keeps PostgreSQL from cleaning up meanwhile, which counts as
// work on the database like any other. resume lets it go on.
func (a *arena) withoutAutovacuum(ctx context.Context) (resume func() error, err error) {
	set := func(ctx context.Context, value string) error {
		for _, statement := range []string{"ALTER SYSTEM SET autovacuum = " + value, "SELECT pg_reload_conf()"} {
			if _, err := a.admin.Exec(ctx, statement); err != nil {
				return fmt.Errorf("autovacuum %s: %w", value, err)
			}
		}
		return nil
	}
	return func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanTimeout)
		defer cancel()
		return set(ctx, "on")
	}, set(ctx, "off")
}
