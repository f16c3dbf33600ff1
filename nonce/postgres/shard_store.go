package postgres

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/jackc/pgx/v5"

	"noncegate/lease"
	"noncegate/nonce"
)

var _ nonce.ShardStore = (*ShardStore)(nil)

//go:embed shards/*.sql
var shardFiles embed.FS

// DefaultShards is how many shards a new database gets.
const DefaultShards = 32

// ShardStore is a database in which all that lives of a signer is one row, and a shard of
// signers has one owner. Its methods may be called from many goroutines.
type ShardStore struct {
	*Store
	shards int
}

// OpenShards connects as Open does, migrates, and makes so many shards in a new database;
// 0 is as many as there are, or DefaultShards.
func OpenShards(ctx context.Context, url string, shards int, cfg Config) (*ShardStore, error) {
	s, err := Open(ctx, url, cfg)
	if err != nil {
		return nil, err
	}
	out := &ShardStore{Store: s}
	files, err := fs.Sub(shardFiles, "shards")
	if err == nil {
		err = s.refuseRows(ctx)
	}
	if err == nil {
		_, err = s.migrateWith(ctx, files, "noncegate_shard_migration")
	}
	if err == nil {
		err = out.count(ctx, shards)
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return out, nil
}

// refuseRows refuses a database that has the schema of signers in many rows.
func (s *Store) refuseRows(ctx context.Context) error {
	var there bool
	err := s.pool.QueryRow(ctx, `SELECT to_regclass('signer_nonce_state') IS NOT NULL`).Scan(&there)
	if err == nil && there {
		err = errors.New("the database has a schema with the table signer_nonce_state, which this store does not read; name another database, and raise the floors of its signers to where they are")
	}
	return err
}

// count reads how many shards there are, and makes those of a new database.
func (s *ShardStore) count(ctx context.Context, want int) error {
	return pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `LOCK TABLE shard IN SHARE ROW EXCLUSIVE MODE`); err != nil {
			return err
		}
		if err := tx.QueryRow(ctx, `SELECT count(*) FROM shard`).Scan(&s.shards); err != nil {
			return err
		}
		if s.shards > 0 {
			if want != 0 && want != s.shards {
				return fmt.Errorf("the database has %d shards, and %d are wanted; their number is fixed when the database is made", s.shards, want)
			}
			return nil
		}
		if s.shards = want; want == 0 {
			s.shards = DefaultShards
		}
		_, err := tx.Exec(ctx, `INSERT INTO shard (shard_id) SELECT generate_series(0, $1 - 1)`, s.shards)
		return err
	})
}

// Shards implements nonce.ShardStore.
func (s *ShardStore) Shards() int { return s.shards }

const (
	startNode = `
INSERT INTO gateway_node AS n (node, url, mode, incarnation) VALUES ($1, $2, $3, 1)
ON CONFLICT (node) DO UPDATE SET url = excluded.url, mode = excluded.mode, incarnation = n.incarnation + 1, counter = 0, lease_until = 0
RETURNING incarnation`

	renewLease = `
UPDATE gateway_node SET counter = counter + 1, lease_until = greatest(lease_until, c.now + $3)
FROM (SELECT store_millis() AS now) c
WHERE node = $1 AND incarnation = $2 RETURNING c.now, lease_until`

	nodeIncarnation = `SELECT incarnation FROM gateway_node WHERE node = $1`

	shardColumns = `SELECT shard_id, owner_node, owner_incarnation, fencing_token FROM shard`

	// A shard is free when nobody has it, when it is of the same node by an equal or lower
	// incarnation, or when the lease of its owner, of that incarnation, is over or gone.
	// Rows are locked in order of id.
	acquireShards = `
WITH c AS MATERIALIZED (SELECT store_millis() AS now),
me AS (SELECT 1 FROM gateway_node n, c WHERE n.node = $2 AND n.incarnation = $3 AND n.lease_until > c.now),
wanted AS MATERIALIZED (SELECT shard_id FROM shard WHERE shard_id = ANY ($1) ORDER BY shard_id FOR NO KEY UPDATE)
UPDATE shard s SET owner_node = $2, owner_incarnation = $3, fencing_token = s.fencing_token + 1
FROM wanted w, c
WHERE s.shard_id = w.shard_id AND EXISTS (SELECT 1 FROM me)
  AND (s.owner_node = '' OR s.owner_node = $2 AND s.owner_incarnation <= $3
    OR s.owner_node <> $2 AND NOT EXISTS (
        SELECT 1 FROM gateway_node n WHERE n.node = s.owner_node AND n.incarnation = s.owner_incarnation AND n.lease_until > c.now))
RETURNING s.shard_id`

	releaseShards = `
WITH t AS (SELECT * FROM unnest($3::int[], $4::bigint[]) AS t(shard, token)),
mine AS MATERIALIZED (
    SELECT s.shard_id FROM shard s JOIN t ON t.shard = s.shard_id AND t.token = s.fencing_token
    WHERE s.owner_node = $1 AND s.owner_incarnation = $2 ORDER BY s.shard_id FOR NO KEY UPDATE OF s)
UPDATE shard s SET owner_node = '', owner_incarnation = 0, fencing_token = s.fencing_token + 1 FROM mine m WHERE s.shard_id = m.shard_id`
)

