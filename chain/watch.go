package chain

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"noncegate/nonce"
)

const (
	watchEvery = 500 * time.Millisecond
	// lookEvery is how often nodes are asked for one nonce that is unknown or blocks.
	lookEvery = 5 * time.Second
	// lookBatch bounds the nonces of one question to the nodes.
	lookBatch = 100
	// touchEvery is how often a signer with something open that no client uses is used,
	// so that its owner keeps it. It is a read, which stands in the way of its worker's
	// other signers.
	touchEvery = time.Minute
	// learnEvery is how often what is stored of one that clients use is read: nodes in
	// mode basic may have written.
	learnEvery = 10 * time.Minute
	// listLimit bounds the rows that are read behind a nonce that blocks.
	listLimit = 256
	// maxOps and maxAsked bound the ops and the questions of one look, so that it ends
	// soon. Who has to wait has his turn at one of the next, in no order.
	maxOps   = 256
	maxAsked = 2000
)

// watcher looks at the signers that have something open.
func (t *Tracker) watcher(ctx context.Context) {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		t.clock.Store(time.Now().Unix())
		if !t.stopped.Load() && t.head.Load() != nil {
			t.look(ctx, time.Now())
		}
	}
}

// question is one nonce that nodes are asked for, and why.
type question struct {
	s       *signer
	ask     Ask
	attempt int64
	unknown bool // whether the hold was used
	blocks  bool // whether it is a gap
	outside bool // whether the chain used it with the transaction that one node shows
}

// look goes over all that is open once.
func (t *Tracker) look(ctx context.Context, now time.Time) {
	var ask []question
	left := budget(maxOps)
	for _, s := range t.openSigners() {
		if ctx.Err() != nil {
			return
		}
		if len(ask) >= maxAsked {
			break
		}
		if !s.owned.Load() && now.Sub(time.Unix(0, s.lookAt.Load())) > shownFor {
			s.leftToOwner()
			t.unwatch(s)
			if s.owned.Load() { // again, meanwhile
				t.watch(s)
			}
			continue
		}
		q, idle := s.questions(now)
		if idle {
			s.forgetStuck()
			t.unwatch(s)
			if s.busy() { // something came meanwhile
				t.watch(s)
			}
			continue
		}
		t.touch(ctx, s, now, &left)
		if s.owned.Load() {
			t.settleOutside(ctx, s, &left)
			t.storeTrouble(ctx, s, &left)
		}
		ask = append(ask, q...)
	}
	for part := range slices.Chunk(ask, lookBatch) {
		t.ask(ctx, part, now, &left)
	}
	t.recallSome(ctx, now)
}

// openSigners are those that the watcher looks at.
func (t *Tracker) openSigners() []*signer {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Collect(maps.Keys(t.open))
}

// budget is how many ops of the service one look may still run: none after one that
// failed, because the next would fail too, each after a time-out.
type budget int

func (b *budget) do(ctx context.Context, t *Tracker, op *nonce.Op) error {
	return b.run(ctx, t, op.Signer, func(ctx context.Context) error { return t.svc.Do(ctx, op) })
}

func (b *budget) run(ctx context.Context, t *Tracker, signer string, ask func(context.Context) error) error {
	if *b == 0 {
		return errLater
	}
	*b--
	one, cancel := context.WithTimeout(ctx, t.cfg.Timeout)
	defer cancel()
	err := ask(one)
	if _, conflict := errors.AsType[*nonce.ConflictError](err); err != nil && !conflict {
		*b = 0
		t.log.Debug("what follows from the chain waits", "signer", signer, "error", err)
	}
	return err
}

var errLater = errors.New("it is left to the next look")

// busy reports whether there is something to look at.
func (s *signer) busy() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.busyLocked()
}

func (s *signer) busyLocked() bool {
	if !s.known || s.stale || s.gap != nil || s.next.Load() > s.mined || len(s.outside) > 0 || s.untold {
		return true
	}
	for _, k := range s.notes {
		if k.unknown {
			return true
		}
	}
	return false
}

// leftToOwner forgets what the signer's owner tells of.
func (s *signer) leftToOwner() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.outside, s.gap, s.stuck, s.untold = nil, nil, stuck{}, false
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

// questions are what the nodes are to be asked about the signer now. idle: there is
// nothing to look at. Holds are ended by the signer's owner alone.
func (s *signer) questions(now time.Time) (list []question, idle bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.busyLocked() {
		return nil, true
	}
	for n, k := range s.notes {
		if k.unknown && s.owned.Load() && now.Sub(k.asked) >= lookEvery {
			k.asked = now
			list = append(list, question{s: s, ask: s.askLocked(n, k), attempt: k.attempt, unknown: true})
		}
	}
	for i := range s.outside {
		if o := &s.outside[i]; s.owned.Load() && s.unsureLocked(o, now) {
			o.asked = now
			list = append(list, question{s: s, ask: s.askLocked(o.nonce, s.lookLocked(o.nonce), o.tx), outside: true})
		}
	}
	if s.known && s.blockedLocked(now) {
		s.stuck.looked = now
		list = append(list, question{s: s, ask: s.askLocked(s.mined, s.lookLocked(s.mined)), blocks: true})
	}
	return list, false
}

