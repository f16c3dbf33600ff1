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
	// soon. What has to wait has its turn at one of the next, in no order.
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
	why     why
}

// why is what a question is to find out.
type why uint8

const (
	whyUnknown why = iota // whether the hold was used
	whyBlocks             // whether it is a gap
	whyOutside            // whether the chain used it with the transaction that one node shows
	whyListed             // which transaction used it, for a list
)

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
	for part := range slices.Chunk(append(ask, t.recall(now)...), lookBatch) {
		t.ask(ctx, part, now, &left)
	}
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

func (b *budget) do(ctx context.Context, t *Tracker, q *nonce.Request) (r nonce.Result, err error) {
	err = b.run(ctx, t, q.Signer, func(ctx context.Context) error { r, err = t.svc.Do(ctx, q); return err })
	return r, err
}

// list reads what is stored of a signer's nonces from one on.
func (b *budget) list(ctx context.Context, s *signer, from int64) (*nonce.ListPage, error) {
	r, err := b.do(ctx, s.t, &nonce.Request{
		Kind: nonce.KindList, Signer: s.name, List: nonce.ListQuery{Signer: s.name, From: from, Limit: listLimit},
	})
	return &r.Page, err
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

// questions are what the nodes are to be asked about the signer now. idle: there is
// nothing to look at. Holds are ended by the signer's owner alone.
func (s *signer) questions(now time.Time) (list []question, idle bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.busyLocked() {
		s.stuck = stuck{} // the time of the next open nonce begins when there is one
		return nil, true
	}
	for n, k := range s.notes {
		if k.unknown && s.owned.Load() && now.Sub(k.asked) >= lookEvery {
			k.asked = now
			list = append(list, question{s: s, ask: s.askLocked(n, k), attempt: k.attempt, why: whyUnknown})
		}
	}
	for i := range s.outside {
		if o := &s.outside[i]; s.owned.Load() && s.unsureLocked(o, now) {
			o.asked = now
			list = append(list, question{s: s, ask: s.askLocked(o.nonce, s.lookLocked(o.nonce), o.tx), why: whyOutside})
		}
	}
	if s.known && s.blockedLocked(now) {
		s.stuck.looked = now
		list = append(list, question{s: s, ask: s.askLocked(s.mined, s.lookLocked(s.mined)), why: whyBlocks})
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
		switch q.why {
		case whyListed:
			q.s.recalled(&q.ask, f, at)
			continue
		case whyOutside:
			if refuted := q.s.confirmed(q.ask.Nonce, f, at); refuted != (Hash{}) {
				t.seldom.Do(func() {
					t.log.Warn("a block of one node shows another transaction than two nodes do",
						"account", q.s.account, "nonce", q.ask.Nonce, "tx_hash", refuted.String(), "is", f.SettledTx.String())
				})
			}
			continue
		}
		q.s.sighted(q.ask.Nonce, f, at)
		switch q.why {
		case whyUnknown:
			t.decide(ctx, q, f, left)
		case whyBlocks:
			t.blocks(ctx, q, f, now, left)
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
	page, err := left.list(ctx, s, from)
	if err != nil {
		return
	}
	s.mu.Lock()
	s.learnLocked(page.Rows)
	s.mu.Unlock()
}

// watch puts a signer among those that the watcher looks at.
func (t *Tracker) watch(s *signer) {
	if s.watched.Load() {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.signers[s.account] == s {
		s.watched.Store(true)
		t.open[s] = true
	}
}

// unwatch takes it out again.
func (t *Tracker) unwatch(s *signer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s.watched.Store(false)
	delete(t.open, s)
}
