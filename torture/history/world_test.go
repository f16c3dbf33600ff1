package history

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// hold is how long a nonce is held in these histories.
const hold = 1000

// world is a gateway that does everything right, one call at a time, and writes
// down what its clients see. Its clock is the store's.
type world struct {
	h      History
	now    int64
	stored StoredSigner
	ids    map[string]int // request id → index of the call that was told
}

func newWorld() *world {
	return &world{now: 1_000_000, stored: StoredSigner{Signer: "s"}, ids: make(map[string]int)}
}

// call writes a call down. Each takes 2 ms and none overlap.
func (w *world) call(c Call) *Call {
	w.now += 10
	c.Signer, c.Node = "s", "a"
	c.Start, c.End = time.Duration(w.now-1)*time.Millisecond, time.Duration(w.now+1)*time.Millisecond
	w.h.Calls = append(w.h.Calls, c)
	return &w.h.Calls[len(w.h.Calls)-1]
}

// allocate hands out the lowest nonce that is free.
func (w *world) allocate(id string) *Call {
	w.stored.Version++
	c := w.call(Call{Kind: Allocate, Count: 1, HoldMs: hold, RequestID: id, Outcome: Happened, Token: 1})
	row := w.free()
	row.Status, row.Attempt, row.Reason, row.HeldUntil = Held, row.Attempt+1, "", w.now+hold
	c.Nonces, c.HeldUntil = []Given{{row.Nonce, row.Attempt}}, row.HeldUntil
	return c
}

func (w *world) free() *Row {
	for i := range w.stored.Rows {
		r := &w.stored.Rows[i]
		if r.Nonce >= w.stored.Floor && (r.Status == Released || r.Status == Held && r.HeldUntil < w.now) {
			return r
		}
	}
	w.stored.Rows = append(w.stored.Rows, Row{Nonce: w.stored.Next})
	w.stored.Next++
	return &w.stored.Rows[len(w.stored.Rows)-1]
}

func (w *world) row(n int64) *Row {
	i := slices.IndexFunc(w.stored.Rows, func(r Row) bool { return r.Nonce == n })
	if i < 0 {
		return nil
	}
	return &w.stored.Rows[i]
}

// mark marks as the rules say.
func (w *world) mark(kind Kind, n, attempt int64) *Call {
	tx := fmt.Sprintf("0x%d.%d", n, len(w.h.Calls))
	c := w.call(Call{Kind: kind, Nonce: n, Attempt: attempt, Outcome: Refused, Reason: "conflict"})
	if kind == MarkUsed {
		c.TxHash = tx
	} else {
		c.Why = tx
	}
	row := w.row(n)
	switch {
	case row == nil:
		c.Reason = "not_found"
	case row.Attempt != attempt, row.Status == Consumed && (row.TxHash != "" || kind == MarkRecyclable && n >= w.stored.Floor):
		c.Seen = &Seen{row.Status, row.Attempt, row.TxHash}
	case kind == MarkRecyclable && n < w.stored.Floor:
		c.Outcome, c.Reason, c.State = Happened, "", Consumed
		row.Status, row.Reason = Consumed, BelowFloor
	case kind == MarkUsed:
		c.Outcome, c.Reason, c.State = Happened, "", Consumed
		row.Status, row.TxHash, row.Reason = Consumed, tx, ""
	case row.Status == Held:
		row.Status, row.Reason = Released, tx
		fallthrough
	default:
		c.Outcome, c.Reason, c.State = Happened, "", Released
	}
	return c
}

func (w *world) floor(n int64) *Call {
	c := w.call(Call{Kind: SetFloor, Floor: n, Outcome: Happened})
	w.stored.Floor, w.stored.Next = max(w.stored.Floor, n), max(w.stored.Next, n)
	for i := range w.stored.Rows {
		if r := &w.stored.Rows[i]; r.Nonce < n && (r.Status == Released || r.Status == Held && r.HeldUntil < w.now) {
			r.Status, r.Reason = Consumed, BelowFloor
		}
	}
	c.FloorNow, c.Next = w.stored.Floor, w.stored.Next
	return c
}

// end completes the history.
func (w *world) end() *History {
	w.stored.Token = 1
	for i := range w.stored.Rows {
		r := &w.stored.Rows[i]
		if r.Status == Held && r.HeldUntil < w.now {
			r.Status, r.Reason = Released, Expired
			if r.Nonce < w.stored.Floor {
				r.Status, r.Reason = Consumed, BelowFloor
			}
		}
		if r.Status != Held {
			r.HeldUntil = 0
		}
		if r.Status == Held {
			w.stored.Held++
		}
	}
	w.h.Final = &Final{Now: w.now, Signers: []StoredSigner{w.stored}}
	return &w.h
}

func check(h *History) *Report {
	return Check(h, Limits{MaxOverdue: time.Second})
}

// random is a history of a world in which many calls lose their answer.
func random(seed uint64) *History {
	w := newWorld()
	rnd := rand.New(rand.NewPCG(seed, 1))
	forget := func(c *Call) {
		if rnd.IntN(5) == 0 {
			c.Outcome, c.Reason, c.Nonces, c.HeldUntil, c.State, c.Token = Unknown, "closed", nil, 0, "", 0
		}
	}
	for range 300 {
		n := w.stored.Next - 1 - int64(rnd.IntN(6))
		switch k := rnd.IntN(20); {
		case k < 9:
			id := ""
			if k < 4 {
				id = fmt.Sprintf("r%d", len(w.h.Calls))
			}
			forget(w.allocate(id))
		case k < 13 && n >= 0:
			forget(w.mark(MarkUsed, n, int64(1+rnd.IntN(2))))
		case k < 17 && n >= 0:
			forget(w.mark(MarkRecyclable, n, int64(1+rnd.IntN(2))))
		case k == 17:
			w.now += hold // holds end
		case k == 18 && rnd.IntN(4) == 0:
			forget(w.floor(w.stored.Next - 2 + int64(rnd.IntN(4))))
		}
	}
	return w.end()
}
