package chain

import (
	"context"
	"time"

	"noncegate/nonce"
)

// stuck is for how long the lowest open nonce has been the same.
type stuck struct {
	nonce   int64
	since   time.Time // when it was first seen to be the lowest one
	above   time.Time // when something above it was first seen to be sent or held
	looked  time.Time // when nodes were asked for it last
	seen    bool      // and one had it
	pooled  time.Time // since when nodes have had a transaction of it; zero: they have not
	dropped bool      // it was told that none has it
}

// storeTrouble has the store list what keeps the signer's transactions from being mined.
func (t *Tracker) storeTrouble(ctx context.Context, s *signer, left *budget) {
	s.mu.Lock()
	untold, is := s.untold, s.trouble
	s.mu.Unlock()
	if !untold || left.run(ctx, t, s.name, func(ctx context.Context) error { return t.svc.Tend(ctx, s.name) }) != nil {
		return
	}
	s.mu.Lock()
	s.untold = s.trouble != is
	s.mu.Unlock()
}

// blockedLocked reports whether the lowest open nonce has been that for so long that it is time to
// look for it: something waits behind it, or a transaction of it was sent. That nothing above it
// was given to a node is found out then.
func (s *signer) blockedLocked(now time.Time) bool {
	k, next := &s.stuck, s.next.Load()
	if k.nonce != s.mined || k.since.IsZero() {
		*k = stuck{nonce: s.mined, since: now, above: now}
	}
	if next <= s.mined+1 && !s.windowOverLocked() {
		k.above = now
	}
	is := s.lookLocked(s.mined)
	if next <= s.mined || next == s.mined+1 && (is == nil || is.hashes == "") && !s.windowOverLocked() {
		k.since = now
		return false
	}
	every := lookEvery
	if k.seen {
		every *= 3
	}
	return now.Sub(k.since) >= s.t.gapAfter() && now.Sub(k.looked) >= every
}

// windowOverLocked reports whether new nonces are refused for the window: then they wait too. A count
// that proved wrong leaves the cursor so, with nothing held or sent behind the lowest open nonce.
func (s *signer) windowOverLocked() bool {
	window := s.t.cfg.window(s.name, s.delegated)
	return s.next.Load() >= s.windowFromLocked()+window
}

// blocks finds out what keeps the lowest open nonce from being mined: no node has seen a
// transaction of it, or nodes have one for long.
func (t *Tracker) blocks(ctx context.Context, q *question, f *Sighting, now time.Time, left *budget) {
	s, n := q.s, q.ask.Nonce
	if f.Seen != Absent || f.Nodes == 0 {
		t.report(s, s.seen(n, f, now))
		return
	}
	if page, err := left.list(ctx, s, n); err == nil {
		t.report(s, s.blocking(n, page, f.Failed, now))
	}
}

// seen follows that nodes have a transaction of the lowest open nonce, or that none answered: it
// is no gap, and is stuck where it has been in pools for long.
func (s *signer) seen(n int64, f *Sighting, now time.Time) []nonce.Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n != s.mined || f.Nodes == 0 {
		return nil
	}
	s.stuck.seen, s.stuck.dropped = true, false
	if s.stuck.pooled.IsZero() {
		s.stuck.pooled = now
	}
	after := s.t.cfg.StuckAfter
	pooled := f.Seen == Pooled || f.Seen == Mined && f.Settled != Mined && !f.Failed // the others deny the block
	if !pooled || after < 0 || now.Sub(s.stuck.pooled) < s.t.blocksAtLeast(after) {
		if s.gap != nil && s.gap.Kind == nonce.WatchStuck && pooled {
			return nil // another node, or this one before, has seen it for longer
		}
		return s.closeGapLocked()
	}
	is := nonce.Gap{Kind: nonce.WatchStuck, Nonce: n, Since: s.stuck.pooled, TxHash: f.Tx}
	if f.SettledTx != (Hash{}) {
		is.TxHash = f.SettledTx
	}
	if k := s.lookLocked(n); k != nil {
		is.Status, is.Attempt, is.Unknown = k.status, k.attempt, k.unknown
	}
	return s.troubleLocked(&is)
}

// troubleLocked keeps what keeps the lowest open nonce from being mined, and returns what there is
// to tell: each once.
func (s *signer) troubleLocked(is *nonce.Gap) (events []nonce.Event) {
	if was := s.gap; was != nil && was.Nonce == is.Nonce && was.Kind == is.Kind {
		is.Since = was.Since
	} else {
		events, s.gapTold = s.closeGapLocked(), false
	}
	s.gap = is
	s.watchLocked(nonce.Watch{Kind: is.Kind, Nonce: is.Nonce, Since: is.Since.UnixMilli()})
	if s.gapTold {
		return events
	}
	s.gapTold = true
	told := *is
	switch is.Kind {
	case nonce.WatchGap:
		events = append(events, nonce.Event{Type: nonce.EventGap, Nonce: is.Nonce, Attempt: is.Attempt, TxHash: is.TxHash, Gap: &told})
	case nonce.WatchStuck:
		events = append(events, nonce.Event{Type: nonce.EventStuck, Nonce: is.Nonce, Attempt: is.Attempt, TxHash: is.TxHash})
	}
	return events
}

