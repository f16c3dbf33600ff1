package nonce

import (
	"context"
	"errors"
	"sync"
	"time"

	"noncegate/lease"
)

const (
	// pruneRows bounds the rows that one piece deletes, of all its signers
	// together. A few hundred rows are deleted in about the time of the commit
	// around them; more would only make the batch wait that comes after.
	pruneRows = 256
	// pruneWalk is how many signers one look walks over, and pruneFound how many
	// it finds at most, which bounds the rows it counts to pruneFound*pruneRows.
	pruneWalk  = 512
	pruneFound = 16
	// pruneShare is how many times as long as a piece or a look took the pruner
	// pauses after it: it is at work for less than a hundredth of the time, so
	// fewer than one request in a hundred can meet it. prunePauseMost bounds the
	// pause, so that a slow store does not end the pruning.
	pruneShare     = 99
	prunePauseMost = time.Second
	// pruneRestPart: after a walk that found something the rest is so many times
	// shorter.
	pruneRestPart = 8
)

// pruner walks all signers of the store, round after round, and prunes what it
// finds. It belongs to one goroutine.
type pruner struct {
	svc   *Service
	after int64      // the walk's place
	found []Prunable // what the last look found and was not pruned yet
	any   bool       // this walk found something
}

// pruneConsumed is the goroutine that prunes CONSUMED allocations older than the
// retention: those of signers that this node owns, and of those that nobody owns,
// which it acquires first and gives back. What another owner has is left to it.
func (s *Service) pruneConsumed() {
	p := &pruner{svc: s}
	next := time.NewTimer(s.cfg.PruneRest / pruneRestPart) // a node that starts has better things to do
	defer next.Stop()
	for {
		select {
		case <-s.stop:
			return
		case <-next.C:
		}
		next.Reset(p.step())
	}
}

// step takes a look or prunes a piece, and returns how long to pause then.
func (p *pruner) step() time.Duration {
	s := p.svc
	if s.haltedBy() != nil || s.clock.paused() {
		return prunePauseMost
	}
	var took time.Duration
	if len(p.found) > 0 {
		took = p.piece()
	} else {
		started := time.Now()
		if err := p.look(); err != nil {
			s.log.Debug("looking for allocations to prune", "error", err)
			return prunePauseMost
		}
		took = time.Since(started)
	}
	if p.after == 0 && len(p.found) == 0 {
		return p.rest()
	}
	return p.pause(took)
}

func (p *pruner) pause(took time.Duration) time.Duration {
	return min(max(pruneShare*took, p.svc.cfg.PrunePause), max(prunePauseMost, p.svc.cfg.PrunePause))
}

// rest ends a walk. One that found something has pruned all of it, so even then
// there is no hurry.
func (p *pruner) rest() time.Duration {
	found := p.any
	p.any = false
	if found {
		return p.svc.cfg.PruneRest / pruneRestPart
	}
	return p.svc.cfg.PruneRest
}

// look walks on.
func (p *pruner) look() error {
	s := p.svc
	ctx, cancel := context.WithTimeout(context.Background(), s.cfg.StoreTimeout)
	defer cancel()
	started := time.Now()
	page, err := s.store.Prunable(ctx, PruneQuery{
		After: p.after, Age: s.cfg.ConsumedRetention, Signers: pruneWalk, Found: pruneFound, Rows: pruneRows,
	})
	if err != nil {
		return err
	}
	s.clock.observe(started, time.Now(), page.Now)
	p.after = page.After
	for _, f := range page.Found {
		if s.prunes(f.Lease, page.Now) && (f.Lease.Holder.Node == s.holder.Node || s.settlesHere(f.Signer)) {
			p.found, p.any = append(p.found, f), true
		}
	}
	return nil
}

