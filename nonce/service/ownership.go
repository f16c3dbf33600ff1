package service

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"noncegate/nonce"
)

// Ownership is a shard as this node sees it.
type Ownership struct {
	Shard     int
	Owner     string // node id; "": nobody
	URL       string // where that node is
	Token     int64
	Mine      bool   // this node serves it
	Preferred string // the node that should have it; "": there is none
	Pinned    string // the node that it is pinned to; "": the balance says who should have it
	// Stopped is how many of its signers are stopped here. While there are any, this node
	// keeps a shard that it serves.
	Stopped     int
	Performance bool // it has the performance engine
}

// Shards says who owns which shard, as this node sees it.
func (s *Service) Shards() []Ownership {
	f, out := s.fleet.Load(), make([]Ownership, len(s.shards))
	for i, sh := range s.shards {
		row := sh.view.Load()
		out[i] = Ownership{
			Shard: i, Owner: row.Owner.Node, URL: f.URL(row.Owner.Node), Token: row.Token,
			Mine: sh.mine(), Preferred: f.Preferred(i), Pinned: f.Pinned[i],
			Stopped: int(sh.stopped.Load()), Performance: row.Performance,
		}
	}
	return out
}

// OwnedShards are the shards that this node owns; in mode basic, where none is owned, all.
func (s *Service) OwnedShards() []int {
	owned := make([]int, 0, len(s.shards))
	for i, sh := range s.shards {
		if s.basic != nil || sh.mine() {
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
	owner := sh.view.Load().Owner.Node
	return !sh.mine() && owner != "" && owner != s.holder.Node && s.cfg.Router.Reaches(owner)
}

// OwnerOf is the node that owns the signer's shard, as this node sees it: this one, or another and
// its URL; "": none that is known. In mode basic it is this one while no node of the other mode is live.
func (s *Service) OwnerOf(signer string) (node, url string, mine bool) {
	f, sh := s.fleet.Load(), s.shardOf(signer)
	if sh.mine() || s.basic != nil && len(f.Live) == 0 {
		return s.holder.Node, "", true
	}
	node = sh.view.Load().Owner.Node
	if node == s.holder.Node {
		return "", "", false
	}
	return node, f.URL(node), false
}

// Unserved is how many shards nobody has by a lease that runs, and for how long the one has
// been so that was so for the longest, as this node saw them when it last could. Where no
// worker-queue node is live there are none.
func (s *Service) Unserved() (shards int, longest time.Duration) {
	return s.fleet.Load().Unserved()
}

// NoShardError refuses the move of a shard that there is not.
type NoShardError struct{ Shard, Shards int }

// Error implements error.
func (e *NoShardError) Error() string {
	return fmt.Sprintf("%d is none of the shards of this database, which are 0 to %d", e.Shard, e.Shards-1)
}

// NoNodeError refuses the move of a shard to a node that could not serve it.
type NoNodeError struct {
	Node string
	Live []string // those that could, in order
}

// Error implements error.
func (e *NoNodeError) Error() string {
	there := "there is none"
	if len(e.Live) > 0 {
		there = "there are " + strings.Join(e.Live, ", ")
	}
	return fmt.Sprintf("%.128q is no live node of mode worker-queue; %s", e.Node, there)
}

// Move pins a shard to a node, which must be one that serves shards now, or with "" unpins
// it, and returns the shard as it is then. Its owner gives it up, and the preferred owner takes it, when
// they look next. A *NoShardError or *NoNodeError means that nothing changed; of any other
// error nonce.StoreError says what happened.
func (s *Service) Move(ctx context.Context, shard int, node string) (Ownership, error) {
	if shard < 0 || shard >= len(s.shards) {
		return Ownership{}, &NoShardError{shard, len(s.shards)}
	}
	if !s.enter() {
		return Ownership{}, &nonce.StoreError{Outcome: nonce.NotSent, Err: nonce.ErrDraining}
	}
	defer s.inside.Done()
	err := s.haltedBy()
	if err == nil {
		err = s.look(ctx)
	}
	if err != nil {
		return Ownership{}, &nonce.StoreError{Outcome: nonce.NotSent, Err: err}
	}
	if live := s.fleet.Load().Live; node != "" && !slices.Contains(live, node) {
		return Ownership{}, &NoNodeError{node, live}
	}
	pinning, cancel := context.WithTimeout(ctx, s.cfg.StoreTimeout)
	defer cancel()
	pin := func() error { return s.store.Pin(pinning, shard, node) }
	for err = pin(); passes(err) && pinning.Err() == nil; err = pin() { // commits have the row locked
		select {
		case <-time.After(s.cfg.LockRetry):
		case <-pinning.Done():
		}
	}
	if err != nil {
		return Ownership{}, err
	}
	if err := s.look(ctx); err != nil {
		s.log.Warn("a shard was moved, and who owns which shard cannot be read", "shard", shard, "error", err)
	}
	return s.Shards()[shard], nil
}
