package service

import (
	"context"
	"slices"
	"sync"
	"time"

	"noncegate/lease"
	"noncegate/nonce"
)

// ensureOwned acquires, in one statement, the shards of these groups that this node does not
// own, and returns the groups that may go on; the others are ended, routed or parked. A group
// without tasks, which is there only for overdue holds, is dropped: no shard is acquired for it.
func (w *worker) ensureOwned(groups []*group) []*group {
	var missing []*lease.Term
	groups = w.yield(groups)
	for _, g := range groups {
		if !g.shard.Mine() && len(g.tasks) > 0 && !slices.Contains(missing, &g.shard.Term) {
			missing = append(missing, &g.shard.Term)
		}
	}
	retired := w.svc.table.Retired()
	var acquired []lease.Acquisition
	if !retired {
		acquired = w.svc.table.Acquire(missing)
	}
	left := groups[:0]
	for _, g := range groups {
		switch i := slices.Index(missing, &g.shard.Term); {
		case len(g.tasks) == 0 && !g.shard.Mine():
		case i < 0:
			left = append(left, g)
		case retired:
			w.releaseGroup(g)
		case w.took(g, &acquired[i]):
			left = append(left, g)
		}
	}
	return w.ready(left)
}

const (
	errNoLease    nonce.Told = "this node's lease has expired and is not renewed yet; try again"
	errTakenSince nonce.Told = "another node has just taken the signer's shard; try again"
)

// took reports whether a group may go on: its shard was acquired. Else it ends, routes or
// parks the group.
func (w *worker) took(g *group, got *lease.Acquisition) bool {
	owner := got.Row.Owner
	switch {
	case got.Err != nil && nonce.OutcomeOf(got.Err) == nonce.Aborted: // it is locked, perhaps
		w.park(g, got.Err)
	case got.Err != nil: // the acquire may have happened, the ops did not
		w.failGroup(g, &nonce.UnavailableError{Outcome: nonce.NotSent, Err: got.Err})
	case got.Row.Taken:
		return true
	case owner.Node == "" || owner.Node == w.svc.holder.Node && owner.Incarnation <= w.svc.holder.Incarnation:
		// It could be taken, so the store refused because this node has no lease that runs.
		w.failGroup(g, &nonce.UnavailableError{Outcome: nonce.Aborted, Err: errNoLease})
	default:
		w.toOwner(g, &got.Row, w.notOwner(&got.Row))
	}
	return false
}

// fenced ends, or routes, a group whose shard another node took.
func (w *worker) fenced(g *group, row *lease.Shard) {
	provided := g.shard.Token()
	w.lose(g.shard)
	for _, t := range g.tasks {
		if !t.reads() {
			w.svc.fig.FenceReject(t.req.Kind)
			w.svc.log.Warn("fenced", "signer", g.name, "op", t.req.Kind.String(), "shard", g.shard.ID, "provided_token", provided,
				"token", row.Token, "owner_node", row.Owner.Node, "node", w.svc.holder.Node)
		}
	}
	w.svc.checkIncarnation(row.Owner)
	w.toOwner(g, row, nonce.ErrFenced)
}

const (
	errNoEngine   nonce.Told = "the signer's shard has the performance engine, which this node does not have"
	errOwnerFirst nonce.Told = "the database became another one, and the node that had the signer's shard takes it up first; try again"
	errLeft       nonce.Told = "this node cannot serve the performance engine of the signer's shard just now; try again"
)

// history is when the store became another one.
type history struct {
	mu         sync.Mutex // guards what follows
	generation uint64
	at         time.Time // zero: it did not
}

// ownersFirst reports whether the store became another one a moment ago, in which each node takes up its own
// shards: no other one remembers their signers, and could notice what the store lost of them. The table asks at
// each of its looks, so that the moment is right.
func (s *Service) ownersFirst() bool {
	s.history.mu.Lock()
	defer s.history.mu.Unlock()
	if e := s.store.Generation(); s.history.generation != e {
		s.history.generation, s.history.at = e, time.Now()
	}
	return time.Since(s.history.at) < ownersFirstFor*s.cfg.LeaseTTL
}

// ownersFirstFor is for how many leases a shard is left to the node that had it.
const ownersFirstFor = 2

// others reports whether a shard was another node's, as this node saw last.
func (s *Service) others(row *lease.Shard) bool {
	return row.Owner.Node != "" && row.Owner.Node != s.holder.Node
}

// leaves reports whether this node leaves a shard of that row, which no node has served since then, to
// others.
func (s *Service) leaves(row *lease.Shard, since time.Time) bool {
	if s.others(row) && s.ownersFirst() {
		return true
	}
	return row.Performance && (s.cfg.Engine == nil || s.cfg.Engine.Leaves(row, since))
}

// yield sets groups aside whose shard is left to other nodes, and comes back to them to see whether one
// has it.
func (w *worker) yield(groups []*group) []*group {
	return slices.DeleteFunc(groups, func(g *group) bool {
		sh := g.shard
		switch {
		case sh.Mine() || len(g.tasks) == 0:
			return false
		case w.svc.others(sh.Row()) && w.svc.ownersFirst():
			w.park(g, errOwnerFirst)
		case sh.Unsure || w.engine == nil || !w.svc.leaves(sh.Row(), time.Time{}):
			return false
		default:
			w.park(g, errLeft)
		}
		return true
	})
}

// ready returns the groups that can be planned. The others wait until the committer of their shard can
// take them.
func (w *worker) ready(groups []*group) []*group {
	return slices.DeleteFunc(groups, func(g *group) bool {
		if !g.shard.Performance {
			return false
		}
		err := w.engine.Ready(Shard{g.shard})
		if err != nil && len(g.tasks) > 0 {
			w.park(g, err)
		}
		return err != nil
	})
}

// askStore reads or acquires something that groups wait for.
func (w *worker) askStore(ask func(context.Context) error) error {
	if w.engine != nil {
		return w.engine.Ask(ask)
	}
	ctx, cancel := w.svc.timeout()
	defer cancel()
	return ask(ctx)
}
