package service

import (
	"context"
	"sync/atomic"
	"time"

	"noncegate/lease"
	"noncegate/nonce"
)

// shard is a shard, and the worker that runs it. Its lock is worker.batchMu.
type shard struct {
	lease.Term
	worker *worker

	inside atomic.Int64 // its tasks that are at the worker: queued, in a batch or waiting
	direct atomic.Pointer[direct]
}

// serving is the service as its table of shards sees it: it implements lease.Server.
type serving struct{ *Service }

func (s serving) Order(o lease.Order) {
	if s.basic == nil {
		s.shards[o.Shard.ID].worker.order(o)
	} else {
		s.table.Follow([]lease.Order{o}, time.Now())
	}
}

func (s serving) Now() int64 { return s.clock.now().Earliest }

func (s serving) Reaches(node string) bool { return s.cfg.Router == nil || s.cfg.Router.Reaches(node) }

func (s serving) Leaves(row *lease.Shard, since time.Time) bool { return s.leaves(row, since) }

func (s serving) Halted() bool { return s.haltedBy() != nil }

func (s serving) Ask(shard int, ask func(context.Context) error) error {
	return s.shards[shard].worker.askStore(ask)
}

func (s serving) Taken(shard int, row *lease.Shard, anew bool) error {
	sh := s.shards[shard]
	w := sh.worker
	if row.Performance && w.engine == nil { // the shard is for a node that has the engine
		return errNoEngine
	}
	if sh.Performance = row.Performance; w.engine != nil {
		w.engine.Acquired(Shard{sh}, row, anew)
	}
	return nil
}

func (s serving) Leave(shard int) bool {
	sh := s.shards[shard]
	return sh.worker.engine.Leave(Shard{sh})
}

func (s serving) Losing(shard int) {
	sh := s.shards[shard]
	sh.worker.engine.Lost(Shard{sh})
}

func (s serving) Lost(shard int) {
	if s.cfg.Chain == nil {
		return
	}
	sh := s.shards[shard]
	for _, sig := range sh.worker.memory.signers { // the chain is not asked for them by this node any more
		if sig.shard == sh && !sig.stopped {
			sig.disown()
		}
	}
}

func (s serving) WentBack(shard int, seen, row *lease.Shard) {
	s.fig.WentBack()
	s.log.Error("the store went back", "shard", shard, "seen_token", seen.Token, "token", row.Token)
	if s.basic == nil { // else nothing is remembered that could be compared
		sh := s.shards[shard]
		sh.worker.compareThose(func(sig *signer) bool { return sig.shard == sh })
	}
}

// observed is the store as lease.Store, which shows its clock with the shards.
type observed struct {
	nonce.Store
	clock *clock
}

func (o observed) Owners(ctx context.Context) (lease.Owners, error) {
	started := time.Now()
	all, err := o.Store.Owners(ctx)
	if err == nil {
		o.clock.observe(started, time.Now(), all.Now)
	}
	return all, err
}

// newTable makes the table of the shards.
func (s *Service) newTable() *lease.Table {
	terms := make([]*lease.Term, len(s.shards))
	for i, sh := range s.shards {
		terms[i] = &sh.Term
	}
	return lease.NewTable(lease.Config{
		Store: observed{s.store, s.clock}, Server: serving{s}, Holder: s.holder, Mode: string(nonce.WorkerQueue), Owns: s.basic == nil,
		Timeout: s.cfg.StoreTimeout, Passes: passes, Retry: s.cfg.LockRetry, OnNodes: s.cfg.OnNodes, Log: s.log,
		Bound: s.timeout, Aborted: func(err error) bool { return nonce.OutcomeOf(err) == nonce.Aborted },
		TakenSince: &nonce.StoreError{Outcome: nonce.Aborted, Err: errTakenSince}, Acquired: s.fig.LeaseAcquire,
	}, terms)
}

// watch looks who owns which shard, and takes and gives up shards so that each gets where it should
// be. It belongs to one goroutine.
type watch struct {
	svc  *Service
	away bool // the last look failed
}

// look looks once, and acts on what it saw.
func (w *watch) look(*time.Ticker) {
	err := w.svc.table.Look(w.svc.calls)
	engine := w.svc.cfg.Engine
	if err == nil && engine != nil {
		err = engine.Look(w.svc.calls)
	}
	if err == nil {
		w.svc.balance()
		if engine != nil {
			engine.Order()
		}
	}
	if err != nil {
		w.svc.table.Blind()
	}
	switch {
	case err != nil && !w.away:
		w.svc.log.Warn("who owns which shard cannot be read; what was read last stands", "error", err)
	case err == nil && w.away:
		w.svc.log.Info("who owns which shard can be read again")
	}
	w.away = err != nil
}

func (s *Service) balance() {
	if s.basic == nil && !s.table.Retired() && s.haltedBy() == nil {
		s.table.Balance()
	}
}

// atNode says that another node owns a signer.
func (s *Service) atNode(node string) *nonce.NotOwnerError {
	return &nonce.NotOwnerError{Node: node, URL: s.table.Fleet().URL(node)}
}

// notOwner is the error of ops of a shard that another node owns, by a lease that runs. Of a
// node that came only now more is asked.
func (w *worker) notOwner(row *lease.Shard) error {
	s := w.svc
	if s.checkIncarnation(row.Owner) {
		return nonce.ErrFenced
	}
	if !s.table.Fleet().Runs(row.Owner, s.clock.now().Earliest) {
		if err := w.askStore(s.table.Look); err != nil {
			s.log.Debug("asking for a node that came", "node", row.Owner.Node, "error", err)
		}
	}
	return s.atNode(row.Owner.Node)
}

// checkIncarnation stops the service when the owner of a shard is a later start of this node id.
func (s *Service) checkIncarnation(owner lease.Holder) bool {
	if owner.Node != s.holder.Node || owner.Incarnation <= s.holder.Incarnation {
		return false
	}
	s.halt(lease.ErrSuperseded)
	return true
}

// renewed follows a heartbeat.
func (s *Service) renewed(r lease.Renewal, started, ended time.Time) {
	s.clock.observe(started, ended, r.Now)
	s.heard.Store(&ended)
	result := nonce.RenewInTime
	if s.leasedUntil.Before(r.Now) && !s.leasedUntil.IsZero() {
		result = nonce.RenewLate
	}
	s.leasedUntil = r.Until
	s.fig.LeaseRenew(result)
	s.table.Renewed(r.Shards)
}
