package sqlite

import (
	"context"
	"fmt"
	"time"

	"noncegate/nonce"
)

// Allocations. They are found by primary key, by signer_nonce_allocation_held
// (all holds by deadline), by signer_nonce_allocation_released (a signer's
// released ones by nonce) or by signer_nonce_allocation_notable (a signer's unknown holds,
// and what was handed out for the third time or later, by nonce). Writers have passed the fence of the signer's row in
// the same transaction.
const (
	sqlInsertRow = `
INSERT INTO signer_nonce_allocation
    (signer_id, nonce, status, attempt, tx_hash, reason, held_until, fencing_token, request_id, created_at, updated_at, holder)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?10, ?11)`

	// A row keeps its request id as long as its attempt. A hold never overwrites one that
	// is HELD or CONSUMED, unless it is the same that goes on, or a later one by a repair.
	sqlUpdateRow = `
UPDATE signer_nonce_allocation SET status = ?3, attempt = ?4, tx_hash = ?5, reason = ?6, held_until = ?7, fencing_token = ?8,
    request_id = CASE WHEN ?9 IS NULL AND attempt = ?4 THEN request_id ELSE ?9 END, updated_at = ?10, holder = ?11
WHERE signer_id = ?1 AND nonce = ?2 AND status = ?12 AND attempt = ?13
    AND (?3 <> 1 OR status = 2 OR status = 1 AND attempt = ?4 OR attempt < ?4 AND ?6 = '` + nonce.ReasonRepair + `')`

	sqlBelowFloor = `
UPDATE signer_nonce_allocation SET status = 3, reason = '` + nonce.ReasonBelowFloor + `', fencing_token = ?, updated_at = ?
WHERE signer_id = ? AND status = 2 AND nonce < ?`

	rowColumns = `nonce, status, attempt, fencing_token, tx_hash, coalesce(reason, ''), coalesce(held_until, 0), coalesce(holder, 0)`

	sqlRow = `SELECT ` + rowColumns + ` FROM signer_nonce_allocation WHERE signer_id = ? AND nonce = ?`

	sqlReleased = `
SELECT ` + rowColumns + ` FROM signer_nonce_allocation
WHERE signer_id = ? AND status = 2 AND nonce >= ? ORDER BY nonce LIMIT ?`

	// Overdue holds of some signers, out of those of all: one pass over the
	// index, which is short while sweeps keep up.
	sqlDueOf = `
SELECT signer_id, nonce FROM signer_nonce_allocation INDEXED BY signer_nonce_allocation_held
WHERE status = 1 AND held_until <= ?1 AND signer_id IN (SELECT value FROM json_each(?2)) ORDER BY held_until, nonce`

	sqlDue = `
SELECT signer_id, held_until FROM signer_nonce_allocation INDEXED BY signer_nonce_allocation_held
WHERE status = 1 AND held_until <= ? ORDER BY held_until`

	sqlList = `
SELECT ` + rowColumns + `, coalesce(request_id, ''), updated_at FROM signer_nonce_allocation
WHERE signer_id = ?1 AND nonce >= ?2 ORDER BY nonce LIMIT ?3`

	sqlListStatus = `
SELECT ` + rowColumns + `, coalesce(request_id, ''), updated_at FROM signer_nonce_allocation
WHERE signer_id = ?1 AND nonce >= ?2 AND status = ?4 ORDER BY nonce LIMIT ?3`

	sqlListReleased = `
SELECT ` + rowColumns + `, coalesce(request_id, ''), updated_at FROM signer_nonce_allocation
WHERE signer_id = ?1 AND nonce >= ?2 AND status = 2 ORDER BY nonce LIMIT ?3`

	sqlListUnknown = `
SELECT ` + rowColumns + `, coalesce(request_id, ''), updated_at FROM signer_nonce_allocation INDEXED BY signer_nonce_allocation_notable
WHERE signer_id = ?1 AND nonce >= ?2 AND status = 1 AND reason = '` + nonce.ReasonUnknown + `' AND ` + isNotable + ` ORDER BY nonce LIMIT ?3`
)

