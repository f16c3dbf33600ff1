package service

import (
	"context"

	"noncegate/lease"
	"noncegate/nonce"
)

// Shards says who owns which shard, as this node sees it.
func (s *Service) Shards() []lease.View { return s.table.Views() }

// OwnedShards are the shards that this node owns; in mode basic, where none is owned, all.
func (s *Service) OwnedShards() []int {
	owned := make([]int, 0, len(s.shards))
	for i, sh := range s.shards {
		if s.basic != nil || sh.Mine() {
			owned = append(owned, i)
		}
	}
	return owned
}

// Elsewhere reports whether an op of the signer would go to another node, as this node sees it:
// one that can be reached owns its shard. In mode basic none does.
func (s *Service) Elsewhere(signer string) bool {
	if s.basic != nil || s.cfg.Router == nil {
		return false
	}
	sh := s.shardOf(signer)
	owner := sh.Row().Owner.Node
	return !sh.Mine() && owner != "" && owner != s.holder.Node && s.cfg.Router.Reaches(owner)
}

// OwnerOf is the node that owns the signer's shard, as this node sees it: this one, or another and
// its URL; "": none that is known. In mode basic it is this one while no node of the other mode is live.
func (s *Service) OwnerOf(signer string) (node, url string, mine bool) {
	f, sh := s.table.Fleet(), s.shardOf(signer)
	if sh.Mine() || s.basic != nil && len(f.Live) == 0 {
		return s.holder.Node, "", true
	}
	node = sh.Row().Owner.Node
	if node == s.holder.Node {
		return "", "", false
	}
	return node, f.URL(node), false
}

// Fleet is what this node knows of the nodes.
func (s *Service) Fleet() *lease.Fleet { return s.table.Fleet() }

// Move pins a shard to a node, which must be one that serves shards now, or with "" unpins
// it, and returns the shard as it is then. Its owner gives it up, and the preferred owner takes it, when
// they look next. A *lease.NoShardError or *lease.NoNodeError means that nothing changed; of any other
// error nonce.StoreError says what happened.
func (s *Service) Move(ctx context.Context, shard int, node string) (lease.View, error) {
	return s.move(ctx, shard, func() error { return s.table.Move(ctx, shard, node) })
}

// MayMove says whether Move would, and changes nothing.
func (s *Service) MayMove(ctx context.Context, shard int, node string) (lease.View, error) {
	return s.move(ctx, shard, func() error { return s.table.MayMove(node) })
}

func (s *Service) move(ctx context.Context, shard int, move func() error) (lease.View, error) {
	if shard < 0 || shard >= len(s.shards) {
		return lease.View{}, &lease.NoShardError{Shard: shard, Shards: len(s.shards)}
	}
	if !s.enter() {
		return lease.View{}, &nonce.StoreError{Outcome: nonce.NotSent, Err: nonce.ErrDraining}
	}
	defer s.inside.Done()
	err := s.haltedBy()
	if err == nil {
		err = s.table.Look(ctx)
	}
	if err != nil {
		return lease.View{}, &nonce.StoreError{Outcome: nonce.NotSent, Err: err}
	}
	if err := move(); err != nil {
		return lease.View{}, err
	}
	return s.Shards()[shard], nil
}
