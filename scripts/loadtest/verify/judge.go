package verify

import (
	"fmt"
	"iter"
	"math"
	"slices"

	"noncegate/wire"
)

// judge compares what the store shows of one account, whose rows it is given in
// order, with what the account must be.
type judge struct {
	rec     *Recorder
	account int64
	signer  string
	before  *wire.StatusResult              // read before the rows
	next    func() (nonce int64, more bool) // of what the load was handed
	stop    func()                          // next is not called any more
	handed  int64                           // the first of those that was not met yet; nobody: there is none

	first, last          int64 // nonces of the rows, -1 before there is one
	held, released, used int64 // rows
	heldBelowFloor       int64
}

func newJudge(r *Recorder, account int64, before *wire.StatusResult) *judge {
	j := &judge{rec: r, account: account, signer: Signer(account), before: before, first: -1, last: -1}
	j.next, j.stop = iter.Pull(r.handedOut(account))
	j.skip()
	return j
}

func (j *judge) skip() {
	var more bool
	if j.handed, more = j.next(); !more {
		j.handed = nobody
	}
}

// missingBelow judges what was handed out below a nonce and was not met.
func (j *judge) missingBelow(nonce int64) {
	for ; j.handed < nonce; j.skip() {
		j.missing(j.handed)
	}
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
	j.missingBelow(a.Nonce)
	if j.handed == a.Nonce {
		j.compare(a)
		j.skip()
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
	j.missingBelow(nobody)
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

// handedOut are the nonces that a load was handed of one account, ascending. The load must
// be over.
func (r *Recorder) handedOut(account int64) iter.Seq[int64] {
	s := r.shard(account)
	s.mu.Lock()
	defer s.mu.Unlock()
	numbers := slices.Sorted(slices.Values(s.byAccount[account]))
	pages := make([]*page, len(numbers))
	for i, number := range numbers {
		pages[i] = s.pages[pageKey{account, number}]
	}
	return func(yield func(int64) bool) {
		for i, p := range pages {
			for place := range int64(pageNonces) {
				if p.any.has(place) && !yield(numbers[i]*pageNonces+place) {
					return
				}
			}
		}
	}
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
