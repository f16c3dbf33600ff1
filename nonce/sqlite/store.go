package sqlite

import (
	"cmp"
	"context"
	"embed"
	"fmt"

	"noncegate/lease"
	"noncegate/nonce"
)

var _ nonce.Store = (*Store)(nil)

//go:embed migrations/*.sql
var migrations embed.FS

// DefaultShards is how many shards a new file gets.
const DefaultShards = 4

const (
	sqlCountShards = `SELECT count(*) FROM shard`
	sqlAddShard    = `INSERT INTO shard (shard_id) VALUES (?)`
)

// count reads how many shards there are, and makes those of a new file.
func (s *Store) count(ctx context.Context, path string, want int) error {
	return s.write(ctx, func(ctx context.Context, c *session) error {
		n, err := c.count(ctx, sqlCountShards)
		if err != nil {
			return err
		}
		if n > 0 {
			s.shards = int(n)
			if want != 0 && want != s.shards {
				return errPlan{fmt.Errorf("sqlite store %q has %d shards, and %d are wanted; their number is fixed when the file is made", path, n, want)}
			}
			return nil
		}
		s.shards = cmp.Or(want, DefaultShards)
		for i := range s.shards {
			if _, err := c.exec(ctx, sqlAddShard, i); err != nil {
				return err
			}
		}
		return nil
	})
}

// Shards implements nonce.Store.
func (s *Store) Shards() int { return s.shards }

const (
	sqlShards = `SELECT shard_id, owner_node, owner_incarnation, fencing_token, pinned_node FROM shard`

	// A shard is free when it has no owner, when it is of the same node by an equal or lower
	// incarnation, or when the lease of its owner, of that incarnation, is over or gone.
	sqlAcquireShard = `
UPDATE shard SET owner_node = ?2, owner_incarnation = ?3, fencing_token = fencing_token + 1
WHERE shard_id = ?1
  AND EXISTS (SELECT 1 FROM gateway_node n WHERE n.node = ?2 AND n.incarnation = ?3 AND n.lease_until > ?4)
  AND (owner_node = '' OR owner_node = ?2 AND owner_incarnation <= ?3
    OR owner_node <> ?2 AND NOT EXISTS (
        SELECT 1 FROM gateway_node n WHERE n.node = shard.owner_node AND n.incarnation = shard.owner_incarnation AND n.lease_until > ?4))`

	sqlReleaseShard = `
UPDATE shard SET owner_node = '', owner_incarnation = 0, fencing_token = fencing_token + 1
WHERE shard_id = ? AND owner_node = ? AND owner_incarnation = ? AND fencing_token = ?`
)

func (s *Store) millis() int64 { return s.now().UnixMilli() }

// Acquire implements nonce.Store.
func (s *Store) Acquire(ctx context.Context, h lease.Holder, shards []int) (out []lease.Shard, err error) {
	err = s.write(ctx, func(ctx context.Context, c *session) error {
		out = make([]lease.Shard, len(shards))
		for i, shard := range shards {
			taken, err := c.exec(ctx, sqlAcquireShard, shard, h.Node, h.Incarnation, s.millis())
			if err != nil {
				return err
			}
			if out[i], err = c.owner(ctx, shard); err != nil {
				return err
			}
			out[i].Taken = taken > 0
		}
		return nil
	})
	return out, err
}

// Release implements nonce.Store.
func (s *Store) Release(ctx context.Context, h lease.Holder, terms []lease.ShardTerm) (given int, err error) {
	err = s.write(ctx, func(ctx context.Context, c *session) error {
		given = 0
		for _, t := range terms {
			n, err := c.exec(ctx, sqlReleaseShard, t.Shard, h.Node, h.Incarnation, t.Token)
			if err != nil {
				return err
			}
			given += int(n)
		}
		return nil
	})
	return given, err
}
