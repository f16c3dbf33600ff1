package sqlite

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"noncegate/lease"
	"noncegate/nonce"
)

var _ nonce.ShardStore = (*ShardStore)(nil)

//go:embed shards/*.sql
var shardFiles embed.FS

// ShardStore is a file in which all that lives of a signer is one row, and a shard of
// signers has one owner. Its methods are safe for concurrent use.
type ShardStore struct {
	*Store
	shards int
}

// DefaultShards is how many shards a new file gets.
const DefaultShards = 4

const (
	sqlCountShards = `SELECT count(*) FROM shard`
	sqlAddShard    = `INSERT INTO shard (shard_id) VALUES (?)`
)

// OpenShards opens the database at path, creates it with so many shards when it is
// missing, and migrates it; 0 is as many as there are, or DefaultShards. An error is a
// sentence that names the file, as that of Open.
func OpenShards(ctx context.Context, path string, shards int, cfg Config) (*ShardStore, error) {
	files, err := fs.Sub(shardFiles, "shards")
	if err != nil {
		return nil, err
	}
	s, err := openWith(ctx, path, cfg, files)
	if err != nil {
		return nil, err
	}
	out := &ShardStore{Store: s}
	if err := out.count(ctx, path, shards); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return out, nil
}

// count reads how many shards there are, and makes those of a new file.
func (s *ShardStore) count(ctx context.Context, path string, want int) error {
	return s.write(ctx, func(ctx context.Context, c *session) error {
		n, err := c.count(ctx, sqlCountShards)
		if err != nil {
			return err
		}
		if n > 0 {
			if s.shards = int(n); want != 0 && want != s.shards {
				return errPlan{fmt.Errorf("sqlite store %q has %d shards, and %d are wanted; their number is fixed when the file is made", path, n, want)}
			}
			return nil
		}
		if s.shards = want; want == 0 {
			s.shards = DefaultShards
		}
		for i := range s.shards {
			if _, err := c.exec(ctx, sqlAddShard, i); err != nil {
				return err
			}
		}
		return nil
	})
}

// Shards implements nonce.ShardStore.
func (s *ShardStore) Shards() int { return s.shards }

const (
	sqlNodeLease  = `SELECT incarnation, lease_until FROM gateway_node WHERE node = ?`
	sqlRenewLease = `UPDATE gateway_node SET counter = counter + 1, lease_until = ? WHERE node = ?`
	sqlStartNode  = `
INSERT INTO gateway_node (node, url, mode, incarnation) VALUES (?, ?, ?, 1)
ON CONFLICT (node) DO UPDATE SET url = excluded.url, mode = excluded.mode, incarnation = incarnation + 1, counter = 0, lease_until = 0`

	sqlShards = `SELECT shard_id, owner_node, owner_incarnation, fencing_token FROM shard`

	// A shard is free when nobody has it, when it is of the same node by an equal or lower
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

// StartNode starts an incarnation of a node, without a lease.
func (s *ShardStore) StartNode(ctx context.Context, p lease.Presence) (lease.Holder, error) {
	h := lease.Holder{Node: p.Node}
	err := s.write(ctx, func(ctx context.Context, c *session) error {
		if _, err := c.exec(ctx, sqlStartNode, p.Node, p.URL, p.Mode); err != nil {
			return err
		}
		var until int64
		_, err := c.one(ctx, []any{&h.Incarnation, &until}, sqlNodeLease, p.Node)
		return err
	})
	return h, err
}

func (s *ShardStore) millis() int64 { return s.now().UnixMilli() }

// Renew implements nonce.ShardStore.
func (s *ShardStore) Renew(ctx context.Context, h lease.Holder, ttl time.Duration) (nonce.Renewal, error) {
	var r nonce.Renewal
	err := s.write(ctx, func(ctx context.Context, c *session) error {
		var incarnation, until int64
		found, err := c.one(ctx, []any{&incarnation, &until}, sqlNodeLease, h.Node)
		switch {
		case err != nil:
			return err
		case !found || incarnation < h.Incarnation:
			return lease.ErrWentBack
		case incarnation > h.Incarnation:
			return lease.ErrSuperseded
		}
		now := s.millis()
		until = max(until, now+ttl.Milliseconds())
		if _, err := c.exec(ctx, sqlRenewLease, until, h.Node); err != nil {
			return err
		}
		r = nonce.Renewal{Now: time.UnixMilli(now), Until: time.UnixMilli(until)}
		all, err := c.owners(ctx)
		for _, o := range all {
			if o.Owner.Node == h.Node {
				r.Shards = append(r.Shards, o)
			}
		}
		return err
	})
	return r, err
}

func (c *session) owners(ctx context.Context) (all []nonce.Shard, err error) {
	err = c.each(ctx, func(scan func(...any) error) (bool, error) {
		var o nonce.Shard
		err := scan(&o.Shard, &o.Owner.Node, &o.Owner.Incarnation, &o.Token)
		all = append(all, o)
		return true, err
	}, sqlShards+" ORDER BY shard_id")
	return all, err
}

func (c *session) owner(ctx context.Context, shard int) (o nonce.Shard, err error) {
	_, err = c.one(ctx, []any{&o.Shard, &o.Owner.Node, &o.Owner.Incarnation, &o.Token}, sqlShards+" WHERE shard_id = ?", shard)
	return o, err
}

// Acquire implements nonce.ShardStore.
func (s *ShardStore) Acquire(ctx context.Context, h lease.Holder, shards []int) (out []nonce.Shard, err error) {
	err = s.write(ctx, func(ctx context.Context, c *session) error {
		out = make([]nonce.Shard, len(shards))
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

// Release implements nonce.ShardStore.
func (s *ShardStore) Release(ctx context.Context, h lease.Holder, terms []nonce.ShardTerm) (given int, err error) {
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

// Owners implements nonce.ShardStore.
func (s *ShardStore) Owners(ctx context.Context) (all []nonce.Shard, now time.Time, err error) {
	err = s.read(ctx, func(ctx context.Context, c *session) error {
		all, err = c.owners(ctx)
		now = time.UnixMilli(s.millis())
		return err
	})
	return all, now, err
}