// StartNode starts an incarnation of a node, without a lease.
func (s *ShardStore) StartNode(ctx context.Context, p lease.Presence) (lease.Holder, error) {
	h := lease.Holder{Node: p.Node}
	err := s.pool.QueryRow(ctx, startNode, p.Node, p.URL, p.Mode).Scan(&h.Incarnation)
	return h, storeError("start the node", err)
}

func aborted(err error) error { return &nonce.StoreError{Outcome: nonce.Aborted, Err: err} }

// Renew implements nonce.ShardStore.
func (s *ShardStore) Renew(ctx context.Context, h lease.Holder, ttl time.Duration) (nonce.Renewal, error) {
	var now, until, incarnation int64
	switch err := s.pool.QueryRow(ctx, renewLease, h.Node, h.Incarnation, ttl.Milliseconds()).Scan(&now, &until); {
	case errors.Is(err, pgx.ErrNoRows):
		err := s.pool.QueryRow(ctx, nodeIncarnation, h.Node).Scan(&incarnation)
		switch {
		case err == nil && incarnation > h.Incarnation:
			return nonce.Renewal{}, aborted(lease.ErrSuperseded)
		case err == nil, errors.Is(err, pgx.ErrNoRows):
			return nonce.Renewal{}, aborted(lease.ErrWentBack)
		}
		return nonce.Renewal{}, storeError("read the node", err)
	case err != nil:
		return nonce.Renewal{}, storeError("renew the lease", err)
	}
	mine, err := s.owners(ctx, s.pool, ` WHERE owner_node = $1 ORDER BY shard_id`, h.Node)
	return nonce.Renewal{Now: time.UnixMilli(now), Until: time.UnixMilli(until), Shards: mine}, err
}

// querier is a pool, a connection or a transaction.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

func (s *ShardStore) owners(ctx context.Context, q querier, which string, args ...any) ([]nonce.Shard, error) {
	rows, err := q.Query(ctx, shardColumns+which, args...)
	if err != nil {
		return nil, storeError("read the shards", err)
	}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (o nonce.Shard, err error) {
		return o, row.Scan(&o.Shard, &o.Owner.Node, &o.Owner.Incarnation, &o.Token)
	})
	return all, storeError("read the shards", err)
}

// Acquire implements nonce.ShardStore.
func (s *ShardStore) Acquire(ctx context.Context, h lease.Holder, shards []int) ([]nonce.Shard, error) {
	rows, err := s.pool.Query(ctx, acquireShards, shards, h.Node, h.Incarnation)
	if err != nil {
		return nil, storeError("acquire", err)
	}
	taken, err := pgx.CollectRows(rows, pgx.RowTo[int])
	if err != nil {
		return nil, storeError("acquire", err)
	}
	// A later statement sees what other nodes had committed before this one had the locks.
	all, err := s.owners(ctx, s.pool, ` ORDER BY shard_id`)
	if err != nil {
		return nil, err
	}
	out := make([]nonce.Shard, len(shards))
	for i, shard := range shards {
		out[i] = all[shard]
		for _, t := range taken {
			out[i].Taken = out[i].Taken || t == shard && out[i].Owner == h
		}
	}
	return out, nil
}

// Release implements nonce.ShardStore.
func (s *ShardStore) Release(ctx context.Context, h lease.Holder, terms []nonce.ShardTerm) (int, error) {
	shards, tokens := make([]int, len(terms)), make([]int64, len(terms))
	for i, t := range terms {
		shards[i], tokens[i] = t.Shard, t.Token
	}
	done, err := s.pool.Exec(ctx, releaseShards, h.Node, h.Incarnation, shards, tokens)
	return int(done.RowsAffected()), storeError("release", err)
}

// Owners implements nonce.ShardStore.
func (s *ShardStore) Owners(ctx context.Context) ([]nonce.Shard, time.Time, error) {
	all, err := s.owners(ctx, s.pool, ` ORDER BY shard_id`)
	if err != nil {
		return nil, time.Time{}, err
	}
	var now int64
	err = s.pool.QueryRow(ctx, `SELECT store_millis()`).Scan(&now)
	return all, time.UnixMilli(now), storeError("read the clock", err)
}
