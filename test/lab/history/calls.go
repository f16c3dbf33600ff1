package history

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// checkCalls judges what clients were told, by itself.
func (s *signer) checkCalls() {
	for n, of := range s.nonces {
		s.checkHandOuts(n, of)
		s.checkMarks(n, of)
	}
	for id, calls := range s.requests {
		s.checkRequest(id, calls)
	}
	s.checkTokens()
	s.checkReads()
	s.checkBehind()
}

// checkHandOuts judges the hand-outs of one nonce: one request an attempt, and a
// higher attempt only after the hold before it has ended.
func (s *signer) checkHandOuts(n int64, of *nonce) {
	byAttempt := slices.Clone(of.given)
	slices.SortStableFunc(byAttempt, func(a, b handOut) int { return cmp.Compare(a.attempt, b.attempt) })
	for i := 1; i < len(byAttempt); i++ {
		was, is := byAttempt[i-1], byAttempt[i]
		if was.attempt == is.attempt {
			if was.call.RequestID == "" || was.call.RequestID != is.call.RequestID {
				s.wrong(OneHolder, "nonce %d attempt %d was given to client %d (%s, %v) and to client %d (%s, %v)", n, is.attempt,
					was.call.Client, was.call.Node, was.call.End, is.call.Client, is.call.Node, is.call.End)
			}
			continue
		}
		ends := was.call.HeldUntil + s.GraceMs - s.limits.ClockSlack.Milliseconds()
		early := ends - s.endedBy(s.mayHaveBegun(was.call), is.call)
		// Where both clocks are one, the answer's arrival is the latest that it was.
		if early <= 0 && s.BeganAt > 0 && len(s.Shifts) == 0 {
			early = ends - s.BeganAt - is.call.End.Milliseconds()
		}
		if early > 0 && !of.releasedBefore(was.attempt, is.attempt, is.call) {
			s.wrong(liveHold, "nonce %d attempt %d was given out %d ms before the hold of attempt %d may be ended", n, is.attempt, early, was.attempt)
		}
	}
	given := make([]reading, 0, len(of.given))
	for _, g := range of.given {
		given = append(given, reading{g.call, g.attempt})
	}
	went(given, func(was, is reading) {
		s.wrong(attemptBack, "nonce %d: attempt %d was given after attempt %d", n, is.value, was.value)
	})
}

// releasedBefore reports whether somebody may have given back one of the attempts from first on, before the one given in next.
func (of *nonce) releasedBefore(first, end int64, next *Call) bool {
	return slices.ContainsFunc(of.freed, func(c *Call) bool {
		return c.Attempt >= first && c.Attempt < end && c.Start <= next.End
	})
}

func (s *signer) checkMarks(n int64, of *nonce) {
	var used *Call // the first that happened
	for _, c := range of.used {
		if c.Outcome != Happened {
			continue
		}
		if used != nil && s.setBack(used) { // what was used is not handed out again; it may be marked once more
			used = nil
		}
		if used != nil && used.Attempt != c.Attempt { // of one attempt, the second is a replacement
			s.wrong(consumedStays, "nonce %d was consumed as attempt %d by %s and as attempt %d by %s", n, used.Attempt, used.TxHash, c.Attempt, c.TxHash)
		}
		if used == nil {
			used = c
		}
	}
	for _, c := range of.freed {
		if used != nil && c.Outcome == Happened && c.State == Released && before(used, c) {
			s.wrong(consumedStays, "nonce %d was consumed (%v) and then released (%v)", n, used.End, c.Start)
		}
	}
	for _, g := range of.given {
		if used != nil && (g.attempt > used.Attempt && !s.forgotten(n, &g, used) || before(used, g.call)) {
			s.wrong(consumedStays, "nonce %d was consumed as attempt %d (%v) and given out as attempt %d (%v)", n, used.Attempt, used.End, g.attempt, g.call.End)
		}
	}
	for _, c := range slices.Concat(of.used, of.freed) {
		for _, g := range of.given {
			if c.Outcome == Happened && g.attempt > c.Attempt && before(g.call, c) && !s.forgotten(n, &g, c) {
				s.wrong(attemptBack, "nonce %d: %s of attempt %d (%v) was accepted after attempt %d was given out (%v)", n, c.Kind, c.Attempt, c.Start, g.attempt, g.call.End)
			}
		}
	}
}

