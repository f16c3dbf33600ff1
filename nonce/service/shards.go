package service

import (
	"context"
	"sync/atomic"
	"time"

	"noncegate/lease"
	"noncegate/nonce"
)

// shard is what this node knows of a shard. docs/architecture.md draws its states: acquired, lose,
// leave and see move it.
type shard struct {
	id     int
	worker *worker
	// view is the shard's row with the highest token that was seen. A token names one owner,
	// so the higher one is the newer.
	view atomic.Pointer[lease.Shard]
	// term is the token under which the shard is this node's, as far as it knows; 0: it is
	// not. It is written in the worker.batchMu only.
	term atomic.Int64
	// stopped is how many of its signers this node has stopped. No other node knows of them,
	// so the balance leaves the shard where it is.
	stopped atomic.Int32
	// What follows is read and written in the worker.batchMu only.
	unsure    bool                 // view and hint are doubted: the next op acquires, which asks the store
	askedAt   time.Time            // when that was done last
	hint      *nonce.NotOwnerError // the owner, as another node told it; nil: none did
	hintToken int64                // of view when the hint came; once view has another, the hint is old
	leftTo    string               // the node for which this one gave the shard up last
	leftUntil time.Time            // until when it is left to that node
	fast      bool                 // the shard has the performance engine
	doubt     lease.Shard          // its row when it was acquired, for what a loss left in doubt
	stay      uint64               // counts how often the shard was lost; a signer that was read in an earlier stay is read again
}

func (sh *shard) mine() bool { return sh.term.Load() != 0 }

func (sh *shard) shardTerm() lease.ShardTerm {
	return lease.ShardTerm{Shard: sh.id, Token: sh.term.Load(), Performance: sh.fast}
}

// see takes in a row of the shard.
func (sh *shard) see(row lease.Shard) {
	for {
		old := sh.view.Load()
		if row.Token < old.Token || sh.view.CompareAndSwap(old, &row) {
			return
		}
	}
}

// shardWentBack follows a row with a lower token than one that was seen before it was asked for: the
// store lost what raised it. Whoever has the shard by this row, this node perhaps, is to know it.
func (s *Service) shardWentBack(sh *shard, seen, row *lease.Shard) {
	if s.basic == nil {
		sh.worker.command(command{shard: sh, seen: seen, back: row})
	} else if sh.view.CompareAndSwap(seen, row) { // it remembers nothing that could be compared
		s.fig.WentBack()
		s.log.Error("the store went back", "shard", sh.id, "seen_token", seen.Token, "token", row.Token)
	}
}

// look reads the shards and the nodes, for one caller at a time.
func (s *Service) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.StoreTimeout)
	defer cancel()
	select {
	case s.looking <- struct{}{}:
		defer func() { <-s.looking }()
	case <-ctx.Done():
		return ctx.Err()
	}
	started, before := time.Now(), make([]*lease.Shard, len(s.shards))
	for i, sh := range s.shards {
		before[i] = sh.view.Load()
	}
	all, err := s.store.Owners(ctx)
	if err != nil {
		return err
	}
	s.clock.observe(started, time.Now(), all.Now)
	for _, row := range all.Shards {
		sh := s.shards[row.Shard]
		if seen := before[row.Shard]; row.Token < seen.Token && !sh.mine() {
			s.shardWentBack(sh, seen, &row)
		}
		sh.see(row)
	}
	leaving := ""
	if s.retired.Load() {
		leaving = s.holder.Node
	}
	s.fleet.Store(lease.NewFleet(&all, string(nonce.WorkerQueue), leaving, s.fleet.Load(), time.Now()))
	if s.cfg.OnNodes != nil {
		s.cfg.OnNodes(all.Nodes)
	}
	return nil
}

// leaseRuns reports whether the owner of a shard may hold it still, as far as a fleet shows.
func (s *Service) leaseRuns(f *lease.Fleet, owner lease.Holder) bool {
	return f.Runs(owner, s.clock.now().Earliest)
}

// atNode says that another node owns a signer.
func (s *Service) atNode(node string) *nonce.NotOwnerError {
	return &nonce.NotOwnerError{Node: node, URL: s.fleet.Load().URL(node)}
}

// destination is where the ops of a shard go that is not this node's: a node that owns it, or
// should, and is reached from here. "" is nowhere: this node asks for the shard itself.
func (s *Service) destination(sh *shard) (node, url string) {
	f := s.fleet.Load()
	view := sh.view.Load()
	if sh.hint != nil && sh.hintToken == view.Token && !sh.unsure {
		return sh.hint.Node, sh.hint.URL
	}
	if owner := view.Owner; owner.Node != "" && owner.Node != s.holder.Node && !sh.unsure && s.leaseRuns(f, owner) {
		return owner.Node, f.URL(owner.Node)
	}
	free := view.Owner.Node == "" || s.leaves(view, time.Time{})
	if preferred := f.Preferred(sh.id); free && preferred != "" && preferred != s.holder.Node && !sh.unsure && s.reaches(preferred) {
		return preferred, f.URL(preferred)
	}
	return "", ""
}

// yieldedTo is the node for which this one gave the shard up, while that node may still be about
// to take it; nil: there is none. It runs in worker.batchMu.
func (s *Service) yieldedTo(sh *shard) *nonce.NotOwnerError {
	free := sh.view.Load().Owner.Node == "" && time.Now().Before(sh.leftUntil)
	if to := sh.leftTo; !sh.mine() && to != "" && to != s.holder.Node && free && s.reaches(to) {
		return s.atNode(to)
	}
	return nil
}

// reaches reports whether ops, or clients, can go to the node.
func (s *Service) reaches(node string) bool { return s.cfg.Router == nil || s.cfg.Router.Reaches(node) }

// notOwner is the error of ops of a shard that another node owns, by a lease that runs. Of a
// node that came only now more is asked.
func (w *worker) notOwner(row *lease.Shard) error {
	s := w.svc
	if s.checkIncarnation(row.Owner) {
		return nonce.ErrFenced
	}
	if !s.leaseRuns(s.fleet.Load(), row.Owner) {
		if err := w.askStore(s.look); err != nil {
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

// renewed follows a heartbeat. A shard that the store calls this node's under another token
// than this node has was acquired by a statement that came late, or by an earlier run of the
// node: it is acquired again, or, by a node that retired, given back.
func (s *Service) renewed(r lease.Renewal, started, ended time.Time) {
	s.clock.observe(started, ended, r.Now)
	s.heard.Store(&ended)
	result := nonce.RenewInTime
	if s.leasedUntil.Before(r.Now) && !s.leasedUntil.IsZero() {
		result = nonce.RenewLate
	}
	s.leasedUntil = r.Until
	s.fig.LeaseRenew(result)
	for _, row := range r.Shards {
		sh := s.shards[row.Shard]
		sh.see(row)
		if s.basic == nil && sh.term.Load() < row.Token && sh.view.Load().Token == row.Token {
			sh.worker.command(command{shard: sh, take: !s.retired.Load()})
		}
	}
}
