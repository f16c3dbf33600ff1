//go:build unix

package torture

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"noncegate/internal/pgtest"
	"noncegate/internal/redistest"
)

// EngineFaults are those of the performance engine, in the order in which campaigns
// number them.
var EngineFaults = []Fault{
	{Name: "redis-kill", Engine: true, Loses: true, do: killRedis},
	{Name: "redis-empty", Engine: true, Loses: true, do: emptyRedis},
	{Name: "redis-back", Engine: true, Loses: true, do: setRedisBack},
	{Name: "redis-other", Engine: true, Loses: true, do: replaceRedis},
	{Name: "redis-failover", Engine: true, Loses: true, Replica: true, do: failRedisOver},
	{Name: "redis-pause", Engine: true, Loses: true, do: pauseRedis},
	{Name: "redis-cut-reply", Engine: true, do: cutRedisReplies},
	{Name: "redis-partition", Engine: true, Loses: true, do: partitionRedis},
	{Name: "postgres-away", Engine: true, do: awayPostgres},
	{Name: "redis-rewind", Engine: true, Loses: true, do: rewindRedis},
	{Name: "switch", Engine: true, do: switchBackAndForth},
}

// fastNode is a node that has Redis.
func (b *breaker) fastNode() *Node { return b.nodes[b.rnd.IntN(2)] }

// killRedis ends Redis as a crash does.
func killRedis(ctx context.Context, b *breaker) error {
	away := b.between(0, 2500*time.Millisecond)
	b.note("kill -9 Redis, back after %v", away)
	if err := b.fast.server.Kill(); err != nil {
		return err
	}
	lasts(ctx, away)
	err := b.fast.server.Restart()
	b.note("Redis is up again")
	return err
}

// emptyRedis deletes all keys.
func emptyRedis(ctx context.Context, b *breaker) error {
	options, err := redis.ParseURL(b.fast.server.URL())
	if err != nil {
		return err
	}
	client := redis.NewClient(options)
	defer client.Close()
	b.note("FLUSHALL")
	if err := client.FlushAll(ctx).Err(); err != nil {
		b.note("it failed: %v", err) // another fault has Redis down
	}
	return nil
}

// rewindRedis puts all keys back to what they were a moment ago, in a server that
// goes on: only versions tell.
func rewindRedis(ctx context.Context, b *breaker) error {
	options, err := redis.ParseURL(b.fast.server.URL())
	if err != nil {
		return err
	}
	client := redis.NewClient(options)
	defer client.Close()
	keys, err := client.Keys(ctx, "*").Result()
	if err != nil {
		b.note("it failed: %v", err) // another fault has Redis down
		return nil
	}
	dumps := make([]*redis.StringCmd, len(keys))
	_, _ = client.TxPipelined(ctx, func(p redis.Pipeliner) error { // a key that is gone is an error
		for i, key := range keys {
			dumps[i] = p.Dump(ctx, key)
		}
		return nil
	})
	d := b.between(5*time.Millisecond, 300*time.Millisecond)
	lasts(ctx, d)
	_, err = client.TxPipelined(ctx, func(p redis.Pipeliner) error {
		p.FlushAll(ctx)
		for i, key := range keys {
			if dumps[i].Err() == nil {
				p.Restore(ctx, key, 0, dumps[i].Val())
			}
		}
		return nil
	})
	b.note("%d keys are as they were %v ago: %v", len(keys), d, err)
	return nil
}