func (s *signer) checkRequest(id string, calls []*Call) {
	var told []*Call // answers that differ
	for _, c := range calls {
		if c.Outcome != Happened {
			continue
		}
		same := func(o *Call) bool {
			return slices.Equal(o.Nonces, c.Nonces) && o.Count == c.Count && o.HoldMs == c.HoldMs
		}
		if slices.ContainsFunc(told, same) {
			continue
		}
		for _, o := range told {
			if !s.forgivenAnswer(o) && !s.forgivenAnswer(c) {
				s.wrong(OneAnswer, "request %s was answered %v by %s and %v by %s", id, o.Nonces, o.Node, c.Nonces, c.Node)
			}
		}
		told = append(told, c)
	}
	for _, c := range calls {
		if c.Reason != "conflict" {
			continue
		}
		// A conflict shows no more of them than were asked for.
		if len(told) > 0 && len(s.losses) == 0 && !s.lostSome { // else it may be of any epoch
			first := told[0]
			if !sameNonces(first.Nonces[:min(len(first.Nonces), max(c.Count, 1))], c.Holds) {
				s.wrong(OneAnswer, "request %s was answered %v by %s and is said by %s to have got %v", id, first.Nonces, first.Node, c.Node, c.Holds)
			}
		}
		if !slices.ContainsFunc(calls, func(o *Call) bool { return o != c && o.Outcome != Refused && o.Start <= c.End }) {
			s.wrong(RefusedDone, "request %s is said by %s to be known, and was refused whenever it was asked", id, c.Node)
		}
	}
}

func sameNonces(a, b []Given) bool {
	return slices.EqualFunc(a, b, func(x, y Given) bool { return x.Nonce == y.Nonce })
}

// checkTokens: the fencing tokens of hand-outs never go back. Those of mode basic are 0, and a repeat carries the token of the row.
func (s *signer) checkTokens() {
	var tokens []reading
	for _, c := range s.calls {
		if c.Kind == Allocate && c.Outcome == Happened && c.Token > 0 && !s.ofOldGrant(c) && !s.within(c) && (c.RequestID == "" || len(s.requests[c.RequestID]) == 1) {
			tokens = append(tokens, reading{c, c.Token})
		}
	}
	went(tokens, func(was, is reading) {
		s.wrong(tokenBack, "token %d (%s, %v) after token %d (%s, %v)", is.value, is.call.Node, is.call.Start, was.value, was.call.Node, was.call.End)
	})
}

// checkReads: what nonce_status shows never goes back. A floor that nobody acknowledged may
// be lost, and a version is compared with those of the same epoch.
func (s *signer) checkReads() {
	for what, value := range map[string]func(*Call) int64{
		"token": func(c *Call) int64 { return c.Token }, "version": func(c *Call) int64 { return c.Version },
		"next": func(c *Call) int64 { return c.Next }, "floor": func(c *Call) int64 { return c.FloorNow },
	} {
		read := make(map[int64][]reading) // by epoch
		for _, c := range s.calls {
			if c.Kind != Status || c.Outcome != Happened || s.within(c) || len(s.losses) > 0 && (what == "floor" || s.ofOldGrant(c)) || s.RowsBehind && what != "token" {
				continue
			}
			epoch := int64(0)
			if what == "version" {
				epoch = s.life(c)
			}
			read[epoch] = append(read[epoch], reading{c, value(c)})
		}
		for _, of := range read {
			went(of, func(was, is reading) {
				s.wrong(tokenBack, "nonce_status showed %s %d (%s) after %d (%s)", what, is.value, is.call.Node, was.value, was.call.Node)
			})
		}
	}
}

// checkBehind: where rows may be behind, what nonce_status shows is not behind the rows. Who
// does not know of a loss tells of what was before it.
func (s *signer) checkBehind() {
	if !s.RowsBehind {
		return
	}
	samples := s.samples        // each was read before the next was begun
	for _, c := range s.calls { // in order of Start
		for len(samples) > 2 && samples[2].At < c.Start {
			samples = samples[1:]
		}
		if c.Kind != Status || c.Outcome != Happened || s.ofOldGrant(c) || len(samples) < 2 || samples[1].At >= c.Start {
			continue
		}
		if is := samples[0]; c.Version < is.Version || c.Next < is.Next || c.FloorNow < is.Floor {
			s.wrong(tokenBack, "nonce_status of %s showed version %d, next %d, floor %d (%v), and the row had %d, %d, %d before (%v)", c.Node,
				c.Version, c.Next, c.FloorNow, c.Start, is.Version, is.Next, is.Floor, is.At)
		}
	}
}

// reading is a value that a call was told.
type reading struct {
	call  *Call
	value int64
}

