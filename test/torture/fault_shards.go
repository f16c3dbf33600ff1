//go:build unix

package torture

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"noncegate/test/lab/history"
)

// maxStep is how far the store's clock is set from the wall clock at most.
const maxStep = 3 * leaseTTL

// sweepsAgain is for how long nodes wait with sweeps after a step of the store's clock, and
// a little more.
const sweepsAgain = maxHold + 300*time.Millisecond

// stepClock sets the store's clock back and forth by more than a lease.
func stepClock(ctx context.Context, b *breaker) error {
	until, steps := time.Now().Add(b.ttls(3, 5.5)), 0
	for time.Now().Before(until) && ctx.Err() == nil {
		by := b.ttls(1.1, float64(maxStep)/float64(leaseTTL))
		if b.rnd.IntN(2) == 0 {
			by = -by
		}
		steps++
		if steps%3 == 0 {
			by = 0
		}
		if err := b.setClock(ctx, by); err != nil {
			return err
		}
		wait := b.between(50*time.Millisecond, 900*time.Millisecond)
		if b.rnd.IntN(3) == 0 {
			wait = sweepsAgain // so that the next step finds nodes that believe in their clock
		}
		lasts(ctx, wait)
	}
	return b.setClock(ctx, 0)
}

// setClock sets the store's clock, if need be once the database can be reached again. The
// run needs a clock that is right in the end, also when it is given up.
func (b *breaker) setClock(ctx context.Context, by time.Duration) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), startTimeout)
	defer cancel()
	shift := history.Shift{From: time.Since(b.began), By: by}
	for {
		err := b.exec(ctx, fmt.Sprintf(`CREATE OR REPLACE FUNCTION store_millis() RETURNS bigint LANGUAGE sql VOLATILE AS
			'SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint + (%d)'`, by.Milliseconds()))
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			return fmt.Errorf("set the store's clock: %w", err)
		}
		lasts(ctx, 5*poll)
	}
	shift.To = time.Since(b.began)
	b.note("the store's clock is ahead by %v", by)
	b.mu.Lock()
	defer b.mu.Unlock()
	*b.shifts = append(*b.shifts, shift)
	return nil
}

// exec runs statements on a session of its own.
func (b *breaker) exec(ctx context.Context, sql string) error {
	conn, err := b.connect(ctx)
	if err != nil {
		return err
	}
	defer func() { conn.Close(context.WithoutCancel(ctx)) }()
	_, err = conn.Exec(ctx, sql)
	return err
}

// comeBackBasic ends a node, or both, and starts it in mode basic under the same id; later
// it comes back as it was.
func comeBackBasic(ctx context.Context, b *breaker) error {
	nodes := []*node{b.nodes[b.rnd.IntN(2)]}
	if b.rnd.IntN(3) == 0 {
		nodes = b.nodes[:2]
	}
	for _, basic := range []bool{true, false} {
		for _, n := range nodes {
			if err := b.comeBack(ctx, n, basic); err != nil {
				return err
			}
		}
		if basic {
			lasts(ctx, b.ttls(0.5, 2.5))
		}
	}
	return nil
}

func (b *breaker) comeBack(ctx context.Context, n *node, basic bool) error {
	n.away.Lock()
	defer n.away.Unlock()
	sig, away := syscall.SIGKILL, b.ttls(0, 1.3)
	if b.rnd.IntN(2) == 0 {
		sig = syscall.SIGTERM
	}
	n.basic.Store(basic)
	return b.endAndRestartLocked(ctx, n, sig, away)
}

// moveShards has somebody say again and again at which node shards should be: the one or
// the other, one that is not there, or wherever.
func moveShards(ctx context.Context, b *breaker) error {
	until, times := time.Now().Add(b.ttls(3, 5)), 0
	b.note("shards are moved by hand")
	to := []string{"w1", "w2", "nobody", ""}
	for time.Now().Before(until) && ctx.Err() == nil {
		var set []string
		for range 1 + b.rnd.IntN(shards) {
			set = append(set, fmt.Sprintf(`UPDATE shard SET pinned_node = '%s' WHERE shard_id = %d`, to[b.rnd.IntN(len(to))], b.rnd.IntN(shards)))
		}
		if b.exec(ctx, strings.Join(set, "; ")) == nil { // else another fault has the database down
			times++
		}
		lasts(ctx, b.between(50*time.Millisecond, 700*time.Millisecond))
	}
	for b.exec(ctx, `UPDATE shard SET pinned_node = ''`) != nil && ctx.Err() == nil {
		lasts(ctx, 5*poll)
	}
	b.note("they were moved %d times", times)
	return nil
}

// joinAndLeave has nodes join, which get their share of the shards, and leave in order or
// by a crash, each at times of its own.
func joinAndLeave(ctx context.Context, b *breaker) error {
	var all sync.WaitGroup
	errs := make([]error, len(spares))
	until := time.Now().Add(b.ttls(4, 6))
	for i, n := range b.nodes[len(modes):] {
		// The times are drawn here: the source of chance is of one goroutine.
		var waits []time.Duration
		var sigs []syscall.Signal
		for range 8 {
			waits = append(waits, b.ttls(0, 0.7), b.ttls(1, 2.5))
			sigs = append(sigs, []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM, syscall.SIGTERM}[b.rnd.IntN(3)])
		}
		all.Go(func() { errs[i] = b.visit(ctx, n, until, waits, sigs) })
	}
	all.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// visit starts and ends a spare until it is time.
func (b *breaker) visit(ctx context.Context, n *node, until time.Time, waits []time.Duration, sigs []syscall.Signal) error {
	for i, sig := range sigs {
		lasts(ctx, waits[2*i])
		if time.Now().After(until) || ctx.Err() != nil {
			return nil
		}
		b.note("%s joins", n.id)
		if err := b.restart(ctx, n); err != nil {
			return err
		}
		lasts(ctx, waits[2*i+1])
		b.note("%v to %s", sig, n.id)
		n.end(sig)
	}
	return nil
}

// dump reads all tables in one long transaction, as a dump does, which keeps old versions of
// rows from being cleaned up, while tables are vacuumed again and again.
func dump(ctx context.Context, b *breaker) error {
	conn, err := b.connect(ctx)
	if err != nil {
		return nil // another fault has the database down
	}
	defer func() { conn.Close(context.WithoutCancel(ctx)) }()
	long, vacuums := b.ttls(2.5, 4.5), 0
	b.note("somebody dumps the database for %v, and it is vacuumed", long)
	until := time.Now().Add(long)
	err = pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		for time.Now().Before(until) && ctx.Err() == nil {
			for _, table := range tables {
				if _, err := tx.Exec(ctx, `SELECT count(t::text) FROM `+table+` t`); err != nil {
					return err
				}
			}
			if b.exec(ctx, `VACUUM (ANALYZE) `+tables[b.rnd.IntN(len(tables))]) == nil {
				vacuums++
			}
			lasts(ctx, b.between(0, 100*time.Millisecond))
		}
		return nil
	})
	b.note("the dump is over, %d vacuums: %v", vacuums, err)
	// Nothing keeps the old rows now.
	if err := b.exec(ctx, `VACUUM (ANALYZE)`); err != nil {
		b.note("the last vacuum: %v", err)
	}
	return nil
}

// tables are those that change.
var tables = []string{"shard", "signer", "signer_history", "signer_request", "signer_due", "signer_watch", "gateway_node"}
