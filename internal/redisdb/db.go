package redisdb

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/redis/go-redis/v9"
)

// DB is a Redis server. Its methods may be called from any goroutine.
type DB struct {
	client *redis.Client
}

// Open connects to the Redis of that address (see CheckURL) and checks it. An error
// is a sentence about what is not as it must be; errAway is in it when the Redis
// could not be asked. The caller must Close.
func Open(ctx context.Context, address string, log *slog.Logger) (*DB, error) {
	options, err := parse(address)
	if err != nil {
		return nil, err
	}
	db := &DB{redis.NewClient(options)}
	s, err := db.Check(ctx)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	log.Info("Redis", "address", s.Addr, "version", s.Version, "run_id", s.RunID, "replication_id", s.ReplicationID,
		"replicas", s.Replicas, "aof", s.AOF, "appendfsync", s.Fsync, "maxmemory", s.MaxMemory, "maxmemory_policy", s.Policy)
	if !s.AOF {
		log.Warn("this Redis writes no append-only file: it is empty after a restart, or as old as its last snapshot", "address", s.Addr)
	}
	return db, nil
}

// Client sends commands; see the package comment for what it never does by itself. It ends with Close.
func (db *DB) Client() *redis.Client { return db.client }

// Close ends all connections.
func (db *DB) Close() error {
	if err := db.client.Close(); err != nil {
		return fmt.Errorf("close Redis: %w", err)
	}
	return nil
}
