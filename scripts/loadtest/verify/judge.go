package verify

import (
	"fmt"
	"math"
	"math/bits"
	"slices"

	"noncegate/wire"
)

// judge compares what the store shows of one account, whose rows it is given in
// order, with what the account must be.
type judge struct {
	rec     *Recorder
	account int64
	signer  string
	before  *wire.StatusResult // read before the rows
	known   handedOut          // what the load was handed, that was not met yet

	first, last          int64 // nonces of the rows, -1 before there is one
	held, released, used int64 // rows
	heldBelowFloor       int64
}

func newJudge(r *Recorder, account int64, before *wire.StatusResult) *judge {
	return &judge{rec: r, account: account, signer: Signer(account), before: before, known: r.handedOut(account), first: -1, last: -1}
}

func (j *judge) wrong(format string, args ...any) {
	j.rec.violations.add(j.signer + ": " + fmt.Sprintf(format, args...))
}

func (j *judge) row(a *wire.Allocation) {
	if a.Nonce <= j.last {
		j.wrong("nonce %d is listed after %d", a.Nonce, j.last)
		return
	}
	if j.first < 0 {
		j.first = a.Nonce
	} else {
		j.gap(j.last+1, a.Nonce)
	}
	j.last = a.Nonce
	switch a.Status {
	case wire.StatusHeld:
		j.held++
		if a.Nonce < j.before.Floor {
			j.heldBelowFloor++
		}
	case wire.StatusReleased:
		j.released++
	case wire.StatusConsumed:
		j.used++
	default:
		j.wrong("nonce %d is %q, which is no state", a.Nonce, a.Status)
	}
	for n := j.known.peek(); n < a.Nonce; n = j.known.peek() {
		j.missing(n)
		j.known.skip()
	}
	if j.known.peek() == a.Nonce {
		j.compare(a)
		j.known.skip()
	}
}

// gap judges the nonces from one to below another, which have no row though
// lower ones have.
func (j *judge) gap(from, to int64) {
	from, to = max(from, j.before.Floor), min(to, j.before.Next)
	switch {
	case to == from+1:
		j.wrong("nonce %d is below next (%d) and neither held, released nor consumed", from, j.before.Next)
	case to > from:
		j.wrong("nonces %d to %d are below next (%d) and neither held, released nor consumed", from, to-1, j.before.Next)
	}
}

// missing judges a nonce that the load was handed and that has no row. It may
// have been pruned when it is consumed and below every row.
func (j *judge) missing(n int64) {
	if _, used := j.rec.usedAs(j.account, n); used && (j.first < 0 || n < j.first) {
		return
	}
	j.wrong("nonce %d was handed out and is not in the store", n)
}

// compare judges the row of a nonce that the load was handed.
func (j *judge) compare(a *wire.Allocation) {
	if highest := j.rec.highest(j.account, a.Nonce); a.Attempt < highest {
		j.wrong("nonce %d was handed out with attempt %d, and the store has attempt %d", a.Nonce, highest, a.Attempt)
	}
	attempt, used := j.rec.usedAs(j.account, a.Nonce)
	switch {
	case !used:
	case a.Status != wire.StatusConsumed || a.Attempt != attempt:
		j.wrong("nonce %d was acknowledged as used with attempt %d, and the store has it %s with attempt %d", a.Nonce, attempt, a.Status, a.Attempt)
	case !sameHash(a.TxHash, j.account, a.Nonce, attempt):
		j.wrong("nonce %d was acknowledged as used by another transaction than the store's, %s", a.Nonce, a.TxHash)
	}
}

// end judges what is left once all rows were given. after is the status read
// after them.
func (j *judge) end(after *wire.StatusResult) {
	for n := j.known.peek(); n != nobody; n = j.known.peek() {
		j.missing(n)
		j.known.skip()
	}
	if j.last >= 0 {
		j.gap(j.last+1, j.before.Next)
	}
	if j.last >= after.Next {
		j.wrong("nonce %d is in the store and not below next (%d)", j.last, after.Next)
	}
	j.sums(j.before)
	j.sums(after)
	if after.Next < j.before.Next || after.Version < j.before.Version {
		j.wrong("next went from %d to %d and version from %d to %d", j.before.Next, after.Next, j.before.Version, after.Version)
	}
	if after.Version == j.before.Version {
		j.compareSums(after)
	}
}

func (j *judge) sums(s *wire.StatusResult) {
	if s.Held+s.Released+s.Consumed != s.Next || min(s.Held, s.Released, s.Consumed) < 0 {
		j.wrong("held %d, released %d and consumed %d are together not next, %d", s.Held, s.Released, s.Consumed, s.Next)
	}
}

// compareSums judges a status by the rows, between the reading of which nothing
// was written. An overdue hold that was not swept yet counts as released, and
// below the floor as consumed.
func (j *judge) compareSums(s *wire.StatusResult) {
	open := s.Held + s.Released
	if s.Held > j.held || open > j.held+j.released || open < j.held+j.released-j.heldBelowFloor {
		j.wrong("the status has %d held and %d released, and the store %d and %d", s.Held, s.Released, j.held, j.released)
	}
	if s.Consumed < j.used {
		j.wrong("the status has %d consumed, and the store %d", s.Consumed, j.used)
	}
}

// nobody is above every nonce there is.
const nobody = int64(math.MaxInt64)

// handedOut walks the nonces that a load was handed of one account, ascending.
// The load must be over.
type handedOut struct {
	pages []numbered
	at    int64 // the present one; nobody at the end
}

// numbered is a page with the number of its first nonce.
type numbered struct {
	*page
	first int64
}

func (r *Recorder) handedOut(account int64) handedOut {
	s := r.shard(account)
	s.mu.Lock()
	defer s.mu.Unlock()
	h := handedOut{at: nobody}
	for _, number := range s.byAccount[account] {
		h.pages = append(h.pages, numbered{s.pages[pageKey{account, number}], number * pageNonces})
	}
	slices.SortFunc(h.pages, func(a, b numbered) int { return int(min(max(a.first-b.first, -1), 1)) })
	h.seek(0)
	return h
}

func (h *handedOut) peek() int64 { return h.at }

func (h *handedOut) skip() {
	if h.at != nobody {
		h.seek(h.at%pageNonces + 1)
	}
}

// seek finds the first nonce at or after a place of the first page.
func (h *handedOut) seek(place int64) {
	for ; len(h.pages) > 0; h.pages, place = h.pages[1:], 0 {
		for place < pageNonces {
			word := h.pages[0].any[place/64] >> (place % 64)
			if word != 0 {
				h.at = h.pages[0].first + place + int64(bits.TrailingZeros64(word))
				return
			}
			place = place/64*64 + 64
		}
	}
	h.at = nobody
}

// usedAs is the attempt with which a nonce was acknowledged as used.
func (r *Recorder) usedAs(account, nonce int64) (attempt int64, used bool) {
	s := r.shard(account)
	s.mu.Lock()
	defer s.mu.Unlock()
	k := nonceKey{account, nonce}
	p := s.pages[pageKey{account, nonce / pageNonces}]
	if p == nil || !p.used.has(nonce%pageNonces) {
		return 0, false
	}
	return s.usedAttempt(k), true
}

// highest is the highest attempt with which a nonce was handed out.
func (r *Recorder) highest(account, nonce int64) int64 {
	s := r.shard(account)
	s.mu.Lock()
	defer s.mu.Unlock()
	return max(1, s.highest[nonceKey{account, nonce}])
}
