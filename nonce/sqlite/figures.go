package sqlite

import (
	"context"
	"encoding/json"
	"strconv"
	"time"

	"noncegate/nonce"
)

// isNotable is the condition of signer_nonce_allocation_notable, word by word: where it
// is not among the conditions of a statement, the index is not used.
const isNotable = `(status <> 3 AND (attempt >= 3 OR reason = '` + nonce.ReasonUnknown + `'))`

// Conditions of an allocation, and the indexes that find it.
const (
	isUnknown  = `status = 1 AND reason = '` + nonce.ReasonUnknown + `' AND ` + isNotable
	isRepeated = `attempt >= 3 AND ` + isNotable
	isOverdue  = `status = 1 AND held_until <= ?1 AND reason IS NOT '` + nonce.ReasonUnknown + `'`

	byNotable  = `signer_nonce_allocation INDEXED BY signer_nonce_allocation_notable`
	byReleased = `signer_nonce_allocation INDEXED BY signer_nonce_allocation_released`
	byDeadline = `signer_nonce_allocation INDEXED BY signer_nonce_allocation_held`
)

var bound = strconv.Itoa(nonce.TotalsBound)

// sqlHolds reads the HELD rows of a signer that has so many, by a walk down from the top
// of its rows that ends with the last of them; +status keeps the indexes of all signers
// out of it.
const sqlHolds = `
SELECT coalesce(min(held_until), 0), coalesce(max(attempt), 0), count(*) FILTER (WHERE held_until <= ?1 AND reason IS NOT '` + nonce.ReasonUnknown + `'),
    count(*) FILTER (WHERE reason IS '` + nonce.ReasonUnknown + `')
FROM (SELECT attempt, held_until, reason FROM signer_nonce_allocation WHERE signer_id = ?2 AND +status = 1 ORDER BY nonce DESC LIMIT ?3)`

const freeOf = `FROM ` + byReleased + ` WHERE signer_id = s.signer_id AND status = 2 AND nonce >= s.floor`

// isGap: not all that is above the lowest RELEASED nonce is RELEASED too.
const isGap = `(SELECT count(*) > 0 AND count(*) < s.next_nonce - min(nonce) ` + freeOf + `)`

// wanted is the condition of a filter on a signer s. Without names the signers are those
// of at most the first TotalsBound allocations that are as the filter wants, by the index
// that has those; with names each of these is looked at. Which of those is overdue is
// left to sqlHolds.
func wanted(filter nonce.SignerFilter, named bool) string {
	found := func(from, where string) string {
		if named {
			return ` AND EXISTS (SELECT 1 FROM ` + from + ` WHERE signer_id = s.signer_id AND ` + where + `)`
		}
		return ` AND s.signer_id IN (SELECT signer_id FROM ` + from + ` WHERE ` + where + ` LIMIT ` + bound + `)`
	}
	switch {
	case filter == nonce.GapSigners:
		return found(byReleased, `status = 2`) + ` AND ` + isGap
	case filter == nonce.UnknownSigners:
		return found(byNotable, isUnknown)
	case filter == nonce.RepeatSigners:
		return found(byNotable, isRepeated)
	case filter == nonce.OverdueSigners && !named:
		return found(byDeadline, isOverdue+` ORDER BY held_until`)
	}
	return ""
}

// sqlSigners chooses signers by name, or all by the index of their names, and reads of
// each its RELEASED rows.
//
// Parameters: ?1 now, ?2 after, ?3 limit, ?4 names, if named.
func sqlSigners(filter nonce.SignerFilter, named bool) string {
	names := ""
	if named {
		names = ` AND s.signer IN (SELECT value FROM json_each(?4))`
	}
	return `
SELECT s.signer_id, s.signer, s.next_nonce, s.floor, s.version, s.held,
    (SELECT count(*) ` + freeOf + `), (SELECT coalesce(min(nonce), -1) ` + freeOf + `), (SELECT coalesce(max(attempt), 0) ` + freeOf + `),
    CASE WHEN s.expires_at > ?1 THEN coalesce(s.owner_node, '') ELSE '' END
FROM signer_nonce_state s WHERE s.signer > ?2` + names + wanted(filter, named) + ` ORDER BY s.signer LIMIT ?3`
}

