package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"noncegate/nonce"
	"noncegate/nonce/service"
)

// shardList is the answer to GET /shards.
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

func listedOf(o service.Ownership) listedShard {
	return listedShard{
		ID: o.Shard, Owner: o.Owner, URL: o.URL, Token: o.Token, Mine: o.Mine, Preferred: o.Preferred, Pinned: o.Pinned, Stopped: o.Stopped,
	}
}

// moveQuestion is the body of POST /shards/{id}/move.
type moveQuestion struct {
	Node *string `json:"node"` // "": the balance says again who should have it
}

// movedShard is the answer to it: the shard as it is now. Its owner gives it up when it looks
// next.
type movedShard struct {
	Node  string      `json:"node"` // who answers
	Shard listedShard `json:"shard"`
}

// shardHandlers adds the shards to the private side.
func (a *app) shardHandlers(mux *http.ServeMux) {
	mux.HandleFunc("GET /shards", answering(func(r *http.Request) (any, error) {
		if r.URL.RawQuery != "" {
			return nil, &badQuestion{why: "the URL must have no parameters"}
		}
		out := shardList{Node: a.node, Shards: []listedShard{}}
		for _, o := range a.service.Shards() {
			out.Shards = append(out.Shards, listedOf(o))
		}
		return out, nil
	}))
	mux.HandleFunc("POST /shards/{id}/move", ordered(func(r *http.Request) (any, error) {
		shard, node, err := readMove(r)
		if err != nil {
			return nil, err
		}
		o, err := a.move(r.Context(), shard, node)
		return movedShard{a.node, listedOf(o)}, err
	}))
}

// readMove reads what POST /shards/{id}/move asks for.
func readMove(r *http.Request) (shard int, node string, err error) {
	id := r.PathValue("id")
	if shard, err = strconv.Atoi(id); err != nil {
		return 0, "", &badQuestion{why: fmt.Sprintf("shard: %.40q must be the number of a shard", id)}
	}
	var q moveQuestion
	text, err := readBody(r.Body)
	if err == nil {
		err = understand(text, &q)
	}
	if err == nil && q.Node == nil {
		err = &badQuestion{why: `node: is missing; it must be the id of a node, or "" for none`}
	}
	if err != nil {
		return 0, "", err
	}
	return shard, *q.Node, nil
}

// move pins a shard, and says so in the log: what the balance does not say somebody did.
func (a *app) move(ctx context.Context, shard int, node string) (service.Ownership, error) {
	o, err := a.service.Move(ctx, shard, node)
	if err == nil {
		a.log.Info("a shard was moved by hand", "shard", shard, "to_node", node, "owner_node", o.Owner, "preferred", o.Preferred)
		return o, nil
	}
	return o, moveError(err)
}

// moveError says whether the shard was moved.
func moveError(err error) error {
	if none, ok := errors.AsType[*service.NoShardError](err); ok {
		return &badQuestion{"shard: " + none.Error(), http.StatusNotFound}
	}
	if none, ok := errors.AsType[*service.NoNodeError](err); ok {
		return &badQuestion{"node: " + none.Error(), http.StatusConflict}
	}
	if nonce.OutcomeOf(err) == nonce.Unknown {
		return fmt.Errorf("%w; whether the shard was moved is unknown, and to move it again does no harm", err)
	}
	return fmt.Errorf("%w; the shard was not moved", err)
}
