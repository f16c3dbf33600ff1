package postgres

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"noncegate/lease"
)

// Register implements lease.Registry. The row outlives the node: a deleted one
// would start the incarnations again, and a paused process would look new.
func (s *Store) Register(ctx context.Context, node, url string) (lease.Holder, error) {
	h := lease.Holder{Node: node}
	err := s.pool.QueryRow(ctx, `
		INSERT INTO gateway_node AS g (node_id, url, incarnation, counter, live, started_at, seen_at)
		VALUES ($1, $2, 1, 0, true, clock_timestamp(), clock_timestamp())
		ON CONFLICT (node_id) DO UPDATE
		SET url = $2, incarnation = g.incarnation + 1, counter = 0, live = true, started_at = clock_timestamp(), seen_at = clock_timestamp()
		RETURNING incarnation`, node, url).Scan(&h.Incarnation)
	return h, storeError("register the node", err)
}

// Beat implements lease.Registry.
func (s *Store) Beat(ctx context.Context, h lease.Holder) (lease.Heartbeat, error) {
	var beat lease.Heartbeat
	err := s.pool.QueryRow(ctx, `
		UPDATE gateway_node
		SET counter = counter + (incarnation = $2)::int, seen_at = CASE WHEN incarnation = $2 THEN clock_timestamp() ELSE seen_at END
		WHERE node_id = $1
		RETURNING incarnation, counter, clock_timestamp()`, h.Node, h.Incarnation).
		Scan(&beat.Incarnation, &beat.Counter, &beat.Now)
	if errors.Is(err, pgx.ErrNoRows) {
		return lease.Heartbeat{}, lease.ErrWentBack
	}
	return beat, storeError("heartbeat", err)
}

// Leave implements lease.Registry.
func (s *Store) Leave(ctx context.Context, h lease.Holder) error {
	_, err := s.pool.Exec(ctx, `UPDATE gateway_node SET live = false, seen_at = clock_timestamp() WHERE node_id = $1 AND incarnation = $2`, h.Node, h.Incarnation)
	return storeError("leave the registry", err)
}
