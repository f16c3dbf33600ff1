//go:build unix

package torture

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"noncegate/test/lab/guarded"
	"noncegate/test/lab/history"
	"noncegate/test/lab/pgtest"
)

// ends ends a gateway by a signal and starts it again within so many leases.
func ends(sig syscall.Signal, most float64) func(context.Context, *breaker) error {
	return func(ctx context.Context, b *breaker) error {
		n, away := b.victim(), b.ttls(0, most)
		return b.endAndRestart(ctx, n, sig, away, n.basic.Load())
	}
}

// endAndRestart ends a node and starts it again, perhaps in another mode.
func (b *breaker) endAndRestart(ctx context.Context, n *node, sig syscall.Signal, away time.Duration, basic bool) error {
	n.away.Lock()
	defer n.away.Unlock()
	n.basic.Store(basic)
	b.note("%v to %s, back %v after its end in mode %s", sig, n.id, away, n.mode())
	n.end(sig)
	lasts(ctx, away)
	return b.restart(ctx, n)
}

// comeBackBasic ends a node, or both, and starts it in mode basic under the same id; later it comes back as it was.
func comeBackBasic(ctx context.Context, b *breaker) error {
	nodes := b.oneOrBoth()
	for _, basic := range []bool{true, false} {
		for _, n := range nodes {
			sig, away := []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM}[b.rnd.IntN(2)], b.ttls(0, 1.3)
			if err := b.endAndRestart(ctx, n, sig, away, basic); err != nil {
				return err
			}
		}
		if basic {
			lasts(ctx, b.ttls(0.5, 2.5))
		}
	}
	return nil
}

// joinAndLeave has nodes join, which get their share of the shards, and leave in order or by a crash, each at times of its own.
func joinAndLeave(ctx context.Context, b *breaker) error {
	var all errgroup.Group
	until := time.Now().Add(b.ttls(4, 6))
	for _, n := range b.nodes[len(members):] {
		own := &breaker{b.cluster, rand.New(rand.NewPCG(b.Seed, b.rnd.Uint64()))} // a source of chance is of one goroutine
		all.Go(func() error {
			for lasts(ctx, own.ttls(0, 0.7)); time.Now().Before(until) && ctx.Err() == nil; lasts(ctx, own.ttls(0, 0.7)) {
				own.note("%s joins", n.id)
				if err := own.restart(ctx, n); err != nil {
					return err
				}
				lasts(ctx, own.ttls(1, 2.5))
				sig := []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM, syscall.SIGTERM}[own.rnd.IntN(3)]
				own.note("%v to %s", sig, n.id)
				n.end(sig)
			}
			return nil
		})
	}
	return all.Wait()
}

// pause stops a gateway where it stands, for longer than its leases last.
func pause(ctx context.Context, b *breaker) error { return b.pause(ctx, b.victim(), b.ttls(1.5, 3)) }

func (b *breaker) pause(ctx context.Context, n *node, d time.Duration) error {
	b.note("SIGSTOP %s for %v", n.id, d)
	n.signal(syscall.SIGSTOP)
	lasts(ctx, d)
	n.signal(syscall.SIGCONT)
	b.note("SIGCONT %s", n.id)
	return nil
}

