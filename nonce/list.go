package nonce

import (
	"slices"
	"time"
)

// repeatedFrom is the attempt from which on a nonce that is HELD or RELEASED stands out.
const repeatedFrom = 3

// Unknown reports whether the entry is a hold whose time is over, while it is unknown
// whether it was used.
func (e *Entry) Unknown() bool {
	return e.Status == Held && e.Note != nil && e.Note.Reason == ReasonUnknown
}

// overdue reports whether the entry is a hold that its owner should have ended by now, in
// Unix milliseconds.
func (e *Entry) overdue(now int64) bool {
	return e.Status == Held && e.Until <= now && !e.Unknown()
}

// Figures counts what is open of a signer. Name and owner are left out.
func (s *Signer) Figures() SignerFigures {
	f := SignerFigures{Next: s.Next, Floor: s.Floor, Version: s.Version, LowestReleased: -1}
	for i := range s.Live {
		e := &s.Live[i]
		switch {
		case e.Status == Held:
			f.Held++
			if e.Unknown() {
				f.Unknown++
			}
			if until := time.UnixMilli(e.Until); f.OldestHold.IsZero() || until.Before(f.OldestHold) {
				f.OldestHold = until
			}
		case e.Nonce >= s.Floor:
			f.Released++
			if f.LowestReleased < 0 {
				f.LowestReleased = e.Nonce
			}
		default:
			continue
		}
		f.MaxAttempt = max(f.MaxAttempt, e.Attempt)
	}
	return f
}

// Wants reports whether the filter wants a signer, at a time of the store's clock in Unix
// milliseconds.
func (f SignerFilter) Wants(s *Signer, watch *Watch, now int64) bool {
	switch f {
	case TroubledSigners:
		return watch.Kind.Trouble()
	case GapSigners:
		of := s.Figures()
		return watch.Kind == 0 && of.Released > 0 && of.Released < of.Next-of.LowestReleased // not all above it are RELEASED
	case UnknownSigners:
		return slices.ContainsFunc(s.Live, func(e Entry) bool { return e.Unknown() })
	case OverdueSigners:
		return slices.ContainsFunc(s.Live, func(e Entry) bool { return e.overdue(now) })
	case RepeatSigners:
		return slices.ContainsFunc(s.Live, func(e Entry) bool { return e.Attempt >= repeatedFrom })
	}
	return true
}

// Add counts one more signer, at a time of the store's clock in Unix milliseconds.
func (t *Totals) Add(s *Signer, now int64) {
	count := func(n *int64, is bool) {
		if is && *n < TotalsBound {
			*n++
		}
	}
	for i := range s.Live {
		e := &s.Live[i]
		count(&t.Held, e.Status == Held)
		count(&t.Unknown, e.Unknown())
		count(&t.Released, e.Status == Released)
		count(&t.Repeated, e.Attempt >= repeatedFrom)
		if e.overdue(now) {
			t.OldestOverdue = max(t.OldestOverdue, time.Duration(now-e.Until)*time.Millisecond)
		}
	}
}

// wants reports whether a nonce of a status, of which it is unknown or not whether it was
// used, is asked for.
func (q *ListQuery) wants(status Status, unknown bool) bool {
	if q.Unknown {
		return unknown
	}
	return q.Status == 0 || q.Status == status
}

// WantsPast reports whether consumed nonces are asked for.
func (q *ListQuery) WantsPast() bool { return q.wants(Consumed, false) }

// PastLimit is how many rows of the history a page needs, from q.From on: those of nonces
// that are live again are not shown.
func (q *ListQuery) PastLimit(s *Signer) int { return q.Limit + 1 + len(s.Live) }

// Page puts together what lives of a signer, which was written last at that time, and
// rows of its history from q.From on, ascending.
func (q *ListQuery) Page(s *Signer, written time.Time, past []Past) ListPage {
	page := ListPage{NextFrom: -1}
	add := func(r Row) bool {
		if len(page.Rows) == q.Limit {
			page.NextFrom = r.Nonce
			return false
		}
		page.Rows = append(page.Rows, r)
		return true
	}
	live := s.Live
	for len(live) > 0 || len(past) > 0 {
		if len(live) > 0 && (len(past) == 0 || live[0].Nonce <= past[0].Nonce) {
			e := &live[0]
			if len(past) > 0 && past[0].Nonce == e.Nonce {
				past = past[1:]
			}
			live = live[1:]
			r := e.Row()
			r.UpdatedAt = written
			if e.Nonce >= q.From && q.wants(e.Status, e.Unknown()) && !add(r) {
				break
			}
			continue
		}
		r := past[0].Row()
		past = past[1:]
		if !add(r) {
			break
		}
	}
	return page
}

// Named fills in the id of a request at the rows that it was answered with.
func (p *ListPage) Named(q *Remembered) {
	for i := range p.Rows {
		r := &p.Rows[i]
		for k, n := range q.Nonces {
			if n == r.Nonce && q.Attempts[k] == r.Attempt {
				r.RequestID = q.ID
			}
		}
	}
}
