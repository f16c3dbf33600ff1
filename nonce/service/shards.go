package service

import (
	"context"
	"slices"
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

// fleet is what is known of the nodes. It is never changed, only replaced.
type fleet struct {
	nodes  map[string]lease.Node
	live   []string // worker-queue nodes that serve, in order
	pinned []string // the node that each shard is pinned to; "": none
	assign []int    // who of live should have each shard
	// unserved is since when nobody has had each shard by a lease that runs, as this node
	// saw it, by its own clock; zero: somebody has it.
	unserved []time.Time
}

func newFleet(all *lease.Owners) *fleet {
	f := &fleet{nodes: make(map[string]lease.Node, len(all.Nodes)), pinned: make([]string, len(all.Shards))}
	for i, row := range all.Shards {
		f.pinned[i] = row.Pinned
	}
	for _, n := range all.Nodes {
		f.nodes[n.Node] = n
		if n.Live && n.Mode == string(nonce.WorkerQueue) {
			f.live = append(f.live, n.Node)
		}
	}
	f.assign = lease.Assign(f.live, f.pinned)
	return f
}

// without is the fleet but for a node that serves no more.
func (f *fleet) without(node string) *fleet {
	left := *f
	left.live = slices.DeleteFunc(slices.Clone(f.live), func(n string) bool { return n == node })
	left.assign = lease.Assign(left.live, left.pinned)
	return &left
}

// missServing notes the shards that nobody has by a lease that runs; before is what was
// known until now, nil: nothing. Where no worker-queue node is live none is missed: nodes in
// mode basic serve without owning.
func (f *fleet) missServing(all *lease.Owners, before *fleet, now time.Time) {
	f.unserved = make([]time.Time, len(all.Shards))
	for i, node := range all.Serving() {
		switch {
		case node != "" || len(f.live) == 0:
		case before != nil && !before.unserved[i].IsZero():
			f.unserved[i] = before.unserved[i]
		default:
			f.unserved[i] = now
		}
	}
}

// preferred is the node that should have a shard, "" without any.
func (f *fleet) preferred(shard int) string {
	if i := f.assign[shard]; i >= 0 {
		return f.live[i]
	}
	return ""
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
	f := newFleet(&all)
	if s.retired.Load() {
		f = f.without(s.holder.Node)
	}
	f.missServing(&all, s.fleet.Load(), time.Now())
	s.fleet.Store(f)
	if s.cfg.OnNodes != nil {
		s.cfg.OnNodes(all.Nodes)
	}
	return nil
}

// leaseRuns reports whether the owner of a shard may hold it still, as far as a fleet shows: its
// lease, of that incarnation, runs.
func (s *Service) leaseRuns(f *fleet, owner lease.Holder) bool {
	n, known := f.nodes[owner.Node]
	return known && n.Incarnation == owner.Incarnation && n.LeaseUntil.UnixMilli() > s.clock.now().Earliest
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
		return owner.Node, f.nodes[owner.Node].URL
	}
	free := view.Owner.Node == "" || s.leaves(view, time.Time{})
	if preferred := f.preferred(sh.id); free && preferred != "" && preferred != s.holder.Node && !sh.unsure && s.reaches(preferred) {
		return preferred, f.nodes[preferred].URL
	}
	return "", ""
}

// yieldedTo is the node for which this one gave the shard up, while that node may still be about
// to take it; nil: there is none. It runs in worker.batchMu.
func (s *Service) yieldedTo(sh *shard) *nonce.NotOwnerError {
	free := sh.view.Load().Owner.Node == "" && time.Now().Before(sh.leftUntil)
	if to := sh.leftTo; !sh.mine() && to != "" && to != s.holder.Node && free && s.reaches(to) {
		return &nonce.NotOwnerError{Node: to, URL: s.fleet.Load().nodes[to].URL}
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
	return &nonce.NotOwnerError{Node: row.Owner.Node, URL: s.fleet.Load().nodes[row.Owner.Node].URL}
}

// checkIncarnation stops the service when the owner of a shard is a later start of this node id.
func (s *Service) checkIncarnation(owner lease.Holder) bool {
	if owner.Node != s.holder.Node || owner.Incarnation <= s.holder.Incarnation {
		return false
	}
	s.halt(lease.ErrSuperseded)
	return true
}

// ownership is what nonce_status says of the ownership of a signer.
func (s *Service) ownership(row *lease.Shard) lease.Ownership {
	n := s.fleet.Load().nodes[row.Owner.Node]
	o := lease.Ownership{Holder: row.Owner, URL: n.URL, Token: row.Token}
	if n.Incarnation == row.Owner.Incarnation {
		o.ExpiresAt = n.LeaseUntil
	}
	return o
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
