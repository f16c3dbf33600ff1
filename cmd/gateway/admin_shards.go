package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"noncegate/lease"
	"noncegate/nonce"
	"noncegate/wire"
)

// nodesView is the nodes of the store.
type nodesView struct {
	NodeCount int64           `json:"nodeCount"`
	Nodes     []wire.NodeInfo `json:"nodes"` // wire.MaxNodes at most
}

func (a *app) listNodes(context.Context, none) (nodesView, error) {
	nodes := a.nodes()
	return nodesView{NodeCount: int64(len(nodes)), Nodes: nodeInfos(nodes)}, nil
}

// shardList is the shards of the store.
type shardList struct {
	Node   string        `json:"node"` // who answers
	Shards []listedShard `json:"shards"`
}

// listedShard is a shard as the node that answers sees it.
type listedShard struct {
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

func listedOf(o lease.View) listedShard {
	return listedShard{
		ID: o.Shard, Owner: o.Owner, URL: o.URL, Token: o.Token, Mine: o.Mine, Preferred: o.Preferred, Pinned: o.Pinned, Stopped: o.Stopped,
	}
}

// moveOrder pins a shard to a node.
type moveOrder struct {
	Shard *int64  `json:"shard"`
	Node  *string `json:"node"` // "": the balance says again who should have it
	because
}

// movedShard is the shard as it is after that. Its owner gives it up when it looks next.
type movedShard struct {
	Node  string      `json:"node"` // who answers
	Shard listedShard `json:"shard"`
}

func (a *app) listShards(context.Context, none) (shardList, error) {
	out := shardList{Node: a.node, Shards: []listedShard{}}
	for _, o := range a.service.Shards() {
		out.Shards = append(out.Shards, listedOf(o))
	}
	return out, nil
}

// moveShard pins a shard, and says so in the log: what the balance does not say somebody did.
func (a *app) moveShard(ctx context.Context, q moveOrder) (movedShard, error) {
	switch {
	case q.Shard == nil:
		return movedShard{}, &badQuestion{why: "shard: is missing; it must be the number of a shard"}
	case q.Node == nil:
		return movedShard{}, &badQuestion{why: `node: is missing; it must be the id of a node, or "" for none`}
	}
	o, err := a.service.Move(ctx, int(*q.Shard), *q.Node)
	if err != nil {
		return movedShard{}, moveError(err)
	}
	a.log.Info("a shard was moved by hand", "shard", *q.Shard, "to_node", *q.Node, "owner_node", o.Owner, "preferred", o.Preferred)
	return movedShard{a.node, listedOf(o)}, nil
}

// moveError says whether the shard was moved.
func moveError(err error) error {
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
