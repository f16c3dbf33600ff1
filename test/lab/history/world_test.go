package history

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
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
	token  int64           // of the owner
	ids    map[string]Call // what an allocate with a request id got
}

func newWorld() *world {
	return &world{token: 1, stored: StoredSigner{Signer: "s"}, ids: make(map[string]Call)}
}

// call writes a call down. Each takes 2 ms and none overlap.
func (w *world) call(c Call) *Call {
	w.now += 10
	c.Signer, c.Node = "s", "a"
	c.Start, c.End = time.Duration(w.now-1)*time.Millisecond, time.Duration(w.now+1)*time.Millisecond
	w.h.Calls = append(w.h.Calls, c)
	return &w.h.Calls[len(w.h.Calls)-1]
}

// allocate hands out the lowest nonce that is free, or tells what the id got.
func (w *world) allocate(id string) *Call {
	if got, ok := w.ids[id]; ok {
		return w.again(got)
	}
	w.stored.Version++
	c := w.call(Call{Kind: Allocate, Count: 1, HoldMs: hold, RequestID: id, Outcome: Happened, Token: w.token})
	row := w.free()
	attempt := row.Attempt + 1
	for _, l := range w.h.Losses {
		if row.Nonce < l.Ceiling {
			attempt = max(attempt, l.Epoch<<attemptShift+1)
		}
	}
	row.Status, row.Attempt, row.Reason, row.HeldUntil = Held, attempt, "", w.now+hold
	c.Nonces, c.HeldUntil = []Given{{row.Nonce, row.Attempt}}, row.HeldUntil
	if id != "" {
		w.ids[id] = *c
	}
	return c
}

// again answers a request id that is known: what it got while that is held, and a conflict from then on.
func (w *world) again(got Call) *Call {
	c := w.call(got)
	row := w.row(got.Nonces[0].Nonce)
	if row.Attempt != got.Nonces[0].Attempt || row.Status != Held || row.HeldUntil < w.now {
		c.Outcome, c.Reason, c.Holds = Refused, "conflict", slices.Clone(c.Nonces)
		c.Nonces, c.HeldUntil, c.Token = nil, 0, 0
	}
	return c
}

// status shows the cursor and the floor.
func (w *world) status() *Call {
	return w.call(Call{Kind: Status, Outcome: Happened, Next: w.stored.Next, FloorNow: w.stored.Floor, Token: w.token, Version: w.stored.Version})
}

// forget loses the answer of a call.
func (w *world) forget(c *Call) {
	c.Outcome, c.Reason = Unknown, "closed"
	c.Nonces, c.Token, c.HeldUntil, c.State, c.FloorNow, c.Next, c.Version, c.Seen, c.Holds = nil, 0, 0, "", 0, 0, 0, nil, nil
}

