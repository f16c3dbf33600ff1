package service

import (
	"context"
	"slices"
	"time"

	"noncegate/nonce"
	"noncegate/nonce/rules"
)

// load reads, in one round trip, signers that are not remembered and what the last plans
// wanted, and returns the groups that can be planned.
func (w *worker) load(groups []*group) []*group {
	var reading []*group
	var needs []nonce.SignerNeed
	for _, g := range groups {
		if g.sig = w.memory.use(g.name); g.sig != nil {
			w.overlay(g)
			g.wants.Requests = append(g.wants.Requests, g.unasked()...)
		}
		if g.sig == nil || g.wants.Any() {
			reading, needs = append(reading, g), append(needs, g.need())
		}
	}
	if len(reading) > 0 {
		w.readAll(reading, needs)
	}
	groups = w.mendAll(groups)
	left := groups[:0]
	for _, g := range groups {
		switch {
		case g.sig == nil || len(g.tasks) == 0 && !g.look:
		case g.sig.stopped && (len(g.tasks) == 0 || !g.sig.safeFloor(g.tasks[0])): // it was stopped after front had looked
			w.stoppedNow(g, g.sig.row.Version)
		default:
			if g.sig.stopped && g.shard.Performance {
				if err := w.engine.FloorWaits(Signer{g.sig}); err != nil {
					w.park(g, err)
					continue
				}
			}
			left = append(left, g)
		}
	}
	return left
}

// readAll reads signers in one round trip.
func (w *worker) readAll(groups []*group, needs []nonce.SignerNeed) {
	var loaded nonce.Loaded
	err := w.askStore(func(ctx context.Context) (err error) {
		loaded, err = w.svc.loadBy(ctx, needs)
		return err
	})
	if err == nil && w.svc.store.Generation() != w.generation {
		err = errGeneration // the store's statement is refused for it, and a committer's would not be
	}
	for i, g := range groups {
		if err != nil {
			w.failUnread(g, &nonce.UnavailableError{Outcome: nonce.NotSent, Err: err})
			continue
		}
		w.follow(g, &loaded.Signers[i])
	}
}

// failUnread ends the tasks of a group that need what could not be read. Of a signer whose
// memory is ahead of its row, and whole, the others go on.
func (w *worker) failUnread(g *group, err error) {
	if g.sig == nil || !g.sig.toEngine() {
		w.failGroup(g, err)
		g.look = false
		return
	}
	g.tasks = slices.DeleteFunc(g.tasks, func(t *task) bool {
		needs := slices.Contains(g.wants.Requests, t.req.RequestID)
		if t.req.Kind.OfNonce() { // without one it may be of any
			needs = needs || slices.Contains(g.wants.History, t.req.Nonce) || t.req.Nonce < 0 && len(g.wants.History) > 0
		}
		if needs {
			w.refuse(t, err)
		}
		return needs
	})
	g.wants = rules.Wants{}
}

// safeFloor reports whether a task lets a stopped signer serve again.
func (s *signer) safeFloor(t *task) bool {
	return t.req.Kind == nonce.KindSetFloor && t.req.Floor >= s.safe
}

// need says what to read for a group: what its last plan wanted, and, of a signer of which
// nothing is remembered, all that its tasks may need.
func (g *group) need() nonce.SignerNeed {
	n := nonce.SignerNeed{Signer: g.name, History: g.wants.History, Requests: g.wants.Requests}
	if g.sig != nil {
		return n
	}
	for _, t := range g.tasks {
		if id := t.req.RequestID; id != "" && !slices.Contains(n.Requests, id) {
			n.Requests = append(n.Requests, id)
		}
		if t.req.Kind.OfNonce() && t.req.Nonce >= 0 && !slices.Contains(n.History, t.req.Nonce) {
			n.History = append(n.History, t.req.Nonce)
		}
	}
	return n
}

// ErrUnreadable refuses what concerns a signer whose row cannot be read.
const ErrUnreadable nonce.Told = "the stored state of this signer cannot be read; it is stopped until its row is mended"

// alarmUnreadable tells of a row that cannot be read.
func (s *Service) alarmUnreadable(signer string, version int64, cause error) {
	s.fig.Invariant()
	s.log.Error("the row of a signer cannot be read", "signer", signer, "version", version, "error", cause)
}

