package fairness

import (
	"slices"
	"sync"

	"noncegate/nonce"
	"noncegate/nonce/rules"
)

// Holds counts, of each principal, the holds that this node handed out and that
// are neither marked here nor due. A hold that is marked at another node counts until it is
// due. Of holds it keeps only the deadlines, each with how many holds have it, so it is
// bounded by the open holds that principals may have.
type Holds struct {
	now func() int64 // the store's clock, at its earliest, Unix milliseconds

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

// NewHolds counts from none. now is the store's clock at its earliest, in Unix milliseconds.
func NewHolds(now func() int64) *Holds {
	return &Holds{now: now, of: make(map[nonce.Principal]*account)}
}

// Reserve takes room for what the op is about to be handed out, until Settle or Release,
// or reports that there is none.
func (h *Holds) Reserve(req *nonce.Request, count int) bool {
	now := h.now()
	h.mu.Lock()
	defer h.mu.Unlock()
	a := h.account(req.Principal)
	a.end(now)
	if a.open+a.claimed+count > req.MaxOpen {
		h.forget(req.Principal, a)
		return false
	}
	a.claimed += count
	return true
}

// Release gives room back.
func (h *Holds) Release(p nonce.Principal, count int) {
	if count == 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	a := h.of[p]
	a.claimed -= count
	h.forget(p, a)
}

// Settle counts what a committed op did to its principal's open holds: it has new ones, or it
// ended one or gave it another deadline. A hold that another node handed out is not counted
// here, and stays so when it is extended. What the plan claimed is given back.
func (h *Holds) Settle(req *nonce.Request, a *rules.Answer) {
	switch {
	case a.Err != nil || !a.Wrote:
	case a.Claimed > 0:
		h.given(req.Principal, a.Claimed, a.Until)
	case a.Ends.Holder != 0 && h.marked(a.Ends.Holder, a.Ends.Until) && a.Status == nonce.Held:
		holder := a.Ends.Holder // of a hold that has another deadline now
		if req.Kind == nonce.KindRepair {
			holder = req.Principal
		}
		if holder != 0 {
			h.given(holder, 1, a.Until)
		}
	}
	h.Release(req.Principal, a.Claimed)
}

// Open is how many holds of a principal are open.
func (h *Holds) Open(p nonce.Principal) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	if a := h.of[p]; a != nil {
		return a.open
	}
	return 0
}

func (h *Holds) account(p nonce.Principal) *account {
	a := h.of[p]
	if a == nil {
		a = new(account)
		h.of[p] = a
	}
	return a
}

// given counts holds that were handed out.
func (h *Holds) given(p nonce.Principal, n int, until int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.account(p).add(until, n)
}

// marked counts a hold as ended, and reports whether it was counted: one that this
// node did not hand out is not.
func (h *Holds) marked(p nonce.Principal, until int64) (counted bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	a := h.of[p]
	if a == nil {
		return false
	}
	if i, ok := a.find(until); ok {
		a.open--
		a.due[i].holds--
		if a.due[i].holds == 0 {
			a.due = slices.Delete(a.due, i, i+1)
		}
		counted = true
	}
	h.forget(p, a)
	return counted
}

// Sweep forgets holds that are due, and who has none.
func (h *Holds) Sweep() {
	now := h.now()
	h.mu.Lock()
	defer h.mu.Unlock()
	for p, a := range h.of {
		a.end(now)
		h.forget(p, a)
	}
}

func (h *Holds) forget(p nonce.Principal, a *account) {
	if a.open+a.claimed == 0 {
		delete(h.of, p)
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
