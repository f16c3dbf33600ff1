package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"

	"noncegate/lease"
	"noncegate/nonce"
	"noncegate/wire"
)

// NodesView is the nodes of the store.
type NodesView struct {
	NodeCount int64           `json:"nodeCount"`
	Nodes     []wire.NodeInfo `json:"nodes"` // wire.MaxNodes at most
}

func (a *Server) listNodes(context.Context, None) (NodesView, error) {
	nodes := a.cfg.Nodes()
	return NodesView{NodeCount: int64(len(nodes)), Nodes: a.cfg.NodeInfos(nodes)}, nil
}

// ShardList is the shards of the store.
type ShardList struct {
	Node   string        `json:"node"` // who answers
	Shards []ListedShard `json:"shards"`
}

// ListedShard is a shard as the node that answers sees it.
type ListedShard struct {
	ID        int    `json:"id"`
	Owner     string `json:"owner"` // "": nobody
	URL       string `json:"url"`   // of the owner
	Token     int64  `json:"token"`
	Mine      bool   `json:"mine"`      // the node that answers serves it
	Preferred string `json:"preferred"` // the node that should have it; "": there is none
	Pinned    string `json:"pinned"`    // the node that it was moved to by hand; "": none
	// Stopped is how many of its signers wait for a safe floor. Until then the node that
	// answers, and serves it, keeps it.
	Stopped int `json:"stopped,omitempty"`
}

func listedOf(o lease.View) ListedShard {
	return ListedShard{
		ID: o.Shard, Owner: o.Owner, URL: o.URL, Token: o.Token, Mine: o.Mine, Preferred: o.Preferred, Pinned: o.Pinned, Stopped: o.Stopped,
	}
}

// MoveOrder pins a shard to a node.
type MoveOrder struct {
	Shard *int64  `json:"shard"`
	Node  *string `json:"node"` // "": the balance says again who should have it
	// Token is that of the shard as the operator saw it: one that changed hands since is left alone. nil: any.
	Token *int64 `json:"token,omitempty"`
	Because
}

// MovedShard is the shard as it is after that. Its owner gives it up when it looks next.
type MovedShard struct {
	Node  string      `json:"node"` // who answers
	Shard ListedShard `json:"shard"`
	Foreseen
}

func (a *Server) listShards(context.Context, None) (ShardList, error) {
	out := ShardList{Node: a.cfg.Node, Shards: []ListedShard{}}
	for _, o := range a.cfg.Service.Shards() {
		out.Shards = append(out.Shards, listedOf(o))
	}
	return out, nil
}

// MoveShard pins a shard, and says so in the log: what the balance does not say somebody did.
func (a *Server) moveShard(ctx context.Context, q MoveOrder) (MovedShard, error) {
	switch {
	case q.Shard == nil:
		return MovedShard{}, &badQuestion{why: "shard: is missing; it must be the number of a shard"}
	case q.Node == nil:
		return MovedShard{}, &badQuestion{why: `node: is missing; it must be the id of a node, or "" for none`}
	}
	views := a.cfg.Service.Shards()
	if *q.Shard < 0 || *q.Shard >= int64(len(views)) {
		return MovedShard{}, moveError(&lease.NoShardError{Shard: int(*q.Shard), Shards: len(views)})
	}
	was := listedOf(views[*q.Shard])
	m := MovedShard{Node: a.cfg.Node, Shard: was}
	m.foresee(q.Because, &Before{Shard: &was}, cmp.Or(was.Pinned, "not pinned"), cmp.Or(*q.Node, "not pinned"), wouldMove(&was, *q.Node))
	if q.Token != nil && *q.Token != was.Token {
		return m, &badQuestion{fmt.Sprintf("conflict: the shard has token %d now, and is owned by %s", was.Token, cmp.Or(was.Owner, "no node")),
			http.StatusConflict}
	}
	move := a.cfg.Service.Move
	if q.DryRun {
		move = a.cfg.Service.MayMove
	}
	o, err := move(ctx, int(*q.Shard), *q.Node)
	if err != nil || q.DryRun {
		return m, moveError(err)
	}
	m.Shard = listedOf(o)
	a.cfg.Log.Info("a shard was moved by hand", "shard", *q.Shard, "to_node", *q.Node, "owner_node", o.Owner, "preferred", o.Preferred)
	return m, nil
}

func wouldMove(s *ListedShard, node string) string {
	if node == "" {
		return fmt.Sprintf("shard %d is not pinned any more, and the balance says which node has it", s.ID)
	}
	return fmt.Sprintf("shard %d, which %s has, is pinned to %s", s.ID, cmp.Or(s.Owner, "no node"), node)
}

// moveError says whether the shard was moved.
func moveError(err error) error {
	if err == nil {
		return nil
	}
	if none, ok := errors.AsType[*lease.NoShardError](err); ok {
		return &badQuestion{"shard: " + none.Error(), http.StatusNotFound}
	}
	if none, ok := errors.AsType[*lease.NoNodeError](err); ok {
		return &badQuestion{"node: " + none.Error(), http.StatusConflict}
	}
	if nonce.OutcomeOf(err) == nonce.Unknown {
		return fmt.Errorf("%w; whether the shard was moved is unknown, and to move it again does no harm", err)
	}
	return fmt.Errorf("%w; the shard was not moved", err)
}
