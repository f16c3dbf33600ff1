package service

import (
	"errors"
	"slices"

	"noncegate/lease"
	"noncegate/nonce"
	"noncegate/nonce/rules"
)

// settle deals with a commit whose outcome is unknown. The shards are acquired again, with a
// higher token, before anything of their signers is read or answered: from then on the late
// commit is either visible or refused, and only then does reading settle it. Where another
// node has the shard by now, its token does the same.
func (w *worker) settle(groups []*group, cause error) []*group {
	var shards []*lease.Term
	for _, g := range groups {
		if !slices.Contains(shards, &g.shard.Term) {
			shards = append(shards, &g.shard.Term)
		}
	}
	acquired := w.svc.table.Acquire(shards)
	needs := make([]nonce.SignerNeed, len(groups))
	for i, g := range groups {
		needs[i] = nonce.SignerNeed{Signer: g.name}
	}
	loaded, err := w.svc.load(needs)
	if err == nil && w.svc.store.Generation() != w.generation {
		err = errGeneration // a version, and a token, may have come again in another history
	}
	var next []*group
	for i, g := range groups {
		// A row says that the acquire was answered, and so that the token is above the commit's,
		// also where this node does not have the shard.
		if err != nil || acquired[slices.Index(shards, &g.shard.Term)].Row.Token == 0 {
			w.lose(g.shard) // so that whoever asks next acquires it first
			w.leaveUnknown(g, cause)
			continue
		}
		switch stopped := w.settled(g, &loaded.Signers[i], cause); {
		case len(g.tasks) == 0:
		case g.shard.Mine() || stopped:
			next = append(next, g)
		default:
			w.toOwner(g, &loaded.Signers[i].Shard, nonce.ErrFenced)
		}
	}
	return next
}

var errGeneration = errors.New("the store may have become another one meanwhile")

// leaveUnknown answers a group whose commit could not be settled. What wrote
// nothing, or was not part of the commit, did not happen.
func (w *worker) leaveUnknown(g *group, cause error) {
	w.releaseHolds(g)
	w.endUnknown(g, cause, func(*task) bool { return false })
	g.unread()
	w.failGroup(g, &nonce.UnavailableError{Outcome: nonce.NotSent, Err: cause})
}

// endUnknown ends the tasks of which the commit would have written something, but those that
// may run again; all others stay.
func (w *worker) endUnknown(g *group, cause error, again func(*task) bool) {
	for i, t := range g.planned() {
		if g.plan.Answers[i].Wrote && !again(t) {
			w.refuse(t, &nonce.UnavailableError{Outcome: nonce.Unknown, Err: cause})
		}
	}
	g.tasks = slices.DeleteFunc(g.tasks, (*task).over)
}

// settled judges the unknown commit of one signer by its row, read under a higher token than
// the commit named. The row of the commit itself says that it happened; a row as it was, or
// one that another wrote in its place, that it never will. Where others wrote behind one or
// the other, only a request id tells, which running the op again finds. It reports whether
// the signer is stopped.
func (w *worker) settled(g *group, l *nonce.LoadedSigner, cause error) (stopped bool) {
	planned, token := g.write.Signer.Version, g.write.Term.Token
	believed, checks := planned-1, g.write.Check // what is remembered may have been replaced since
	old := *g.sig
	switch {
	case l.Err != nil || l.Shard.Token <= token: // the row cannot be read, or the late commit may still come
		w.leaveUnknown(g, cause)
		return false
	case checks || l.Signer.Version == believed, l.Signer.Version == planned && l.Token != token:
		w.releaseHolds(g) // nothing of it happened
	case l.Signer.Version == planned: // under the commit's own token: it happened
		g.sig = &old // it may be forgotten; its chain is wanted
		g.sig.row, g.sig.token = l.Signer, l.Token
		w.answer(g, w.svc.storeTime())
	case l.Signer.Version < believed: // the store went back; what the commit would have written is not tried again
		w.releaseHolds(g)
		w.endUnknown(g, cause, func(*task) bool { return false })
	default: // others wrote since: the request id tells, and a task without one stays unknown
		w.releaseHolds(g)
		w.endUnknown(g, cause, func(t *task) bool {
			if t.req.RequestID == "" {
				return false
			}
			t.become(uncertain)
			return true
		})
	}
	g.unread()
	g.wants = rules.Wants{}
	if w.memory.signers[g.name] == nil {
		return false
	}
	return w.compared(w.memory.signers[g.name], l)
}
