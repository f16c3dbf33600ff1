package history

import (
	"cmp"
	"slices"
)

// checkCalls judges what clients were told, by itself.
func (s *signer) checkCalls(r *Report, limits Limits) {
	for n, of := range s.nonces {
		s.checkHandOuts(r, n, of, limits)
		s.checkMarks(r, n, of)
	}
	for id, calls := range s.requests {
		s.checkRequest(r, id, calls)
	}
	s.checkTokens(r)
	s.checkReads(r)
	s.checkBehind(r)
}

// checkHandOuts judges the hand-outs of one nonce: one request an attempt, and a
// higher attempt only after the hold before it has ended.
func (s *signer) checkHandOuts(r *Report, n int64, of *nonce, limits Limits) {
	byAttempt := slices.Clone(of.given)
	slices.SortStableFunc(byAttempt, func(a, b handOut) int { return cmp.Compare(a.attempt, b.attempt) })
	for i := 1; i < len(byAttempt); i++ {
		was, is := byAttempt[i-1], byAttempt[i]
		if was.attempt == is.attempt {
			if was.call.RequestID == "" || was.call.RequestID != is.call.RequestID {
				r.add(OneHolder, s.name, "nonce %d attempt %d was given to client %d (%s, %v) and to client %d (%s, %v)", n, is.attempt,
					was.call.Client, was.call.Node, was.call.End, is.call.Client, is.call.Node, is.call.End)
			}
			continue
		}
		ends := was.call.HeldUntil + s.grace - limits.ClockSlack.Milliseconds()
		early := ends - s.endedBy(s.mayHaveBegun(was.call), is.call)
		// Where both clocks are one, the answer's arrival is the latest that it was.
		if early <= 0 && s.began > 0 && len(s.shifts) == 0 {
			early = ends - s.began - is.call.End.Milliseconds()
		}
		if early > 0 && !of.releasedBefore(was.attempt, is.attempt, is.call) {
			r.add(liveHold, s.name, "nonce %d attempt %d was given out %d ms before the hold of attempt %d may be ended", n, is.attempt, early, was.attempt)
		}
	}
	given := make([]reading, 0, len(of.given))
	for _, g := range of.given {
		given = append(given, reading{g.call, g.attempt})
	}
	went(given, func(was, is reading) {
		r.add(attemptBack, s.name, "nonce %d: attempt %d was given after attempt %d", n, is.value, was.value)
	})
}

// releasedBefore reports whether somebody may have given back one of the attempts from first on, before the one given in next.
func (of *nonce) releasedBefore(first, end int64, next *Call) bool {
	return slices.ContainsFunc(of.freed, func(c *Call) bool {
		return c.Attempt >= first && c.Attempt < end && c.Start <= next.End
	})
}

// checkMarks judges the marks of one nonce that happened.
func (s *signer) checkMarks(r *Report, n int64, of *nonce) {
	var used *Call // the first that happened
	for _, c := range of.used {
		if c.Outcome != Happened {
			continue
		}
		if used != nil && used.Attempt != c.Attempt { // of one attempt, the second is a replacement
			r.add(consumedStays, s.name, "nonce %d was consumed as attempt %d by %s and as attempt %d by %s", n, used.Attempt, used.TxHash, c.Attempt, c.TxHash)
		}
		if used == nil {
			used = c
		}
	}
	for _, c := range of.freed {
		if used != nil && c.Outcome == Happened && c.State == Released && before(used, c) {
			r.add(consumedStays, s.name, "nonce %d was consumed (%v) and then released (%v)", n, used.End, c.Start)
		}
	}
	for _, g := range of.given {
		if used != nil && (g.attempt > used.Attempt && !s.forgotten(n, &g, used) || before(used, g.call)) {
			r.add(consumedStays, s.name, "nonce %d was consumed as attempt %d (%v) and given out as attempt %d (%v)", n, used.Attempt, used.End, g.attempt, g.call.End)
		}
	}
	for _, c := range slices.Concat(of.used, of.freed) {
		for _, g := range of.given {
			if c.Outcome == Happened && g.attempt > c.Attempt && before(g.call, c) && !s.forgotten(n, &g, c) {
				r.add(attemptBack, s.name, "nonce %d: %s of attempt %d (%v) was accepted after attempt %d was given out (%v)", n, c.Kind, c.Attempt, c.Start, g.attempt, g.call.End)
			}
		}
	}
}

