//go:build unix

package torture

import (
	"context"
	"errors"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"noncegate/test/lab/pgtest"
	"noncegate/test/lab/redistest"
)

// emptyRedis has Redis forget everything and live on.
func emptyRedis(ctx context.Context, b *breaker) error {
	b.redis(ctx, "FLUSHALL", b.engineRedis.server, func(c *redis.Client) error { return c.FlushAll(ctx).Err() })
	return nil
}

// setRedisBack takes the last writes off what Redis has written, or starts it from what was saved a while ago.
func setRedisBack(ctx context.Context, b *breaker) error {
	n := b.rnd.Int64N(1 << (8 + b.rnd.IntN(8)))
	if err := b.engineRedis.server.SetBack(n); err == nil {
		b.note("Redis is set back by %d bytes", n)
		return nil
	}
	// It writes no such file, and was ended.
	if err := b.engineRedis.server.Restart(); err != nil {
		return err
	}
	b.redis(ctx, "SAVE", b.engineRedis.server, func(c *redis.Client) error { return c.Save(ctx).Err() })
	lasts(ctx, b.between(50*time.Millisecond, 1500*time.Millisecond))
	b.note("Redis is set back to what it saved")
	return errors.Join(b.engineRedis.server.Kill(), b.engineRedis.server.Restart())
}

// redis does something with a Redis. That it fails is no error: another fault may have it down.
func (b *breaker) redis(ctx context.Context, what string, server *redistest.Server, do func(*redis.Client) error) {
	client := server.Dial()
	b.note("%s: %v", what, errors.Join(do(client), client.Close()))
}

// leadElsewhere leads nodes to another server, and perhaps back, while the first one lives on: an empty one at the same address, or a
// replica that is promoted, as a failover does.
func leadElsewhere(replica bool) func(context.Context, *breaker) error {
	return func(ctx context.Context, b *breaker) error {
		other, err := b.otherRedis(ctx, replica)
		if err != nil {
			return err
		}
		first := b.rnd.IntN(2)
		one, two := b.nodes[first], b.nodes[1-first]
		atOnce := func() bool { return b.rnd.IntN(4) > 0 } // or with its next connection
		b.lead(one, other, atOnce())
		lasts(ctx, b.ttls(0, 1.5))
		b.lead(two, other, atOnce())
		if b.rnd.IntN(2) == 0 {
			lasts(ctx, b.ttls(0, 1))
			b.lead(one, b.engineRedis.server, atOnce())
			b.lead(two, b.engineRedis.server, atOnce())
		}
		lasts(ctx, b.ttls(0.5, 2))
		b.note("no connection leads to another Redis any more") // those of a gateway live for a minute
		one.redis.Drop()
		two.redis.Drop()
		return nil
	}
}

// lead leads a node to a Redis, at once or with its next connection.
func (b *breaker) lead(n *node, to *redistest.Server, atOnce bool) {
	b.note("%s is led to %s", n.id, to.Addr())
	if n.redis.Retarget(to.Addr()); atOnce {
		n.redis.Drop()
	}
}

// otherRedis is one more server, empty, or the replica, which is promoted.
func (b *breaker) otherRedis(ctx context.Context, replica bool) (*redistest.Server, error) {
	r := b.engineRedis
	if replica {
		b.redis(ctx, "promote the replica", r.replica, func(c *redis.Client) error { return c.ReplicaOf(ctx, "NO", "ONE").Err() })
		return r.replica, nil
	}
	other, err := r.server.Another("appendonly no")
	if err == nil {
		b.mu.Lock()
		defer b.mu.Unlock()
		r.others = append(r.others, other)
	}
	return other, err
}

// pauseRedis stops Redis where it stands, for longer than a lease.
func pauseRedis(ctx context.Context, b *breaker) error {
	d := b.ttls(0.4, 3)
	b.note("SIGSTOP Redis for %v: %v", d, b.engineRedis.server.Pause()) // another fault may have it down
	lasts(ctx, d)
	b.note("SIGCONT Redis: %v", b.engineRedis.server.Resume())
	return nil
}

// cutRedisReplies loses answers of Redis, or lets commands arrive late.
func cutRedisReplies(b *breaker, _ int) <-chan struct{} {
	late := time.Duration(0)
	if b.rnd.IntN(2) == 0 {
		late = b.between(time.Millisecond, 700*time.Millisecond)
	}
	return b.fastNode().redis.CutAnyReply("evalsha", late)
}

