package chain

import (
	"context"
	"errors"
	"slices"
	"time"

	"noncegate/nonce"
)

// What one of several nodes shows of a nonce delays: its hold is not given up. What two show settles:
// the hold ends, and others are told.

// sighted follows what nodes saw of a nonce.
func (s *signer) sighted(n int64, f *Sighting, at int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.noteOfLocked(n)
	if k == nil {
		return
	}
	proven := k.seen == Mined && n < s.mined
	if !proven && (f.Seen != Absent || !f.Failed) {
		k.seen = f.Seen
	}
	if f.Seen != Absent {
		k.hinted, k.hint = time.Now(), f.Tx
	}
	if f.Settled != Absent {
		k.found, k.shown = true, f.SettledTx
	}
	switch {
	case f.Settled == Mined && f.SettledTx != (Hash{}) && !(proven && k.sure):
		if told := k.settledTx(); n < s.mined && told != (Hash{}) && told != f.SettledTx { // its block was replaced
			s.outsideLocked(outsider{nonce: n, tx: f.SettledTx, sure: true})
			s.t.watch(s)
		}
		k.uses(f.SettledTx, at, true)
	case f.Seen == Mined && k.tx == (Hash{}):
		k.tx, k.at = f.Tx, at
	}
	if f.Raw != (Offer{}) {
		k.offer = f.Raw
	}
	if f.Seen == Absent && !f.Failed && f.Nodes > 0 {
		k.looked, k.lookedN = time.Now(), at
	}
}

// decide ends a hold that is unknown when it is settled that it was used, now or since it is
// unknown.
func (t *Tracker) decide(ctx context.Context, q *question, f *Sighting, left *budget) {
	passed, found, hash := q.s.shown(q.ask.Nonce)
	if f.Settled != Absent {
		found, hash = true, f.SettledTx
	}
	if !passed && !found {
		return
	}
	mark := &nonce.Request{
		Kind: nonce.KindMarkUsed, Signer: q.s.name, Nonce: q.ask.Nonce, Attempt: q.attempt, TxHash: hash, MarkAny: true,
	}
	if f.Settled == Mined || passed {
		mark.Reason = nonce.ReasonMined
	}
	t.mark(ctx, q.s, mark, left)
}

// shown reports whether the count has passed a nonce, as far as is settled, whether a transaction of it
// was found, and which one.
func (s *signer) shown(n int64) (passed, found bool, tx Hash) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if k := s.notes[n]; k != nil {
		if tx = k.settledTx(); tx == (Hash{}) {
			tx = k.shown
		}
		found = k.found
	}
	return n < s.mined && !s.guessed, found, tx
}

// mark runs a mark that follows from the chain. One that is refused has been overtaken.
func (t *Tracker) mark(ctx context.Context, s *signer, mark *nonce.Request, left *budget) {
	_, err := left.do(ctx, t, mark)
	if _, overtaken := errors.AsType[*nonce.ConflictError](err); err == nil {
		t.metrics.ended.Inc()
	} else if !overtaken {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if k := s.notes[mark.Nonce]; k != nil && k.attempt == mark.Attempt {
		k.unknown = false
	}
}

// maxLooks is after how many looks that settled nothing the use of a nonce by its holder is told
// without its transaction.
const maxLooks = 3

// unsureLocked reports whether nodes are to be asked for an outsider's transaction now.
func (s *signer) unsureLocked(o *outsider, now time.Time) bool {
	if k := s.lookLocked(o.nonce); k != nil && k.hashes.Contains(o.tx) { // its holder recorded it meanwhile
		o.sure = true
	}
	return !o.sure && now.Sub(o.asked) >= lookEvery
}

// confirmed follows what nodes show of an outsider: perhaps another transaction than one of them
// said, which it returns. Where they cannot tell, it is not known which one used the nonce.
func (s *signer) confirmed(n int64, f *Sighting, at int64) (refuted Hash) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(s.outside, func(o outsider) bool { return o.nonce == n && !o.sure })
	if i < 0 {
		return Hash{}
	}
	o, k := &s.outside[i], s.lookLocked(n)
	if k == nil {
		k = new(note) // it is final, and forgotten
	} else if s.notes[n] == nil {
		k = s.noteOfLocked(n)
	}
	if f.Nodes > 1 || !s.several() { // what they do not show they may have forgotten, or have no way to find
		o.looks++
	}
	switch stands := o.beside && k.tx == f.SettledTx; {
	case f.Settled == Mined && f.SettledTx != (Hash{}):
		if o.tx != f.SettledTx {
			refuted = o.tx
		}
		k.uses(f.SettledTx, at, true)
		if stands {
			s.outside = slices.Delete(s.outside, i, i+1)
			return refuted
		}
		o.auth = o.auth && o.tx == f.SettledTx
		o.sure, o.tx = true, f.SettledTx
		if n < s.final {
			s.t.memory.used(s.account, n, o.tx)
		}
	case !o.final && !(o.plain && o.looks >= maxLooks):
	case o.beside:
		s.outside = slices.Delete(s.outside, i, i+1)
	default:
		k.tx = k.settledTx()
		o.sure, o.tx, o.auth = true, Hash{}, false
	}
	return refuted
}