// follow takes in one read of a signer.
func (w *worker) follow(g *group, l *nonce.LoadedSigner) {
	g.history, g.requests, g.wants = l.History, l.Requests, rules.Wants{}
	g.shard.See(l.Shard)
	term := g.shard.Token()
	switch {
	case l.Shard.Token != term || l.Shard.Owner != w.svc.holder:
		g.sig = nil
		if l.Shard.Token < term {
			w.svc.table.WentBack(&g.shard.Term, &l.Shard)
		}
		w.fenced(g, &l.Shard)
	case l.Err != nil:
		w.svc.alarmUnreadable(g.name, l.Signer.Version, l.Err)
		w.postpone(g, l.Signer.Version)
		g.sig, g.look, g.listed = nil, false, nonce.DueEntry{}
		w.failGroup(g, &nonce.UnavailableError{Outcome: nonce.Aborted, Err: ErrUnreadable})
	case l.Shard.Performance != g.shard.Performance: // an outcome that was unknown, or the engine of another life
		w.lose(g.shard)
		g.sig = nil
		w.rerouted = append(w.rerouted, g)
	case g.sig != nil && g.sig.toEngine(): // memory is ahead of the rows
	case g.sig == nil:
		if g.sig = w.remember(g, l); g.sig == nil {
			w.stoppedNow(g, l.Signer.Version)
		}
	case w.compared(g.sig, l):
		w.stoppedNow(g, l.Signer.Version)
	}
}

// stoppedNow sends the group of a signer that was just stopped back to front, which refuses
// all of its tasks but a safe floor. What the store has listed of it waits, so that it does not
// stand before others there. Version is that of its row.
func (w *worker) stoppedNow(g *group, version int64) {
	w.postpone(g, version)
	g.sig, g.look, g.listed = nil, false, nonce.DueEntry{}
	w.rerouted = append(w.rerouted, g)
}

// remember begins to remember a signer as it was read. nil: the row shows less than this node
// saw when it owned the shard before, and the signer is stopped.
func (w *worker) remember(g *group, l *nonce.LoadedSigner) *signer {
	switch was := w.memory.signers[g.name]; {
	case was == nil && w.behind > 0:
		sig := &signer{name: g.name, shard: g.shard, stay: g.shard.Stay, row: l.Signer, token: l.Token}
		w.followChain(sig)
		w.memory.add(sig)
		w.stopUnseen(sig, l)
		return nil
	case was == nil:
	case was.stopped: // before the shard was lost; its floor may have been raised elsewhere meanwhile
		w.meetAgain(was)
		w.set(was, l.Signer, l.Token)
		if was.stopped {
			return nil
		}
		return was
	case rowWentBack(was, l):
		w.meetAgain(was)
		w.stopSigner(was, l)
		return nil
	default:
		w.memory.forget(was)
	}
	sig := &signer{name: g.name, shard: g.shard, stay: g.shard.Stay, row: l.Signer, token: l.Token}
	w.followChain(sig)
	w.memory.add(sig)
	return sig
}

// meetAgain takes a signer into the present stay of its shard. Its chain was left when the shard
// was lost, and a safe floor, with what is planned behind it, goes by what the chain says.
func (w *worker) meetAgain(sig *signer) {
	sig.stay, sig.listed, sig.watch = sig.shard.Stay, 0, nonce.Watch{} // another owner may have listed it otherwise
	w.followChain(sig)
}

// followChain has the chain of a signer followed, if it has one.
func (w *worker) followChain(sig *signer) {
	if w.svc.cfg.Chain == nil || sig.chain != nil {
		return
	}
	if sig.chain = w.svc.cfg.Chain.Signer(sig.name); sig.chain != nil {
		sig.chain.Owned(true)
	}
}

// load reads signers.
func (s *Service) load(needs []nonce.SignerNeed) (nonce.Loaded, error) {
	ctx, cancel := s.timeout()
	defer cancel()
	return s.loadBy(ctx, needs)
}

func (s *Service) loadBy(ctx context.Context, needs []nonce.SignerNeed) (nonce.Loaded, error) {
	started := time.Now()
	loaded, err := s.store.Load(ctx, needs)
	if err == nil {
		s.clock.observe(started, time.Now(), loaded.Now)
	}
	return loaded, err
}
