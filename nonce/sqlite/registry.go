package sqlite

import (
	"context"

	"noncegate/lease"
)

// The registry of nodes, one row each, by primary key. A row stays when its node
// leaves: it carries the incarnation, and the URL that others forward to while
// the node drains.
const (
	sqlRegister = `
INSERT INTO gateway_node (node, url, incarnation, counter, live, registered_at, beat_at) VALUES (?1, ?2, 1, 0, 1, ?3, ?3)
ON CONFLICT (node) DO UPDATE SET url = ?2, incarnation = incarnation + 1, counter = 0, live = 1, registered_at = ?3, beat_at = ?3`

	sqlNode = `SELECT incarnation, counter FROM gateway_node WHERE node = ?`

	sqlBeat = `UPDATE gateway_node SET counter = counter + 1, beat_at = ? WHERE node = ? AND incarnation = ?`

	sqlLeave = `UPDATE gateway_node SET live = 0 WHERE node = ? AND incarnation = ?`
)

// Register implements lease.Registry.
func (s *Store) Register(ctx context.Context, node, url string) (lease.Holder, error) {
	h := lease.Holder{Node: node}
	err := s.write(ctx, func(ctx context.Context, c *session) error {
		if _, err := c.exec(ctx, sqlRegister, node, url, s.now().UnixMicro()); err != nil {
			return err
		}
		var counter int64
		_, err := c.one(ctx, []any{&h.Incarnation, &counter}, sqlNode, node)
		return err
	})
	return h, err
}

// Beat implements lease.Registry.
func (s *Store) Beat(ctx context.Context, h lease.Holder) (lease.Heartbeat, error) {
	var beat lease.Heartbeat
	err := s.write(ctx, func(ctx context.Context, c *session) error {
		beat.Now = s.now()
		if _, err := c.exec(ctx, sqlBeat, beat.Now.UnixMicro(), h.Node, h.Incarnation); err != nil {
			return err
		}
		found, err := c.one(ctx, []any{&beat.Incarnation, &beat.Counter}, sqlNode, h.Node)
		if err == nil && !found {
			err = errPlan{lease.ErrWentBack}
		}
		return err
	})
	return beat, err
}

// Leave implements lease.Registry.
func (s *Store) Leave(ctx context.Context, h lease.Holder) error {
	return s.write(ctx, func(ctx context.Context, c *session) error {
		_, err := c.exec(ctx, sqlLeave, h.Node, h.Incarnation)
		return err
	})
}