// checkRequest judges the calls of one request id.
func (s *signer) checkRequest(r *Report, id string, calls []*Call) {
	var told []*Call // answers that differ
	for _, c := range calls {
		if c.Outcome != Happened {
			continue
		}
		same := func(o *Call) bool {
			return slices.Equal(o.Nonces, c.Nonces) && o.Count == c.Count && o.HoldMs == c.HoldMs
		}
		if slices.ContainsFunc(told, same) {
			r.Repeats++
			continue
		}
		for _, o := range told {
			if !s.forgivenAnswer(o) && !s.forgivenAnswer(c) {
				r.add(OneAnswer, s.name, "request %s was answered %v by %s and %v by %s", id, o.Nonces, o.Node, c.Nonces, c.Node)
			}
		}
		told = append(told, c)
	}
	for _, c := range calls {
		if c.Reason != "conflict" {
			continue
		}
		// A conflict shows no more of them than were asked for.
		if len(told) > 0 && len(s.losses) == 0 { // else it may be of any epoch
			first := told[0]
			if !sameNonces(first.Nonces[:min(len(first.Nonces), max(c.Count, 1))], c.Holds) {
				r.add(OneAnswer, s.name, "request %s was answered %v by %s and is said by %s to have got %v", id, first.Nonces, first.Node, c.Node, c.Holds)
			}
		}
		if !slices.ContainsFunc(calls, func(o *Call) bool { return o != c && o.Outcome != Refused && o.Start <= c.End }) {
			r.add(RefusedDone, s.name, "request %s is said by %s to be known, and was refused whenever it was asked", id, c.Node)
		}
	}
}

func sameNonces(a, b []Given) bool {
	return slices.EqualFunc(a, b, func(x, y Given) bool { return x.Nonce == y.Nonce })
}

// checkTokens: the fencing tokens of hand-outs never go back. Those of mode basic are 0, and a repeat carries the token of the row.
func (s *signer) checkTokens(r *Report) {
	var tokens []reading
	for _, c := range s.calls {
		if c.Kind == Allocate && c.Outcome == Happened && c.Token > 0 && !s.ofOldGrant(c) && (c.RequestID == "" || len(s.requests[c.RequestID]) == 1) {
			tokens = append(tokens, reading{c, c.Token})
		}
	}
	went(tokens, func(was, is reading) {
		r.add(tokenBack, s.name, "token %d (%s, %v) after token %d (%s, %v)", is.value, is.call.Node, is.call.Start, was.value, was.call.Node, was.call.End)
	})
}

// checkReads: what nonce_status shows never goes back. A floor that nobody acknowledged may
// be lost, and a version is compared with those of the same epoch.
func (s *signer) checkReads(r *Report) {
	for what, value := range map[string]func(*Call) int64{
		"token": func(c *Call) int64 { return c.Token }, "version": func(c *Call) int64 { return c.Version },
		"next": func(c *Call) int64 { return c.Next }, "floor": func(c *Call) int64 { return c.FloorNow },
	} {
		read := make(map[int64][]reading) // by epoch
		for _, c := range s.calls {
			if c.Kind != Status || c.Outcome != Happened || len(s.losses) > 0 && (what == "floor" || s.ofOldGrant(c)) || s.behind && what != "token" {
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
				r.add(tokenBack, s.name, "nonce_status showed %s %d (%s) after %d (%s)", what, is.value, is.call.Node, was.value, was.call.Node)
			})
		}
	}
}

// checkBehind: where rows may be behind, what nonce_status shows is not behind the rows. Who
// does not know of a loss tells of what was before it.
func (s *signer) checkBehind(r *Report) {
	if !s.behind {
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
			r.add(tokenBack, s.name, "nonce_status of %s showed version %d, next %d, floor %d (%v), and the row had %d, %d, %d before (%v)", c.Node,
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