// prunes reports whether a signer is this node's to prune: it is the last that
// owned it, or nobody does. A lease of another that ended a short time ago is left
// alone: its node may remember the signer still, and its next request would be
// fenced for no good reason. That node prunes it too.
func (s *Service) prunes(g lease.Grant, now time.Time) bool {
	return g.Holder.Node == "" || g.Holder.Node == s.holder.Node || now.Sub(g.ExpiresAt) > 2*s.cfg.IdleAfter
}

// piece prunes as many of the found signers as have pruneRows rows together, and
// returns how long that took, without the wait for its turn. A signer that may
// have more comes last among the found.
func (p *pruner) piece() time.Duration {
	n, rows := 0, 0
	for n < len(p.found) && (n == 0 || rows+p.found[n].Rows <= pruneRows) {
		rows += p.found[n].Rows
		n++
	}
	piece := p.found[:n:n]
	p.found = p.found[n:]
	results, took := p.prune(piece)
	for i, r := range results {
		p.svc.tally.pruned.Add(int64(r.Rows))
		if f := piece[i]; r.Applied && r.Rows == pruneRows {
			f.Version++ // for mode basic; a shard knows its signers' versions
			p.found = append(p.found, f)
		}
	}
	return took
}

func (p *pruner) prune(piece []Prunable) ([]Pruned, time.Duration) {
	if p.svc.basic != nil {
		return p.svc.pruneBasic(piece)
	}
	var all sync.WaitGroup
	parts := make([]*pruning, len(piece))
	for i := range piece {
		parts[i] = &pruning{all: &all}
	}
	p.svc.submitPrunes(piece, parts)
	all.Wait()
	results, took := make([]Pruned, len(piece)), time.Duration(0)
	for i, part := range parts {
		results[i], took = part.result, max(took, part.took)
	}
	return results, took
}

// pruneBasic prunes without leases, as mode basic writes: on the condition of the
// versions that the look saw.
func (s *Service) pruneBasic(found []Prunable) ([]Pruned, time.Duration) {
	pieces := make([]PrunePiece, len(found))
	for i, f := range found {
		pieces[i] = PrunePiece{ID: f.ID, Signer: f.Signer, Version: f.Version, Rows: f.Rows}
	}
	started := time.Now()
	results, err := s.pruneStore(lease.Holder{}, Pruning{Age: s.cfg.ConsumedRetention, Pieces: pieces})
	if err != nil {
		return nil, time.Since(started) // nothing is remembered of the signers, so nothing is wrong now
	}
	return results, time.Since(started)
}

// pruneStore is the call of the store.
func (s *Service) pruneStore(h lease.Holder, p Pruning) ([]Pruned, error) {
	ctx, cancel := context.WithTimeout(context.Background(), s.cfg.StoreTimeout)
	defer cancel()
	results, err := s.store.Prune(ctx, h, p)
	switch {
	case err == nil:
	case errors.Is(err, ErrInvariant):
		s.fig.Invariant()
		s.log.Error("a pruning was aborted", "signers", len(p.Pieces), "error", err)
	case OutcomeOf(err) == Unknown:
		s.tally.unknown.Add(1)
		s.log.Warn("a pruning's outcome is unknown", "signers", len(p.Pieces), "error", err)
	default:
		s.log.Debug("pruning", "signers", len(p.Pieces), "error", err)
	}
	return results, err
}

// pruning is the Completion of one signer's part of a piece. The shard fills it
// before Done.
type pruning struct {
	all    *sync.WaitGroup
	result Pruned
	took   time.Duration // since the batch was taken
}

// Done implements Completion.
func (p *pruning) Done(*Op) Waker {
	p.all.Done()
	return nil
}

// Gone implements Completion.
func (*pruning) Gone() bool { return false }

