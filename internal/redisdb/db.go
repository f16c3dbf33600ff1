package redisdb

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/redis/go-redis/v9"
)

// DB is a Redis, one server or a cluster. Its methods may be called from any
// goroutine.
type DB struct {
	client redis.UniversalClient
	facts  Facts
}

// Open connects to the Redis of that address (see CheckURL) and checks it. An error
// is a sentence about what is not as it must be; errAway is in it when the Redis
// could not be asked. The caller must Close.
func Open(ctx context.Context, address string, log *slog.Logger) (*DB, error) {
	single, cluster, err := parse(address)
	if err != nil {
		return nil, err
	}
	db := new(DB)
	if cluster != nil {
		db.client = redis.NewClusterClient(cluster)
	} else {
		db.client = redis.NewClient(single)
	}
	if db.facts, err = db.Check(ctx); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	for _, s := range db.facts.Servers {
		log.Info("Redis", "address", s.Addr, "version", s.Version, "run_id", s.RunID, "replication_id", s.ReplicationID,
			"replicas", s.Replicas, "aof", s.AOF, "appendfsync", s.Fsync, "maxmemory", s.MaxMemory, "maxmemory_policy", s.Policy)
		if !s.AOF {
			log.Warn("this Redis writes no append-only file: it is empty after a restart, or as old as its last snapshot", "address", s.Addr)
		}
	}
	return db, nil
}

// Client sends commands; see the package comment for what it never does by itself.
// It is either a *redis.Client or a *redis.ClusterClient and ends with Close.
func (db *DB) Client() redis.UniversalClient { return db.client }

// Facts are those of the start.
func (db *DB) Facts() Facts { return db.facts }

// Close ends all connections.
func (db *DB) Close() error {
	if err := db.client.Close(); err != nil {
		return fmt.Errorf("close Redis: %w", err)
	}
	return nil
}

// Master is a client of the one server that has the key's slot just now; the only
// server, where there is no cluster. The client is the DB's: it is not closed.
func (db *DB) Master(ctx context.Context, key string) (*redis.Client, error) {
	switch c := db.client.(type) {
	case *redis.Client:
		return c, nil
	case *redis.ClusterClient:
		m, err := c.MasterForKey(ctx, key)
		if err != nil {
			return nil, fmt.Errorf("find the server of a slot: %w", err)
		}
		return m, nil
	}
	return nil, fmt.Errorf("a client of type %T", db.client) // Open makes no other
}

// Reread makes the map of a cluster be read again, soon and in the background.
func (db *DB) Reread(ctx context.Context) {
	if c, ok := db.client.(*redis.ClusterClient); ok {
		c.ReloadState(ctx)
	}
}
