package service

import (
	"slices"
	"time"

	"noncegate/nonce"
	"noncegate/nonce/rules"
)

// mendAll writes signers that are in doubt after a loss as they are from then on, before
// anything else is done with them. It returns the groups that go on.
func (w *worker) mendAll(groups []*group) []*group {
	var ill []*group
	var writes []nonce.Write
	for _, g := range groups {
		if g.sig == nil || g.sig.ahead {
			continue
		}
		mended, is := rules.Mend(g.sig.row, &g.shard.Took)
		if !is {
			continue
		}
		ill = append(ill, g)
		writes = append(writes, nonce.Write{
			Name: g.name, Term: g.shard.Believed(), Generation: w.generation, Signer: mended, DueAt: mended.FirstDeadline(),
		})
	}
	if len(ill) == 0 {
		return groups
	}
	ctx, cancel := w.svc.timeout()
	defer cancel()
	res, err := w.svc.store.Commit(ctx, w.svc.holder, writes)
	for i, g := range ill {
		if err == nil && res.Results[i] == nonce.Applied {
			w.svc.log.Warn("a signer is in doubt after a loss", "signer", g.name, "next", writes[i].Signer.Next,
				"until", time.UnixMilli(g.shard.Took.DoubtUntil))
			w.set(g.sig, writes[i].Signer, writes[i].Term.Token)
			g.sig.listed = max(0, writes[i].DueAt)
			continue
		}
		groups = slices.DeleteFunc(groups, func(x *group) bool { return x == g })
		if !g.sig.stopped {
			w.memory.forget(g.sig)
		}
		g.unread()
		if err != nil && nonce.OutcomeOf(err) == nonce.Unknown {
			w.lose(g.shard) // the next acquire raises the token, and what comes late is refused
		}
		g.sig = nil
		if len(g.tasks) > 0 {
			w.park(g, errRowLocked)
		}
	}
	return groups
}