// endBackends ends database sessions that are at work, commits among them.
func endBackends(ctx context.Context, b *breaker) error {
	b.note("end backends that are at work")
	b.repeat(ctx, b.ttls(1, 2), func() time.Duration {
		_ = b.exec(ctx, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
			WHERE datname = current_database() AND application_name = 'noncegate' AND (state = 'active' OR state LIKE 'idle in trans%')`)
		return b.between(time.Millisecond, 40*time.Millisecond) // another fault may have the database down
	})
	b.note("no more")
	return nil
}

// commitOfBasic is in what a node of mode basic sends to commit.
const commitOfBasic = "COMMIT\x00"

// cut and late lose the reply of a node's next commit, or let it arrive late, when the node has gone on without it.
func (b *breaker) cut(n *node) <-chan struct{} {
	if n.basic.Load() {
		return n.db.CutReplies(commitOfBasic)
	}
	return n.db.CutStatement(shardCommit)
}

func (b *breaker) late(n *node, by time.Duration) <-chan struct{} {
	if n.basic.Load() {
		return n.db.DelayRequest(commitOfBasic, by)
	}
	return n.db.DelayStatement(shardCommit, by)
}

// cutReplies loses the replies of commits: they happened, and the node is not told.
func cutReplies(ctx context.Context, b *breaker) error {
	return b.commits(ctx, "lose the replies of commits of", b.cut)
}

func lateCommits(ctx context.Context, b *breaker) error {
	return b.commits(ctx, "commits arrive late of", func(n *node) <-chan struct{} {
		late := b.between(time.Millisecond, 150*time.Millisecond)
		if b.rnd.IntN(2) == 0 {
			late = b.between(100*time.Microsecond, 4*time.Millisecond) // while the node looks what became of it
		}
		return b.late(n, late)
	})
}

// manyLateCommits cuts nodes off from commits that arrive a moment later: when the node has acquired the shards again and read their
// signers, and has not committed yet what it was asked for once more.
func manyLateCommits(b *breaker, _ int) <-chan struct{} {
	return b.late(b.fastNode(), b.between(500*time.Microsecond, 15*time.Millisecond))
}

// commits does something to commits of one or all nodes, one after the other.
func (b *breaker) commits(ctx context.Context, what string, arm func(*node) <-chan struct{}) error {
	n, all, d := b.victim(), b.rnd.IntN(2) == 0, b.ttls(1.5, 3)
	b.note("%s %s, all nodes: %v", what, n.id, all)
	times := b.again(ctx, d, 200*time.Millisecond, 30*time.Millisecond, func(int) <-chan struct{} {
		if all {
			n = b.nodes[b.rnd.IntN(len(b.nodes))]
		}
		return arm(n)
	})
	b.note("it was done to %d commits", times)
	return nil
}

// many does something to one request after the other, for so many leases, as again does.
func many(least, most float64, patience, rest time.Duration, arm func(b *breaker, times int) <-chan struct{}) func(context.Context, *breaker) error {
	return func(ctx context.Context, b *breaker) error {
		times := b.again(ctx, b.ttls(least, most), patience, rest, func(times int) <-chan struct{} { return arm(b, times) })
		b.note("%d were lost, or late", times)
		return nil
	}
}

// again arms a proxy one time after the other, for a while, each with a pause of at most rest behind it. What was armed has a time of
// patience to happen: nothing may be sent, or the server may be away. arm is told how often it happened so far, which again returns.
func (b *breaker) again(ctx context.Context, d, patience, rest time.Duration, arm func(times int) <-chan struct{}) (times int) {
	b.repeat(ctx, d, func() time.Duration {
		timer := time.NewTimer(patience)
		defer timer.Stop()
		select {
		case <-arm(times):
			times++
		case <-timer.C:
		}
		return b.between(0, rest)
	})
	return times
}

// crash ends a server as a crash does and starts it again.
func crash(name string, most time.Duration, of func(*breaker) *guarded.Server) func(context.Context, *breaker) error {
	return func(ctx context.Context, b *breaker) error {
		away := b.between(0, most)
		b.note("kill -9 %s, back after %v", name, away)
		if err := of(b).Kill(); err != nil {
			return err
		}
		lasts(ctx, away)
		err := of(b).Restart()
		b.note("%s is up again", name)
		return err
	}
}

// partition cuts one node off from the database for longer than its leases last: in silence, and what was sent arrives in the end, or
// by refusing.
func partition(ctx context.Context, b *breaker) error {
	n, way := b.victim(), []way{refusing, silent, silent, silent}[b.rnd.IntN(4)]
	return b.parted(ctx, b.ttls(1.2, 2.5), way, n.id, "the database", n.db)
}

// silence keeps everything between one node and its clients and the other nodes from passing, for a while.
func silence(ctx context.Context, b *breaker) error {
	n := b.victim()
	return b.parted(ctx, b.ttls(0.5, 2), silent, "everybody", n.id, n.net)
}

// slowPostgres has what PostgreSQL answers to one node, or to all, come late: leases are renewed late or not in time, and what a commit
// answers finds a node that has given it up.
func slowPostgres(ctx context.Context, b *breaker) error {
	n := b.victim()
	nodes, whose := []*node{n}, n.id
	if b.rnd.IntN(3) == 0 {
		nodes, whose = b.nodes, "all"
	}
	return b.slow(ctx, "PostgreSQL of "+whose, dbs(nodes))
}

// lockRows locks the rows of two signers, or of their shards, from outside, for longer than a lease lasts.
func lockRows(ctx context.Context, b *breaker) error {
	d := b.ttls(1.2, 2.2)
	names := []string{signerName(b.rnd.IntN(hotSigners)), signerName(hotSigners + b.rnd.IntN(signers-hotSigners))}
	lock := []string{lockSigners, lockSigners, lockShards}[b.rnd.IntN(3)]
	_ = b.locked(ctx, lock, names, func(pgx.Tx) error { // another fault may have the database down
		lasts(ctx, d)
		return nil
	})
	return nil
}

// locked locks rows of signers, or of their shards, does something meanwhile, and frees them.
func (b *breaker) locked(ctx context.Context, lock string, names []string, do func(pgx.Tx) error) error {
	err := pgx.BeginFunc(ctx, b.db, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, lock, names); err != nil {
			return err
		}
		b.note("somebody locks the rows of %v: %.16s", names, lock[len("SELECT 1 "):])
		return do(tx)
	})
	b.note("the rows are free: %v", err)
	return err
}

// lateCommitsWhileLocked cuts nodes off from commits that have reached the database and wait there for the row of a signer: their
// shards are locked, and nothing of them is seen yet. The node of mode basic is away meanwhile: where others write behind a commit that
// nobody knows the outcome of, its clients are told so, and the judge then takes what was done twice for theirs.
func lateCommitsWhileLocked(ctx context.Context, b *breaker) error {
	basic := b.nodes[2]
	basic.away.Lock()
	defer basic.away.Unlock()
	b.note("SIGTERM to %s", basic.id)
	basic.end(syscall.SIGTERM)
	var err error
	waited := 0
	b.repeat(ctx, 12*time.Second, func() time.Duration {
		if err != nil {
			return time.Second
		}
		err = b.locked(ctx, lockSigners, hotNames(), func(tx pgx.Tx) error {
			for _, n := range b.nodes[:2] {
				b.late(n, b.between(100*time.Microsecond, time.Millisecond))
			}
			// Nobody waits for a lock longer than 100 ms, and who waited for so long leaves locked rows out for a while.
			lasts(ctx, b.between(15*time.Millisecond, 50*time.Millisecond))
			var waiting int
			err := tx.QueryRow(ctx, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
				AND wait_event_type = 'Lock' AND query LIKE '%' || $1::text || '%'`, shardCommit).Scan(&waiting)
			waited += waiting
			return err
		})
		return b.between(2*time.Millisecond, 20*time.Millisecond)
	})
	b.note("%d commits waited for rows while their nodes were cut off", waited)
	return errors.Join(err, b.restart(ctx, basic))
}

