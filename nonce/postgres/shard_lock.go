package postgres

import (
	"context"
	"strconv"

	"github.com/jackc/pgx/v5"
)

// Each shard has an advisory lock, which is taken before the lock of its row: shared by a
// transaction of mode basic, exclusive by whatever acquires, releases, pins or switches the shard.
//
// The row's lock alone is safe, but can starve: PostgreSQL grants FOR SHARE at once on a row that
// is share-locked already, past a transaction that waits to change it, and a transaction of mode
// basic holds it while it waits for the signer's row. Steady requests for one signer would block
// the acquire of its shard for ever. Advisory locks are granted in the order of the requests. The
// commits of an owner take none: they are one statement and do not overlap, and mode basic does
// not lock the row of a shard that ships.
//
// The lock of the migrations has one key, and these have two: they never meet. Both are of a
// whole database, so gateways in other schemas of it share them, and wait a little more.
const (
	lockShardShared     = `SELECT pg_advisory_xact_lock_shared(` + shardLockClass + `, $1)`
	lockShardsExclusive = `SELECT pg_advisory_xact_lock(` + shardLockClass + `, shard) FROM unnest($1::int[]) shard ORDER BY shard`

	shardLockClass = "1852796515" // "nonc"

	lockWait = 100 // milliseconds, for each lock

	// shardPatience is how long one shard is waited for: some hundred transactions may be
	// before it, which take some milliseconds each. Its worker waits as long.
	shardPatience = 400 // milliseconds

	// basicIdle is how long a transaction of mode basic may stand still between two round trips. Then
	// PostgreSQL ends it, because whoever wants the shard, or waits behind him, waits for it.
	basicIdle = "1000" // milliseconds

	setLockWait = `SELECT set_config('lock_timeout', $1, true)`
)

func queueLockWait(b *pgx.Batch, milliseconds int) {
	b.Queue(setLockWait, strconv.Itoa(milliseconds))
}

// queueShardLocks queues the exclusive locks of shards. It waits longer for a single shard: while
// it waits for one of several, it holds those before.
func queueShardLocks(b *pgx.Batch, shards []int) {
	one := len(shards) == 1
	if one {
		queueLockWait(b, shardPatience)
	}
	b.Queue(lockShardsExclusive, shards)
	if one {
		queueLockWait(b, lockWait)
	}
}

// changeShards is change of the rows of shards.
func (s *Store) changeShards(ctx context.Context, doing string, shards []int, text string, args ...any) (rows int, err error) {
	b := &pgx.Batch{}
	queueShardLocks(b, shards)
	return s.changeLast(ctx, doing, b, text, args...)
}
