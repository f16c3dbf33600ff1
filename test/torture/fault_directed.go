//go:build unix

package torture

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"
)

// loseAllWhileAway empties Redis and kills the nodes that had it when PostgreSQL has
// been away for nearly a grant: what was handed out meanwhile is in no place but its
// holders' hands, and what they were told must hold.
func loseAllWhileAway(ctx context.Context, b *breaker) error {
	b.note("all are refused by PostgreSQL")
	for _, n := range b.nodes {
		n.db.Refuse()
	}
	lasts(ctx, b.between(engineGrant/3, engineGrant*3/4))
	return b.killAll(ctx, func() error {
		err := emptyRedis(ctx, b)
		for _, n := range b.nodes {
			n.db.Forward()
		}
		b.note("PostgreSQL is back")
		return err
	})
}

// restartAll starts nodes again, at the same time.
func (b *breaker) restartAll(ctx context.Context, nodes []*node) error {
	var all errgroup.Group
	for _, n := range nodes {
		all.Go(func() error { return b.restart(ctx, n) })
	}
	return all.Wait()
}

// hotLocked locks the rows of the hot signers, does what is to be done meanwhile, and
// frees them.
func (b *breaker) hotLocked(ctx context.Context, do func() error) error {
	conn, err := b.connect(ctx)
	if err != nil {
		return err
	}
	defer func() { conn.Close(context.WithoutCancel(ctx)) }()
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, lockSigners, hotNames()); err != nil {
			return err
		}
		b.note("somebody locks the rows of the hot signers")
		return do()
	})
	b.note("the rows are free: %v", err)
	return err
}

// hotNames are the signers that get half of the calls.
func hotNames() []string {
	names := make([]string, hotSigners)
	for i := range names {
		names[i] = fmt.Sprintf("signer-%02d", i)
	}
	return names
}

// drainWhileLocked lets shards return while PostgreSQL cannot follow them.
func drainWhileLocked(ctx context.Context, b *breaker) error {
	defer b.engineRedis.hold()()
	err := b.hotLocked(ctx, func() error {
		lasts(ctx, b.between(50*time.Millisecond, 300*time.Millisecond))
		b.note("drain: %v", b.switchTo(ctx, "reliable"))
		lasts(ctx, b.between(600*time.Millisecond, 1200*time.Millisecond)) // every node knows it by then, and wants to
		return nil
	})
	lasts(ctx, b.between(500*time.Millisecond, time.Second))
	return err
}

// ownerWithoutPostgres keeps a node from PostgreSQL, again and again, for longer than its
// lease and for less than its grant: another takes its shards over while it hands out.
func ownerWithoutPostgres(ctx context.Context, b *breaker) error {
	for i := range 3 {
		n := b.nodes[i%2]
		d := b.between(leaseTTL*2, engineGrant+leaseTTL/2)
		b.note("%s is refused by PostgreSQL for %v", n.id, d)
		n.db.Refuse()
		lasts(ctx, d)
		n.db.Forward()
		b.note("it is back")
		lasts(ctx, b.ttls(1.5, 2))
	}
	return nil
}

// loseAllAfterSwitch switches up while somebody locks the rows of the hot signers, so that
// nothing can be reserved or shipped of them, then kills both nodes and empties Redis.
func loseAllAfterSwitch(ctx context.Context, b *breaker) error {
	err := b.hotLocked(ctx, func() error {
		b.note("up: %v", b.switchTo(ctx, "performance"))
		if err := b.up(ctx); err != nil {
			return err
		}
		lasts(ctx, b.between(100*time.Millisecond, 500*time.Millisecond))
		return b.killAll(ctx, func() error { return emptyRedis(ctx, b) })
	})
	b.engineRedis.down()
	return err
}

// killAll kills both nodes that have Redis, does something, and starts them again.
func (b *breaker) killAll(ctx context.Context, do func() error) error {
	for _, n := range b.nodes[:2] {
		n.away.Lock()
		defer n.away.Unlock()
		b.note("kill -9 %s", n.id)
		n.end(syscall.SIGKILL)
	}
	err := do()
	return errors.Join(err, b.restartAll(ctx, b.nodes[:2]))
}

// killWhileLocked ends both nodes that have Redis and starts them again while
// PostgreSQL cannot follow: what they had not shipped is left to those that come.
func killWhileLocked(ctx context.Context, b *breaker) error {
	return b.hotLocked(ctx, func() error {
		lasts(ctx, b.between(50*time.Millisecond, 300*time.Millisecond))
		return b.killAll(ctx, func() error { return nil })
	})
}

