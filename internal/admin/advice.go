package admin

import (
	"context"
	"fmt"
	"sync"
	"time"

	"noncegate/nonce"
)

// adviseEvery is how long what was found out about servers is good.
const adviseEvery = time.Minute

// advised is what was found out last about the servers that this node needs.
type advised struct {
	mu   sync.Mutex // guards what follows, and is held while it is found out
	at   time.Time
	list []Finding
}

// advice is about the settings of PostgreSQL and Redis, and about the chains that are configured.
func (a *Server) advice(ctx context.Context) []Finding {
	l := &a.advised
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.at.IsZero() && time.Since(l.at) < adviseEvery {
		return l.list
	}
	l.list = append(a.ofStore(ctx), a.ofRedis(ctx)...)
	if a.cfg.ChainsOf != nil {
		l.list = append(l.list, ofFewNodes(a.cfg.ChainsOf())...)
	}
	l.at = time.Now()
	return l.list
}

func (a *Server) ofStore(ctx context.Context) (list []Finding) {
	store, ok := a.cfg.Store.(nonce.Adviser)
	if !ok {
		return nil
	}
	for _, is := range store.Advise(ctx) {
		severity := look
		if is.Urgent {
			severity = fix
		}
		list = append(list, Finding{ID: is.ID, Severity: severity, What: is.What, Why: is.Why, Do: is.Do, Page: "nodes"})
	}
	return list
}

// ofRedis leaves out what Check refuses: that Redis is not reached as it must be is told elsewhere.
func (a *Server) ofRedis(ctx context.Context) (list []Finding) {
	if a.cfg.Redis == nil {
		return nil
	}
	s, err := a.cfg.Redis.Check(ctx)
	switch {
	case err != nil:
	case !s.AOF:
		list = append(list, Finding{
			ID: "redis-no-log", Severity: look, Page: "nodes", What: s.Addr + " writes no append-only file",
			Why: "After a restart it is empty: the performance engine goes back to the store, and nonces are in doubt for a while.",
			Do:  "Set appendonly yes, and appendfsync everysec or always.",
		})
	case s.Fsync == "no":
		list = append(list, Finding{
			ID: "redis-no-fsync", Severity: look, Page: "nodes", What: s.Addr + " has appendfsync no",
			Why: "A crash of its machine loses what was not written back, as after a restart without a file.",
			Do:  "Set appendfsync everysec or always.",
		})
	}
	if err == nil && s.Replicas == 0 {
		list = append(list, Finding{
			ID: "redis-alone", Severity: look, Page: "nodes", What: s.Addr + " has no replica",
			Why: "While it is away the performance engine is off, and guards hold at each node alone.",
			Do:  "Set up a replica, if that is too little.",
		})
	}
	return list
}

func ofFewNodes(chains []ChainView) (list []Finding) {
	for _, c := range chains {
		if len(c.Nodes) == 1 {
			list = append(list, Finding{
				ID: "chain-one-node-" + c.Chain, Severity: look, Page: "nodes", What: fmt.Sprintf("%s has one node", c.Chain),
				Why: "While it is away nothing is sent, and nothing contradicts it when it is wrong.",
				Do:  "Configure a node of another provider beside it (--chain).",
			})
		}
	}
	return list
}
