//go:build unix

package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"

	"noncegate/scripts/loadtest/observe"
	"noncegate/scripts/loadtest/traffic"
	"noncegate/scripts/loadtest/wait"
)

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
