package memstore

import (
	"cmp"
	"context"
	"slices"
	"time"

	"noncegate/nonce"
)

// Load implements nonce.Ledger.
func (s *Store) Load(ctx context.Context, needs []nonce.Need) ([]nonce.Snapshot, error) {
	var out []nonce.Snapshot
	err := s.call(ctx, Call{Op: OpLoad, Needs: needs}, func(now time.Time) error {
		for _, need := range needs {
			out = append(out, s.db.load(need, now))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

func (db *database) load(need nonce.Need, now time.Time) nonce.Snapshot {
	sg := db.signers[need.Signer]
	if sg == nil {
		return nonce.Snapshot{Signer: need.Signer, Now: now}
	}
	snap := nonce.Snapshot{
		Signer: sg.name, Exists: true, ID: sg.id, Next: sg.next, Floor: sg.floor, Version: sg.version, Held: sg.held,
		Pruned: sg.pruned, Lease: db.grant(sg), Standing: sg.standing, Now: now,
	}
	wanted := slices.Clone(need.Nonces)
	for _, row := range sg.sorted() {
		if row.Status != nonce.Released || row.Nonce < sg.floor || sg.standing.Doubtful(row.Nonce, now) {
			continue
		}
		if snap.ReleasedMore = len(snap.Released) == need.Released; snap.ReleasedMore {
			break
		}
		snap.Released = append(snap.Released, row.Nonce)
	}
	for _, row := range sg.due(now, need.Due) {
		snap.Due = append(snap.Due, plain(row))
		wanted = append(wanted, row.Nonce)
	}
	for _, id := range need.RequestIDs {
		if r, ok := sg.requests[id]; ok {
			snap.Requests = append(snap.Requests, r.Request)
			wanted = append(wanted, r.Nonces...)
		}
	}
	wanted = append(wanted, snap.Released...)
	slices.Sort(wanted)
	for _, n := range slices.Compact(wanted) {
		if row, ok := sg.rows[n]; ok {
			snap.Rows = append(snap.Rows, plain(row))
		}
	}
	return snap
}

// plain is a row without what only List fills.
func plain(r nonce.Row) nonce.Row {
	r.RequestID, r.UpdatedAt = "", time.Time{}
	return r
}

// sorted returns all rows in order of nonce.
func (sg *signer) sorted() []nonce.Row {
	rows := make([]nonce.Row, 0, len(sg.rows))
	for _, row := range sg.rows {
		rows = append(rows, row)
	}
	slices.SortFunc(rows, func(a, b nonce.Row) int { return cmp.Compare(a.Nonce, b.Nonce) })
	return rows
}

// due returns up to limit overdue holds, earliest deadline first.
func (sg *signer) due(now time.Time, limit int) []nonce.Row {
	rows := slices.DeleteFunc(sg.sorted(), func(r nonce.Row) bool { return !sg.overdue(r, now) })
	slices.SortStableFunc(rows, func(a, b nonce.Row) int { return a.HeldUntil.Compare(b.HeldUntil) })
	return rows[:min(limit, len(rows))]
}

// overdue reports whether a hold has ended. One in doubt lasts until the doubt ends.
func (sg *signer) overdue(r nonce.Row, now time.Time) bool {
	return r.Status == nonce.Held && !r.HeldUntil.After(now) && !sg.standing.Doubtful(r.Nonce, now)
}

// open reports whether a hold counts as HELD: it has not ended, or nobody knows whether
// it was used.
func (sg *signer) open(r nonce.Row, now time.Time) bool {
	return r.Status == nonce.Held && (r.Reason == nonce.ReasonUnknown || !sg.overdue(r, now))
}

// Summary implements nonce.Reader.
func (s *Store) Summary(ctx context.Context, name string) (nonce.Summary, error) {
	var sum nonce.Summary
	err := s.call(ctx, Call{Op: OpSummary}, func(now time.Time) error {
		sum = s.db.summary(name, now)
		return nil
	})
	return sum, err
}

func (db *database) summary(name string, now time.Time) nonce.Summary {
	sum := nonce.Summary{LowestHeld: -1, Now: now}
	sg := db.signers[name]
	if sg == nil {
		return sum
	}
	sum.Exists, sum.Next, sum.Floor, sum.Version, sum.Pruned, sum.Lease = true, sg.next, sg.floor, sg.version, sg.pruned, db.grant(sg)
	sum.Standing = sg.standing
	for _, row := range sg.sorted() {
		switch {
		case sg.open(row, now):
			if sum.Held == 0 {
				sum.LowestHeld = row.Nonce
			}
			if sum.Held++; row.Reason == nonce.ReasonUnknown {
				sum.Unknown++
			}
		case row.Status != nonce.Consumed && row.Nonce >= sg.floor:
			if sum.Released++; row.Status == nonce.Held {
				sum.Overdue++
			}
		}
	}
	sum.Consumed = sum.Next - sum.Held - sum.Released
	return sum
}

// List implements nonce.Reader.
func (s *Store) List(ctx context.Context, q nonce.ListQuery) (nonce.ListPage, error) {
	page := nonce.ListPage{NextFrom: -1}
	err := s.call(ctx, Call{Op: OpList}, func(time.Time) error {
		sg := s.db.signers[q.Signer]
		if sg == nil {
			return nil
		}
		for _, row := range sg.sorted() {
			if row.Nonce < q.From || q.Status != 0 && row.Status != q.Status || q.Unknown && !isUnknown(row) {
				continue
			}
			if len(page.Rows) == q.Limit {
				page.NextFrom = row.Nonce
				break
			}
			page.Rows = append(page.Rows, row)
		}
		return nil
	})
	return page, err
}

// Due implements nonce.Reader.
func (s *Store) Due(ctx context.Context, limit int) ([]nonce.DueSigner, time.Time, error) {
	var out []nonce.DueSigner
	var at time.Time
	err := s.call(ctx, Call{Op: OpDue}, func(now time.Time) error {
		at = now
		for _, sg := range s.db.signers {
			if due := sg.due(now, 1); len(due) > 0 {
				out = append(out, nonce.DueSigner{Signer: sg.name, Lease: s.db.grant(sg), Overdue: now.Sub(due[0].HeldUntil)})
			}
		}
		slices.SortFunc(out, func(a, b nonce.DueSigner) int {
			return cmp.Or(cmp.Compare(b.Overdue, a.Overdue), cmp.Compare(a.Signer, b.Signer))
		})
		out = out[:min(limit, len(out))]
		return nil
	})
	return out, at, err
}

// PruneRequests implements nonce.Reader.
func (s *Store) PruneRequests(ctx context.Context, age time.Duration, limit int) (int, error) {
	pruned := 0
	err := s.call(ctx, Call{Op: OpPrune}, func(now time.Time) error {
		for _, sg := range s.db.signers {
			for id, r := range sg.requests {
				if pruned < limit && r.createdAt.Before(now.Add(-age)) {
					delete(sg.requests, id)
					pruned++
				}
			}
		}
		return nil
	})
	return pruned, err
}