// askLocked is the question for a nonce, with the transactions that nodes have said of it.
func (s *signer) askLocked(n int64, k *note, said ...Hash) Ask {
	a := Ask{Account: s.account, Nonce: n}
	if k != nil {
		for i := range k.hashes.Len() {
			a.Hashes = append(a.Hashes, k.hashes.At(i))
		}
		said = append(said, k.tx, k.hint)
	}
	for _, h := range said {
		if h != (Hash{}) && !slices.Contains(a.Hashes, h) && !slices.Contains(a.Claims, h) {
			a.Claims = append(a.Claims, h)
		}
	}
	return a
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

// forgetStuck has the time of the next open nonce begin when there is one: nothing is open now.
func (s *signer) forgetStuck() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.next.Load() <= s.mined {
		s.stuck = stuck{}
	}
}

// windowOverLocked reports whether new nonces are refused for the window: then they wait too. A count
// that proved wrong leaves the cursor so, with nothing held or sent behind the lowest open nonce.
func (s *signer) windowOverLocked() bool {
	window := s.t.cfg.window(s.name, s.delegated)
	return s.next.Load() >= s.windowFromLocked()+window
}

// ask asks the nodes, and does what follows.
func (t *Tracker) ask(ctx context.Context, list []question, now time.Time, left *budget) {
	asks := make([]Ask, len(list))
	for i := range list {
		asks[i] = list[i].ask
	}
	at := t.number()
	one, cancel := context.WithTimeout(ctx, t.cfg.Timeout)
	found, err := t.chain.Lookup(one, asks)
	cancel()
	if err != nil {
		t.log.Debug("asking for transactions", "nonces", len(asks), "error", err)
		return
	}
	for i := range list {
		q, f := &list[i], &found[i]
		if q.outside {
			if refuted := q.s.confirmed(q.ask.Nonce, f, at); refuted != (Hash{}) {
				t.seldom.Do(func() {
					t.log.Warn("a block of one node shows another transaction than two nodes do",
						"account", q.s.account, "nonce", q.ask.Nonce, "tx_hash", refuted.String(), "is", f.SettledTx.String())
				})
			}
			continue
		}
		q.s.sighted(q.ask.Nonce, f, at)
		switch {
		case q.unknown:
			t.decide(ctx, q, f, left)
		case q.blocks:
			t.blocks(ctx, q, f, now, left)
		}
	}
}

// blocks finds out what keeps the lowest open nonce from being mined: no node has seen a
// transaction of it, or nodes have one for long.
func (t *Tracker) blocks(ctx context.Context, q *question, f *Sighting, now time.Time, left *budget) {
	s, n := q.s, q.ask.Nonce
	if f.Seen != Absent || f.Nodes == 0 {
		t.report(s, s.seen(n, f, now))
		return
	}
	op := &nonce.Op{Request: nonce.Request{Kind: nonce.KindList, Signer: s.name, List: nonce.ListQuery{Signer: s.name, From: n, Limit: listLimit}}}
	if left.do(ctx, t, op) == nil {
		t.report(s, s.blocking(n, &op.Page, f.Failed, now))
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

// learnLocked takes over what the store says of open nonces, which other nodes, or
// this one before it remembered the signer, may have written.
func (s *signer) learnLocked(rows []nonce.Row) {
	for i := range rows {
		row := &rows[i]
		if s.learnedLocked(row) {
			continue
		}
		k := s.noteOfLocked(row.Nonce)
		switch {
		case k == nil || k.attempt > row.Attempt: // what was committed since the read is newer
			continue
		case k.attempt < row.Attempt:
			*k = note{attempt: row.Attempt, since: s.t.number(), tx: k.tx, sure: k.sure, offer: k.offer, seen: k.seen}
		}
		k.status, k.hashes = row.Status, recorded(row)
		unmarked := []string{nonce.ReasonExpired, nonce.ReasonUnseen, nonce.ReasonInDoubt} // its holder may have used it
		k.free = row.Status == nonce.Released && !slices.Contains(unmarked, row.Reason)
		if k.unknown = row.Unknown(); k.unknown && k.since == 0 {
			k.since = s.t.number()
		}
	}
}

// touch uses a signer with something open, so that this node goes on to own it, and
// takes over what the store says of it the first time.
func (t *Tracker) touch(ctx context.Context, s *signer, now time.Time, left *budget) {
	s.mu.Lock()
	open := s.known && (s.next.Load() > s.mined || s.gap != nil)
	idle := now.Sub(s.touched)
	due := open && *left > 0 && (idle >= touchEvery && now.Sub(s.lastUsed()) >= touchEvery/2 || idle >= learnEvery)
	from := s.mined
	if due {
		s.touched = now
	}
	s.mu.Unlock()
	if !due {
		return
	}
	op := &nonce.Op{Request: nonce.Request{Kind: nonce.KindList, Signer: s.name, List: nonce.ListQuery{Signer: s.name, From: from, Limit: listLimit}}}
	if left.do(ctx, t, op) != nil {
		return
	}
	s.mu.Lock()
	s.learnLocked(op.Page.Rows)
	s.mu.Unlock()
}
