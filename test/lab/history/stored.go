package history

import (
	"slices"
	"time"
)

// checkStored compares what clients were told with what is stored.
func (s *signer) checkStored() {
	if s.stored == nil {
		if slices.ContainsFunc(s.calls, func(c *Call) bool { return c.Outcome == Happened && c.Kind != Status && !s.within(c) }) {
			s.wrong(HoldLost, "the signer is not in the store")
		}
		return
	}
	rows := make(map[int64]*Row, len(s.stored.Rows))
	for i := range s.stored.Rows {
		rows[s.stored.Rows[i].Nonce] = &s.stored.Rows[i]
	}
	s.checkWhole(rows)
	s.checkRemembered(rows)
	for n, of := range s.nonces {
		s.checkRow(n, of, rows[n])
	}
	for _, row := range s.stored.Rows {
		s.checkExplained(&row)
		if late := s.Final.Now - row.HeldUntil; row.Status == Held && late > s.limits.MaxOverdue.Milliseconds() {
			s.wrong(Hole, "the hold of nonce %d is overdue by %v", row.Nonce, time.Duration(late)*time.Millisecond)
		}
	}
	s.checkNobodys()
}

// checkWhole: every nonce below the cursor has a row or lies below the floor, there is none
// beyond, and the row's own count is right.
func (s *signer) checkWhole(rows map[int64]*Row) {
	st := s.stored
	held := int64(0)
	for i, row := range st.Rows {
		if row.Status == Held {
			held++
		}
		if i > 0 && st.Rows[i-1].Nonce == row.Nonce {
			s.wrong(Hole, "nonce %d is stored twice, as %s attempt %d and as %s attempt %d", row.Nonce, st.Rows[i-1].Status, st.Rows[i-1].Attempt, row.Status, row.Attempt)
		}
		if row.Nonce >= st.Next {
			s.wrong(Hole, "nonce %d is stored, and the cursor is at %d", row.Nonce, st.Next)
		}
	}
	if held != st.Held {
		s.wrong(Hole, "the row counts %d holds, there are %d", st.Held, held)
	}
	for n := st.Floor; n < st.Next; n++ {
		if rows[n] == nil {
			s.wrong(Hole, "nonce %d lies between floor %d and cursor %d and is nowhere", n, st.Floor, st.Next)
		}
	}
	for _, c := range s.calls {
		if c.Kind == Status && len(s.losses) > 0 || s.within(c) {
			continue // what it saw may have been lost
		}
		if c.Outcome == Happened && (c.Token > st.Token || c.Version > st.Version || c.Next > st.Next || c.FloorNow > st.Floor) {
			s.wrong(tokenBack, "%s was told token %d, version %d, cursor %d, floor %d, and %d, %d, %d, %d are stored", c.Kind,
				c.Token, c.Version, c.Next, c.FloorNow, st.Token, st.Version, st.Next, st.Floor)
		}
	}
}

// checkRow judges the row of a nonce that clients were told about.
func (s *signer) checkRow(n int64, of *nonce, row *Row) {
	var last handOut
	for _, g := range of.given {
		if g.attempt > last.attempt {
			last = g
		}
	}
	if row == nil {
		if last.call != nil && !s.setBack(last.call) {
			s.wrong(HoldLost, "nonce %d attempt %d was given to client %d and is not stored", n, last.attempt, last.call.Client)
		}
		return
	}
	if row.Attempt < last.attempt && !s.forgiven(n, &last) && !s.setBack(last.call) {
		s.wrong(HoldLost, "nonce %d attempt %d was given to client %d, and attempt %d is stored", n, last.attempt, last.call.Client, row.Attempt)
	}
	if last.call != nil && row.Attempt == last.attempt && row.Status == Held && row.HeldUntil != last.call.HeldUntil {
		s.wrong(HoldLost, "nonce %d attempt %d is held until %d by what client %d was told, and until %d in the store", n, last.attempt, last.call.HeldUntil, last.call.Client, row.HeldUntil)
	}
	for _, c := range of.used {
		if c.Outcome == Happened && !s.setBack(c) && (row.Status != Consumed || !slices.Contains(row.hashes(), c.TxHash)) {
			s.wrong(consumedStays, "nonce %d was consumed by %s, and %s %v is stored", n, c.TxHash, row.Status, row.hashes())
		}
	}
	for _, c := range of.freed {
		if c.Outcome == Happened && row.Attempt == c.Attempt && row.Status == Held && !s.setBack(c) {
			s.wrong(HoldLost, "nonce %d attempt %d was released, and is stored as held", n, c.Attempt)
		}
	}
}

