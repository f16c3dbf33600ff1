package postgres

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"noncegate/lease"
	"noncegate/nonce"
)

const (
	startNode = `
INSERT INTO gateway_node AS n (node, url, mode, incarnation, counter, lease_until, gone, started_at, seen_at)
SELECT $1, $2, $3, 1, 0, 0, false, c.now, c.now FROM (SELECT store_millis() AS now) c
ON CONFLICT (node) DO UPDATE SET url = excluded.url, mode = excluded.mode, incarnation = n.incarnation + 1, counter = 0, lease_until = 0,
    gone = false, started_at = excluded.started_at, seen_at = excluded.seen_at
RETURNING incarnation`

	leaveNode = `UPDATE gateway_node SET gone = true, seen_at = store_millis() WHERE node = $1 AND incarnation = $2`

	renewLease = `
UPDATE gateway_node SET counter = counter + 1, lease_until = c.now + $3, seen_at = c.now
FROM (SELECT store_millis() AS now) c
WHERE node = $1 AND incarnation = $2 RETURNING c.now, lease_until, counter`

	nodeIncarnation = `SELECT incarnation FROM gateway_node WHERE node = $1`

	// The whole table is read: it has a row for each node id there ever was. Without a row
	// to show it returns the clock alone.
	showNodes = `
WITH c AS MATERIALIZED (SELECT store_millis() AS now),
n AS (SELECT g.*, NOT g.gone AND g.lease_until > c.now AS live FROM gateway_node g, c)
SELECT c.now, coalesce(n.node, ''), coalesce(n.incarnation, 0), coalesce(n.url, ''), coalesce(n.mode, ''), coalesce(n.lease_until, 0),
    coalesce(n.live, false), coalesce(n.gone, false), coalesce(n.started_at, 0), coalesce(n.seen_at, 0)
FROM c LEFT JOIN n ON n.live OR n.seen_at > c.now - $1 ORDER BY n.node`

	shardColumns = `SELECT shard_id, owner_node, owner_incarnation, fencing_token, pinned_node, performance, log_identity, log_shipped, grant_until, epoch, doubt_until, rehearsed FROM shard`
	allShards    = shardColumns + ` ORDER BY shard_id`
	nodesShards  = shardColumns + ` WHERE owner_node = $1 ORDER BY shard_id`

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

// Register implements lease.Registry.
func (s *Store) Register(ctx context.Context, p lease.Presence) (lease.Holder, error) {
	h := lease.Holder{Node: p.Node}
	b := &pgx.Batch{}
	b.Queue(startNode, p.Node, p.URL, p.Mode).QueryRow(func(row pgx.Row) error { return row.Scan(&h.Incarnation) })
	return h, roundTrip(ctx, s.pool, "register the node", b)
}

// Leave implements lease.Registry.
func (s *Store) Leave(ctx context.Context, h lease.Holder) error {
	_, err := s.change(ctx, "leave", leaveNode, h.Node, h.Incarnation)
	return err
}

func aborted(err error) error { return &nonce.StoreError{Outcome: nonce.Aborted, Err: err} }

// Renew implements nonce.Store. It has a connection of its own, so that a heartbeat
// does not wait behind requests, and takes one round trip.
func (s *Store) Renew(ctx context.Context, h lease.Holder, ttl time.Duration) (lease.Renewal, error) {
	var r lease.Renewal
	var now, until, incarnation int64
	b := &pgx.Batch{}
	b.Queue(renewLease, h.Node, h.Incarnation, ttl.Milliseconds()).QueryRow(func(row pgx.Row) error {
		return orNone(row.Scan(&now, &until, &r.Counter))
	})
	b.Queue(nodeIncarnation, h.Node).QueryRow(func(row pgx.Row) error { return orNone(row.Scan(&incarnation)) })
	b.Queue(nodesShards, h.Node).Query(func(rows pgx.Rows) (err error) {
		r.Shards, err = scanShards(rows)
		return err
	})
	err := roundTrip(ctx, s.beats, "renew the lease", b)
	switch {
	case err != nil:
		return lease.Renewal{}, err
	case incarnation > h.Incarnation:
		return lease.Renewal{}, aborted(lease.ErrSuperseded)
	case r.Counter == 0:
		return lease.Renewal{}, aborted(lease.ErrWentBack)
	}
	r.Now, r.Until = time.UnixMilli(now), time.UnixMilli(until)
	return r, nil
}

// orNone takes it for no error that there is no row.
func orNone(err error) error {
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	return err
}

func scanShards(rows pgx.Rows) ([]lease.Shard, error) {
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (o lease.Shard, err error) {
		return o, row.Scan(&o.Shard, &o.Owner.Node, &o.Owner.Incarnation, &o.Token, &o.Pinned,
			&o.Performance, &o.Identity, &o.Shipped, &o.GrantUntil, &o.Epoch, &o.DoubtUntil, &o.Rehearsed)
	})
}

