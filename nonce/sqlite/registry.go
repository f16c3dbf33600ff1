package sqlite

import (
	"context"
	"time"

	"noncegate/lease"
)

// The registry of nodes, one row each, by primary key. A row stays when its node
// leaves: it carries the incarnation, and the URL that others forward to while
// the node drains. live says only that it has not left.
const (
	sqlRegister = `
INSERT INTO gateway_node (node, url, mode, patience, incarnation, counter, live, registered_at, beat_at) VALUES (?1, ?2, ?3, ?4, 1, 0, 1, ?5, ?5)
ON CONFLICT (node) DO UPDATE SET url = ?2, mode = ?3, patience = ?4, incarnation = incarnation + 1, counter = 0, signers = 0,
    live = 1, registered_at = ?5, beat_at = ?5`

	sqlNode = `SELECT incarnation, counter FROM gateway_node WHERE node = ?`

	sqlBeat = `UPDATE gateway_node SET counter = counter + 1, signers = ?, beat_at = ? WHERE node = ? AND incarnation = ?`

	sqlLeave = `UPDATE gateway_node SET live = 0, signers = 0, beat_at = ? WHERE node = ? AND incarnation = ?`

	sqlNodes = `
SELECT node, incarnation, url, mode, signers, live AND beat_at + patience > ?1, NOT live, registered_at, beat_at FROM gateway_node
WHERE live AND beat_at + patience > ?1 OR beat_at > ?1 - ?2 ORDER BY node`
)

// Register implements lease.Registry.
func (s *Store) Register(ctx context.Context, p lease.Presence) (lease.Holder, error) {
	h := lease.Holder{Node: p.Node}
	err := s.write(ctx, func(ctx context.Context, c *session) error {
		if _, err := c.exec(ctx, sqlRegister, p.Node, p.URL, p.Mode, p.Patience.Microseconds(), s.now().UnixMicro()); err != nil {
			return err
		}
		var counter int64
		_, err := c.one(ctx, []any{&h.Incarnation, &counter}, sqlNode, p.Node)
		return err
	})
	return h, err
}

// Beat implements lease.Registry.
func (s *Store) Beat(ctx context.Context, h lease.Holder, signers int64) (lease.Heartbeat, error) {
	var beat lease.Heartbeat
	err := s.write(ctx, func(ctx context.Context, c *session) error {
		beat.Now = s.now()
		if _, err := c.exec(ctx, sqlBeat, signers, beat.Now.UnixMicro(), h.Node, h.Incarnation); err != nil {
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
		_, err := c.exec(ctx, sqlLeave, s.now().UnixMicro(), h.Node, h.Incarnation)
		return err
	})
}

// Nodes implements lease.Registry.
func (s *Store) Nodes(ctx context.Context) ([]lease.Node, time.Time, error) {
	var list []lease.Node
	var now time.Time
	err := s.read(ctx, func(ctx context.Context, c *session) error {
		list, now = nil, s.now()
		return c.each(ctx, func(scan func(...any) error) (bool, error) {
			var n lease.Node
			var started, seen int64
			if err := scan(&n.Node, &n.Incarnation, &n.URL, &n.Mode, &n.Signers, &n.Live, &n.Left, &started, &seen); err != nil {
				return false, err
			}
			n.StartedAt, n.SeenAt = timeOf(started), timeOf(seen)
			list = append(list, n)
			return true, nil
		}, sqlNodes, now.UnixMicro(), lease.Remembered.Microseconds())
	})
	return list, now, err
}
