package sqlite

import (
	"context"
	"time"

	"noncegate/lease"
)

const (
	sqlNodeLease = `SELECT incarnation, counter FROM gateway_node WHERE node = ?`
	sqlRenewNode = `UPDATE gateway_node SET counter = ?, lease_until = ?, seen_at = ? WHERE node = ?`
	sqlStartNode = `
INSERT INTO gateway_node (node, url, mode, incarnation, counter, lease_until, gone, started_at, seen_at) VALUES (?1, ?2, ?3, 1, 0, 0, 0, ?4, ?4)
ON CONFLICT (node) DO UPDATE SET url = ?2, mode = ?3, incarnation = incarnation + 1, counter = 0, lease_until = 0, gone = 0, started_at = ?4, seen_at = ?4
RETURNING incarnation`
	sqlLeaveNode = `UPDATE gateway_node SET gone = 1, seen_at = ? WHERE node = ? AND incarnation = ?`

	// The whole table is read: it has a row for each node id there ever was.
	sqlShowNodes = `
SELECT node, incarnation, url, mode, lease_until, NOT gone AND lease_until > ?1, gone, started_at, seen_at FROM gateway_node
WHERE NOT gone AND lease_until > ?1 OR seen_at > ?2 ORDER BY node`
)

// Register implements lease.Registry.
func (s *Store) Register(ctx context.Context, p lease.Presence) (lease.Holder, error) {
	h := lease.Holder{Node: p.Node}
	err := s.write(ctx, func(ctx context.Context, c *session) error {
		_, err := c.one(ctx, []any{&h.Incarnation}, sqlStartNode, p.Node, p.URL, p.Mode, s.millis())
		return err
	})
	return h, err
}

// Leave implements lease.Registry.
func (s *Store) Leave(ctx context.Context, h lease.Holder) error {
	return s.write(ctx, func(ctx context.Context, c *session) error {
		_, err := c.exec(ctx, sqlLeaveNode, s.millis(), h.Node, h.Incarnation)
		return err
	})
}

// Renew implements nonce.Store.
func (s *Store) Renew(ctx context.Context, h lease.Holder, ttl time.Duration) (lease.Renewal, error) {
	var r lease.Renewal
	err := s.write(ctx, func(ctx context.Context, c *session) error {
		var incarnation int64
		found, err := c.one(ctx, []any{&incarnation, &r.Counter}, sqlNodeLease, h.Node)
		switch {
		case err != nil:
			return err
		case !found || incarnation < h.Incarnation:
			return lease.ErrWentBack
		case incarnation > h.Incarnation:
			return lease.ErrSuperseded
		}
		now := s.millis()
		until := now + ttl.Milliseconds()
		r.Counter++
		if _, err := c.exec(ctx, sqlRenewNode, r.Counter, until, now, h.Node); err != nil {
			return err
		}
		r.Now, r.Until = time.UnixMilli(now), time.UnixMilli(until)
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

func (c *session) owners(ctx context.Context) (all []lease.Shard, err error) {
	err = c.each(ctx, func(scan func(...any) error) error {
		var o lease.Shard
		err := scan(&o.Shard, &o.Owner.Node, &o.Owner.Incarnation, &o.Token, &o.Pinned)
		all = append(all, o)
		return err
	}, sqlShards+" ORDER BY shard_id")
	return all, err
}

func (c *session) owner(ctx context.Context, shard int) (o lease.Shard, err error) {
	_, err = c.one(ctx, []any{&o.Shard, &o.Owner.Node, &o.Owner.Incarnation, &o.Token, &o.Pinned}, sqlShards+" WHERE shard_id = ?", shard)
	return o, err
}

// Pin implements nonce.Store.
func (s *Store) Pin(ctx context.Context, shard int, node string) error {
	return s.write(ctx, func(ctx context.Context, c *session) error {
		_, err := c.exec(ctx, `UPDATE shard SET pinned_node = ? WHERE shard_id = ?`, node, shard)
		return err
	})
}

// Owners implements nonce.Store.
func (s *Store) Owners(ctx context.Context) (o lease.Owners, err error) {
	err = s.read(ctx, func(ctx context.Context, c *session) error {
		now := s.millis()
		o = lease.Owners{Now: time.UnixMilli(now)}
		if o.Shards, err = c.owners(ctx); err != nil {
			return err
		}
		return c.each(ctx, func(scan func(...any) error) error {
			var n lease.Node
			var until, started, seen int64
			err := scan(&n.Node, &n.Incarnation, &n.URL, &n.Mode, &until, &n.Live, &n.Left, &started, &seen)
			if until > 0 {
				n.LeaseUntil = time.UnixMilli(until)
			}
			n.StartedAt, n.SeenAt = time.UnixMilli(started), time.UnixMilli(seen)
			o.Nodes = append(o.Nodes, n)
			return err
		}, sqlShowNodes, now, now-lease.Remembered.Milliseconds())
	})
	o.Count()
	return o, err
}

// Nodes implements lease.Registry.
func (s *Store) Nodes(ctx context.Context) ([]lease.Node, time.Time, error) {
	o, err := s.Owners(ctx)
	return o.Nodes, o.Now, err
}
