package nonce

import (
	"slices"
	"sync"
	"time"
)

// openHolds counts, of each principal, the holds that this node handed out and that
// are neither marked here nor due. What is marked at another node counts until it is
// due. It remembers deadlines only, each once with how many holds have it: at most as
// many of a principal as it may have holds, and no principal without.
//
// A nil openHolds counts nothing.
type openHolds struct {
	now func() time.Time // the store's clock; zero: not known yet

	mu sync.Mutex // guards of
	of map[Principal]*account
}

// account is one principal's.
type account struct {
	open    int // in due
	claimed int // handed out by commits that are under way
	due     []deadline
}

// deadline is of holds, by the store's clock.
type deadline struct {
	micros int64
	holds  int
}

func newOpenHolds(now func() time.Time) *openHolds {
	return &openHolds{now: now, of: make(map[Principal]*account)}
}

// claim takes room for what the op is about to be handed out, until settle or unclaim,
// or reports that there is none.
func (o *openHolds) claim(op *Op) bool {
	if o == nil || !op.counted() {
		return true
	}
	now := o.now()
	o.mu.Lock()
	defer o.mu.Unlock()
	a := o.account(op.Principal)
	if a.end(now); a.open+a.claimed+op.hands() > op.MaxOpen {
		o.forget(op.Principal, a)
		return false
	}
	a.claimed += op.hands()
	op.claimed = op.hands()
	return true
}

// counted reports whether what the op is handed out counts for its principal.
func (op *Op) counted() bool { return op.hands() > 0 && op.Principal != 0 && op.MaxOpen > 0 }

// hands is how many nonces the op is handed out, for which a principal needs room.
func (op *Op) hands() int {
	switch {
	case op.Kind == KindAllocate:
		return op.Count
	case op.tookNonce:
		return 1
	}
	return 0
}

// unclaim gives the room back: the op was not committed.
func (o *openHolds) unclaim(op *Op) {
	if op.claimed == 0 {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	a := o.of[op.Principal]
	a.claimed -= op.claimed
	op.claimed = 0
	o.forget(op.Principal, a)
}

// settle follows an op that was committed, or is known to have been.
func (o *openHolds) settle(op *Op) {
	switch {
	case o == nil || op.Err != nil:
	case op.counted() && (op.wrote || op.made):
		o.given(op.Principal, op.hands(), op.HeldUntil)
	case op.endsOf != 0 && op.Status != Held:
		o.marked(op.endsOf, op.endsAt)
	case op.endsOf != 0: // it has another deadline
		if o.marked(op.endsOf, op.endsAt) {
			o.given(op.endsOf, 1, op.HeldUntil)
		}
	}
	o.unclaim(op)
}

func (o *openHolds) account(p Principal) *account {
	a := o.of[p]
	if a == nil {
		a = new(account)
		o.of[p] = a
	}
	return a
}

// given counts holds that were handed out.
func (o *openHolds) given(p Principal, n int, until time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.account(p).add(until.UnixMicro(), n)
}

// marked counts a hold as ended, and reports whether it was counted: one that this
// node did not hand out is not.
func (o *openHolds) marked(p Principal, until time.Time) (counted bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	a := o.of[p]
	if a == nil {
		return false
	}
	if i, ok := a.find(until.UnixMicro()); ok {
		a.open--
		if a.due[i].holds--; a.due[i].holds == 0 {
			a.due = slices.Delete(a.due, i, i+1)
		}
		counted = true
	}
	o.forget(p, a)
	return counted
}

// sweep forgets holds that are due, and who has none.
func (o *openHolds) sweep() {
	if o == nil {
		return
	}
	now := o.now()
	o.mu.Lock()
	defer o.mu.Unlock()
	for p, a := range o.of {
		a.end(now)
		o.forget(p, a)
	}
}

func (o *openHolds) forget(p Principal, a *account) {
	if a.open+a.claimed == 0 {
		delete(o.of, p)
	}
}

func (a *account) find(micros int64) (int, bool) {
	return slices.BinarySearchFunc(a.due, micros, func(d deadline, at int64) int {
		switch {
		case d.micros < at:
			return -1
		case d.micros > at:
			return 1
		}
		return 0
	})
}

func (a *account) add(micros int64, n int) {
	a.open += n
	i, ok := a.find(micros)
	if !ok {
		a.due = slices.Insert(a.due, i, deadline{micros: micros})
	}
	a.due[i].holds += n
}

// end forgets what is due.
func (a *account) end(now time.Time) {
	i := 0
	for ; i < len(a.due) && a.due[i].micros <= now.UnixMicro(); i++ {
		a.open -= a.due[i].holds
	}
	a.due = slices.Delete(a.due, 0, i)
}
