package main

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"

	"noncegate/internal/redisdb"
)

// redisOpenTime bounds the look at Redis at the start.
const redisOpenTime = 5 * time.Second

// openRedis connects to the Redis that was configured, if any was. One that is away
// stops the start, as one that may not be used does: a gateway that is started
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

// redisKind is what gateway_info says of Redis.
func (a *app) redisKind() string {
	if a.redis == nil {
		return ""
	}
	return "server"
}
