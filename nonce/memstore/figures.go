package memstore

import (
	"cmp"
	"context"
	"slices"
	"time"

	"noncegate/nonce"
)

func isUnknown(r nonce.Row) bool { return r.Status == nonce.Held && r.Reason == nonce.ReasonUnknown }

func isRepeated(r nonce.Row) bool { return r.Status != nonce.Consumed && r.Attempt >= 3 }

// Signers implements nonce.Reader.
func (s *Store) Signers(ctx context.Context, q nonce.SignersQuery) ([]nonce.SignerFigures, error) {
	var out []nonce.SignerFigures
	err := s.call(ctx, Call{Op: OpSigners}, func(now time.Time) error {
		for _, sg := range s.db.signers {
			if sg.name > q.After && (q.Names == nil || slices.Contains(q.Names, sg.name)) && sg.standsOut(q.Filter, now) {
				f := sg.figures()
				if g := s.db.grant(sg); g.Held(now) {
					f.Owner = g.Holder.Node
				}
				out = append(out, f)
			}
		}
		slices.SortFunc(out, func(a, b nonce.SignerFigures) int { return cmp.Compare(a.Signer, b.Signer) })
		out = out[:min(q.Limit, len(out))]
		return nil
	})
	return out, err
}

// standsOut reports whether the filter wants the signer.
func (sg *signer) standsOut(filter nonce.SignerFilter, now time.Time) bool {
	has := func(is func(nonce.Row) bool) bool { return slices.ContainsFunc(sg.sorted(), is) }
	switch filter {
	case nonce.GapSigners:
		f := sg.figures()
		return f.Released > 0 && f.Released < f.Next-f.LowestReleased // not all above it are RELEASED
	case nonce.UnknownSigners:
		return has(isUnknown)
	case nonce.OverdueSigners:
		return has(func(r nonce.Row) bool { return sg.overdue(r, now) && !isUnknown(r) })
	case nonce.RepeatSigners:
		return has(isRepeated)
	}
	return true
}

// figures are all but the owner.
func (sg *signer) figures() nonce.SignerFigures {
	f := nonce.SignerFigures{Signer: sg.name, Next: sg.next, Floor: sg.floor, Version: sg.version, LowestReleased: -1}
	for _, row := range sg.sorted() {
		switch {
		case row.Status == nonce.Held:
			if f.Held++; isUnknown(row) {
				f.Unknown++
			}
			if f.OldestHold.IsZero() || row.HeldUntil.Before(f.OldestHold) {
				f.OldestHold = row.HeldUntil
			}
		case row.Status == nonce.Released && row.Nonce >= sg.floor:
			if f.Released++; f.LowestReleased < 0 {
				f.LowestReleased = row.Nonce
			}
		default:
			continue
		}
		f.MaxAttempt = max(f.MaxAttempt, row.Attempt)
	}
	return f
}

// Totals implements nonce.Reader.
func (s *Store) Totals(ctx context.Context) (nonce.Totals, error) {
	var t nonce.Totals
	err := s.call(ctx, Call{Op: OpTotals}, func(now time.Time) error {
		count := func(n *int64, is bool) {
			if is && *n < nonce.TotalsBound {
				*n++
			}
		}
		for _, sg := range s.db.signers {
			for _, row := range sg.rows {
				count(&t.Held, row.Status == nonce.Held)
				count(&t.Unknown, isUnknown(row))
				count(&t.Released, row.Status == nonce.Released)
				count(&t.Repeated, isRepeated(row))
				if sg.overdue(row, now) && !isUnknown(row) {
					t.OldestOverdue = max(t.OldestOverdue, now.Sub(row.HeldUntil))
				}
			}
		}
		return nil
	})
	return t, err
}

// RememberNames implements nonce.Names.
func (s *Store) RememberNames(ctx context.Context, names []string) error {
	return s.call(ctx, Call{Op: OpRemember}, func(time.Time) error {
		for _, name := range names {
			p := nonce.PrincipalOf(name)
			if _, known := s.db.names[p]; !known && p != 0 {
				s.db.names[p] = name
			}
		}
		return nil
	})
}

// NamesOf implements nonce.Names.
func (s *Store) NamesOf(ctx context.Context, of []nonce.Principal) (map[nonce.Principal]string, error) {
	var names map[nonce.Principal]string
	err := s.call(ctx, Call{Op: OpNames}, func(time.Time) error {
		names = make(map[nonce.Principal]string, len(of))
		for _, p := range of {
			if name, ok := s.db.names[p]; ok {
				names[p] = name
			}
		}
		return nil
	})
	return names, err
}
