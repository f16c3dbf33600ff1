package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"noncegate/nonce"
)

const (
	listSigner  = `SELECT signer_id, version, next_nonce, floor, live, updated_at FROM signer WHERE signer = $1`
	listHistory = `SELECT 0, nonce, attempt, holder, tx_hashes, reason, at FROM signer_history WHERE signer_id = $1 AND nonce >= $2 ORDER BY nonce LIMIT $3`
	listAsked   = `SELECT 0, request_id, request_hash, nonces FROM signer_request WHERE signer_id = $1 LIMIT $2`

	figureColumns = `SELECT signer, s.shard_id, version, next_nonce, floor, live, coalesce(w.kind, 0), coalesce(w.nonce, 0), coalesce(w.since, 0) FROM `
	signerFigures = figureColumns + `signer s LEFT JOIN signer_watch w ON w.signer_id = s.signer_id`
	allSigners    = signerFigures + ` WHERE signer > $1 AND version > 0 ORDER BY signer LIMIT $2`
	theseSigners  = signerFigures + ` WHERE signer > $1 AND version > 0 AND signer = ANY ($3::text[]) ORDER BY signer LIMIT $2`
	troubled      = `WITH t AS MATERIALIZED (SELECT * FROM signer_watch WHERE kind > 2) ` + figureColumns + `t w JOIN signer s ON s.signer_id = w.signer_id
WHERE signer > $1 AND ($3::text[] IS NULL OR signer = ANY ($3)) ORDER BY signer LIMIT $2`
	openSigners = signerFigures + ` WHERE s.signer_id > $1 AND s.signer_id <= $2 AND octet_length(live) > 0`
	lastSigner  = `SELECT coalesce((SELECT signer_id FROM signer ORDER BY signer_id DESC LIMIT 1), 0)`
)

// List implements nonce.Database. The history is read after the signer: a nonce that was
// consumed in between is shown as it lived. Of the signer's remembered request ids it looks
// at the first nonce.ListedRequests.
func (s *Store) List(ctx context.Context, q nonce.ListQuery) (nonce.ListPage, error) {
	none := nonce.ListPage{NextFrom: -1}
	var row nonce.Signer
	var id, written int64
	var live []byte
	err := s.moment(ctx, "list", func(b *pgx.Batch) {
		b.Queue(listSigner, q.Signer).QueryRow(func(r pgx.Row) error {
			return orNone(r.Scan(&id, &row.Version, &row.Next, &row.Floor, &live, &written))
		})
	})
	if err != nil || id == 0 {
		return none, err
	}
	if row.Live, err = nonce.ParseLive(live, row.Next); err != nil {
		return none, aborted(err)
	}
	var past []nonce.Past
	var asked []nonce.Remembered
	err = s.moment(ctx, "list", func(b *pgx.Batch) {
		if q.WantsPast() {
			b.Queue(listHistory, id, q.From, q.PastLimit(&row)).Query(func(rows pgx.Rows) error {
				return scanHistory(rows, func(_ int, p *nonce.Past) { past = append(past, *p) })
			})
		}
		b.Queue(listAsked, id, nonce.ListedRequests).Query(func(rows pgx.Rows) error {
			return scanRequests(rows, func(_ int, r *nonce.Remembered) { asked = append(asked, *r) })
		})
	})
	if err != nil {
		return none, err
	}
	page := q.Page(&row, time.UnixMilli(written), past)
	for i := range asked {
		page.Named(&asked[i])
	}
	return page, nil
}

// Signers implements nonce.Database. It reads a thousand signers a round trip.
func (s *Store) Signers(ctx context.Context, q nonce.SignersQuery) ([]nonce.SignerFigures, error) {
	o, err := s.Owners(ctx)
	if err != nil {
		return nil, err
	}
	text, names := allSigners, []any(nil)
	if q.Names != nil {
		text, names = theseSigners, []any{q.Names}
	}
	if q.Filter == nonce.TroubledSigners { // they are few, wherever they are
		text, names = troubled, []any{q.Names}
	}
	return q.Collect(o.Now.UnixMilli(), o.Serving(), func(after string, limit int) (rows []nonce.StoredSigner, err error) {
		err = s.moment(ctx, "list signers", func(b *pgx.Batch) {
			queueSigners(b, func(at *nonce.StoredSigner) { rows = append(rows, *at) }, text, append([]any{after, limit}, names...)...)
		})
		return rows, err
	})
}

func queueSigners(b *pgx.Batch, fn func(*nonce.StoredSigner), text string, args ...any) {
	b.Queue(text, args...).Query(func(rows pgx.Rows) error {
		var at nonce.StoredSigner
		var live []byte
		_, err := pgx.ForEachRow(rows, []any{&at.Name, &at.Shard, &at.Version, &at.Next, &at.Floor, &live, &at.Watch.Kind, &at.Watch.Nonce, &at.Watch.Since}, func() error {
			at.Live, at.Err = nonce.ParseLive(live, at.Next)
			fn(&at)
			return nil
		})
		return err
	})
}

// Totals implements nonce.Database. It reads up to nonce.TotalsBound signers, a few thousand
// a round trip; see nonce.TotalsWalk.
func (s *Store) Totals(ctx context.Context) (nonce.Totals, error) {
	now, err := s.clock(ctx)
	if err != nil {
		return nonce.Totals{}, err
	}
	return s.totals.Next(now, func(after, to int64, each func(*nonce.StoredSigner)) (more bool, err error) {
		var last int64
		err = s.moment(ctx, "count what is open", func(b *pgx.Batch) {
			queueSigners(b, each, openSigners, after, to)
			b.Queue(lastSigner).QueryRow(func(row pgx.Row) error { return row.Scan(&last) })
		})
		return last > to, err
	})
}