// lateScripts cuts connections to Redis when a script was sent, which arrives later: at once, or when the node, which leaves Redis
// alone for a tenth of a second after that, looks what became of it or has just looked.
func lateScripts(b *breaker, times int) <-chan struct{} {
	late := b.between(200*time.Microsecond, 8*time.Millisecond)
	if times%4 > 0 {
		late = b.between(97*time.Millisecond, 112*time.Millisecond)
	}
	return b.fastNode().redis.CutAnyReply("evalsha", late)
}

// slowRedis has the answers of Redis come late, at times so late that no node waits for them.
func slowRedis(ctx context.Context, b *breaker) error {
	return b.slow(ctx, "Redis", redises(b.nodes[:2]))
}

// slow has the answers of a server come late, at times so late that no node waits for them.
func (b *breaker) slow(ctx context.Context, server string, proxies []*pgtest.Proxy) error {
	delay := func(late time.Duration) {
		b.note("%s answers late by %v", server, late)
		for _, p := range proxies {
			p.DelayReplies(late)
			p.Drop()
		}
	}
	b.repeat(ctx, b.ttls(2, 4), func() time.Duration {
		if b.rnd.IntN(4) == 0 {
			delay(b.between(400*time.Millisecond, 800*time.Millisecond))
		} else {
			delay(b.between(20*time.Millisecond, 250*time.Millisecond))
		}
		return b.ttls(0.3, 1)
	})
	delay(0)
	return nil
}

// fillRedis lets Redis be out of memory.
func fillRedis(ctx context.Context, b *breaker) error {
	for _, bytes := range []string{"1", "0"} { // 0: as much as there is, also after a restart
		b.redis(ctx, "maxmemory "+bytes, b.engineRedis.server, func(c *redis.Client) error { return c.ConfigSet(ctx, "maxmemory", bytes).Err() })
		if bytes == "1" {
			lasts(ctx, b.ttls(0.3, 3))
		}
	}
	return nil
}

// partitionRedis cuts one node, or all, off from Redis for a while.
func partitionRedis(ctx context.Context, b *breaker) error {
	nodes := b.oneOrBoth()
	return b.parted(ctx, b.ttls(0.5, 4), b.someWay(), nodes[0].id, "Redis", redises(nodes)...)
}

// awayPostgres cuts all nodes off from the database, for up to twice the grant.
func awayPostgres(ctx context.Context, b *breaker) error {
	return b.parted(ctx, b.between(engineGrant/4, 2*engineGrant), b.someWay(), "everybody", "PostgreSQL", dbs(b.nodes)...)
}

// awayBoth cuts all nodes off from PostgreSQL and from Redis, one soon after the other, and either may come back first.
func awayBoth(ctx context.Context, b *breaker) error {
	var all errgroup.Group
	for i, proxies := range [][]*pgtest.Proxy{dbs(b.nodes), redises(b.nodes)} {
		server := []string{"PostgreSQL", "Redis"}[i]
		first, d, way := b.between(0, time.Second), b.between(engineGrant/4, engineGrant*3/2), b.someWay()
		all.Go(func() error {
			lasts(ctx, first)
			return b.parted(ctx, d, way, "everybody", server, proxies...)
		})
	}
	return all.Wait()
}

// partNodes leaves one node with Redis and without PostgreSQL, and the other the other way round, until that one has taken everything
// over without what Redis has.
func partNodes(ctx context.Context, b *breaker) error {
	return b.partNodes(ctx, engineRedisLost+b.ttls(2, 6), b.someWay())
}

// partForLong lasts until a loss was declared, and beyond the grant. Nobody waits for an answer of the database meanwhile.
func partForLong(ctx context.Context, b *breaker) error {
	return b.partNodes(ctx, engineRedisLost+b.ttls(4.5, 7), refusing)
}

func (b *breaker) partNodes(ctx context.Context, d time.Duration, w way) error {
	with := b.rnd.IntN(2)
	old, other := b.nodes[with], b.nodes[1-with]
	return b.parted(ctx, d, w, old.id+" by PostgreSQL, and "+other.id, "Redis", old.db, other.redis)
}

// pauseLong stops a node where it stands for longer than lease and grant together.
func pauseLong(ctx context.Context, b *breaker) error {
	return b.pause(ctx, b.fastNode(), engineGrant+b.ttls(1, 2))
}

