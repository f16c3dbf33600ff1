package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"noncegate/lease"
)

// Register implements lease.Registry. The row outlives the node: a deleted one
// would start the incarnations again, and a paused process would look new.
func (s *Store) Register(ctx context.Context, p lease.Presence) (lease.Holder, error) {
	h := lease.Holder{Node: p.Node}
	err := s.pool.QueryRow(ctx, `
		INSERT INTO gateway_node AS g (node_id, url, mode, patience, engines, incarnation, counter, live, started_at, seen_at)
		VALUES ($1, $2, $3, $4::bigint * interval '1 microsecond', 2, 1, 0, true, clock_timestamp(), clock_timestamp())
		ON CONFLICT (node_id) DO UPDATE
		SET url = EXCLUDED.url, mode = EXCLUDED.mode, patience = EXCLUDED.patience, engines = EXCLUDED.engines, incarnation = g.incarnation + 1,
		    counter = 0, signers = 0, live = true, started_at = clock_timestamp(), seen_at = clock_timestamp()
		RETURNING incarnation`, p.Node, p.URL, p.Mode, p.Patience.Microseconds()).Scan(&h.Incarnation)
	return h, storeError("register the node", err)
}

// Beat implements lease.Registry. It leaves live as it is, which is false once the
// node has left.
func (s *Store) Beat(ctx context.Context, h lease.Holder, signers int64) (lease.Heartbeat, error) {
	var beat lease.Heartbeat
	err := s.pool.QueryRow(ctx, `
		UPDATE gateway_node
		SET counter = counter + (incarnation = $2)::int,
		    signers = CASE WHEN incarnation = $2 THEN $3 ELSE signers END,
		    seen_at = CASE WHEN incarnation = $2 THEN clock_timestamp() ELSE seen_at END
		WHERE node_id = $1
		RETURNING incarnation, counter, clock_timestamp()`, h.Node, h.Incarnation, signers).
		Scan(&beat.Incarnation, &beat.Counter, &beat.Now)
	if errors.Is(err, pgx.ErrNoRows) {
		return lease.Heartbeat{}, lease.ErrWentBack
	}
	return beat, storeError("heartbeat", err)
}

// Leave implements lease.Registry.
func (s *Store) Leave(ctx context.Context, h lease.Holder) error {
	_, err := s.pool.Exec(ctx, `UPDATE gateway_node SET live = false, signers = 0, seen_at = clock_timestamp() WHERE node_id = $1 AND incarnation = $2`, h.Node, h.Incarnation)
	return storeError("leave the registry", err)
}

// nodesText reads the clock once, so that what it says of all rows is of one moment;
// without a row it returns the clock alone. The whole table is read: it has a row
// for each node id there ever was.
const nodesText = `
WITH c AS MATERIALIZED (SELECT clock_timestamp() AS now),
n AS (SELECT g.*, g.live AND g.seen_at + g.patience > c.now AS answers FROM gateway_node g, c)
SELECT c.now, coalesce(n.node_id, ''), coalesce(n.incarnation, 0), coalesce(n.url, ''), coalesce(n.mode, ''), coalesce(n.signers, 0),
       coalesce(n.answers, false), NOT coalesce(n.live, false), n.started_at, n.seen_at
FROM c LEFT JOIN n ON n.answers OR n.seen_at > c.now - $1::bigint * interval '1 microsecond'
ORDER BY n.node_id COLLATE "C"`

// Nodes implements lease.Registry.
func (s *Store) Nodes(ctx context.Context) ([]lease.Node, time.Time, error) {
	rows, err := s.pool.Query(ctx, nodesText, lease.Remembered.Microseconds())
	if err != nil {
		return nil, time.Time{}, storeError("read the nodes", err)
	}
	var list []lease.Node
	var n lease.Node
	var started, seen *time.Time
	var now time.Time
	_, err = pgx.ForEachRow(rows, []any{&now, &n.Node, &n.Incarnation, &n.URL, &n.Mode, &n.Signers, &n.Live, &n.Left, &started, &seen}, func() error {
		if seen == nil {
			return nil // there is none; the row carries the clock
		}
		n.StartedAt, n.SeenAt = *started, *seen
		list = append(list, n)
		return nil
	})
	if err != nil {
		return nil, time.Time{}, storeError("read the nodes", err)
	}
	return list, now, nil
}