// went reports each reading that is lower than one whose call had ended before it began.
func went(back []reading, report func(was, is reading)) {
	byEnd := slices.Clone(back)
	slices.SortStableFunc(byEnd, func(a, b reading) int { return cmp.Compare(a.call.End, b.call.End) })
	slices.SortStableFunc(back, func(a, b reading) int { return cmp.Compare(a.call.Start, b.call.Start) })
	highest := reading{value: -1}
	for _, is := range back {
		for len(byEnd) > 0 && before(byEnd[0].call, is.call) {
			if byEnd[0].value > highest.value {
				highest = byEnd[0]
			}
			byEnd = byEnd[1:]
		}
		if is.value < highest.value {
			report(highest, is)
		}
	}
}

// endedBy is the latest that the store's clock can have been, in Unix milliseconds, when a hold was ended whose nonce c handed out
// again; given is when that hold can have begun. Where nobody sets that clock, what c was told says it. Else it may have been later
// before c than at c, and the gateway may not have known how late it was.
func (s *signer) endedBy(given time.Duration, c *Call) int64 {
	if len(s.Shifts) == 0 {
		return c.committedAt()
	}
	return s.latest(given, c.End)
}

// latest is the highest that the store's clock can have shown between two moments. Each
// setting may have been in force from when it was begun until the next was done.
func (s *signer) latest(from, to time.Duration) int64 {
	latest := int64(math.MinInt64)
	begin, by := time.Duration(math.MinInt64), time.Duration(0)
	in := func(end time.Duration) {
		if begin <= to && end >= from {
			latest = max(latest, s.BeganAt+(min(to, end)+by).Milliseconds()+1)
		}
	}
	for _, next := range s.Shifts {
		in(next.To)
		begin, by = next.From, next.By
	}
	in(to)
	return latest
}

// checkOrder: calls of one connection for one signer take effect in the order in which they were sent. New nonces tell, because
// they come from a cursor that only rises; and so does a release that was accepted although the nonce was consumed by the call
// before it.
func (s *signer) checkOrder() {
	byConn := make(map[int64][]*Call)
	for _, c := range s.calls {
		if c.Conn != 0 && c.Outcome == Happened {
			byConn[c.Conn] = append(byConn[c.Conn], c)
		}
	}
	for _, calls := range byConn {
		slices.SortStableFunc(calls, func(a, b *Call) int { return cmp.Compare(a.Seq, b.Seq) })
		last := Given{Nonce: -1}
		used := make(map[int64]bool)
		for _, c := range calls {
			switch {
			case c.Kind == Allocate && (c.RequestID == "" || len(s.requests[c.RequestID]) == 1):
				for _, g := range c.Nonces {
					if g.Attempt == 1 && g.Nonce < last.Nonce {
						s.wrong(disorder, "client %d was given new nonce %d by %s after it was given %d by the call before", c.Client, g.Nonce, c.Node, last.Nonce)
					}
					if g.Attempt == 1 {
						last = g
					}
				}
			case c.Kind == MarkUsed:
				used[c.Nonce] = !s.setBack(c)
			case c.Kind == MarkRecyclable && c.State == Released && used[c.Nonce]:
				s.wrong(disorder, "client %d consumed nonce %d, and the release behind it was accepted by %s", c.Client, c.Nonce, c.Node)
			}
		}
	}
}

// checkSamples: in the store itself token, version, cursor and floor never go back, nothing is acquired or given back without a
// higher token, and nothing is written under a token when there is a higher one. No nonce lives and is in the history.
func (s *signer) checkSamples() {
	for _, is := range s.samples {
		if len(is.Both) > 0 {
			s.wrong(Hole, "nonces %v live and are in the history at %v", is.Both, is.At)
		}
	}
	for i := 1; i < len(s.samples); i++ {
		was, is := s.samples[i-1], s.samples[i]
		switch {
		case s.apart(was.At, is.At):
		case is.Version > was.Version && is.Written > 0 && is.Written < was.Token:
			s.wrong(tokenBack, "version %d was written under token %d when the token was %d, at %v", is.Version, is.Written, was.Token, is.At)
		case is.Token < was.Token:
			s.wrong(tokenBack, "the row's token was %d and is %d at %v", was.Token, is.Token, is.At)
		case is.Version < was.Version:
			s.wrong(tokenBack, "the row's version was %d and is %d at %v", was.Version, is.Version, is.At)
		case is.Next < was.Next:
			s.wrong(tokenBack, "the row's cursor was %d and is %d at %v", was.Next, is.Next, is.At)
		case is.Floor < was.Floor:
			s.wrong(tokenBack, "the row's floor was %d and is %d at %v", was.Floor, is.Floor, is.At)
		case (is.Owner != was.Owner || is.Incarnation != was.Incarnation) && is.Token <= was.Token:
			s.wrong(tokenBack, "%q acquired it, or it was given back, under token %d, which %q had", is.Owner, is.Token, was.Owner)
		}
	}
}