func (w *world) free() *Row {
	least := w.stored.Floor
	for _, l := range w.h.Losses {
		if w.now < l.DoubtUntil {
			least = max(least, l.Ceiling)
		}
	}
	for i := range w.stored.Rows {
		r := &w.stored.Rows[i]
		if r.Nonce >= least && (r.Status == Released || r.Status == Held && r.HeldUntil < w.now) {
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

// do is one thing that happens, by its name: "wait 20" passes 20 ms, "repeat" tells another client what the last allocate was told,
// "lost" loses the last answer, "forget r" has the gateway forget a request id, and "first 0" has the store know of nonce 0 only that
// its first hold has ended. "lose 0" is a loss of Redis with what was handed out of nonce 0; then "grant" passes the time to just
// behind the old grant, "doubt" that to the end of the doubt, "impatient" nearly that, and the gateway does not wait for the end;
// "old 0" is a hand-out by the owner of before.
func (w *world) do(what string, args ...string) {
	var n, attempt int64
	if len(args) > 0 {
		_, _ = fmt.Sscanf(args[0], "%d/%d", &n, &attempt) // an id is none
	}
	switch what {
	case "allocate":
		w.allocate(strings.Join(args, ""))
	case "repeat":
		w.call(w.h.Calls[len(w.h.Calls)-1])
	case "lost":
		w.forget(&w.h.Calls[len(w.h.Calls)-1])
	case "forget":
		delete(w.ids, args[0])
	case "used":
		w.mark(MarkUsed, n, attempt)
	case "free":
		w.mark(MarkRecyclable, n, attempt)
	case "status":
		w.status()
	case "floor":
		w.floor(n)
	case "wait":
		w.now += n
	case "token":
		w.token = n
	case "first":
		*w.row(n) = Row{Nonce: n, Status: Released, Attempt: 1, Reason: expired}
	case "lose":
		w.lose(args...)
	case "grant":
		w.now = w.loss().GrantUntil + 20
	case "doubt":
		w.now = w.loss().DoubtUntil
	case "impatient":
		w.now, w.loss().DoubtUntil = w.loss().DoubtUntil-20, 0
	case "old": // of the epoch before, and stored nowhere
		c := w.call(Call{Kind: Allocate, Count: 1, HoldMs: hold, Outcome: Happened, Token: 1, HeldUntil: w.now + 10 + hold})
		c.Nonces = []Given{{n, 1}}
	default:
		panic(what)
	}
}

// lose declares the signer lost with Redis. What was handed out of forgotten nonces is not stored. Three more were reserved. The doubt
// ends with the longest hold after the old grant.
func (w *world) lose(forgotten ...string) {
	l := Loss{Signer: "s", Epoch: int64(len(w.h.Losses)) + 1, Ceiling: w.stored.Next + 3, Token: w.token + 1, At: w.now, GrantUntil: w.now + 500}
	l.DoubtUntil = l.GrantUntil + hold + 100
	doubtful := Row{Status: Released, Reason: inDoubt, Attempt: l.Epoch << attemptShift}
	for _, text := range forgotten {
		fmt.Sscan(text, &doubtful.Nonce)
		*w.row(doubtful.Nonce) = doubtful
	}
	for ; w.stored.Next < l.Ceiling; w.stored.Next++ {
		doubtful.Nonce = w.stored.Next
		w.stored.Rows = append(w.stored.Rows, doubtful)
	}
	w.stored.Version++
	w.token += 2
	w.h.Losses = append(w.h.Losses, l)
}

// loss is the last one.
func (w *world) loss() *Loss { return &w.h.Losses[len(w.h.Losses)-1] }

// mark marks for a reason, or with a transaction, that no other call has.
func (w *world) mark(kind Kind, n, attempt int64) *Call {
	return w.markBy(kind, n, attempt, fmt.Sprintf("0x%d.%d", n, len(w.h.Calls)))
}

// markBy marks as the rules say.
func (w *world) markBy(kind Kind, n, attempt int64, tx string) *Call {
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
	case row.Attempt == attempt && kind == MarkUsed && slices.Contains(row.hashes(), tx):
		c.Outcome, c.Reason, c.State = Happened, "", Consumed
	case row.Attempt != attempt, row.Status == Consumed && kind == MarkRecyclable && (row.TxHash != "" || n >= w.stored.Floor),
		kind == MarkUsed && len(row.hashes()) == maxHashes:
		c.Seen = &Seen{row.Status, row.Attempt, row.TxHash}
	case kind == MarkRecyclable && n < w.stored.Floor:
		c.Outcome, c.Reason, c.State = Happened, "", Consumed
		row.Status, row.Reason = Consumed, belowFloor
	case kind == MarkUsed:
		c.Outcome, c.Reason, c.State = Happened, "", Consumed
		if row.TxHash != "" {
			row.Replaced = append(row.Replaced, row.TxHash)
		}
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
			r.Status, r.Reason = Consumed, belowFloor
		}
	}
	c.FloorNow, c.Next = w.stored.Floor, w.stored.Next
	return c
}

// end completes the history.
func (w *world) end() *History {
	w.stored.Token = max(w.stored.Token, w.token)
	for i := range w.stored.Rows {
		r := &w.stored.Rows[i]
		if r.Status == Held && r.HeldUntil < w.now {
			r.Status, r.Reason = Released, expired
			if r.Nonce < w.stored.Floor {
				r.Status, r.Reason = Consumed, belowFloor
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

// random is a history of a world in which many calls overlap, are asked again and
// lose their answer; what those do may come about after their client gave up.
func random(seed uint64) *History {
	w := newWorld()
	rnd := rand.New(rand.NewPCG(seed, 1))
	for range 300 {
		if c := w.randomCall(rnd); c != nil && rnd.IntN(5) == 0 {
			w.forget(c)
		}
	}
	h := w.end()
	for i := range h.Calls {
		c := &h.Calls[i]
		c.Start -= time.Duration(rnd.IntN(30)) * time.Millisecond
		if c.Outcome == Unknown {
			c.End = c.Start + time.Millisecond
		} else {
			c.End += time.Duration(rnd.IntN(30)) * time.Millisecond
		}
	}
	return h
}

// randomCall makes a call, or passes time and returns nil.
func (w *world) randomCall(rnd *rand.Rand) *Call {
	n := w.stored.Next - 1 - int64(rnd.IntN(6))
	switch k := rnd.IntN(26); {
	case k < 4:
		return w.allocate(fmt.Sprintf("r%d", len(w.h.Calls)))
	case k < 9:
		return w.allocate("")
	case k < 13 && n >= 0:
		return w.mark(MarkUsed, n, int64(1+rnd.IntN(2)))
	case k < 17 && n >= 0:
		return w.mark(MarkRecyclable, n, int64(1+rnd.IntN(2)))
	case k == 17:
		w.now += hold // holds end
		return nil
	case k == 18 && rnd.IntN(4) == 0:
		return w.floor(w.stored.Next - 2 + int64(rnd.IntN(4)))
	case k < 21 || len(w.h.Calls) == 0:
		return w.status()
	}
	// Somebody asks again, most of all for what was asked a moment ago.
	switch c := w.h.Calls[max(0, len(w.h.Calls)-1-rnd.IntN(20))]; c.Kind {
	case Allocate:
		return w.allocate(c.RequestID)
	case MarkUsed, MarkRecyclable:
		return w.markBy(c.Kind, c.Nonce, c.Attempt, c.TxHash+c.Why)
	default:
		return w.status()
	}
}
