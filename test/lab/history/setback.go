package history

import (
	"slices"
	"time"
)

// Setback says that the store lost commits that it had confirmed: a standby that lacked them became the primary, or a backup was restored.
type Setback struct {
	From time.Duration `json:"from"` // what was acknowledged before it is stored
	To   time.Duration `json:"to"`   // what began after it is, too: nothing confirms in the name of the lost history any more
	// Noticed are the signers that a gateway stopped because of it.
	Noticed []string `json:"noticed,omitempty"`
}

// What of the rules a setback changes, of calls within it and nothing else:
//
//   - What they were told may be missing in the store, if the signer was stopped; else that is Unnoticed.
//   - A request id may get another answer, and a mark of the attempt before a lost hand-out is accepted.
//   - Tokens, versions, cursors and floors that they showed may come again.
//   - A signer that lost something, or was stopped, is not given to porcupine.
//
// Always: no attempt is given twice, no two live holds, and what was told to be used is never handed out again.

// within reports whether a call may have been answered out of a history that was lost.
func (h *History) within(c *Call) bool {
	return slices.ContainsFunc(h.Setbacks, func(b Setback) bool { return c.End >= b.From && c.Start <= b.To })
}

// apart reports whether a setback may lie between two looks at the store.
func (h *History) apart(was, is time.Duration) bool {
	return slices.ContainsFunc(h.Setbacks, func(b Setback) bool { return was <= b.To && is >= b.From })
}

// setBack reports whether a call was answered by what the store may have lost.
func (s *signer) setBack(c *Call) bool { return s.lostSome && s.within(c) }

// checkSetbacks finds out whether the signer lost something, which some gateway must have noticed.
func (s *signer) checkSetbacks() {
	if len(s.Setbacks) == 0 || s.stored == nil {
		return
	}
	noticed := slices.ContainsFunc(s.Setbacks, func(b Setback) bool { return slices.Contains(b.Noticed, s.name) })
	i := slices.IndexFunc(s.calls, func(c *Call) bool { return c.Outcome == Happened && s.within(c) && s.isLost(c) })
	if i >= 0 && !noticed {
		s.wrong(Unnoticed, "the store lost what %v was told, and no gateway stopped the signer", s.calls[i])
	}
	s.lostSome = noticed || i >= 0
}

// isLost reports whether the store shows that it does not have what a call was told.
func (s *signer) isLost(c *Call) bool {
	row := func(n int64) *Row {
		i := slices.IndexFunc(s.stored.Rows, func(r Row) bool { return r.Nonce == n })
		if i < 0 {
			return new(Row)
		}
		return &s.stored.Rows[i]
	}
	switch c.Kind {
	case Allocate:
		return slices.ContainsFunc(c.Nonces, func(g Given) bool { return row(g.Nonce).Attempt < g.Attempt })
	case MarkUsed:
		return !slices.Contains(row(c.Nonce).hashes(), c.TxHash)
	case MarkRecyclable:
		return row(c.Nonce).Attempt <= c.Attempt && row(c.Nonce).Status == Held
	case SetFloor:
		return s.stored.Floor < c.FloorNow
	case Status:
	}
	return false
}