// checkExplained: a state that only a client's mark brings about needs a mark that was not refused.
func (s *signer) checkExplained(row *Row) {
	of := s.nonces[row.Nonce]
	if of == nil {
		of = new(nonce)
	}
	switch {
	case row.Status == Consumed && row.TxHash != "":
		for _, tx := range row.hashes() {
			if !slices.ContainsFunc(of.used, func(c *Call) bool { return c.TxHash == tx && c.Attempt == row.Attempt }) {
				s.wrong(RefusedDone, "nonce %d is consumed as attempt %d by %s, and every call that says so was refused", row.Nonce, row.Attempt, tx)
			}
		}
	case row.Status == Consumed && row.Reason != belowFloor:
		s.wrong(RefusedDone, "nonce %d is consumed for no reason", row.Nonce)
	case row.Status == Released && row.Reason != expired && !(row.Reason == inDoubt && len(s.losses) > 0):
		if !slices.ContainsFunc(of.freed, func(c *Call) bool { return c.Why == row.Reason && c.Attempt == row.Attempt }) {
			s.wrong(RefusedDone, "nonce %d is released as attempt %d because of %q, and every call that says so was refused", row.Nonce, row.Attempt, row.Reason)
		}
	}
}

// checkNobodys: hand-outs that are stored and that no client was told of are at
// most as many as the allocates of unknown outcome asked for. Of those of one request id one happened at
// most, whichever asked for the most.
func (s *signer) checkNobodys() {
	orphans := slices.DeleteFunc(s.orphans(), s.ofLost)
	may := 0
	most := make(map[string]int)
	for _, c := range s.calls {
		switch {
		case c.Kind != Allocate || c.Outcome != Unknown || s.answered(c.RequestID):
		case c.RequestID == "":
			may += c.Count
		case c.Count > most[c.RequestID]:
			may += c.Count - most[c.RequestID]
			most[c.RequestID] = c.Count
		}
	}
	if len(orphans) > may {
		s.wrong(RefusedDone, "%d hand-outs are stored that nobody was told of, such as nonce %d attempt %d, and calls of unknown outcome explain %d",
			len(orphans), orphans[0].Nonce, orphans[0].Attempt, may)
	}
}

func (s *signer) answered(id string) bool {
	return id != "" && slices.ContainsFunc(s.requests[id], func(c *Call) bool { return c.Outcome == Happened })
}

// orphans are the hand-outs that are stored and that nobody was told of, in order. An attempt grows by one with each hand-out.
func (s *signer) orphans() []Given {
	if s.stored == nil {
		return nil
	}
	var out []Given
	for _, row := range s.stored.Rows {
		told := make(map[int64]bool)
		if of := s.nonces[row.Nonce]; of != nil {
			for _, g := range of.given {
				told[g.attempt] = true
			}
		}
		first := int64(1)
		if epoch := row.Attempt >> attemptShift; epoch > 0 {
			first = firstAttempt(epoch) + 1 // what was in doubt, and is RELEASED, has the one before
		}
		for a := first; a <= row.Attempt; a++ {
			if !told[a] {
				out = append(out, Given{row.Nonce, a})
			}
		}
	}
	return out
}

// checkRemembered judges the request ids that are stored: each that was answered is, with
// what it was answered, and none is whose hand-out never was, or was refused each time.
func (s *signer) checkRemembered(rows map[int64]*Row) {
	if s.stored.Requests == nil {
		return
	}
	for id, calls := range s.requests {
		got, known := s.stored.Requests[id]
		for _, c := range calls {
			if c.Outcome == Happened && !slices.Equal(got, c.Nonces) && !s.forgivenAnswer(c) {
				s.wrong(OneAnswer, "request %s was answered %v by %s, and %v is remembered", id, c.Nonces, c.Node, got)
			}
		}
		if known && !slices.ContainsFunc(calls, func(c *Call) bool { return c.Outcome != Refused }) {
			s.wrong(RefusedDone, "request %s is remembered, and was refused whenever it was asked", id)
		}
	}
	owner := make(map[Given]string)
	for id, got := range s.stored.Requests {
		for _, g := range got {
			if row := rows[g.Nonce]; row == nil || row.Attempt < g.Attempt {
				s.wrong(RefusedDone, "request %s is remembered with nonce %d attempt %d, which was never handed out", id, g.Nonce, g.Attempt)
			}
			if other, taken := owner[g]; taken {
				s.wrong(OneHolder, "requests %s and %s are remembered with nonce %d attempt %d", id, other, g.Nonce, g.Attempt)
			}
			owner[g] = id
		}
	}
}
