package chain

import (
	"context"
	"slices"
	"time"

	"noncegate/nonce"
)

// those are the signers of which something is so, each looked at under its lock.
func (t *Tracker) those(is func(*signer) bool) []*signer {
	return slices.DeleteFunc(t.all(), func(s *signer) bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return !is(s)
	})
}

const (
	countBatch = 100
	// countAgain is after how long counts that did not settle are asked for again, if there is
	// no new head.
	countAgain = time.Second
	// maxCounts bounds the accounts with open nonces whose counts are asked for at one
	// head, beyond those that must be; blocks tell of the others.
	maxCounts = 1000
)

// askCounts asks for the counts of those with something open, or of all. It returns
// false when not all that must be asked for could be.
func (t *Tracker) askCounts(ctx context.Context, h *Head, all bool) bool {
	n := 0
	asked := t.those(func(s *signer) bool {
		must := s.known && (all && (s.owned.Load() || s.watched.Load()) || s.stale)
		open := s.known && s.minedAt < h.Agreed.Number &&
			(s.watched.Load() && s.next.Load() > s.mined || time.Since(s.risen) < riseDoubted)
		if must || open && n < maxCounts {
			n++
			return true
		}
		return false
	})
	return t.counts(ctx, h.Agreed, asked, func(s *signer, c Count) { t.counted(s, c, h.Agreed) })
}

// askClaims asks for the counts at the newest block where not two nodes have it, of those that may
// soon have no nonce left in their window, or of all with something open where it is so for long.
func (t *Tracker) askClaims(ctx context.Context, h *Head) {
	if h.Agreed == h.Latest {
		return
	}
	behind := h.Latest.Number - h.Agreed.Number
	asked := t.those(func(s *signer) bool {
		next := s.next.Load()
		near := behind > 1 || next-s.windowFromLocked() >= s.view.Load().Window/2
		return s.known && s.watched.Load() && next > s.mined && s.claimAt < h.Latest.Number && near
	})
	asked = asked[:min(len(asked), maxCounts)]
	t.counts(ctx, h.Latest, asked, func(s *signer, c Count) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.claimedLocked(max(c.Used, c.Hint), h.Latest.Number)
	})
}

// claimedLocked follows a count that is not settled: new nonces are bounded by it where it is
// higher, because the other nodes may be away for long. Nothing else follows from it.
func (s *signer) claimedLocked(used, at int64) {
	if at < s.claimAt {
		return
	}
	if s.claim, s.claimAt = used, at; absurdRise(s.mined, s.minedAt, used, at) {
		s.claim = 0
	}
	s.publishLocked()
}

// absurdRise reports whether no chain can have used so many nonces between two blocks.
func absurdRise(from, fromAt, to, at int64) bool {
	return to > from && (to-from)/mostPerBlock > max(at-fromAt, 0)
}

// counts asks batch after batch, and reports whether all were answered.
func (t *Tracker) counts(ctx context.Context, at Block, asked []*signer, each func(*signer, Count)) bool {
	for len(asked) > 0 {
		n := min(len(asked), countBatch)
		accounts := make([]string, n)
		for i, s := range asked[:n] {
			accounts[i] = s.account
		}
		one, cancel := context.WithTimeout(ctx, t.cfg.Timeout)
		counts, err := t.chain.Counts(one, at, accounts)
		cancel()
		if err != nil {
			t.log.Debug("asking for counts", "accounts", len(asked), "block", at.Number, "error", err)
			return false
		}
		for i, s := range asked[:n] {
			each(s, counts[i])
		}
		asked = asked[n:]
	}
	return true
}

const (
	// mostPerBlock is above what any chain can use of one account's nonces in a block. One
	// node alone is not believed that it was more.
	mostPerBlock = 100_000
	// lowerAnswers is how many settled counts in a row must be below one that was seen before,
	// without a reorganization, until that one counts as wrong.
	lowerAnswers = 3
	// riseDoubted is for how long a count that rose is asked for at each head, also where nothing
	// is open: it may have been wrong.
	riseDoubted = time.Minute
)

// counted follows a count. One that is not settled changes nothing, and is asked for again. A
// lower one than before is believed after a reorganization of the blocks in which it was
// higher, where none was named for that, or when it is given again and again: then what was
// seen before was wrong.
func (t *Tracker) counted(s *signer, c Count, at Block) {
	s.mu.Lock()
	before, fell, guessed := s.mined, s.fell, s.guessed
	absurd := c.Nodes == 1 && absurdRise(before, s.minedAt, c.Used, at.Number)
	if c.Nodes == 0 {
		s.claimedLocked(c.Hint, at.Number)
	}
	switch {
	case c.Nodes == 0, absurd, c.Loose && !guessed && !fell:
		s.stale = s.stale || !c.Loose
		s.mu.Unlock()
		if absurd {
			t.metrics.absurd.Inc()
			t.seldom.Do(func() {
				t.log.Warn("the node gave a higher count than the chain can have come to: it is not believed",
					"account", s.account, "seen", before, "count", c.Used, "block", at.Number)
			})
		}
		return
	}
	events, wrong, odd := s.countLocked(c.Used, at.Number)
	s.guessed = c.Loose
	if s.claimAt <= at.Number {
		s.claim = 0
	}
	if !odd {
		s.allowed = slices.DeleteFunc(s.allowed, func(a authorized) bool { return a.at <= at.Number })
	}
	s.publishLocked()
	s.mu.Unlock()
	switch {
	case wrong:
		t.log.Error("a count that was seen before was wrong, and is undone",
			"account", s.account, "seen", before, "count", c.Used, "block", at.Number)
	case odd:
		t.metrics.lower.Inc()
		t.log.Warn("nodes gave a lower count than was seen, and no block was replaced: it is not believed before it is given again",
			"account", s.account, "seen", before, "count", c.Used, "block", at.Number)
	}
	t.report(s, events)
}

