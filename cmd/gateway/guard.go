package main

import (
	"context"
	"time"

	"noncegate/internal/guard"
)

const (
	// guardSlots bounds the guarded calls under way: half of one worker's queue
	// with the default, so that a Redis which hangs leaves room for others.
	guardSlots = 2048
	// guardWorkers talk to Redis, each with all that has gathered: more use more of
	// its connections and share fewer round trips.
	guardWorkers = 4
	// guardTimeout is long for a Redis that is there, and short for a client that
	// waits for one that is not.
	guardTimeout = 500 * time.Millisecond
	// guardMemory bounds the locks of a node without Redis, a few hundred bytes
	// each: 333 kept ones a second of the longest interval.
	guardMemory = 200_000
	// guardKept is an eighth of them, for one principal, also where Redis has them.
	guardKept = guardMemory / 8
)

// openGuard makes the guard against calls that are made twice at a time. It ends
// after the service, whose last answers give locks back.
func (a *app) openGuard(context.Context) (err error) {
	var locks guard.Locks = guard.NewMemory(guardMemory) // of this node alone
	if a.redis != nil {
		locks = guard.NewRedis(a.redis.Client(), a.clusterName())
	}
	cfg := guard.Config{Slots: guardSlots, Workers: guardWorkers, KeptEach: guardKept, Timeout: guardTimeout}
	a.guard, err = guard.New(locks, cfg, a.registry, a.log)
	if err == nil {
		a.onStop("guard", a.guard.Stop)
	}
	return err
}
