package sqlite

import (
	"context"
	"time"

	"noncegate/nonce"
)

// sqlSummary finds the signer's open holds at the top of its rows, as a rule, and the
// walk down ends with the last of them, however low that is; +status keeps the indexes of all signers' holds
// out of it.
const sqlSummary = `
WITH open AS (
    SELECT a.nonce, a.held_until, a.reason IS '` + nonce.ReasonUnknown + `' AS unknown FROM signer_nonce_allocation a
    WHERE a.signer_id = (SELECT signer_id FROM signer_nonce_state WHERE signer = ?1) AND +a.status = 1
    ORDER BY a.nonce DESC LIMIT (SELECT held FROM signer_nonce_state WHERE signer = ?1)
),
held AS (
    SELECT count(*) FILTER (WHERE a.held_until > ?2 OR a.unknown) AS live, min(a.nonce) FILTER (WHERE a.held_until > ?2 OR a.unknown) AS lowest,
        count(*) FILTER (WHERE a.held_until <= ?2 AND NOT a.unknown AND a.nonce >= s.floor) AS overdue, count(*) FILTER (WHERE a.unknown) AS unknown
    FROM signer_nonce_state s LEFT JOIN open a WHERE s.signer = ?1
)
SELECT s.next_nonce, s.floor, s.version, s.pruned, held.live, coalesce(held.lowest, -1),
    held.overdue + (SELECT count(*) FROM signer_nonce_allocation r INDEXED BY signer_nonce_allocation_released
        WHERE r.signer_id = s.signer_id AND r.status = 2 AND r.nonce >= s.floor), held.overdue, held.unknown, ` + leaseColumns + `
FROM ` + stateAndNode + `, held WHERE s.signer = ?1`

// Summary implements nonce.Reader.
func (s *Store) Summary(ctx context.Context, signer string) (nonce.Summary, error) {
	sum := nonce.Summary{LowestHeld: -1}
	err := s.read(ctx, func(ctx context.Context, c *session) (err error) {
		sum.Now = s.now()
		var l leaseRow
		dest := append([]any{&sum.Next, &sum.Floor, &sum.Version, &sum.Pruned, &sum.Held, &sum.LowestHeld, &sum.Released, &sum.Overdue, &sum.Unknown}, l.dest()...)
		if sum.Exists, err = c.one(ctx, dest, sqlSummary, signer, sum.Now.UnixMicro()); sum.Exists {
			sum.Lease = l.grant()
			sum.Consumed = sum.Next - sum.Held - sum.Released
		}
		return err
	})
	return sum, err
}

// List implements nonce.Reader.
func (s *Store) List(ctx context.Context, q nonce.ListQuery) (nonce.ListPage, error) {
	page := nonce.ListPage{NextFrom: -1}
	err := s.read(ctx, func(ctx context.Context, c *session) error {
		snap := nonce.Snapshot{Signer: q.Signer}
		if err := c.state(ctx, &snap); err != nil || !snap.Exists {
			return err
		}
		args := []any{snap.ID, q.From, q.Limit + 1}
		query := sqlList
		switch {
		case q.Unknown:
			query = sqlListUnknown
		case q.Status == 0:
		case q.Status == nonce.Released:
			query = sqlListReleased
		default:
			query, args = sqlListStatus, append(args, int64(q.Status))
		}
		return c.each(ctx, func(scan func(...any) error) (bool, error) {
			var r rowScan
			if err := scan(r.listDest()...); err != nil {
				return false, err
			}
			if len(page.Rows) == q.Limit {
				page.NextFrom = r.row.Nonce
				return false, nil
			}
			page.Rows = append(page.Rows, r.result())
			return true, nil
		}, query, args...)
	})
	return page, err
}

// Due implements nonce.Reader.
func (s *Store) Due(ctx context.Context, limit int) ([]nonce.DueSigner, time.Time, error) {
	var due []nonce.DueSigner
	var now time.Time
	err := s.read(ctx, func(ctx context.Context, c *session) error {
		now = s.now()
		found, err := c.dueSigners(ctx, now, limit)
		if err != nil {
			return err
		}
		due = nil
		for _, f := range found {
			d := nonce.DueSigner{Overdue: now.Sub(timeOf(f.first))}
			var l leaseRow
			if _, err := c.one(ctx, append([]any{&d.Signer}, l.dest()...), sqlLease, f.id); err != nil {
				return err
			}
			d.Lease = l.grant()
			due = append(due, d)
		}
		return nil
	})
	return due, now, err
}

// overdue is the key of a signer and the first deadline of its overdue holds.
type overdue struct{ id, first int64 }

// dueSigners finds up to limit signers with an overdue hold, earliest first.
func (c *session) dueSigners(ctx context.Context, now time.Time, limit int) (found []overdue, err error) {
	seen := map[int64]bool{}
	err = c.each(ctx, func(scan func(...any) error) (bool, error) {
		var o overdue
		if err := scan(&o.id, &o.first); err != nil {
			return false, err
		}
		if !seen[o.id] && len(found) < limit {
			seen[o.id] = true
			found = append(found, o)
		}
		return len(found) < limit, nil
	}, sqlDue, now.UnixMicro())
	return found, err
}