// writeRows applies what a change says of its rows, requests and floor.
func (c *session) writeRows(ctx context.Context, ch *nonce.Change, token int64, now time.Time) error {
	requests := requestsByNonce(ch.Requests)
	for i := range ch.Rows {
		if err := c.writeRow(ctx, ch, &ch.Rows[i], requests[ch.Rows[i].Nonce], token, now); err != nil {
			return err
		}
	}
	if ch.BelowFloor {
		if _, err := c.exec(ctx, sqlBelowFloor, token, now.UnixMicro(), ch.ID, ch.Floor); err != nil {
			return fmt.Errorf("raise the floor of signer %q: %w", ch.Signer, err)
		}
	}
	for i := range ch.Requests {
		if err := c.insertRequest(ctx, ch.ID, &ch.Requests[i], now); err != nil {
			return fmt.Errorf("remember request %q of signer %q: %w", ch.Requests[i].ID, ch.Signer, err)
		}
	}
	return nil
}

func (c *session) writeRow(ctx context.Context, ch *nonce.Change, rc *nonce.RowChange, request any, token int64, now time.Time) error {
	var hash, reason, heldUntil, holder any
	if hashes := nonce.JoinHashes(rc.TxHash, rc.Replaced); hashes != nil {
		hash = hashes
	}
	if rc.Reason != "" {
		reason = rc.Reason
	}
	if rc.Status == nonce.Held {
		heldUntil = now.Add(rc.Hold).UnixMicro()
	}
	if rc.Holder != 0 {
		holder = int64(rc.Holder)
	}
	args := [13]any{ch.ID, rc.Nonce, int64(rc.Status), rc.Attempt, hash, reason, heldUntil, token, request, now.UnixMicro(), holder,
		int64(rc.FromStatus), rc.FromAttempt}
	query, used := sqlUpdateRow, args[:]
	if rc.Fresh {
		query, used = sqlInsertRow, args[:11]
	}
	n, err := c.exec(ctx, query, used...)
	if err == nil && n != 1 {
		err = fmt.Errorf("%w: it is not %v at attempt %d", nonce.ErrInvariant, rc.FromStatus, rc.FromAttempt)
	}
	if err != nil {
		return fmt.Errorf("write nonce %d of signer %q: %w", rc.Nonce, ch.Signer, err)
	}
	return nil
}

// rowScan receives rowColumns.
type rowScan struct {
	row       nonce.Row
	status    int64
	hash      []byte
	heldUntil int64
	holder    int64
	updatedAt int64
}

func (r *rowScan) dest() []any {
	return []any{&r.row.Nonce, &r.status, &r.row.Attempt, &r.row.Token, &r.hash, &r.row.Reason, &r.heldUntil, &r.holder}
}

func (r *rowScan) listDest() []any { return append(r.dest(), &r.row.RequestID, &r.updatedAt) }

func (r *rowScan) result() nonce.Row {
	r.row.Status, r.row.HeldUntil, r.row.UpdatedAt = nonce.Status(r.status), timeOf(r.heldUntil), timeOf(r.updatedAt)
	r.row.Holder = nonce.Principal(r.holder)
	r.row.TxHash, r.row.Replaced = nonce.SplitHashes(r.hash)
	return r.row
}

// row reads one allocation.
func (c *session) row(ctx context.Context, id, n int64) (nonce.Row, bool, error) {
	var r rowScan
	ok, err := c.one(ctx, r.dest(), sqlRow, id, n)
	return r.result(), ok, err
}

// released reads up to limit released allocations from the floor on.
func (c *session) released(ctx context.Context, id, floor int64, limit int) (rows []nonce.Row, err error) {
	err = c.each(ctx, func(scan func(...any) error) (bool, error) {
		var r rowScan
		if err := scan(r.dest()...); err != nil {
			return false, err
		}
		rows = append(rows, r.result())
		return true, nil
	}, sqlReleased, id, floor, limit)
	return rows, err
}
