package memstore

import (
	"cmp"
	"context"
	"slices"
	"time"

	"noncegate/lease"
	"noncegate/nonce"
)

// Register implements lease.Registry.
func (s *Store) Register(ctx context.Context, p lease.Presence) (h lease.Holder, err error) {
	h.Node = p.Node
	err = s.call(ctx, Call{Op: OpRegister, Holder: h}, func(db *database, now time.Time) error {
		n := db.nodes[p.Node]
		if n == nil {
			n = new(node)
			db.nodes[p.Node] = n
		}
		*n = node{url: p.URL, mode: p.Mode, incarnation: n.incarnation + 1, startedAt: now, seenAt: now}
		h.Incarnation = n.incarnation
		return nil
	})
	return h, err
}

// Leave implements lease.Registry.
func (s *Store) Leave(ctx context.Context, h lease.Holder) error {
	return s.call(ctx, Call{Op: OpLeave, Holder: h}, func(db *database, now time.Time) error {
		if n := db.nodes[h.Node]; n != nil && n.incarnation == h.Incarnation {
			n.left, n.seenAt = true, now
		}
		return nil
	})
}

func aborted(err error) error { return &nonce.StoreError{Outcome: nonce.Aborted, Err: err} }

// Renew implements nonce.Store.
func (s *Store) Renew(ctx context.Context, h lease.Holder, ttl time.Duration) (r lease.Renewal, err error) {
	err = s.call(ctx, Call{Op: OpRenew, Holder: h}, func(db *database, now time.Time) error {
		n := db.nodes[h.Node]
		switch {
		case n == nil || n.incarnation < h.Incarnation:
			return aborted(lease.ErrWentBack)
		case n.incarnation > h.Incarnation:
			return aborted(lease.ErrSuperseded)
		}
		n.until, n.counter, n.seenAt = now.Add(ttl), n.counter+1, now
		r = lease.Renewal{Now: now, Until: n.until, Counter: n.counter}
		for _, o := range db.owners {
			if o.Owner.Node == h.Node {
				r.Shards = append(r.Shards, o)
			}
		}
		return nil
	})
	return r, err
}

// Owners implements nonce.Store.
func (s *Store) Owners(ctx context.Context) (o lease.Owners, err error) {
	err = s.call(ctx, Call{Op: OpOwners}, func(db *database, now time.Time) error {
		o = db.who(now)
		return nil
	})
	return o, err
}

// Nodes implements lease.Registry.
func (s *Store) Nodes(ctx context.Context) ([]lease.Node, time.Time, error) {
	o, err := s.Owners(ctx)
	return o.Nodes, o.Now, err
}

// who returns the owner of each shard, and the nodes.
func (db *database) who(now time.Time) lease.Owners {
	o := lease.Owners{Now: now, Shards: slices.Clone(db.owners)}
	for id, n := range db.nodes {
		live := !n.left && n.until.After(now)
		if live || n.seenAt.Add(lease.Remembered).After(now) {
			o.Nodes = append(o.Nodes, lease.Node{
				Holder: lease.Holder{Node: id, Incarnation: n.incarnation}, URL: n.url, Mode: n.mode,
				LeaseUntil: n.until, Live: live, Left: n.left, StartedAt: n.startedAt, SeenAt: n.seenAt,
			})
		}
	}
	slices.SortFunc(o.Nodes, func(a, b lease.Node) int { return cmp.Compare(a.Node, b.Node) })
	o.Count()
	return o
}
