package sqlite

import (
	"context"
	"time"

	"noncegate/nonce"
)

const (
	sqlListed     = `SELECT updated_at FROM signer WHERE signer_id = ?`
	sqlListAsked  = `SELECT request_id, nonces FROM signer_request WHERE signer_id = ? LIMIT ?`
	sqlFigures    = `SELECT signer, s.shard_id, version, next_nonce, floor, live, coalesce(w.kind, 0), coalesce(w.nonce, 0), coalesce(w.since, 0) FROM `
	sqlAllSigners = sqlFigures + `signer s LEFT JOIN signer_watch w USING (signer_id) WHERE signer > ?1 ORDER BY signer LIMIT ?2`
	sqlTheSigners = sqlFigures + `
signer s LEFT JOIN signer_watch w USING (signer_id)
WHERE signer > ?1 AND signer IN (SELECT value FROM json_each(?3)) ORDER BY signer LIMIT ?2`
	sqlTroubled = sqlFigures + `
signer_watch w JOIN signer s USING (signer_id)
WHERE signer > ?1 AND w.kind > 2 AND (?3 IS NULL OR signer IN (SELECT value FROM json_each(?3))) ORDER BY signer LIMIT ?2`
	sqlOpenSigners = sqlFigures + `signer s LEFT JOIN signer_watch w USING (signer_id) WHERE s.signer_id > ? AND s.signer_id <= ? AND length(live) > 0`
	sqlLastSigner  = `SELECT coalesce(max(signer_id), 0) FROM signer`

	sqlPruneHistory = `
DELETE FROM signer_history WHERE (signer_id, nonce) IN (SELECT signer_id, nonce FROM signer_history WHERE at < ? ORDER BY at LIMIT ?)`
	sqlPruneRequests = `
DELETE FROM signer_request WHERE (signer_id, request_id) IN (SELECT signer_id, request_id FROM signer_request WHERE created_at < ? ORDER BY created_at LIMIT ?)`
)

// List implements nonce.Database. Of the signer's remembered request ids it looks at the
// first nonce.ListedRequests.
func (s *Store) List(ctx context.Context, q nonce.ListQuery) (page nonce.ListPage, err error) {
	err = s.read(ctx, func(ctx context.Context, c *session) error {
		page = nonce.ListPage{NextFrom: -1}
		row, err := c.signerRow(ctx, q.Signer)
		if err != nil || row.id == 0 {
			return err
		}
		if row.Live, err = nonce.ParseLive(row.live, row.Next); err != nil {
			return err
		}
		var past []nonce.Past
		if q.WantsPast() {
			if past, err = c.pasts(ctx, sqlPastFrom, row.id, q.From, q.PastLimit(&row.Signer)); err != nil {
				return err
			}
		}
		written, err := c.count(ctx, sqlListed, row.id)
		if err != nil {
			return err
		}
		page = q.Page(&row.Signer, time.UnixMilli(written), past)
		if len(page.Rows) == 0 {
			return nil
		}
		return c.each(ctx, func(scan func(...any) error) error {
			var asked nonce.Remembered
			var text []byte
			err := scan(&asked.ID, &text)
			if err == nil {
				err = asked.UnpackNonces(text)
			}
			page.Named(&asked)
			return err
		}, sqlListAsked, row.id, nonce.ListedRequests)
	})
	return page, err
}

// Signers implements nonce.Database. It reads a thousand signers a transaction.
func (s *Store) Signers(ctx context.Context, q nonce.SignersQuery) ([]nonce.SignerFigures, error) {
	o, err := s.Owners(ctx)
	if err != nil {
		return nil, err
	}
	query, names := sqlAllSigners, []any(nil)
	if q.Names != nil {
		query, names = sqlTheSigners, []any{listOf(q.Names)}
	}
	if q.Filter == nonce.TroubledSigners { // they are few, wherever they are
		query = sqlTroubled
		if q.Names == nil {
			names = []any{nil}
		}
	}
	return q.Collect(o.Now.UnixMilli(), o.Serving(), func(after string, limit int) (rows []nonce.StoredSigner, err error) {
		err = s.eachSigner(ctx, func(at *nonce.StoredSigner) { rows = append(rows, *at) }, query, append([]any{after, limit}, names...)...)
		return rows, err
	})
}

// Totals implements nonce.Database. It reads up to nonce.TotalsBound signers, in
// transactions of a few thousand; see nonce.TotalsWalk.
func (s *Store) Totals(ctx context.Context) (nonce.Totals, error) {
	return s.totals.Next(s.millis(), func(after, to int64, each func(*nonce.StoredSigner)) (more bool, err error) {
		if err := s.eachSigner(ctx, each, sqlOpenSigners, after, to); err != nil {
			return false, err
		}
		err = s.read(ctx, func(ctx context.Context, c *session) error {
			last, err := c.count(ctx, sqlLastSigner)
			more = last > to
			return err
		})
		return more, err
	})
}

func (s *Store) eachSigner(ctx context.Context, fn func(*nonce.StoredSigner), query string, args ...any) error {
	return s.read(ctx, func(ctx context.Context, c *session) error {
		return c.each(ctx, func(scan func(...any) error) error {
			var at nonce.StoredSigner
			var live []byte
			if err := scan(&at.Name, &at.Shard, &at.Version, &at.Next, &at.Floor, &live, &at.Watch.Kind, &at.Watch.Nonce, &at.Watch.Since); err != nil {
				return err
			}
			at.Live, at.Err = nonce.ParseLive(live, at.Next)
			fn(&at)
			return nil
		}, query, args...)
	})
}

// Prune implements nonce.Store.
func (s *Store) Prune(ctx context.Context, before time.Time, limit int) (int, error) {
	return s.prune(ctx, sqlPruneHistory, before, limit)
}

// PruneRequests implements nonce.Database.
func (s *Store) PruneRequests(ctx context.Context, age time.Duration, limit int) (int, error) {
	return s.prune(ctx, sqlPruneRequests, s.now().Add(-age), limit)
}

func (s *Store) prune(ctx context.Context, query string, before time.Time, limit int) (pruned int, err error) {
	err = s.write(ctx, func(ctx context.Context, c *session) error {
		n, err := c.exec(ctx, query, before.UnixMilli(), limit)
		pruned = int(n)
		return err
	})
	return pruned, err
}
