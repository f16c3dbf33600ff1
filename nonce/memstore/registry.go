package memstore

import (
	"cmp"
	"context"
	"slices"
	"time"

	"noncegate/lease"
)

// Register implements lease.Registry.
func (s *Store) Register(ctx context.Context, p lease.Presence) (lease.Holder, error) {
	h := lease.Holder{Node: p.Node}
	err := s.call(ctx, Call{Op: OpRegister, Holder: h}, func(now time.Time) error {
		n := s.db.nodes[p.Node]
		if n == nil {
			n = &node{}
			s.db.nodes[p.Node] = n
		}
		*n = node{url: p.URL, mode: p.Mode, patience: p.Patience, incarnation: n.incarnation + 1, startedAt: now, seenAt: now}
		h.Incarnation = n.incarnation
		return nil
	})
	return h, err
}

// Beat implements lease.Registry.
func (s *Store) Beat(ctx context.Context, h lease.Holder, signers int64) (lease.Heartbeat, error) {
	var beat lease.Heartbeat
	err := s.call(ctx, Call{Op: OpBeat, Holder: h}, func(now time.Time) error {
		n := s.db.nodes[h.Node]
		if n == nil {
			return lease.ErrWentBack
		}
		if n.incarnation == h.Incarnation {
			n.counter++
			n.signers, n.seenAt = signers, now
		}
		beat = lease.Heartbeat{Incarnation: n.incarnation, Counter: n.counter, Now: now}
		return nil
	})
	return beat, err
}

// Leave implements lease.Registry. The row stays, its URL too, because a node
// that drains is still forwarded to.
func (s *Store) Leave(ctx context.Context, h lease.Holder) error {
	return s.call(ctx, Call{Op: OpLeave, Holder: h}, func(now time.Time) error {
		if n := s.db.nodes[h.Node]; n != nil && n.incarnation == h.Incarnation {
			n.left, n.signers, n.seenAt = true, 0, now
		}
		return nil
	})
}

// Nodes implements lease.Registry.
func (s *Store) Nodes(ctx context.Context) ([]lease.Node, time.Time, error) {
	var list []lease.Node
	var at time.Time
	err := s.call(ctx, Call{Op: OpNodes}, func(now time.Time) error {
		at = now
		for id, n := range s.db.nodes {
			live := !n.left && n.seenAt.Add(n.patience).After(now)
			if !live && !n.seenAt.Add(lease.Remembered).After(now) {
				continue
			}
			list = append(list, lease.Node{
				Holder: lease.Holder{Node: id, Incarnation: n.incarnation}, URL: n.url, Mode: n.mode, Signers: n.signers,
				Live: live, Left: n.left, StartedAt: n.startedAt, SeenAt: n.seenAt,
			})
		}
		slices.SortFunc(list, func(a, b lease.Node) int { return cmp.Compare(a.Node, b.Node) })
		return nil
	})
	return list, at, err
}
