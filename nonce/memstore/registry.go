package memstore

import (
	"context"
	"time"

	"noncegate/lease"
)

// Register implements lease.Registry.
func (s *Store) Register(ctx context.Context, name, url string) (lease.Holder, error) {
	h := lease.Holder{Node: name}
	err := s.call(ctx, Call{Op: OpRegister, Holder: h}, func(time.Time) error {
		n := s.db.nodes[name]
		if n == nil {
			n = &node{}
			s.db.nodes[name] = n
		}
		*n = node{url: url, incarnation: n.incarnation + 1}
		h.Incarnation = n.incarnation
		return nil
	})
	return h, err
}

// Beat implements lease.Registry.
func (s *Store) Beat(ctx context.Context, h lease.Holder) (lease.Heartbeat, error) {
	var beat lease.Heartbeat
	err := s.call(ctx, Call{Op: OpBeat, Holder: h}, func(now time.Time) error {
		n := s.db.nodes[h.Node]
		if n == nil {
			return lease.ErrWentBack
		}
		if n.incarnation == h.Incarnation {
			n.counter++
		}
		beat = lease.Heartbeat{Incarnation: n.incarnation, Counter: n.counter, Now: now}
		return nil
	})
	return beat, err
}

// Leave implements lease.Registry. The row stays, its URL too, because a node
// that drains is still forwarded to; nothing here asks who is live.
func (s *Store) Leave(ctx context.Context, h lease.Holder) error {
	return s.call(ctx, Call{Op: OpLeave, Holder: h}, func(time.Time) error { return nil })
}
