//go:build unix

package torture

import (
	"context"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"noncegate/test/lab/pgtest"
	"noncegate/test/lab/redistest"
)

// fastNode is a node that has Redis.
func (b *breaker) fastNode() *node { return b.nodes[b.rnd.IntN(2)] }

// killRedis ends Redis as a crash does.
func killRedis(ctx context.Context, b *breaker) error {
	away := b.between(0, 2500*time.Millisecond)
	b.note("kill -9 Redis, back after %v", away)
	if err := b.engineRedis.server.Kill(); err != nil {
		return err
	}
	lasts(ctx, away)
	err := b.engineRedis.server.Restart()
	b.note("Redis is up again")
	return err
}

// emptyRedis deletes all keys.
func emptyRedis(ctx context.Context, b *breaker) error {
	b.note("FLUSHALL")
	if err := b.redis(ctx, func(c *redis.Client) error { return c.FlushAll(ctx).Err() }); err != nil {
		b.note("it failed: %v", err) // another fault has Redis down
	}
	return nil
}

// setRedisBack takes the last writes off what Redis has written, or starts it from what was
// saved a while ago.
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
	if err := b.redis(ctx, func(c *redis.Client) error { return c.Save(ctx).Err() }); err != nil {
		b.note("Redis saved nothing: %v", err) // another fault has it down
	}
	lasts(ctx, b.between(50*time.Millisecond, 1500*time.Millisecond))
	b.note("Redis is set back to what it saved")
	if err := b.engineRedis.server.Kill(); err != nil {
		return err
	}
	return b.engineRedis.server.Restart()
}

// redis does something with the Redis of the run.
func (b *breaker) redis(ctx context.Context, do func(*redis.Client) error) error {
	options, err := redis.ParseURL(b.engineRedis.server.URL())
	if err != nil {
		return err
	}
	client := redis.NewClient(options)
	defer client.Close()
	return do(client)
}

// replaceRedis leads nodes to another server, empty, at the same address, and the
// first one lives on.
func replaceRedis(ctx context.Context, b *breaker) error { return b.another(ctx, false) }

// failRedisOver leads nodes to a replica that is promoted, as a failover does, while
// the old master lives on.
func failRedisOver(ctx context.Context, b *breaker) error { return b.another(ctx, true) }

func (b *breaker) another(ctx context.Context, replica bool) error {
	other, err := b.otherRedis(ctx, replica)
	if err != nil {
		return err
	}
	first := b.rnd.IntN(2)
	b.note("%s is led to another Redis, replica: %v", b.nodes[first].id, replica)
	b.leadTo(b.nodes[first], other.Addr())
	lasts(ctx, b.ttls(0, 1.5))
	b.note("all nodes are")
	b.leadTo(b.nodes[1-first], other.Addr())
	if b.rnd.IntN(2) == 0 {
		lasts(ctx, b.ttls(0, 1))
		b.note("and back to the first Redis")
		b.leadTo(b.nodes[first], b.engineRedis.server.Addr())
		b.leadTo(b.nodes[1-first], b.engineRedis.server.Addr())
	}
	// A gateway's connections live for a minute; here for less.
	lasts(ctx, b.ttls(0.5, 2))
	b.note("no connection leads to another Redis any more")
	b.nodes[0].redis.Drop()
	b.nodes[1].redis.Drop()
	return nil
}

// otherRedis is one more server, empty, or the replica, which is promoted.
func (b *breaker) otherRedis(ctx context.Context, replica bool) (*redistest.Server, error) {
	if !replica {
		other, err := b.engineRedis.server.Another("appendonly no")
		if err == nil {
			b.engineRedis.mu.Lock()
			b.engineRedis.others = append(b.engineRedis.others, other)
			b.engineRedis.mu.Unlock()
		}
		return other, err
	}
	options, err := redis.ParseURL(b.engineRedis.replica.URL())
	if err != nil {
		return nil, err
	}
	client := redis.NewClient(options)
	defer client.Close()
	if err := client.ReplicaOf(ctx, "NO", "ONE").Err(); err != nil {
		b.note("the replica was not promoted: %v", err)
	}
	return b.engineRedis.replica, nil
}

// leadTo leads a node to another server, at once or with its next connection.
func (b *breaker) leadTo(n *node, addr string) {
	n.redis.Retarget(addr)
	if b.rnd.IntN(4) > 0 {
		n.redis.Drop()
	}
}

// pauseRedis stops Redis where it stands, for longer than a lease.
func pauseRedis(ctx context.Context, b *breaker) error {
	d := b.ttls(0.4, 3)
	b.note("SIGSTOP Redis for %v", d)
	if err := b.engineRedis.server.Pause(); err != nil {
		b.note("it failed: %v", err)
		return nil
	}
	lasts(ctx, d)
	if err := b.engineRedis.server.Resume(); err != nil {
		b.note("it failed: %v", err)
	}
	b.note("SIGCONT Redis")
	return nil
}

// cutRedisReplies loses answers of Redis, or lets commands arrive late.
func cutRedisReplies(ctx context.Context, b *breaker) error {
	b.note("answers of Redis are lost")
	times := b.again(ctx, b.ttls(1.5, 3), time.Second, 60*time.Millisecond, func(int) <-chan struct{} {
		late := time.Duration(0)
		if b.rnd.IntN(2) == 0 {
			late = b.between(time.Millisecond, 700*time.Millisecond)
		}
		return b.fastNode().redis.CutAnyReply("evalsha", late)
	})
	b.note("%d were", times)
	return nil
}

