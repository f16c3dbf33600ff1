package memstore

import (
	"context"
	"slices"
	"time"

	"noncegate/nonce"
)

// Apply implements nonce.EngineLedger: first everything is compared, then everything
// is written.
func (s *Store) Apply(ctx context.Context, ttl time.Duration, events []nonce.FlushEvent) ([]nonce.FlushVerdict, error) {
	var out []nonce.FlushVerdict
	err := s.call(ctx, Call{Op: OpApply, Events: events}, func(now time.Time) error {
		out = make([]nonce.FlushVerdict, len(events))
		for i := range events {
			sg := s.db.byID[events[i].ID]
			if out[i] = s.judge(sg, &events[i]); out[i] != nonce.FlushApplied {
				continue
			}
			if err := sg.follows(&events[i]); err != nil {
				return err
			}
		}
		for i := range events {
			if out[i] == nonce.FlushApplied {
				s.db.byID[events[i].ID].follow(&events[i], now.Add(ttl))
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

func (s *Store) judge(sg *signer, e *nonce.FlushEvent) nonce.FlushVerdict {
	switch {
	case sg == nil:
		return nonce.FlushGap
	case nonce.EpochOf(sg.version) > nonce.EpochOf(e.To):
		return nonce.FlushOver
	case sg.version >= e.To:
		return nonce.FlushAlready
	case sg.standing.Engine != nonce.Performance:
		return nonce.FlushOver
	case sg.version < e.From:
		return nonce.FlushGap
	case sg.version > e.From:
		return nonce.FlushPartly
	case s.rowLocked(sg):
		return nonce.FlushLocked
	}
	return nonce.FlushApplied
}

// follows compares the rows with what the event says of them.
func (sg *signer) follows(e *nonce.FlushEvent) error {
	for i := range e.Rows {
		r := &e.Rows[i]
		row, exists := sg.rows[r.Nonce]
		ok := false
		switch {
		case r.Fresh:
			ok = !exists
		case !exists:
		case row.Status == nonce.Consumed:
			ok = r.Status == nonce.Consumed && r.Attempt == row.Attempt && keepsHashes(row, r) ||
				r.Status == nonce.Held && holdable(row, r.Attempt, r.Reason)
		default:
			ok = r.Attempt > row.Attempt || r.Attempt == row.Attempt && (r.Status != nonce.Held || row.Status == nonce.Held)
		}
		if !ok {
			return aborted("nonce %d of signer %q is %v, attempt %d, and the event says %v, attempt %d",
				r.Nonce, sg.name, row.Status, row.Attempt, r.Status, r.Attempt)
		}
	}
	return nil
}

// keepsHashes reports whether the event has the newest hash of a row, and no fewer.
func keepsHashes(row nonce.Row, r *nonce.FlushRow) bool {
	return row.TxHash == nonce.TxHash{} ||
		len(r.Replaced) >= len(row.Replaced) && (r.TxHash == row.TxHash || r.Replaced.Contains(row.TxHash))
}

// follow writes the event, whose conditions hold.
func (sg *signer) follow(e *nonce.FlushEvent, renewed time.Time) {
	sg.next, sg.floor, sg.held, sg.version = e.Next, e.Floor, e.Held, e.To
	if sg.token == e.Token && sg.owner.Node != "" && renewed.After(sg.expiresAt) {
		sg.expiresAt = renewed
	}
	for i := range e.Rows {
		sg.followRow(e, &e.Rows[i])
	}
	for n, row := range sg.rows {
		if e.BelowFloor && n < e.Floor && row.Status == nonce.Released {
			row.Status, row.Reason, row.Token, row.UpdatedAt = nonce.Consumed, nonce.ReasonBelowFloor, e.Token, e.At
			sg.rows[n] = row
		}
	}
	for _, r := range e.Requests {
		r.Nonces, r.Attempts = slices.Clone(r.Nonces), slices.Clone(r.Attempts)
		sg.requests[r.ID] = request{Request: r.Request, createdAt: r.At}
	}
}

func (sg *signer) followRow(e *nonce.FlushEvent, r *nonce.FlushRow) {
	old := sg.rows[r.Nonce]
	if old.Status == nonce.Consumed && r.Status == nonce.Consumed && old.TxHash == r.TxHash && old.Replaced == r.Replaced {
		return // it is said again
	}
	row := nonce.Row{
		Nonce: r.Nonce, Status: r.Status, Attempt: r.Attempt, Token: r.Token, Holder: r.Holder, TxHash: r.TxHash,
		Replaced: r.Replaced, Reason: r.Reason, UpdatedAt: e.At,
	}
	for _, q := range e.Requests {
		if i := slices.Index(q.Nonces, r.Nonce); i >= 0 && q.Attempts[i] == r.Attempt {
			row.RequestID = q.ID
		}
	}
	if row.RequestID == "" && old.Attempt == r.Attempt {
		row.RequestID = old.RequestID
	}
	if r.Status == nonce.Held {
		row.HeldUntil = r.HeldUntil
	}
	sg.rows[r.Nonce] = row
}