// setRedisBack takes the last writes off what Redis has written.
func setRedisBack(ctx context.Context, b *breaker) error {
	n := b.rnd.Int64N(1 << (8 + b.rnd.IntN(8)))
	b.note("Redis is set back by %d bytes", n)
	if err := b.fast.server.SetBack(n); err != nil {
		b.note("it starts empty: %v", err)
		return b.fast.server.Restart()
	}
	return nil
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
	b.note("%s is led to another Redis, replica: %v", b.nodes[first].ID, replica)
	b.leadTo(b.nodes[first], other.Addr())
	lasts(ctx, b.ttls(0, 1.5))
	b.note("all nodes are")
	b.leadTo(b.nodes[1-first], other.Addr())
	if b.rnd.IntN(2) == 0 {
		lasts(ctx, b.ttls(0, 1))
		b.note("and back to the first Redis")
		b.leadTo(b.nodes[first], b.fast.server.Addr())
		b.leadTo(b.nodes[1-first], b.fast.server.Addr())
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
		other, err := b.fast.server.Another("appendonly no")
		if err == nil {
			b.fast.mu.Lock()
			b.fast.others = append(b.fast.others, other)
			b.fast.mu.Unlock()
		}
		return other, err
	}
	options, err := redis.ParseURL(b.fast.replica.URL())
	if err != nil {
		return nil, err
	}
	client := redis.NewClient(options)
	defer client.Close()
	if err := client.ReplicaOf(ctx, "NO", "ONE").Err(); err != nil {
		b.note("the replica was not promoted: %v", err)
	}
	return b.fast.replica, nil
}

// leadTo leads a node to another server, at once or with its next connection.
func (b *breaker) leadTo(n *Node, addr string) {
	n.redis.Retarget(addr)
	if b.rnd.IntN(4) > 0 {
		n.redis.Drop()
	}
}

// pauseRedis stops Redis where it stands, for longer than a lease.
func pauseRedis(ctx context.Context, b *breaker) error {
	d := b.ttls(0.4, 3)
	b.note("SIGSTOP Redis for %v", d)
	if err := b.fast.server.Pause(); err != nil {
		b.note("it failed: %v", err)
		return nil
	}
	lasts(ctx, d)
	if err := b.fast.server.Resume(); err != nil {
		b.note("it failed: %v", err)
	}
	b.note("SIGCONT Redis")
	return nil
}

// cutRedisReplies loses answers of Redis, or lets commands arrive late.
func cutRedisReplies(ctx context.Context, b *breaker) error {
	until, times := time.Now().Add(b.ttls(1.5, 3)), 0
	b.note("answers of Redis are lost")
	for time.Now().Before(until) && ctx.Err() == nil {
		late := time.Duration(0)
		if b.rnd.IntN(2) == 0 {
			late = b.between(time.Millisecond, 700*time.Millisecond)
		}
		timer := time.NewTimer(time.Second)
		select {
		case <-b.fastNode().redis.CutAnyReply("evalsha", late):
			times++
		case <-timer.C:
		}
		timer.Stop()
		lasts(ctx, b.between(0, 60*time.Millisecond))
	}
	b.note("%d were", times)
	return nil
}

// partitionRedis cuts one node off from Redis for a while.
func partitionRedis(ctx context.Context, b *breaker) error {
	n, d := b.fastNode(), b.ttls(0.5, 4)
	if b.rnd.IntN(3) == 0 {
		b.note("%s is refused by Redis for %v", n.ID, d)
		n.redis.Refuse()
	} else {
		b.note("%s hears nothing from Redis for %v", n.ID, d)
		n.redis.BlackHole()
	}
	lasts(ctx, d)
	n.redis.Forward()
	b.note("%s is back at Redis", n.ID)
	return nil
}

// awayPostgres cuts all nodes off from the database, for up to twice the grant.
func awayPostgres(ctx context.Context, b *breaker) error {
	d := b.between(engineGrant/4, 2*engineGrant)
	do, how := (*pgtest.Proxy).BlackHole, "nobody hears from"
	if b.rnd.IntN(2) == 0 {
		do, how = (*pgtest.Proxy).Refuse, "all are refused by"
	}
	b.note("%s PostgreSQL for %v", how, d)
	for _, n := range b.nodes {
		do(n.db)
	}
	lasts(ctx, d)
	for _, n := range b.nodes {
		n.db.Forward()
	}
	b.note("PostgreSQL is back")
	return nil
}

// switchBackAndForth lets signers return, and go up again.
func switchBackAndForth(ctx context.Context, b *breaker) error {
	for range 2 + b.rnd.IntN(2) {
		release := b.fast.hold()
		err := b.switchTo(ctx, "drain")
		b.note("drain: %v", err)
		lasts(ctx, b.between(0, 1200*time.Millisecond))
		release()
		lasts(ctx, b.between(time.Second, 3*time.Second))
	}
	return nil
}