// lateScripts cuts connections to Redis when a script was sent, which arrives later: at once, or
// when the node, which leaves Redis alone for a tenth of a second after that, looks what became
// of it or has just looked.
func lateScripts(ctx context.Context, b *breaker) error {
	b.note("scripts arrive a moment late")
	times := b.again(ctx, 6*time.Second, 200*time.Millisecond, 10*time.Millisecond, func(times int) <-chan struct{} {
		late := b.between(200*time.Microsecond, 8*time.Millisecond)
		if times%4 > 0 {
			late = b.between(97*time.Millisecond, 112*time.Millisecond)
		}
		return b.fastNode().redis.CutAnyReply("evalsha", late)
	})
	b.note("%d did", times)
	return nil
}

// failOverAndBack leads the nodes to a replica that was promoted while PostgreSQL is away,
// kills them when they have worked there, and starts them again at the first server, which
// knows nothing of that, and neither does anybody's memory.
func failOverAndBack(ctx context.Context, b *breaker) error {
	b.note("all are refused by PostgreSQL")
	for _, n := range b.nodes {
		n.db.Refuse()
	}
	other, err := b.otherRedis(ctx, true)
	if err != nil {
		return err
	}
	lead := func(addr string) {
		for _, n := range b.nodes[:2] {
			n.redis.Retarget(addr)
			n.redis.Drop()
		}
	}
	b.note("the nodes are led to a replica")
	lead(other.Addr())
	lasts(ctx, b.between(300*time.Millisecond, 900*time.Millisecond))
	return b.killAll(ctx, func() error {
		b.note("and back to the first Redis; PostgreSQL is back")
		lead(b.engineRedis.server.Addr())
		for _, n := range b.nodes {
			n.db.Forward()
		}
		return nil
	})
}

// manyLateCommits cuts nodes off from commits that arrive a moment later: when the node has
// acquired the shards again and read their signers, and has not committed yet what it was
// asked for once more.
func manyLateCommits(ctx context.Context, b *breaker) error {
	b.note("commits arrive a moment late")
	times := b.again(ctx, 8*time.Second, 200*time.Millisecond, 10*time.Millisecond, func(int) <-chan struct{} {
		return b.late(b.nodes[b.rnd.IntN(2)], b.between(500*time.Microsecond, 15*time.Millisecond))
	})
	b.note("%d did", times)
	return nil
}

// lateCommitsWhileLocked cuts nodes off from commits that have reached the database and wait
// there for the row of a signer: their shards are locked, and nothing of them is seen yet.
// The node of mode basic is away meanwhile: where others write behind a commit that nobody
// knows the outcome of, its clients are told so, and the judge then takes what was done
// twice for theirs.
func lateCommitsWhileLocked(ctx context.Context, b *breaker) error {
	conn, err := b.connect(ctx)
	if err != nil {
		return err
	}
	defer func() { conn.Close(context.WithoutCancel(ctx)) }()
	basic := b.nodes[2]
	basic.away.Lock()
	defer basic.away.Unlock()
	b.note("SIGTERM to %s, and commits of the others wait for rows while their nodes are cut off", basic.id)
	basic.end(syscall.SIGTERM)
	until, waited := time.Now().Add(12*time.Second), 0
	for err == nil && time.Now().Before(until) && ctx.Err() == nil {
		var waiting int
		waiting, err = b.lateWhileLocked(ctx, conn)
		waited += waiting
		lasts(ctx, b.between(2*time.Millisecond, 20*time.Millisecond))
	}
	b.note("%d waited", waited)
	return errors.Join(err, b.restart(ctx, basic))
}

// lateWhileLocked locks the rows of the hot signers and cuts the nodes off from the next
// commit of each. It returns how many commits wait for a row before it is free. Nobody waits
// for a lock longer than 100 ms, and who waited for so long leaves locked rows out for a while.
func (b *breaker) lateWhileLocked(ctx context.Context, conn *pgx.Conn) (waiting int, err error) {
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, lockSigners, hotNames()); err != nil {
			return err
		}
		for _, n := range b.nodes[:2] {
			b.late(n, b.between(100*time.Microsecond, time.Millisecond))
		}
		lasts(ctx, b.between(15*time.Millisecond, 50*time.Millisecond))
		return tx.QueryRow(ctx, `SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%' || $1::text || '%'`, shardCommit).Scan(&waiting)
	})
	return waiting, err
}

// clockBackSteps is how often stepClockBack sets the clock back.
const clockBackSteps = 4

// stepClockBack sets the store's clock back again and again, each time when all nodes believe
// in it and stand still: what they commit first when they wake was planned by a clock that
// is ahead of the store's, by which some holds have ended meanwhile.
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