// watchLocked has the store list the signer so, where this node looks after it.
func (s *signer) watchLocked(as nonce.Watch) {
	if as == s.trouble || !s.owned.Load() {
		return
	}
	s.trouble, s.untold = as, true
	s.publishLocked()
}

// closeGapLocked ends what kept the lowest open nonce, if there was something.
func (s *signer) closeGapLocked() []nonce.Event {
	gap := s.gap
	if gap == nil {
		return nil
	}
	s.gap = nil
	s.watchLocked(nonce.Watch{Kind: nonce.WatchClear})
	if gap.Kind != nonce.WatchGap {
		return nil
	}
	return []nonce.Event{{Type: nonce.EventGapClosed, Nonce: gap.Nonce, Attempt: gap.Attempt}}
}

// blocking makes a gap of what the store says about a nonce that no node has seen and those above
// it; and tells that its transaction is in no pool, unless a node that failed may have it.
func (s *signer) blocking(n int64, page *nonce.ListPage, failed bool, now time.Time) (events []nonce.Event) {
	gap, released := gapOf(n, page)
	more := page.NextFrom >= 0
	gap.Kind, gap.Since = nonce.WatchGap, now
	s.mu.Lock()
	defer s.mu.Unlock()
	s.learnLocked(page.Rows)
	if n != s.mined {
		return nil
	}
	k, sent := &s.stuck, gap.TxHash != (Hash{})
	if sent && !failed && !k.dropped {
		k.dropped = true
		events = append(events, nonce.Event{Type: nonce.EventDropped, Nonce: n, Attempt: gap.Attempt, TxHash: gap.TxHash})
	}
	if k.seen = k.seen && failed; !failed {
		k.pooled = time.Time{}
	}
	switch {
	case gap.Blocked > 0 || more || !released && gap.Status != nonce.Held && s.windowOverLocked():
		gap.Since = k.above
		if now.Sub(k.above) < s.t.gapAfter() {
			return events
		}
	case sent && !failed:
		gap.Kind, gap.Since = nonce.WatchDropped, k.since
	default:
		k.above = now // only released ones wait
		return append(events, s.closeGapLocked()...)
	}
	return append(events, s.troubleLocked(&gap)...)
}

// gapOf is what a page of a signer's nonces, from n on, says of n; and whether one of them is RELEASED.
func gapOf(n int64, page *nonce.ListPage) (gap nonce.Gap, released bool) {
	gap.Nonce = n
	for i := range page.Rows {
		row := &page.Rows[i]
		switch {
		case row.Nonce == n:
			gap.Status, gap.Unknown, gap.Attempt, gap.TxHash = row.Status, row.Unknown(), row.Attempt, row.TxHash
		case row.Status != nonce.Released:
			gap.Blocked++
		}
		released = released || row.Status == nonce.Released
	}
	return gap, released
}

// gapAfter is how long something waits behind a nonce until that is called a gap.
func (t *Tracker) gapAfter() time.Duration { return t.blocksAtLeast(t.cfg.GapAfter) }

// blocksAtLeast is a time, or as long as gapBlocks take.
func (t *Tracker) blocksAtLeast(d time.Duration) time.Duration {
	return max(d, gapBlocks*time.Duration(t.block.Load()))
}

// TroubleOf is what the store lists of a signer, with what a page from that nonce on says of it.
func TroubleOf(as nonce.Watch, page *nonce.ListPage) *nonce.Gap {
	gap, _ := gapOf(as.Nonce, page)
	gap.Kind, gap.Since = as.Kind, as.SinceTime()
	return &gap
}

// adopt takes over what the owner before has found out, until this node has looked itself.
func (s *signer) adopt(e *nonce.WatchEntry) []nonce.Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !e.Kind.Trouble() || s.trouble.Kind != nonce.WatchAsIs || !s.owned.Load() {
		return nil
	}
	s.gap, s.gapTold, s.trouble = &nonce.Gap{Kind: e.Kind, Nonce: e.Nonce, Since: e.SinceTime()}, false, e.Watch
	if s.known && e.Nonce < s.mined {
		return s.closeGapLocked()
	}
	s.publishLocked()
	return nil
}
