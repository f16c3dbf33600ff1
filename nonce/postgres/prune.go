package postgres

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// pruning deletes old rows of a table in the order in which they lie there: each call reads
// pruneBlocks blocks behind those of the call before, and after the last block begins again
// at the first. So a call reads no more than these blocks, whatever was
// deleted before and is still there because of somebody's long transaction, and no index on
// the time has to be written with each row. A block range index would not do: its ranges
// keep the time of the oldest row that they ever had, so once the table has been written
// over, each call would read all of it.
type pruning struct {
	mu    sync.Mutex // guards block; it is held while rows are deleted
	block int64
}

// pruneBlocks is how many blocks one call reads: 8 MiB, some 80,000 rows.
const pruneBlocks = 1024

// prunePiece deletes rows of the blocks from $1 to before $2. It returns how many, the block
// of the last of them, and how many blocks there are.
func prunePiece(table, at string) string {
	return `
WITH old AS MATERIALIZED (
    SELECT ctid FROM ` + table + ` WHERE ctid >= $1::text::tid AND ctid < $2::text::tid AND ` + at + ` < $3 LIMIT $4 FOR UPDATE SKIP LOCKED),
gone AS (DELETE FROM ` + table + ` WHERE ctid = ANY (ARRAY (SELECT ctid FROM old)))
SELECT count(*), coalesce((max(ctid)::text::point)[0], 0)::bigint, pg_relation_size('` + table + `') / current_setting('block_size')::int FROM old`
}

var (
	pruneHistory  = prunePiece("signer_history", "at")
	pruneRequests = prunePiece("signer_request", "created_at")
)

// Prune implements nonce.Store. A call reads 1024 blocks of the table and goes on
// behind those of the call before, so a row goes some time after it has become old.
func (s *Store) Prune(ctx context.Context, before time.Time, limit int) (int, error) {
	return s.pruned.run(ctx, s, pruneHistory, before.UnixMilli(), limit)
}

// PruneRequests implements nonce.Database, as Prune does it.
func (s *Store) PruneRequests(ctx context.Context, age time.Duration, limit int) (int, error) {
	now, err := s.clock(ctx)
	if err != nil {
		return 0, err
	}
	return s.prunedRequests.run(ctx, s, pruneRequests, now-age.Milliseconds(), limit)
}

func (p *pruning) run(ctx context.Context, s *Store, text string, before int64, limit int) (n int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var last, blocks int64
	tid := func(block int64) string { return fmt.Sprintf("(%d,0)", block) }
	b := &pgx.Batch{}
	b.Queue(text, tid(p.block), tid(p.block+pruneBlocks), before, limit).QueryRow(func(row pgx.Row) error { return row.Scan(&n, &last, &blocks) })
	if err := roundTrip(ctx, s.pool, "prune", b); err != nil {
		return 0, err
	}
	switch {
	case n == limit: // there may be more in the last block
		p.block = last
	case p.block+pruneBlocks < blocks:
		p.block += pruneBlocks
	default:
		p.block = 0
	}
	return n, nil
}