// cutWebSockets ends connections between request and answer: those of all clients of a node at once, and some single ones just after
// they asked.
func cutWebSockets(ctx context.Context, b *breaker) error {
	b.note("connections to the nodes are cut")
	b.load.cutting.Store(true)
	b.repeat(ctx, b.ttls(1.5, 3), func() time.Duration {
		b.nodes[b.rnd.IntN(len(b.nodes))].net.Drop()
		return b.between(20*time.Millisecond, 300*time.Millisecond)
	})
	b.load.cutting.Store(false)
	b.note("no more")
	return nil
}

// maxStep is how far the store's clock is set from the wall clock at most, and sweepsAgain for how long nodes wait with sweeps after a
// step, and a little more.
const (
	maxStep     = 3 * leaseTTL
	sweepsAgain = maxHold + 300*time.Millisecond
)

// stepClock sets the store's clock back and forth by more than a lease.
func stepClock(ctx context.Context, b *breaker) error {
	var err error
	steps := 0
	b.repeat(ctx, b.ttls(3, 5.5), func() time.Duration {
		by := b.ttls(1.1, float64(maxStep)/float64(leaseTTL)) * []time.Duration{-1, 1}[b.rnd.IntN(2)]
		if steps++; steps%3 == 0 {
			by = 0
		}
		err = errors.Join(err, b.setClock(ctx, by))
		if b.rnd.IntN(3) == 0 {
			return sweepsAgain // so that the next step finds nodes that believe in their clock
		}
		return b.between(50*time.Millisecond, 900*time.Millisecond)
	})
	return errors.Join(err, b.setClock(ctx, 0))
}

// setClock sets the store's clock, if need be once the database can be reached again. The run needs a clock that is right in the end,
// also when it is given up.
func (b *breaker) setClock(ctx context.Context, by time.Duration) error {
	ctx = context.WithoutCancel(ctx)
	shift := history.Shift{From: time.Since(b.began), By: by}
	statement := fmt.Sprintf(`CREATE OR REPLACE FUNCTION store_millis() RETURNS bigint LANGUAGE sql VOLATILE AS
		'SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint + (%d)'`, by.Milliseconds())
	if err := tries(ctx, startTimeout, 5*poll, func(ctx context.Context) error { return b.exec(ctx, statement) }); err != nil {
		return fmt.Errorf("set the store's clock: %w", err)
	}
	shift.To = time.Since(b.began)
	b.note("the store's clock is ahead by %v", by)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.h.Shifts = append(b.h.Shifts, shift)
	return nil
}

// clockBackSteps is how often stepClockBack sets the clock back.
const clockBackSteps = 4

