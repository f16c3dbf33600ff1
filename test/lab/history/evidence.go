package history

import (
	"math"
	"slices"
	"time"
)

// A call of unknown outcome could take effect at any time. What other calls were told narrows that down, and porcupine is spared
// most of the orders that cannot be. The bounds here only follow from what the model demands anyway.

// fact is what a call shows of a nonce: its state at some moment of the call.
type fact struct {
	begun, end time.Duration
	attempt    int64  // 0: it was never handed out
	status     string // "": not shown
	tx         string
	given      bool // the call handed it out, or was told so again
	seen       bool // it is what a conflict shows: at that moment tx was the newest
}

// evidence are all facts of a signer.
type evidence struct {
	of map[int64][]fact
	// By nonce: when the last call began that handed out a lower one for the first time (one that was only told so again says
	// nothing), and when the first ended that shows a higher one. Within the cursor.
	after, before []time.Duration

	order map[int64][]string       // the transactions that are stored of a nonce, oldest first
	said  map[string]time.Duration // when the first call began that names a transaction
}

const never = time.Duration(math.MaxInt64)

func (s *signer) gather() *evidence {
	e := &evidence{of: make(map[int64][]fact), order: make(map[int64][]string), said: make(map[string]time.Duration)}
	if s.stored != nil {
		for i := range s.stored.Rows {
			e.order[s.stored.Rows[i].Nonce] = s.stored.Rows[i].hashes()
		}
	}
	for _, c := range slices.Backward(s.calls) {
		if c.Kind == MarkUsed {
			e.said[c.TxHash] = c.Start
		}
	}
	top := int64(0)
	add := func(n int64, f fact) {
		e.of[n] = append(e.of[n], f)
		if n < maxNonce {
			top = max(top, n+1)
		}
	}
	for _, c := range s.calls {
		switch {
		case c.Kind == Allocate && c.Outcome == Happened:
			for _, g := range c.Nonces {
				add(g.Nonce, fact{begun: s.mayHaveBegun(c), end: c.End, attempt: g.Attempt, status: Held, given: true})
			}
		case c.Kind == MarkUsed && c.Outcome == Happened:
			add(c.Nonce, fact{begun: c.Start, end: c.End, attempt: c.Attempt, status: Consumed, tx: c.TxHash})
		case c.Kind == MarkRecyclable && c.Outcome == Happened:
			add(c.Nonce, fact{begun: c.Start, end: c.End, attempt: c.Attempt, status: c.State})
		case c.Outcome == Refused && c.Seen != nil && tellsOfNonce(c):
			add(c.Nonce, fact{begun: c.Start, end: c.End, attempt: c.Seen.Attempt, status: c.Seen.Status, tx: c.Seen.TxHash, seen: true})
		case c.Outcome == Refused && tellsOfNonce(c):
			e.of[c.Nonce] = append(e.of[c.Nonce], fact{begun: c.Start, end: c.End})
		}
	}
	e.cursor(top)
	return e
}

func (e *evidence) cursor(top int64) {
	e.after, e.before = make([]time.Duration, top), make([]time.Duration, top)
	last := time.Duration(0)
	for n := range top {
		e.after[n] = last
		// Of the calls that were told so, the others may have repeated the earliest.
		given := never
		for _, f := range e.of[n] {
			if f.given && f.attempt == 1 {
				given = min(given, f.begun)
			}
		}
		if given < never {
			last = max(last, given)
		}
	}
	first := never
	for n := top - 1; n >= 0; n-- {
		e.before[n] = first
		for _, f := range e.of[n] {
			if f.attempt > 0 {
				first = min(first, f.end)
			}
		}
	}
}

// handedOut bounds when an attempt of a nonce was handed out, as told to nobody or to some other call than the one that did it.
func (e *evidence) handedOut(g Given) (from, to time.Duration) {
	to = never
	if g.Attempt == 1 && g.Nonce < int64(len(e.after)) {
		from, to = e.after[g.Nonce], e.before[g.Nonce]
	}
	for _, f := range e.of[g.Nonce] {
		switch {
		case f.attempt < g.Attempt:
			from = max(from, f.begun)
		default:
			to = min(to, f.end)
		}
	}
	return from, to
}

// used bounds when a transaction was recorded for a nonce. The store has them in the order in which they were: it was after those
// before it were asked for, and before any behind it was seen.
func (e *evidence) used(c *Call) (from, to time.Duration) {
	to = never
	order := e.order[c.Nonce]
	place := slices.Index(order, c.TxHash)
	for _, tx := range order[:max(0, place)] {
		from = max(from, e.said[tx])
	}
	for _, f := range e.of[c.Nonce] {
		switch shown := slices.Index(order, f.tx); {
		case f.status != Consumed, f.seen && shown < place:
			from = max(from, f.begun)
		case shown >= place && place >= 0:
			to = min(to, f.end)
		}
	}
	return from, to
}

// freed bounds when a release may have taken effect that matters to anybody. That it did harms no other call: a nonce that counts
// as released can do all that a held one can, but be seen as held.
func (e *evidence) freed(c *Call) (from, to time.Duration) {
	to = never
	for _, f := range e.of[c.Nonce] {
		switch {
		case f.attempt > c.Attempt:
			to = min(to, f.end)
		case f.status == Held:
			from = max(from, f.begun)
		}
	}
	return from, to
}

// within narrows an interval down by a bound. Evidence that contradicts itself is left for porcupine to find.
func within(start, from, to time.Duration) (int64, int64) {
	from = max(start, from)
	if to < from {
		return int64(start), int64(max(start, to))
	}
	return int64(from), min(int64(to), finalCall-1)
}
