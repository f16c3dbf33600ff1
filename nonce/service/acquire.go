package service

import (
	"context"
	"slices"
	"time"

	"noncegate/lease"
	"noncegate/nonce"
)

// ensureOwned acquires, in one statement, the shards of these groups that this node does not
// own, and returns the groups that may go on; the others are ended, routed or parked. A group
// without tasks, which is there only for overdue holds, is dropped: no shard is acquired for it.
func (w *worker) ensureOwned(groups []*group) []*group {
	var missing []*shard
	groups = w.yield(groups)
	for _, g := range groups {
		if !g.shard.Mine() && len(g.tasks) > 0 && !slices.Contains(missing, g.shard) {
			missing = append(missing, g.shard)
		}
	}
	retired := w.svc.table.Retired()
	var acquired []acquisition
	if !retired {
		acquired = w.acquire(missing)
	}
	left := groups[:0]
	for _, g := range groups {
		switch i := slices.Index(missing, g.shard); {
		case len(g.tasks) == 0 && !g.shard.Mine():
		case i < 0:
			left = append(left, g)
		case retired:
			w.releaseGroup(g)
		case w.goesOn(g, &acquired[i]):
			left = append(left, g)
		}
	}
	return w.ready(left)
}

const (
	errNoLease    nonce.Told = "this node's lease has expired and is not renewed yet; try again"
	errTakenSince nonce.Told = "another node has just taken the signer's shard; try again"
)

// goesOn reports whether a group may go on: its shard was acquired. Else it ends, routes or
// parks the group.
func (w *worker) goesOn(g *group, got *acquisition) bool {
	owner := got.row.Owner
	switch {
	case got.err != nil && nonce.OutcomeOf(got.err) == nonce.Aborted: // it is locked, perhaps
		w.park(g, got.err)
	case got.err != nil: // the acquire may have happened, the ops did not
		w.failGroup(g, &nonce.UnavailableError{Outcome: nonce.NotSent, Err: got.err})
	case got.row.Taken:
		return true
	case owner.Node == "" || owner.Node == w.svc.holder.Node && owner.Incarnation <= w.svc.holder.Incarnation:
		// It could be taken, so the store refused because this node has no lease that runs.
		w.failGroup(g, &nonce.UnavailableError{Outcome: nonce.Aborted, Err: errNoLease})
	default:
		w.toOwner(g, &got.row, w.notOwner(&got.row))
	}
	return false
}

// acquisition is what an acquire brought of one shard. The shard is this node's if err is nil
// and the row says that it was taken.
type acquisition struct {
	row lease.Shard
	err error
}

// acquire takes shards in one statement, or, when that is aborted, each by itself: the row
// of one may be locked. Those that were taken are this node's from now on.
func (w *worker) acquire(shards []*shard) []acquisition {
	if len(shards) == 0 {
		return nil
	}
	ids, seen := make([]int, len(shards)), make([]lease.Shard, len(shards))
	for i, sh := range shards {
		ids[i], seen[i] = sh.ID, *sh.Row()
	}
	rows, err := w.tryAcquire(ids)
	out := make([]acquisition, 0, len(shards))
	for i, sh := range shards {
		switch {
		case err == nil:
			out = append(out, acquisition{rows[i], w.acquired(sh, &rows[i], &seen[i])})
		case len(shards) > 1 && nonce.OutcomeOf(err) == nonce.Aborted:
			one := w.acquire([]*shard{sh})[0]
			if out = append(out, one); one.err != nil && nonce.OutcomeOf(one.err) != nonce.Aborted {
				err = one.err // the store does not answer: it is not asked for the others
			}
		default:
			w.svc.fig.LeaseAcquire(nonce.AcquireError)
			out = append(out, acquisition{err: err})
		}
	}
	return out
}

func (w *worker) tryAcquire(ids []int) (rows []lease.Shard, err error) {
	err = w.askStore(func(ctx context.Context) error {
		rows, err = w.svc.store.Acquire(ctx, w.svc.holder, ids)
		return err
	})
	return rows, err
}

// acquired follows one result of an acquire. What is remembered of the shard's signers stays
// valid only if this node owned the shard and the new token is the next one: then nobody else
// owned it in between. was is the row as it was known before the acquire was sent. An error says
// why this node does not have the shard although it was taken.
func (w *worker) acquired(sh *shard, row, was *lease.Shard) error {
	before := sh.Token()
	sh.Believe()
	sh.AskedAt = time.Now()
	if row.Token < was.Token {
		w.shardWentBack(sh, row)
	}
	sh.See(*row)
	if !row.Taken || row.Token < sh.Row().Token {
		w.svc.fig.LeaseAcquire(nonce.AcquireHeld)
		w.lose(sh)
		if row.Taken { // and somebody took it since, as was read meanwhile
			return &nonce.StoreError{Outcome: nonce.Aborted, Err: errTakenSince}
		}
		return nil
	}
	if before == 0 || row.Token != before+1 || sh.Fast || row.Performance {
		w.lose(sh)
	}
	sh.Begin(row)
	if row.Performance && w.committer == nil { // the shard is for a node that has the engine
		w.releaseShards([]*shard{sh})
		return errNoEngine
	}
	if sh.Fast = row.Performance; w.committer != nil {
		w.committer.Acquired(Shard{sh}, row, before == 0)
	}
	result := nonce.AcquireNew
	if from := was.Owner.Node; from != "" && from != w.svc.holder.Node && row.Token == was.Token+1 { // else it was given back
		result = nonce.AcquireTakeover
		w.svc.log.Info("took over a shard", "shard", sh.ID, "from_node", from, "owner_node", w.svc.holder.Node, "fencing_token", row.Token)
	}
	w.svc.fig.LeaseAcquire(result)
	return nil
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
	errNoEngine nonce.Told = "the signer's shard has the performance engine, which this node does not have"
	errLeft     nonce.Told = "this node cannot serve the performance engine of the signer's shard just now; try again"
)

// leaves reports whether this node leaves a shard of that row, which no node has served since then, to
// others.
func (s *Service) leaves(row *lease.Shard, since time.Time) bool {
	return row.Performance && (s.cfg.Engine == nil || s.cfg.Engine.Leaves(row, since))
}

// yield sets groups aside whose shard is left to other nodes, and comes back to them to see whether one
// has it.
func (w *worker) yield(groups []*group) []*group {
	return slices.DeleteFunc(groups, func(g *group) bool {
		sh := g.shard
		if sh.Mine() || sh.Unsure || len(g.tasks) == 0 || w.committer == nil || !w.svc.leaves(sh.Row(), time.Time{}) {
			return false
		}
		w.park(g, errLeft)
		return true
	})
}

// ready returns the groups that can be planned. The others wait until the committer of their shard can
// take them.
func (w *worker) ready(groups []*group) []*group {
	return slices.DeleteFunc(groups, func(g *group) bool {
		if !g.shard.Fast {
			return false
		}
		err := w.committer.Ready(Shard{g.shard})
		if err != nil && len(g.tasks) > 0 {
			w.park(g, err)
		}
		return err != nil
	})
}

// askStore reads or acquires something that groups wait for.
func (w *worker) askStore(ask func(context.Context) error) error {
	if w.committer != nil {
		return w.committer.Ask(ask)
	}
	ctx, cancel := w.svc.timeout()
	defer cancel()
	return ask(ctx)
}
