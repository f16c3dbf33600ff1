package main

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"

	"noncegate/internal/events/redisevents"
	"noncegate/internal/metrics"
	"noncegate/internal/redisdb"
)

// redisOpenTime bounds the look at Redis at the start.
const redisOpenTime = 5 * time.Second

// openRedis connects to the Redis that was configured, if any was. One that is away
// stops the start, as one that may not be used does: a gateway that somebody starts
// with it is expected to use it, and what is written down as up must be up.
func (a *app) openRedis(ctx context.Context) (err error) {
	if a.cfg.Redis == "" {
		return nil
	}
	log := a.log.With("component", "redis")
	redis.SetLogger(redisLog{log})
	ctx, cancel := context.WithTimeout(ctx, redisOpenTime)
	defer cancel()
	if a.redis, err = redisdb.Open(ctx, a.cfg.Redis, log); err != nil {
		return settingErrorf("redis", "cannot be used: %s", sentenceOf(err))
	}
	a.onStop("Redis", func(context.Context) error { return a.redis.Close() })
	return nil
}

// clusterName tells the nodes over one store from others that use the same Redis. A
// file has one node.
func (a *app) clusterName() string {
	if id := a.databaseID(); id != nil {
		return id()
	}
	return a.node
}

// redisLog takes what go-redis logs by itself. We learn of it by errors as well.
type redisLog struct{ log *slog.Logger }

// Printf implements go-redis' interface.
func (l redisLog) Printf(ctx context.Context, format string, v ...any) {
	l.log.DebugContext(ctx, fmt.Sprintf(format, v...))
}

// openPublisher begins to publish events by Redis. It comes before the pools, so
// that what the post-DB pool runs last is still sent. A store without an id has no
// other nodes.
func (a *app) openPublisher(context.Context) error {
	counted := redisevents.NewMetrics(a.registry)
	id := a.databaseID()
	if id == nil || a.redis == nil {
		return nil
	}
	a.publisher = redisevents.NewPublisher(a.redis.Client(), redisevents.Config{Database: id(), Node: a.node}, counted, a.log)
	a.onStop("publisher of events", a.publisher.Stop)
	return nil
}

// openListener makes events of other nodes come by Redis instead of the links.
func (a *app) openListener() {
	l := redisevents.Listen(a.redis, a.publisher, a.hub, a.log)
	a.remote = l
	a.hub.OnInterest(func() { l.InterestChanged(a.interest) })
	a.onStop("events of other nodes", l.Stop)
}

// redisGauges are how Redis is, in the order of redisValues. They are there without Redis
// too, so that a dashboard shows 0 and not nothing.
var redisGauges = []metrics.Named{
	{Name: "redis_configured", Help: "1 with --redis."},
	{Name: "redis_down", Help: "1 while Redis does not take events of this node, or does not bring those of others."},
	{Name: "redis_queued_events", Help: "Events that wait for Redis."},
	{Name: "redis_queued_events_max", Help: "Most events that may wait for Redis."},
	{Name: "redis_nodes_silent", Help: "Nodes, live by the registry, that are not heard by Redis although somebody here subscribes: they use another Redis, or none."},
}

func (a *app) redisValues() []float64 {
	configured, down := 0.0, 0.0
	if a.redis != nil {
		configured = 1
	}
	waiting, capacity := 0, 0
	if a.publisher != nil {
		waiting, capacity = a.publisher.Waiting()
	}
	if a.publisher != nil && !a.publisher.Well() || a.remote != nil && !a.remote.Well() {
		down = 1
	}
	return []float64{configured, down, float64(waiting), float64(capacity), float64(a.silentNodes())}
}

// silentNodes is how many live nodes Redis brings nothing of.
func (a *app) silentNodes() int {
	if a.remote == nil {
		return 0
	}
	var live []string
	for _, n := range a.nodes() {
		if n.Live && n.Node != a.node {
			live = append(live, n.Node)
		}
	}
	return a.remote.Silent(live)
}

// redisKind is what gateway_info says of Redis.
func (a *app) redisKind() string {
	switch {
	case a.redis == nil:
		return ""
	case a.redis.Facts().Cluster:
		return "cluster"
	}
	return "server"
}