// submitPrunes queues prunings, those of one shard together, in places nobody
// reserved. A shard whose queue is full has better things to do.
func (s *Service) submitPrunes(found []Prunable, parts []*pruning) {
	if !s.enter() {
		return
	}
	defer s.inside.Done()
	ops := make([][]*Op, len(s.shards))
	for i, f := range found {
		lane := s.Lane(f.Signer)
		if s.shards[lane].shares.reserve(0) {
			parts[i].all.Add(1)
			ops[lane] = append(ops[lane], &Op{
				Kind: kindPrune, Signer: f.Signer, Count: f.Rows, Completion: parts[i], queuedAt: time.Now(), inShard: true,
			})
		}
	}
	for lane := range ops {
		s.shards[lane].pushAll(ops[lane])
	}
}

// pushAll queues ops so that one batch takes them.
func (sh *shard) pushAll(ops []*Op) {
	sh.mu.Lock()
	for _, op := range ops {
		sh.queue.push(op)
	}
	sh.mu.Unlock()
	sh.signal()
}

// prunesOnly reports whether nobody but the pruner asks for the signer.
func (g *group) prunesOnly() bool {
	for _, op := range g.ops {
		if op.Kind != kindPrune {
			return false
		}
	}
	return true
}

// prune runs the prunings at the head of their groups, in one transaction, and
// gives the leases back that were taken for nothing else. It returns the groups
// whose head is something else, and those with a pruning that go on in the next
// round: what was read for them may be gone now.
func (sh *shard) prune(groups []*group) (others, next []*group) {
	var heads []*group
	others = groups[:0]
	for _, g := range groups {
		if g.ops[0].Kind == kindPrune {
			heads = append(heads, g)
		} else {
			others = append(others, g)
		}
	}
	if len(heads) == 0 {
		return others, nil
	}
	sh.pruneHeads(heads)
	sh.giveBack(heads)
	for _, g := range heads {
		g.ops[0].Completion.(*pruning).took = time.Since(sh.marked)
		if g.pop(sh, 1); len(g.ops) > 0 {
			next = append(next, g)
		}
	}
	return others, next
}

// giveBack gives back the leases that were acquired for prunings alone. Signers of
// which nothing was remembered before are forgotten, lest a walk over very many
// drive out those in use.
func (sh *shard) giveBack(heads []*group) {
	var terms []ReleaseTerm
	for _, g := range heads {
		switch {
		case !g.borrowed || len(g.ops) > 1:
		case g.stranger:
			terms = sh.forget(g.st, terms)
		case g.st.owned:
			terms = append(terms, ReleaseTerm{ID: g.st.id, Token: g.st.term.Token})
			g.st.setOwned(sh, false)
		}
	}
	sh.release(terms)
}

// pruneHeads lets memory follow one transaction of prunings. What was not applied
// is left to the next walk: if the lease was lost, or the version moved, the next
// write finds out. An unknown outcome makes its signers be acquired anew before
// their next use, for a late commit could raise their versions at any time.
func (sh *shard) pruneHeads(heads []*group) {
	pieces := make([]PrunePiece, len(heads))
	for i, g := range heads {
		pieces[i] = PrunePiece{ID: g.st.id, Signer: g.st.signer, Token: g.st.term.Token, Version: g.st.version, Rows: g.ops[0].Count}
		g.st.dropLoaded()
		g.loaded, g.idsRead = false, false
	}
	results, err := sh.svc.pruneStore(sh.svc.holder, Pruning{Age: sh.svc.cfg.ConsumedRetention, Epoch: sh.epoch, Pieces: pieces})
	for i, g := range heads {
		switch {
		case err != nil:
			g.st.setOwned(sh, g.st.owned && OutcomeOf(err) != Unknown)
		case results[i].Applied:
			sh.mirrored(&group{st: g.st, draft: newDraft(g.st, &sh.svc.cfg.Rules)}, time.Time{})
			g.st.version++
			g.st.pruned = results[i].Below
			g.ops[0].Completion.(*pruning).result = results[i]
		}
	}
}

// Pruned is how many allocations this service pruned.
func (s *Service) Pruned() int64 { return s.tally.pruned.Load() }
