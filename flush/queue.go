package flush

import (
	"context"
	"time"

	"noncegate/nonce"
	"noncegate/nonce/redisstore"
)

// Entry is an event and its place in the stream of its shard.
type Entry = redisstore.Event

// DeadLetter is an event that could not be applied.
type DeadLetter = redisstore.DeadLetter

// Queue is the streams of the flush shards, in Redis; redisstore.Store is one. Shards
// are numbered from 0. An error leaves open whether something was written: every call
// may be repeated. Its methods may be called from many goroutines.
type Queue interface {
	// Events reads the head of a shard's stream, at most most entries, and compares
	// the server's identity after that.
	Events(ctx context.Context, shard, most int, block time.Duration, accepted []nonce.Identity) ([]Entry, nonce.Identity, error)
	// Ack removes the first entries of a stream, and with them what Redis kept of
	// nonces that they made CONSUMED.
	Ack(ctx context.Context, shard int, done []Entry) error
	// Bury moves an entry to the shard's dead letters.
	Bury(ctx context.Context, shard int, e Entry, why string) (bool, error)
	// Dead returns a shard's dead letters after one, oldest first, at most most.
	Dead(ctx context.Context, shard int, after string, most int) ([]DeadLetter, error)
	// Drop removes dead letters.
	Drop(ctx context.Context, shard int, ids []string) (int, error)
}

var _ Queue = (*redisstore.Store)(nil)