// Pin implements nonce.Store.
func (s *Store) Pin(ctx context.Context, shard int, node string) error {
	_, err := s.changeShards(ctx, "pin a shard", []int{shard}, `UPDATE shard SET pinned_node = $2 WHERE shard_id = $1`, shard, node)
	return err
}

// Owners implements nonce.Store.
func (s *Store) Owners(ctx context.Context) (o lease.Owners, err error) {
	err = s.moment(ctx, "read who has which shard", func(b *pgx.Batch) {
		b.Queue(allShards).Query(func(rows pgx.Rows) (err error) {
			o.Shards, err = scanShards(rows)
			return err
		})
		b.Queue(showNodes, lease.Remembered.Milliseconds()).Query(func(rows pgx.Rows) error { return scanNodes(rows, &o) })
	})
	o.Count()
	return o, err
}

func scanNodes(rows pgx.Rows, o *lease.Owners) error {
	var n lease.Node
	var now, until, started, seen int64
	_, err := pgx.ForEachRow(rows, []any{&now, &n.Node, &n.Incarnation, &n.URL, &n.Mode, &until, &n.Live, &n.Left, &started, &seen}, func() error {
		o.Now = time.UnixMilli(now)
		if seen == 0 {
			return nil // there is none; the row carries the clock
		}
		n.LeaseUntil = time.Time{}
		if until > 0 {
			n.LeaseUntil = time.UnixMilli(until)
		}
		n.StartedAt, n.SeenAt = time.UnixMilli(started), time.UnixMilli(seen)
		o.Nodes = append(o.Nodes, n)
		return nil
	})
	return err
}

// Nodes implements lease.Registry.
func (s *Store) Nodes(ctx context.Context) ([]lease.Node, time.Time, error) {
	o, err := s.Owners(ctx)
	return o.Nodes, o.Now, err
}

// Acquire implements nonce.Store. What reads the shards at the end of its transaction sees
// what other nodes had committed before the locks were taken.
func (s *Store) Acquire(ctx context.Context, h lease.Holder, shards []int) ([]lease.Shard, error) {
	var taken []int
	var all []lease.Shard
	b := &pgx.Batch{}
	queueShardLocks(b, shards)
	b.Queue(acquireShards, shards, h.Node, h.Incarnation).Query(func(rows pgx.Rows) (err error) {
		taken, err = pgx.CollectRows(rows, pgx.RowTo[int])
		return err
	})
	b.Queue(allShards).Query(func(rows pgx.Rows) (err error) {
		all, err = scanShards(rows)
		return err
	})
	if err := roundTrip(ctx, s.pool, "acquire", b); err != nil {
		return nil, err
	}
	out := make([]lease.Shard, len(shards))
	for i, shard := range shards {
		out[i] = all[shard]
		out[i].Taken = slices.Contains(taken, shard)
	}
	return out, nil
}

// Release implements nonce.Store.
func (s *Store) Release(ctx context.Context, h lease.Holder, terms []lease.ShardTerm) (int, error) {
	shards, tokens := make([]int, len(terms)), make([]int64, len(terms))
	for i, t := range terms {
		shards[i], tokens[i] = t.Shard, t.Token
	}
	return s.changeShards(ctx, "release", shards, releaseShards, h.Node, h.Incarnation, shards, tokens)
}
