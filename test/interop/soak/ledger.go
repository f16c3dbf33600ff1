package main

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/ethereum/go-ethereum/core/types"
)

// payment is what a worker has to execute exactly once.
type payment struct {
	id      uint64
	account int
	// generation grows when its nonce is known to be another's, so that the next request for one has another request id.
	generation int
	runs       int // how often a worker has begun with it
	owner      int // the worker that has it; nobody: it waits
	notBefore  time.Time
	done       bool
	came, seen time.Time // seen: first in a block
}

const nobody = -1

// state is what is known of a journalled transaction.
type state int

const (
	prepared state = iota // signed, given to nobody yet
	sending               // may have been given to a node
	void                  // given to nobody, and never will be
	dead                  // its nonce was used by another transaction, for good
	mined                 // on the chain, for good
)

// entry is a line of the journal: a signed transaction and its replacements, all of one
// payment and one nonce. Its first four fields stay.
type entry struct {
	owner   int      // the worker
	payment *payment // nil: it cancels
	account int
	ticket  ticket

	state   state
	txs     []*types.Transaction // the newest last
	busy    bool                 // the worker that has written it is still at it
	orphan  bool                 // it was left before it was sent
	bump    bool                 // its worker means to replace it
	tries   int
	sent    time.Time // the last time
	written time.Time
}

func (e *entry) open() bool { return e.state == prepared || e.state == sending }

type place struct {
	account int
	nonce   uint64
}

// ledger is the relayer's database: payments, of which workers take one at a time, and the journal, where they write signed transactions
// before they send them. It survives every worker, and the watcher reads it, too. Its methods may be called from any goroutine.
type ledger struct {
	mu      sync.Mutex // guards what follows, the payments and the entries
	all     []*payment
	waiting []*payment
	undone  int
	byOwner map[int][]*entry
	byNonce map[place][]*entry
}

func (l *ledger) locked(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
}

func (l *ledger) add(account int) *payment {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := &payment{id: uint64(len(l.all) + 1), account: account, owner: nobody, came: time.Now()}
	l.all = append(l.all, p)
	l.undone++
	l.waiting = append(l.waiting, p)
	return p
}

// take gives a payment to a worker and counts its runs; nil when the context has ended.
func (l *ledger) take(ctx context.Context, worker int) (p *payment) {
	for p == nil && sleep(ctx, 20*time.Millisecond) {
		l.locked(func() {
			now := time.Now()
			if i := slices.IndexFunc(l.waiting, func(p *payment) bool { return !p.notBefore.After(now) }); i >= 0 {
				p = l.waiting[i]
				l.waiting = slices.Delete(l.waiting, i, i+1)
				p.owner = worker
				p.runs++
			}
		})
	}
	return p
}

// back has a payment wait again that has no transaction which may still be mined. newID: with another request id.
func (l *ledger) back(p *payment, newID bool, after time.Duration) {
	l.locked(func() { l.backLocked(p, newID, after) })
}

func (l *ledger) backLocked(p *payment, newID bool, after time.Duration) {
	if p.done || p.owner == nobody {
		return
	}
	if newID {
		p.generation++
	}
	p.owner, p.notBefore = nobody, time.Now().Add(after)
	l.waiting = append(l.waiting, p)
}

// size is how many payments there are, how many of them are not done, and how many wait.
func (l *ledger) size() (all, undone, waiting int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.all), l.undone, len(l.waiting)
}

// write makes an entry of a transaction that is about to be sent.
func (l *ledger) write(e *entry, tx *types.Transaction) *entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	e.txs, e.written, e.busy = []*types.Transaction{tx}, time.Now(), true
	l.byOwner[e.owner] = append(l.byOwner[e.owner], e)
	at := place{e.account, tx.Nonce()}
	l.byNonce[at] = append(l.byNonce[at], e)
	return e
}

// toSend says that the entry is given to a node from now on, and returns its newest transaction; nil where that must not be.
func (l *ledger) toSend(e *entry) (tx *types.Transaction) {
	l.locked(func() { tx = e.toSendLocked() })
	return tx
}

func (e *entry) toSendLocked() *types.Transaction {
	if !e.open() {
		return nil
	}
	e.state, e.sent, e.orphan = sending, time.Now(), false
	e.tries++
	return e.txs[len(e.txs)-1]
}

// toRepair is toSend of the entry of a nonce that is best known; nil where nobody has one.
func (l *ledger) toRepair(at place, known []string) (best *entry, tx *types.Transaction) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.byNonce[at] {
		isKnown := slices.ContainsFunc(e.txs, func(tx *types.Transaction) bool { return slices.Contains(known, tx.Hash().Hex()) })
		if e.open() && (best == nil || isKnown) {
			best = e
		}
	}
	if best != nil {
		tx = best.toSendLocked()
	}
	return best, tx
}

// drop makes an entry void that was given to nobody. With refused it was given to nodes,
// and each of them has said that it did not take it. false: somebody else has sent it.
func (l *ledger) drop(e *entry, refused bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e.state == prepared || refused && e.state == sending && e.tries == 1 {
		e.state = void
	}
	return e.state == void
}

// end says what became of an entry: with mined its payment is done, with dead it begins anew.
func (l *ledger) end(e *entry, s state) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e.state = s
	switch {
	case s == mined && !e.payment.done:
		e.payment.done = true
		l.undone--
	case s == dead:
		l.backLocked(e.payment, true, 0)
	}
}

// crashed has all entries of a worker that were not sent be orphans, and those of its payments
// wait that have no entry which may still be mined.
func (l *ledger) crashed(owner int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	live := make(map[*payment]bool)
	for _, e := range l.byOwner[owner] {
		if e.open() {
			e.busy, e.orphan, live[e.payment] = false, true, true
		}
	}
	for _, p := range l.all {
		if p.owner == owner && !live[p] {
			l.backLocked(p, false, 0)
		}
	}
}

// glance is an entry as it was at a moment.
type glance struct {
	entry
	of *entry
}

// live are the entries of a worker that may still be mined, and that it is not at. Those that have ended are forgotten.
func (l *ledger) live(owner int) (gs []glance) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.byOwner[owner] = slices.DeleteFunc(l.byOwner[owner], func(e *entry) bool { return !e.open() })
	for _, e := range l.byOwner[owner] {
		if !e.busy {
			gs = append(gs, glance{*e, e})
		}
	}
	return gs
}

// leave says that the worker has done with a payment what it could in one go, and reports
// whether there is an entry of it that may still be mined. The worker follows that.
func (l *ledger) leave(p *payment, owner int) (live bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.byOwner[owner] {
		if e.payment == p && e.open() {
			e.busy, e.orphan, live = false, e.state == prepared, true
		}
	}
	return live
}
