package main

import (
	"cmp"
	"time"

	"noncegate/nonce/redisstore"
)

// EngineConfig is the settings of the performance engine. They mean nothing without
// --redis. All nodes of a store are to have the same.
type EngineConfig struct {
	FlushSLA     time.Duration `name:"flush-sla" group:"fast" default:"1s" help:"How far PostgreSQL may be behind Redis before hand-outs wait for it. While PostgreSQL is away they do not."`
	ShipInterval time.Duration `group:"fast" default:"100ms" help:"With --heart new: between two shipments from Redis to PostgreSQL. Marks wait for one, and one that is waited for begins sooner."`
	FlushShards  int           `group:"fast" default:"16" help:"Streams that carry changes from Redis to PostgreSQL. The first node that has Redis fixes the number for good."`

	EngineGrant       time.Duration `group:"fast" default:"45s" help:"How long Redis may go on handing out nonces of a signer while PostgreSQL is away. After a loss of Redis its nonces wait for as long, and for the longest hold."`
	EngineBlockMin    int64         `group:"fast" default:"64" help:"Fewest nonces of a signer that are reserved ahead in PostgreSQL. A loss of Redis leaves at most what was reserved in doubt."`
	EngineBlockMax    int64         `group:"fast" default:"65536" help:"Most nonces of a signer that are reserved ahead: what it may be handed out while PostgreSQL is away. Between the two it is 1.5 times what its rate needs for --engine-grant."`
	EngineRehearsal   time.Duration `group:"fast" default:"10s" help:"How long every shard writes to Redis behind the answers of PostgreSQL, and keeps up, before Redis answers. 0: nothing is rehearsed."`
	EngineTimeout     time.Duration `group:"fast" default:"1s" help:"Longest wait for one batch of Redis. Beyond it its outcome is unknown, and the signers are read anew."`
	EngineRedisLimit  time.Duration `group:"fast" default:"3s" help:"Longest run of errors of Redis before the performance engine is left."`
	EngineLostAfter   time.Duration `name:"engine-redis-lost-after" group:"fast" default:"30s" help:"Redis that is out of reach for longer counts as lost, with all that PostgreSQL does not have."`
	EngineScriptLimit time.Duration `group:"fast" default:"500ms" help:"The performance engine is left when more than one in a hundred batches of Redis takes longer, over ten seconds."`
	EngineLagLimit    time.Duration `group:"fast" default:"10s" help:"The performance engine is left when PostgreSQL, while it answers, stays further behind Redis than this, for as long."`
	EngineRetryLimit  int           `group:"fast" default:"200" help:"The performance engine is left when what follows Redis is repeated more often in a minute."`
	EngineObserve     time.Duration `group:"fast" default:"5m" help:"How long after such a trouble nobody goes up again without --force."`
	EngineAutoUp      string        `group:"fast" default:"off" help:"on: after --engine-observe it goes up again by itself. off: somebody has to say so."`
}

// maxGrant bounds the wait after a loss.
const maxGrant = 10 * time.Minute

func (c *EngineConfig) check() error {
	return cmp.Or(
		atLeast("flush-sla", c.FlushSLA, 10*time.Millisecond),
		atLeast("ship-interval", c.ShipInterval, time.Millisecond),
		notAbove("ship-interval", c.ShipInterval, "flush-sla", c.FlushSLA),
		atLeast("flush-shards", c.FlushShards, 1),
		atMost("flush-shards", c.FlushShards, redisstore.MaxShards),
		atLeast("engine-grant", c.EngineGrant, time.Second),
		atMost("engine-grant", c.EngineGrant, maxGrant),
		below("flush-sla", c.FlushSLA, "engine-grant", c.EngineGrant),
		atLeast("engine-block-min", c.EngineBlockMin, 1),
		notAbove("engine-block-min", c.EngineBlockMin, "engine-block-max", c.EngineBlockMax),
		notNegative("engine-rehearsal", c.EngineRehearsal),
		atLeast("engine-timeout", c.EngineTimeout, 10*time.Millisecond),
		below("engine-timeout", c.EngineTimeout, "engine-grant", c.EngineGrant),
		atLeast("engine-redis-limit", c.EngineRedisLimit, time.Second),
		below("engine-redis-limit", c.EngineRedisLimit, "engine-redis-lost-after", c.EngineLostAfter),
		atLeast("engine-script-limit", c.EngineScriptLimit, time.Millisecond),
		notAbove("flush-sla", c.FlushSLA, "engine-lag-limit", c.EngineLagLimit),
		atLeast("engine-retry-limit", c.EngineRetryLimit, 1),
		notNegative("engine-observe", c.EngineObserve),
		oneOf("engine-auto-up", c.EngineAutoUp, "on", "off"),
	)
}
