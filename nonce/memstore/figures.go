package memstore

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"noncegate/nonce"
)

// List implements nonce.Database.
func (s *Store) List(ctx context.Context, q nonce.ListQuery) (page nonce.ListPage, err error) {
	err = s.call(ctx, Call{Op: OpFigures}, func(db *database, _ time.Time) error {
		at := db.signer(q.Signer)
		row, err := at.read()
		if err != nil {
			return aborted(err)
		}
		var past []nonce.Past
		for n, p := range at.history {
			if n >= q.From && q.WantsPast() {
				past = append(past, p)
			}
		}
		slices.SortFunc(past, func(a, b nonce.Past) int { return cmp.Compare(a.Nonce, b.Nonce) })
		page = q.Page(&row, at.written, past)
		for _, id := range slices.Sorted(maps.Keys(at.requests)) {
			page.Named(&nonce.Remembered{ID: id, Nonces: at.requests[id].Nonces, Attempts: at.requests[id].Attempts})
		}
		return nil
	})
	return page, err
}

// Signers implements nonce.Database.
func (s *Store) Signers(ctx context.Context, q nonce.SignersQuery) (out []nonce.SignerFigures, err error) {
	err = s.call(ctx, Call{Op: OpFigures}, func(db *database, now time.Time) error {
		o := db.who(now)
		serving := o.Serving()
		for _, name := range slices.Sorted(maps.Keys(db.signers)) {
			if name <= q.After || q.Names != nil && !slices.Contains(q.Names, name) || len(out) == q.Limit {
				continue
			}
			at := db.signers[name]
			row, err := at.read()
			if err == nil && !q.Filter.Wants(&row, &at.watch, now.UnixMilli()) || err != nil && q.Filter != nonce.AllSigners {
				continue
			}
			f := row.Figures()
			f.Signer, f.Owner, f.Watch, f.Unreadable = name, serving[nonce.ShardOf(name, s.shards)], at.watch, err != nil
			out = append(out, f)
		}
		return nil
	})
	return out, err
}

// Totals implements nonce.Database.
func (s *Store) Totals(ctx context.Context) (t nonce.Totals, err error) {
	err = s.call(ctx, Call{Op: OpFigures}, func(db *database, now time.Time) error {
		for _, at := range db.signers {
			if row, err := at.read(); err == nil {
				t.Add(&row, now.UnixMilli())
			} else {
				t.Unreadable++
			}
		}
		return nil
	})
	return t, err
}

// RememberNames implements nonce.Names.
func (s *Store) RememberNames(ctx context.Context, names []string) error {
	return s.call(ctx, Call{Op: OpNames}, func(db *database, _ time.Time) error {
		for _, name := range names {
			p := nonce.PrincipalOf(name)
			if _, known := db.names[p]; !known && p != 0 {
				db.names[p] = name
			}
		}
		return nil
	})
}

// NamesOf implements nonce.Names.
func (s *Store) NamesOf(ctx context.Context, of []nonce.Principal) (map[nonce.Principal]string, error) {
	names := make(map[nonce.Principal]string, len(of))
	err := s.call(ctx, Call{Op: OpNames}, func(db *database, _ time.Time) error {
		for _, p := range of {
			if name, ok := db.names[p]; ok {
				names[p] = name
			}
		}
		return nil
	})
	return names, err
}