// countLocked takes a settled count. wrong: what was seen before was undone by it. odd: it is
// lower than that, and not believed yet.
func (s *signer) countLocked(used, at int64) (events []nonce.Event, wrong, odd bool) {
	if used > s.mined {
		s.risen = time.Now()
	}
	if used >= s.mined {
		events = s.advanceLocked(used, at)
		s.lower, s.fell, s.stale = 0, false, false
		return events, false, false
	}
	s.lower++
	fell, confirmed := s.fell, s.lower >= lowerAnswers
	if !fell && !s.guessed && !confirmed {
		s.stale = true
		return nil, false, true
	}
	s.stale = used < s.final && !confirmed // what was final stands until it is certain that it was not
	if confirmed {
		s.final = min(s.final, used)
		s.lower = 0
	}
	used = max(used, s.final)
	wrong = confirmed && !fell
	if used < s.mined {
		tell := fell || confirmed
		events = s.loweredLocked(used, at)
		if tell {
			events = append(events, nonce.Event{Type: nonce.EventReorg, Nonce: used})
		}
	}
	s.fell = s.fell && s.stale
	return events, wrong, false
}

// loweredLocked lowers the count. Which transactions had the nonces that are open again
// is not known any more.
func (s *signer) loweredLocked(mined, at int64) (events []nonce.Event) {
	for n := max(mined, s.mined-maxRecalled); n < s.mined; n++ {
		s.t.memory.found.Remove(use{s.account, n})
	}
	s.mined, s.minedAt = mined, at
	s.stuck, s.outside = stuck{}, nil
	for n, k := range s.notes {
		if n >= mined && k.tx != (Hash{}) {
			k.tx, k.sure, k.shown = Hash{}, false, k.settledTx()
		}
	}
	s.publishLocked()
	if s.gap != nil && s.gap.Nonce != mined {
		return s.closeGapLocked()
	}
	return nil
}

// maxTold bounds the nonces that are told of one by one when a count jumps.
const maxTold = 256

// advanceLocked raises the count, and returns what there is to tell.
func (s *signer) advanceLocked(mined, at int64) (events []nonce.Event) {
	from := s.mined
	s.minedAt, s.guessed = at, false
	if mined <= from {
		return nil
	}
	s.mined, s.finalOld = mined, true
	s.publishLocked()
	cursor := s.next.Load()
	for n := max(from, mined-maxTold); n < mined; n++ {
		events = append(events, s.minedLocked(n, cursor, at)...)
	}
	if s.gap != nil && s.gap.Nonce < mined {
		events = append(events, s.closeGapLocked()...)
	}
	return events
}

// minedLocked tells that a nonce is used, or keeps it until it is known whether that was
// by its holder. cursor is the signer's; 0 if no plan of this node has shown it.
func (s *signer) minedLocked(n, cursor, at int64) []nonce.Event {
	k := s.lookLocked(n)
	if k == nil {
		k = new(note)
	}
	auth := false
	if by := s.authorizedLocked(n); by != (Hash{}) && k.tx == (Hash{}) {
		auth = true
		if kept := s.noteOfLocked(n); kept != nil {
			k = kept
		}
		k.uses(by, at, !s.several() || s.oursLocked(by))
	}
	k.sure = k.sure && k.seen == Mined // else its block may have been replaced
	tx := k.settledTx()
	mined := []nonce.Event{{Type: nonce.EventMined, Nonce: n, Attempt: k.attempt, TxHash: tx}}
	o := outsider{nonce: n, tx: k.tx, auth: auth, sure: tx == k.tx, free: k.free}
	switch {
	case auth && s.oursLocked(k.tx):
		return mined
	case k.free && o.sure:
		o.told = true
		s.outsideLocked(o)
		return mined
	case k.free:
	case k.tx != Hash{} && k.hashes != "" && !k.hashes.Contains(k.tx):
	case cursor > 0 && n >= cursor && k.attempt == 0:
	case !o.sure:
		o.plain = true
	default:
		return mined
	}
	if !s.outsideLocked(o) && o.plain {
		return mined
	}
	return nil
}

// askFinal asks for the counts at the final block where they may have risen.
func (t *Tracker) askFinal(ctx context.Context, h *Head) bool {
	asked := t.those(func(s *signer) bool { return s.known && s.final < s.mined && s.finalOld })
	return t.counts(ctx, h.Final, asked, func(s *signer, c Count) {
		if t.stopped.Load() {
			return
		}
		if c.Nodes == 0 || c.Loose {
			t.metrics.disagreed.Inc()
			return // nothing that cannot be undone follows from what nodes disagree about
		}
		t.report(s, s.finalized(c.Used))
	})
}

// finalized follows the count at the final block.
func (s *signer) finalized(used int64) (events []nonce.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	used = min(used, s.mined)
	if used <= s.final {
		return nil
	}
	for i := range s.outside {
		o := &s.outside[i]
		if o.final = o.nonce < used; o.final && o.plain && !o.sure { // then it is told now
			o.sure, o.tx = true, Hash{}
		}
	}
	events = s.plainLocked()
	for n := max(s.final, used-maxTold); n < used; n++ {
		if k := s.lookLocked(n); k != nil && k.attempt > 0 {
			events = append(events, nonce.Event{Type: nonce.EventFinal, Nonce: n, Attempt: k.attempt, TxHash: k.settledTx()})
		}
	}
	s.forgetBelowLocked(used)
	s.final, s.finalOld = used, used < s.mined
	s.publishLocked()
	return events
}