// slowRedis has the answers of Redis come late, at times so late that nobody waits for them.
func slowRedis(ctx context.Context, b *breaker) error {
	until := time.Now().Add(b.ttls(2, 4))
	for time.Now().Before(until) && ctx.Err() == nil {
		late := b.between(20*time.Millisecond, 250*time.Millisecond)
		if b.rnd.IntN(4) == 0 {
			late = b.between(400*time.Millisecond, 800*time.Millisecond)
		}
		b.note("Redis answers late by %v", late)
		for _, n := range b.nodes[:2] {
			n.redis.DelayReplies(late)
			n.redis.Drop()
		}
		lasts(ctx, b.ttls(0.3, 1))
	}
	for _, n := range b.nodes[:2] {
		n.redis.DelayReplies(0)
		n.redis.Drop()
	}
	b.note("Redis is as fast as ever")
	return nil
}

// fillRedis lets Redis be out of memory.
func fillRedis(ctx context.Context, b *breaker) error {
	d := b.ttls(0.3, 3)
	b.note("Redis is full for %v", d)
	set := func(bytes string) func(*redis.Client) error {
		return func(c *redis.Client) error { return c.ConfigSet(ctx, "maxmemory", bytes).Err() }
	}
	if err := b.redis(ctx, set("1")); err != nil {
		b.note("it failed: %v", err) // another fault has Redis down
	}
	lasts(ctx, d)
	if err := b.redis(ctx, set("0")); err != nil {
		b.note("there is no more room: %v", err) // a restart gives it
	}
	b.note("Redis has room")
	return nil
}

// partitionRedis cuts one node, or all, off from Redis for a while.
func partitionRedis(ctx context.Context, b *breaker) error {
	nodes, d := []*node{b.fastNode()}, b.ttls(0.5, 4)
	if b.rnd.IntN(3) == 0 {
		nodes = b.nodes[:2]
	}
	cut, how := b.cutOff()
	for _, n := range nodes {
		b.note("%s %s Redis for %v", n.id, how, d)
		cut(n.redis)
	}
	lasts(ctx, d)
	for _, n := range nodes {
		n.redis.Forward()
		b.note("%s is back at Redis", n.id)
	}
	return nil
}

// cutOff is a way to cut a node off from a server.
func (b *breaker) cutOff() (cut func(*pgtest.Proxy), how string) {
	if b.rnd.IntN(3) == 0 {
		return (*pgtest.Proxy).Refuse, "is refused by"
	}
	return (*pgtest.Proxy).BlackHole, "hears nothing from"
}

// awayPostgres cuts all nodes off from the database, for up to twice the grant.
func awayPostgres(ctx context.Context, b *breaker) error {
	d := b.between(engineGrant/4, 2*engineGrant)
	cut, how := b.cutOff()
	b.note("everybody %s PostgreSQL for %v", how, d)
	for _, n := range b.nodes {
		cut(n.db)
	}
	lasts(ctx, d)
	for _, n := range b.nodes {
		n.db.Forward()
	}
	b.note("PostgreSQL is back")
	return nil
}

// awayBoth cuts all nodes off from PostgreSQL and from Redis, one soon after the other, and
// either may come back first.
func awayBoth(ctx context.Context, b *breaker) error {
	var all sync.WaitGroup
	for _, server := range []struct {
		name string
		of   func(*node) *pgtest.Proxy
	}{{"PostgreSQL", func(n *node) *pgtest.Proxy { return n.db }}, {"Redis", func(n *node) *pgtest.Proxy { return n.redis }}} {
		first, d := b.between(0, time.Second), b.between(engineGrant/4, engineGrant*3/2)
		cut, how := b.cutOff()
		all.Go(func() {
			lasts(ctx, first)
			b.note("everybody %s %s for %v", how, server.name, d)
			for _, n := range b.nodes {
				if p := server.of(n); p != nil {
					cut(p)
				}
			}
			lasts(ctx, d)
			for _, n := range b.nodes {
				if p := server.of(n); p != nil {
					p.Forward()
				}
			}
			b.note("%s is back", server.name)
		})
	}
	all.Wait()
	return nil
}

// part leaves one node with Redis and without PostgreSQL, and the other the other way round,
// until that one has taken everything over without what Redis has.
func part(ctx context.Context, b *breaker) error {
	cut, how := b.cutOff()
	return b.part(ctx, engineRedisLost+b.ttls(2, 6), cut, how)
}

// partForLong lasts until a loss was declared, and beyond the grant. Nobody waits for an
// answer of the database meanwhile.
func partForLong(ctx context.Context, b *breaker) error {
	return b.part(ctx, engineRedisLost+b.ttls(4.5, 7), (*pgtest.Proxy).Refuse, "is refused by")
}

func (b *breaker) part(ctx context.Context, d time.Duration, cut func(*pgtest.Proxy), how string) error {
	with := b.rnd.IntN(2)
	old, other := b.nodes[with], b.nodes[1-with]
	b.note("%s %s PostgreSQL, and %s Redis, for %v", old.id, how, other.id, d)
	cut(old.db)
	cut(other.redis)
	lasts(ctx, d)
	old.db.Forward()
	other.redis.Forward()
	b.note("both are back")
	return nil
}

// pauseLong stops a node where it stands for longer than lease and grant together.
func pauseLong(ctx context.Context, b *breaker) error {
	n, d := b.fastNode(), engineGrant+b.ttls(1, 2)
	return b.pause(ctx, n, d)
}

// switchBackAndForth lets the shards return, and go up again.
func switchBackAndForth(ctx context.Context, b *breaker) error {
	for range 2 + b.rnd.IntN(2) {
		release := b.engineRedis.hold()
		err := b.switchTo(ctx, "reliable")
		b.note("drain: %v", err)
		lasts(ctx, b.between(0, 1200*time.Millisecond))
		release()
		lasts(ctx, b.between(time.Second, 3*time.Second))
	}
	return nil
}