// switchBackAndForth lets the shards return, and go up again.
func switchBackAndForth(ctx context.Context, b *breaker) error {
	for range 2 + b.rnd.IntN(2) {
		b.engineRedis.held.Add(1)
		b.note("drain: %v", b.switchTo(ctx, "reliable"))
		lasts(ctx, b.between(0, 1200*time.Millisecond))
		b.engineRedis.held.Add(-1)
		lasts(ctx, b.between(time.Second, 3*time.Second))
	}
	return nil
}

// killAll kills both nodes that have Redis, does something, and starts them again.
func (b *breaker) killAll(ctx context.Context, do func()) error {
	for _, n := range b.nodes[:2] {
		n.away.Lock()
		defer n.away.Unlock()
		b.note("kill -9 %s", n.id)
		n.end(syscall.SIGKILL)
	}
	do()
	var all errgroup.Group
	for _, n := range b.nodes[:2] {
		all.Go(func() error { return b.restart(ctx, n) })
	}
	return all.Wait()
}

// loseAllWhileAway empties Redis and kills the nodes that had it when PostgreSQL has been away for nearly a grant: what was handed out
// meanwhile is in no place but its holders' hands, and what they were told must hold.
func loseAllWhileAway(ctx context.Context, b *breaker) error {
	heal := b.part(refusing, "everybody", "PostgreSQL", dbs(b.nodes)...)
	lasts(ctx, b.between(engineGrant/3, engineGrant*3/4))
	return b.killAll(ctx, func() {
		_ = emptyRedis(ctx, b)
		heal()
	})
}

// loseAllAfterSwitch switches up while somebody locks the rows of the hot signers, so that nothing can be reserved or shipped of them,
// then kills both nodes and empties Redis.
func loseAllAfterSwitch(ctx context.Context, b *breaker) error {
	defer b.engineRedis.held.Add(-1) // since the start
	return b.locked(ctx, lockSigners, hotNames(), func(pgx.Tx) error {
		b.note("up: %v", b.switchTo(ctx, "performance"))
		if err := b.up(ctx); err != nil {
			return err
		}
		lasts(ctx, b.between(100*time.Millisecond, 500*time.Millisecond))
		return b.killAll(ctx, func() { _ = emptyRedis(ctx, b) })
	})
}

// drainWhileLocked lets shards return while PostgreSQL cannot follow them.
func drainWhileLocked(ctx context.Context, b *breaker) error {
	b.engineRedis.held.Add(1)
	defer b.engineRedis.held.Add(-1)
	err := b.locked(ctx, lockSigners, hotNames(), func(pgx.Tx) error {
		lasts(ctx, b.between(50*time.Millisecond, 300*time.Millisecond))
		b.note("drain: %v", b.switchTo(ctx, "reliable"))
		lasts(ctx, b.between(600*time.Millisecond, 1200*time.Millisecond)) // every node knows it by then, and wants to
		return nil
	})
	lasts(ctx, b.between(500*time.Millisecond, time.Second))
	return err
}

// killWhileLocked ends both nodes that have Redis and starts them again while PostgreSQL cannot follow: what they had not shipped is
// left to those that come.
func killWhileLocked(ctx context.Context, b *breaker) error {
	return b.locked(ctx, lockSigners, hotNames(), func(pgx.Tx) error {
		lasts(ctx, b.between(50*time.Millisecond, 300*time.Millisecond))
		return b.killAll(ctx, func() {})
	})
}

// ownerWithoutPostgres keeps a node from PostgreSQL, again and again, for longer than its lease and for less than its grant: another
// takes its shards over while it hands out.
func ownerWithoutPostgres(ctx context.Context, b *breaker) error {
	for i := range 3 {
		n := b.nodes[i%2]
		_ = b.parted(ctx, b.between(leaseTTL*2, engineGrant+leaseTTL/2), refusing, n.id, "PostgreSQL", n.db)
		lasts(ctx, b.ttls(1.5, 2))
	}
	return nil
}

// failOverAndBack leads the nodes to a replica that was promoted while PostgreSQL is away, kills them when they have worked there, and
// starts them again at the first server, which knows nothing of that, and neither does anybody's memory.
func failOverAndBack(ctx context.Context, b *breaker) error {
	heal := b.part(refusing, "everybody", "PostgreSQL", dbs(b.nodes)...)
	replica, err := b.otherRedis(ctx, true)
	if err != nil {
		return err
	}
	lead := func(to *redistest.Server) {
		for _, n := range b.nodes[:2] {
			b.lead(n, to, true)
		}
	}
	lead(replica)
	lasts(ctx, b.between(300*time.Millisecond, 900*time.Millisecond))
	return b.killAll(ctx, func() {
		lead(b.engineRedis.server)
		heal()
	})
}
