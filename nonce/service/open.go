package service

import (
	"slices"
	"sync"

	"noncegate/nonce"
)

// holdQuota counts, of each principal, the holds that this node handed out and that
// are neither marked here nor due. A hold that is marked at another node counts until it is
// due. Of holds it keeps only the deadlines, each with how many holds have it, so it is
// bounded by the open holds that principals may have.
type holdQuota struct {
	clock *clock

	mu sync.Mutex // guards of
	of map[nonce.Principal]*account
}

// account is one principal's.
type account struct {
	open    int // in due
	claimed int // nonces of plans whose commit has not ended
	due     []deadline
}

// deadline is of holds, in Unix milliseconds by the store's clock.
type deadline struct {
	at    int64
	holds int
}

func newHoldQuota(c *clock) *holdQuota {
	return &holdQuota{clock: c, of: make(map[nonce.Principal]*account)}
}

// reserve takes room for what the op is about to be handed out, until settle or release,
// or reports that there is none.
func (o *holdQuota) reserve(op *nonce.Op, count int) bool {
	now := o.clock.now().Earliest
	o.mu.Lock()
	defer o.mu.Unlock()
	a := o.account(op.Principal)
	if a.end(now); a.open+a.claimed+count > op.MaxOpen {
		o.forget(op.Principal, a)
		return false
	}
	a.claimed += count
	return true
}

// release gives room back.
func (o *holdQuota) release(p nonce.Principal, count int) {
	if count == 0 {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	a := o.of[p]
	a.claimed -= count
	o.forget(p, a)
}

func (o *holdQuota) account(p nonce.Principal) *account {
	a := o.of[p]
	if a == nil {
		a = new(account)
		o.of[p] = a
	}
	return a
}

// given counts holds that were handed out.
func (o *holdQuota) given(p nonce.Principal, n int, until int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.account(p).add(until, n)
}

// marked counts a hold as ended, and reports whether it was counted: one that this
// node did not hand out is not.
func (o *holdQuota) marked(p nonce.Principal, until int64) (counted bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	a := o.of[p]
	if a == nil {
		return false
	}
	if i, ok := a.find(until); ok {
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
func (o *holdQuota) sweep() {
	now := o.clock.now().Earliest
	o.mu.Lock()
	defer o.mu.Unlock()
	for p, a := range o.of {
		a.end(now)
		o.forget(p, a)
	}
}

func (o *holdQuota) forget(p nonce.Principal, a *account) {
	if a.open+a.claimed == 0 {
		delete(o.of, p)
	}
}

func (a *account) find(at int64) (int, bool) {
	return slices.BinarySearchFunc(a.due, at, func(d deadline, at int64) int {
		switch {
		case d.at < at:
			return -1
		case d.at > at:
			return 1
		}
		return 0
	})
}

func (a *account) add(at int64, n int) {
	a.open += n
	i, ok := a.find(at)
	if !ok {
		a.due = slices.Insert(a.due, i, deadline{at: at})
	}
	a.due[i].holds += n
}

// end forgets what is due.
func (a *account) end(now int64) {
	i := 0
	for ; i < len(a.due) && a.due[i].at <= now; i++ {
		a.open -= a.due[i].holds
	}
	a.due = slices.Delete(a.due, 0, i)
}