// stepClockBack sets the store's clock back again and again, each time when all nodes believe in it and stand still: what they commit
// first when they wake was planned by a clock that is ahead of the store's, by which some holds have ended meanwhile.
func stepClockBack(ctx context.Context, b *breaker) error {
	for i := range clockBackSteps {
		b.note("all stand still")
		for _, n := range b.nodes {
			n.signal(syscall.SIGSTOP)
		}
		err := b.setClock(ctx, -time.Duration(i+1)*maxStep)
		lasts(ctx, b.between(leaseTTL/3, leaseTTL*2/3))
		for _, n := range b.nodes {
			n.signal(syscall.SIGCONT)
		}
		if err != nil {
			return err
		}
		lasts(ctx, sweepsAgain+b.between(0, 200*time.Millisecond))
	}
	return b.setClock(ctx, 0)
}

func (b *breaker) exec(ctx context.Context, sql string) error {
	_, err := b.db.Exec(ctx, sql)
	return err
}

// moveShards has somebody say again and again at which node shards should be: the one or the other, one that is not there, or wherever.
func moveShards(ctx context.Context, b *breaker) error {
	b.note("shards are moved by hand")
	to := []string{"w1", "w2", "nobody", ""}
	b.repeat(ctx, b.ttls(3, 5), func() time.Duration {
		var set []string
		for range 1 + b.rnd.IntN(shards) {
			set = append(set, fmt.Sprintf(`UPDATE shard SET pinned_node = '%s' WHERE shard_id = %d`, to[b.rnd.IntN(len(to))], b.rnd.IntN(shards)))
		}
		_ = b.exec(ctx, strings.Join(set, "; ")) // another fault may have the database down
		return b.between(50*time.Millisecond, 700*time.Millisecond)
	})
	err := tries(ctx, startTimeout, 5*poll, func(ctx context.Context) error { return b.exec(ctx, `UPDATE shard SET pinned_node = ''`) })
	b.note("no more: %v", err)
	return nil
}

// tables are those that change.
var tables = []string{"shard", "signer", "signer_history", "signer_request", "signer_due", "signer_watch", "gateway_node"}

// dump reads all tables in one long transaction, as a dump does, which keeps old versions of rows from being cleaned up, while tables
// are vacuumed again and again.
func dump(ctx context.Context, b *breaker) error {
	long := b.ttls(2.5, 4.5)
	b.note("somebody dumps the database for %v, and it is vacuumed", long)
	options := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	err := pgx.BeginTxFunc(ctx, b.db, options, func(tx pgx.Tx) (err error) {
		b.repeat(ctx, long, func() time.Duration {
			for _, table := range tables {
				_, failed := tx.Exec(ctx, `SELECT count(t::text) FROM `+table+` t`)
				err = errors.Join(err, failed)
			}
			_ = b.exec(ctx, `VACUUM (ANALYZE) `+tables[b.rnd.IntN(len(tables))])
			return b.between(0, 100*time.Millisecond)
		})
		return err
	})
	// Another fault may have the database down.
	b.note("the dump is over: %v; nothing keeps the old rows now: %v", err, b.exec(ctx, `VACUUM (ANALYZE)`))
	return nil
}

// The ways to part a node from a server.
var (
	refusing = way{"is refused by", (*pgtest.Proxy).Refuse}
	silent   = way{"hears nothing from", (*pgtest.Proxy).BlackHole}
)

type way struct {
	name string
	cut  func(*pgtest.Proxy)
}

func (b *breaker) someWay() way { return []way{refusing, silent, silent}[b.rnd.IntN(3)] }

func (b *breaker) parted(ctx context.Context, d time.Duration, w way, who, from string, proxies ...*pgtest.Proxy) error {
	heal := b.part(w, who, from, proxies...)
	lasts(ctx, d)
	heal()
	return nil
}

// part cuts connections until heal is called. A proxy may be nil.
func (b *breaker) part(w way, who, from string, proxies ...*pgtest.Proxy) (heal func()) {
	proxies = slices.DeleteFunc(proxies, func(p *pgtest.Proxy) bool { return p == nil })
	b.note("%s %s %s", who, w.name, from)
	for _, p := range proxies {
		w.cut(p)
	}
	return func() {
		for _, p := range proxies {
			p.Forward()
		}
		b.note("%s is heard again", from)
	}
}

// dbs and redises are the proxies of nodes towards the servers.
func dbs(nodes []*node) (all []*pgtest.Proxy) {
	for _, n := range nodes {
		all = append(all, n.db)
	}
	return all
}

func redises(nodes []*node) (all []*pgtest.Proxy) {
	for _, n := range nodes {
		all = append(all, n.redis)
	}
	return all
}
