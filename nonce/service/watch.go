package service

import "time"

const (
	// freeFor is how long a shard is nobody's, or its owner's lease is over, before a node
	// takes it that should not have it: two looks of the node that should, at the default.
	freeFor = time.Second
	// movesPerLook bounds the shards that a node gives up at a look.
	movesPerLook = 2
	// keepFor is how long a node keeps a shard that the node which should have it did not
	// take, before it is offered to it again.
	keepFor = 5 * time.Second
)

// watch looks who owns which shard, and takes and gives up shards so that each gets where
// it should be. It belongs to one goroutine.
type watch struct {
	svc       *Service
	freeSince []time.Time // of each shard; zero: somebody has it
	keptUntil []time.Time // of each shard: before then it is not given up
	away      bool        // the last look failed
}

// look looks once, and acts on what it saw.
func (w *watch) look(*time.Ticker) {
	err := w.svc.look(w.svc.calls)
	engine := w.svc.cfg.Engine
	if err == nil && engine != nil {
		err = engine.Look(w.svc.calls)
	}
	if err == nil {
		w.balance()
		if engine != nil {
			engine.Order()
		}
	}
	switch {
	case err != nil && !w.away:
		w.svc.log.Warn("who owns which shard cannot be read; what was read last stands", "error", err)
	case err == nil && w.away:
		w.svc.log.Info("who owns which shard can be read again")
	}
	w.away = err != nil
}

// balance asks for shards that this node should have and nobody has, and for those that
// nobody has had for a while; it gives up some that others should have and can serve.
func (w *watch) balance() {
	s, moves := w.svc, movesPerLook
	if s.basic != nil || s.retired.Load() || s.haltedBy() != nil {
		return
	}
	f := s.fleet.Load()
	for i, sh := range s.shards {
		row, preferred := sh.view.Load(), f.Preferred(i)
		free := row.Owner.Node == "" || row.Owner.Node == s.holder.Node || !s.leaseRuns(f, row.Owner)
		if sh.mine() || !free {
			w.freeSince[i] = time.Time{}
		} else if w.freeSince[i].IsZero() {
			w.freeSince[i] = time.Now()
		}
		switch {
		case !sh.mine() && s.leaves(row, w.freeSince[i]):
		case sh.mine() && row.Owner != s.holder && row.Token > sh.term.Load():
			// It was taken from this node, which was paused perhaps. To ask for it tells.
			sh.worker.command(command{shard: sh, take: true})
		case sh.mine():
			if moves > 0 && w.mayMove(sh, preferred) {
				moves--
				sh.worker.command(command{shard: sh, preferred: preferred})
			}
		case !free:
		case preferred == s.holder.Node:
			sh.worker.command(command{shard: sh, take: true})
		case time.Since(w.freeSince[i]) >= freeFor:
			w.keptUntil[i] = time.Now().Add(keepFor)
			sh.worker.command(command{shard: sh, take: true})
		}
	}
}

// mayMove reports whether this node gives a shard up for the node that should have it.
func (w *watch) mayMove(sh *shard, preferred string) bool {
	return preferred != "" && preferred != w.svc.holder.Node && sh.stopped.Load() == 0 &&
		time.Now().After(w.keptUntil[sh.id]) && w.svc.reaches(preferred)
}
