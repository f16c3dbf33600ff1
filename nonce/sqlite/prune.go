package sqlite

import (
	"context"
	"fmt"
	"time"

	"noncegate/lease"
	"noncegate/nonce"
)

// Pruning finds signers and rows by their primary keys, and begins at a signer's
// first row that is left.
const (
	// A walk looks at the lowest row of each signer.
	sqlPrunable = `
SELECT s.signer_id, coalesce((
        SELECT a.status = 3 AND a.updated_at < ?2 FROM signer_nonce_allocation a
        WHERE a.signer_id = s.signer_id AND a.nonce >= s.pruned ORDER BY a.nonce LIMIT 1), 0)
FROM signer_nonce_state s WHERE s.signer_id > ?1 ORDER BY s.signer_id LIMIT ?3`

	sqlFound = `
SELECT s.signer, s.version, s.pruned, ` + leaseColumns + ` FROM ` + stateAndNode + ` WHERE s.signer_id = ?`

	// The lowest rows, as long as they are consumed and old.
	sqlOldPrefix = `
SELECT count(*), coalesce(max(nonce) + 1, 0) FROM (
    SELECT nonce, min(status = 3 AND updated_at < ?3) OVER (ORDER BY nonce) AS old FROM (
        SELECT nonce, status, updated_at FROM signer_nonce_allocation WHERE signer_id = ?1 AND nonce >= ?2 ORDER BY nonce LIMIT ?4))
WHERE old`

	sqlPruned = `SELECT pruned FROM signer_nonce_state WHERE signer_id = ?`

	// The fence of a pruning, as sqlFence and sqlFenceLocked are that of a commit.
	sqlFencePrune = `
UPDATE signer_nonce_state SET version = version + 1, pruned = ?, updated_at = ?
WHERE signer_id = ? AND version = ? AND owner_node = ? AND owner_incarnation = ? AND fencing_token = ?`

	sqlFencePruneLocked = `
UPDATE signer_nonce_state SET version = version + 1, pruned = ?, updated_at = ?
WHERE signer_id = ? AND version = ?`

	sqlDeleteOld = `
DELETE FROM signer_nonce_allocation WHERE signer_id = ? AND nonce >= ? AND nonce < ? AND status = 3 AND updated_at < ?`
)

// Prunable implements nonce.Pruner.
func (s *Store) Prunable(ctx context.Context, q nonce.PruneQuery) (nonce.PrunePage, error) {
	var page nonce.PrunePage
	err := s.read(ctx, func(ctx context.Context, c *session) error {
		page.Now = s.now()
		ids, err := c.walk(ctx, &page, q)
		if err != nil {
			return err
		}
		for _, id := range ids {
			f := nonce.Prunable{ID: id}
			var l leaseRow
			var pruned int64
			if _, err := c.one(ctx, append([]any{&f.Signer, &f.Version, &pruned}, l.dest()...), sqlFound, id); err != nil {
				return err
			}
			if f.Rows, _, err = c.oldPrefix(ctx, id, pruned, q.Rows, page.Now.Add(-q.Age)); err != nil {
				return err
			}
			f.Lease = l.grant()
			page.Found = append(page.Found, f)
		}
		return nil
	})
	return page, err
}

// walk finds keys of signers whose lowest row is old, and leaves the place where
// it ended in the page.
func (c *session) walk(ctx context.Context, page *nonce.PrunePage, q nonce.PruneQuery) (ids []int64, err error) {
	walked := 0
	err = c.each(ctx, func(scan func(...any) error) (bool, error) {
		var old bool
		if err := scan(&page.After, &old); err != nil {
			return false, err
		}
		if walked++; old {
			ids = append(ids, page.After)
		}
		return len(ids) < q.Found, nil
	}, sqlPrunable, q.After, page.Now.Add(-q.Age).UnixMicro(), q.Signers)
	if len(ids) < q.Found && walked < q.Signers {
		page.After = 0
	}
	return ids, err
}

// oldPrefix counts the signer's lowest rows, at most limit, that may be pruned,
// and finds where they end.
func (c *session) oldPrefix(ctx context.Context, id, from int64, limit int, before time.Time) (rows int, below int64, err error) {
	_, err = c.one(ctx, []any{&rows, &below}, sqlOldPrefix, id, from, before.UnixMicro(), limit)
	return rows, below, err
}

// Prune implements nonce.Pruner.
func (s *Store) Prune(ctx context.Context, h lease.Holder, p nonce.Pruning) ([]nonce.Pruned, error) {
	results := make([]nonce.Pruned, len(p.Pieces))
	err := s.write(ctx, func(ctx context.Context, c *session) (err error) {
		now := s.now()
		for i := range p.Pieces {
			if results[i], err = c.prune(ctx, h, &p.Pieces[i], now, now.Add(-p.Age)); err != nil {
				return fmt.Errorf("prune signer %q: %w", p.Pieces[i].Signer, err)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return results, nil
}

func (c *session) prune(ctx context.Context, h lease.Holder, p *nonce.PrunePiece, now, before time.Time) (nonce.Pruned, error) {
	from, err := c.count(ctx, sqlPruned, p.ID)
	if err != nil {
		return nonce.Pruned{}, err
	}
	rows, below, err := c.oldPrefix(ctx, p.ID, from, p.Rows, before)
	if err != nil || rows == 0 {
		return nonce.Pruned{}, err
	}
	query, args := sqlFencePruneLocked, []any{below, now.UnixMicro(), p.ID, p.Version}
	if h != (lease.Holder{}) {
		query, args = sqlFencePrune, append(args, h.Node, h.Incarnation, p.Token)
	}
	if n, err := c.exec(ctx, query, args...); err != nil || n == 0 {
		return nonce.Pruned{}, err
	}
	n, err := c.exec(ctx, sqlDeleteOld, p.ID, from, below, before.UnixMicro())
	if err == nil && n != int64(rows) {
		err = fmt.Errorf("%w: %d of %d rows were there to be deleted", nonce.ErrInvariant, n, rows)
	}
	return nonce.Pruned{Applied: true, Below: below, Rows: rows}, err
}
