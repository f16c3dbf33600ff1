package chain

import (
	"context"
	"maps"
	"slices"
	"time"

	"noncegate/nonce"
)

// heard takes a head from the Chain. It does not block.
func (t *Tracker) heard(h Head) {
	before := t.head.Load()
	if before != nil && h.Latest.Number > before.Latest.Number {
		took := h.Latest.Time.Sub(before.Latest.Time) / time.Duration(h.Latest.Number-before.Latest.Number)
		t.block.Store(int64(min(max(took, 0), time.Minute)))
	}
	if h.FinalStands && t.stopped.Swap(false) {
		t.log.Warn("the final block of the chain stands again: what follows from it is done again")
		t.goOn()
	}
	if h.FinalFell && !t.stopped.Swap(true) {
		t.log.Error("the final block of the chain fell or was replaced: its nodes were reset, or they lie; "+
			"nothing is done by itself for this chain until that block is final again, or the gateway is started again",
			"final", h.Final.Number, "hash", h.Final.Hash.String())
	}
	if h.Reorg != nil {
		t.log.Warn("a reorganization of the chain", "from", h.Reorg.From.Number, "to", h.Reorg.To.Number, "depth", h.Reorg.Depth)
	}
	kept := h
	kept.Uses, kept.Reorg = nil, nil
	t.mu.Lock()
	t.head.Store(&kept) // with what is pending: a count at it must not come before its reorganization
	p := &t.pending
	p.heads++
	p.skipped = p.skipped || h.Skipped
	if h.Reorg != nil && (p.reorg == nil || forkOf(h.Reorg) < forkOf(p.reorg)) {
		p.reorg = h.Reorg
	}
	if len(p.uses)+len(h.Uses) > maxUses {
		p.skipped, p.uses = true, nil
	} else {
		p.uses = append(p.uses, h.Uses...)
	}
	t.mu.Unlock()
	signal(t.headNow)
}

// goOn makes everything be asked for again after the chain was stopped.
func (t *Tracker) goOn() {
	for _, s := range t.all() {
		s.mu.Lock()
		s.stale, s.finalOld = s.known, s.known
		s.publishLocked()
		s.mu.Unlock()
	}
}

// forkOf is the number of the last block that a reorganization left in place.
func forkOf(r *Reorg) int64 { return r.From.Number - int64(r.Depth) }

// follower does what heads ask for, and now and then asks for all counts.
func (t *Tracker) follower(ctx context.Context) {
	tick := time.NewTicker(t.cfg.Reconcile)
	defer tick.Stop()
	again := time.NewTimer(time.Hour)
	defer again.Stop()
	all := false // ask for all counts
	var final Block
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			all = true
		case <-again.C:
		case <-t.headNow:
		}
		t.mu.Lock()
		h, p := t.head.Load(), t.pending
		t.pending = pending{}
		t.mu.Unlock()
		if h == nil {
			continue
		}
		if p.reorg != nil && p.heads == 1 { // all uses are of the blocks that replace
			t.unsettle(forkOf(p.reorg))
		}
		t.applyUses(p.uses, h)
		if p.reorg != nil && p.heads > 1 {
			t.unsettle(forkOf(p.reorg))
		}
		all = !t.askCounts(ctx, h, all || p.skipped || p.reorg != nil)
		t.askClaims(ctx, h)
		if all || len(t.those(func(s *signer) bool { return s.known && s.stale })) > 0 {
			again.Reset(countAgain)
		}
		if h.Final.Hash != (Hash{}) && !t.stopped.Load() && (h.Final != final || all) {
			if t.askFinal(ctx, h) {
				final = h.Final
			}
		}
	}
}

// applyUses follows the nonces that blocks used.
func (t *Tracker) applyUses(uses []Use, h *Head) {
	for _, u := range uses {
		t.mu.Lock()
		s := t.signers[u.Account]
		t.mu.Unlock()
		if s == nil {
			continue
		}
		if u.Unread {
			s.askAgain()
			continue
		}
		if u.Authorization {
			// The chain may have skipped it, and it may have changed what the account is.
			t.askStart(s)
			s.allow(u, h)
			s.askAgain()
			continue
		}
		t.report(s, s.usedBy(u, h))
	}
}

// askAgain makes the next count be asked for.
func (s *signer) askAgain() {
	s.mu.Lock()
	s.finalOld, s.stale = true, true
	s.mu.Unlock()
	s.t.watch(s)
}

// allow keeps an authorization until the count tells whether it used its nonce.
func (s *signer) allow(u Use, h *Head) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known && u.Nonce >= s.mined && len(s.allowed) < maxAllowed {
		s.allowed = append(s.allowed, authorized{nonce: u.Nonce, tx: u.Tx, at: h.Latest.Number})
	}
}

// usedBy follows one nonce that a block used.
func (s *signer) usedBy(u Use, h *Head) []nonce.Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.known || u.Nonce < s.final { // what is final is told
		return nil
	}
	several := s.several()
	if k := s.noteOfLocked(u.Nonce); k != nil {
		other := u.Nonce < s.mined && k.tx != u.Tx // mined again, and otherwise; or a count told before
		if other {
			s.outsideLocked(outsider{nonce: u.Nonce, tx: u.Tx, sure: !several, told: k.tx == Hash{}, beside: several && k.tx != Hash{}})
			s.t.watch(s)
		}
		if !several || !other || k.tx == (Hash{}) { // else what was told stands until another node shows it
			k.uses(u.Tx, h.Latest.Number, !several || k.sure && k.tx == u.Tx)
		}
	}
	if u.Nonce+1 < s.mined {
		return nil
	}
	if several { // the block is the word of one node
		s.stale = true
		return nil
	}
	return s.advanceLocked(u.Nonce+1, h.Latest.Number)
}

// unsettle makes counts that come from blocks above a fork be asked for again; they
// may be lower then.
func (t *Tracker) unsettle(fork int64) {
	for _, s := range t.all() {
		s.mu.Lock()
		if s.known && s.minedAt > fork {
			s.fell, s.stale = true, true
		}
		if s.claimAt > fork {
			s.claim, s.claimAt = 0, fork
			s.publishLocked()
		}
		for _, k := range s.notes {
			if k.seen == Mined && (k.at > fork || k.tx == Hash{}) {
				k.seen, k.looked = Absent, time.Time{}
			}
		}
		s.mu.Unlock()
	}
}

func (t *Tracker) all() []*signer {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Collect(maps.Values(t.signers))
}

// pending is what several heads come to.
type pending struct {
	heads   int
	uses    []Use
	skipped bool
	reorg   *Reorg // the deepest
}

// maxUses bounds the uses that wait for the follower; with more of them counts are
// asked for.
const maxUses = 10_000
