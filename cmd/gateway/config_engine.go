package main

import (
	"cmp"
	"time"
)

// EngineConfig is the settings of the performance engine. They mean nothing without
// --redis. All nodes of a store are to have the same.
type EngineConfig struct {
	ShipSLA         time.Duration `name:"ship-sla" group:"engine" default:"1s" help:"How far PostgreSQL may be behind Redis before hand-outs wait for it. While PostgreSQL is away they do not."`
	ShipInterval    time.Duration `group:"engine" default:"100ms" help:"Time between two shipments from Redis to PostgreSQL. Marks wait for one, and one that is waited for begins sooner."`
	EngineGrant     time.Duration `group:"engine" default:"45s" help:"How long Redis may go on handing out nonces while PostgreSQL is away. After a loss of Redis and of the node that used it, nonces wait for as long, and for the longest hold."`
	EngineRehearsal time.Duration `group:"engine" default:"10s" help:"How long every shard writes to Redis behind the answers of PostgreSQL, and keeps up, before Redis answers. 0: nothing is rehearsed."`
	EngineTimeout   time.Duration `group:"engine" default:"1s" help:"Longest wait for one batch of Redis. Beyond it its outcome is unknown, and Redis is asked what became of it."`
	RedisLostAfter  time.Duration `group:"engine" default:"30s" help:"Redis that is out of reach for longer counts as lost, with all that PostgreSQL does not have."`
}

// maxGrant bounds the wait after a loss.
const maxGrant = 10 * time.Minute

func (c *EngineConfig) check() error {
	return cmp.Or(
		atLeast("ship-sla", c.ShipSLA, 10*time.Millisecond),
		atLeast("ship-interval", c.ShipInterval, time.Millisecond),
		notAbove("ship-interval", c.ShipInterval, "ship-sla", c.ShipSLA),
		atLeast("engine-grant", c.EngineGrant, time.Second),
		atMost("engine-grant", c.EngineGrant, maxGrant),
		below("ship-sla", c.ShipSLA, "engine-grant", c.EngineGrant),
		notNegative("engine-rehearsal", c.EngineRehearsal),
		atLeast("engine-timeout", c.EngineTimeout, 10*time.Millisecond),
		below("engine-timeout", c.EngineTimeout, "engine-grant", c.EngineGrant),
		below("engine-timeout", c.EngineTimeout, "redis-lost-after", c.RedisLostAfter),
	)
}