// Signers implements nonce.Reader: one statement for the page, and one for the holds of
// each of its signers.
func (s *Store) Signers(ctx context.Context, q nonce.SignersQuery) ([]nonce.SignerFigures, error) {
	var out []nonce.SignerFigures
	err := s.read(ctx, func(ctx context.Context, c *session) error {
		now := s.now().UnixMicro()
		ids, page, err := c.signers(ctx, q, now)
		if err != nil {
			return err
		}
		for i := range page {
			var oldest, attempt, overdue int64
			if _, err := c.one(ctx, []any{&oldest, &attempt, &overdue, &page[i].Unknown}, sqlHolds, now, ids[i], page[i].Held); err != nil {
				return err
			}
			page[i].OldestHold, page[i].MaxAttempt = timeOf(oldest), max(page[i].MaxAttempt, attempt)
			if (q.Filter != nonce.OverdueSigners || overdue > 0) && len(out) < q.Limit {
				out = append(out, page[i])
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// signers reads a page with its keys, without what holds tell. Of named signers that are
// to be overdue it reads all.
func (c *session) signers(ctx context.Context, q nonce.SignersQuery, now int64) (ids []int64, page []nonce.SignerFigures, err error) {
	named := q.Names != nil
	args := []any{now, q.After, q.Limit}
	if named {
		names, err := json.Marshal(q.Names)
		if err != nil {
			return nil, nil, err
		}
		args = append(args, string(names))
		if q.Filter == nonce.OverdueSigners {
			args[2] = -1
		}
	}
	err = c.each(ctx, func(scan func(...any) error) (bool, error) {
		var id int64
		var f nonce.SignerFigures
		err := scan(&id, &f.Signer, &f.Next, &f.Floor, &f.Version, &f.Held, &f.Released, &f.LowestReleased, &f.MaxAttempt, &f.Owner)
		ids, page = append(ids, id), append(page, f)
		return true, err
	}, sqlSigners(q.Filter, named), args...)
	return ids, page, err
}

// sqlTotals counts by the indexes, each no further than TotalsBound. The first hold that
// is overdue is found by its deadline, behind the unknown ones before it.
var sqlTotals = `
SELECT (SELECT count(*) FROM (SELECT 1 FROM ` + byDeadline + ` WHERE status = 1 LIMIT ` + bound + `)),
    (SELECT count(*) FROM (SELECT 1 FROM ` + byNotable + ` WHERE ` + isUnknown + ` LIMIT ` + bound + `)),
    (SELECT count(*) FROM (SELECT 1 FROM ` + byReleased + ` WHERE status = 2 LIMIT ` + bound + `)),
    (SELECT count(*) FROM (SELECT 1 FROM ` + byNotable + ` WHERE ` + isRepeated + ` LIMIT ` + bound + `)),
    coalesce((SELECT held_until FROM ` + byDeadline + ` WHERE ` + isOverdue + ` ORDER BY held_until LIMIT 1), ?1)`

// Totals implements nonce.Reader: one statement, see sqlTotals.
func (s *Store) Totals(ctx context.Context) (nonce.Totals, error) {
	var t nonce.Totals
	err := s.read(ctx, func(ctx context.Context, c *session) error {
		now := s.now().UnixMicro()
		var first int64
		_, err := c.one(ctx, []any{&t.Held, &t.Unknown, &t.Released, &t.Repeated, &first}, sqlTotals, now)
		t.OldestOverdue = time.Duration(now-first) * time.Microsecond
		return err
	})
	return t, err
}
