package postgres

import (
	"context"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"noncegate/nonce"
)

const versionsText = `
SELECT w.ord, s.version, s.engine FROM unnest($1::bigint[]) WITH ORDINALITY w(id, ord), signer_nonce_state s WHERE s.signer_id = w.id`

// Versions implements nonce.EngineLedger.
func (s *Store) Versions(ctx context.Context, ids []int64) ([]nonce.RowVersion, error) {
	conn, err := s.conn(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Release()
	out := make([]nonce.RowVersion, len(ids))
	for i := range out {
		out[i].Version = -1
	}
	rows, err := conn.Query(ctx, versionsText, ids)
	if err != nil {
		return nil, storeError("read versions", err)
	}
	var ord, version int64
	var engine int16
	_, err = pgx.ForEachRow(rows, []any{&ord, &version, &engine}, func() error {
		out[ord-1] = nonce.RowVersion{Version: version, Engine: nonce.Engine(engine)}
		return nil
	})
	if err != nil {
		return nil, storeError("read versions", err)
	}
	return out, nil
}

// The statements of a copy: the row, a page of its HELD and RELEASED allocations,
// and a page of its request ids. HELD ones are found as openHolds does.
const (
	copySigner = `SELECT s.signer, ` + signerColumns + ` FROM signer_nonce_state s` + signerJoins + ` WHERE s.signer_id = $1`
	copyRows   = `
SELECT s.signer_id, ` + rowColumns + `
FROM signer_nonce_state s, LATERAL (
  (SELECT x.* FROM signer_nonce_allocation x
   WHERE x.signer_id = s.signer_id AND x.status = 2 AND x.nonce >= $2 ORDER BY x.signer_id, x.nonce LIMIT $3)
  UNION ALL
  (SELECT x.* FROM signer_nonce_allocation x
   WHERE x.signer_id = s.signer_id AND x.status + 0 = 1 AND x.nonce >= $2 AND x.nonce >= (SELECT min(h.nonce) FROM (` + openHolds + `) h)
   ORDER BY x.signer_id, x.nonce LIMIT $3)) a
WHERE s.signer_id = $1 ORDER BY a.nonce LIMIT $3`
	copyRequests = `
SELECT q.request_id, q.request_hash, q.nonces, q.attempts, q.created_at FROM signer_nonce_request q
WHERE q.signer_id = $1 AND q.request_id > $2 ORDER BY q.signer_id, q.request_id LIMIT $3`
)

// Copy implements nonce.EngineLedger: a transaction of one snapshot, in one round
// trip. Rows are those from afterRow on; a copy begins with 0 and "".
func (s *Store) Copy(ctx context.Context, id, afterRow int64, afterID string, limit int) (nonce.SignerCopy, error) {
	conn, err := s.conn(ctx)
	if err != nil {
		return nonce.SignerCopy{}, err
	}
	defer conn.Release()
	out := nonce.SignerCopy{NextRow: afterRow, NextID: afterID}
	b := &pgx.Batch{}
	b.Queue("BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY")
	b.Queue(copySigner, id).Query(func(rows pgx.Rows) error {
		var columns signerRow
		_, err := pgx.ForEachRow(rows, append([]any{&out.Signer}, columns.into(&out.Snapshot)...), func() error {
			columns.finish(&out.Snapshot)
			return nil
		})
		return err
	})
	b.Queue(copyRows, id, afterRow, limit+1).Query(func(rows pgx.Rows) error { return scanCopiedRows(rows, &out, limit) })
	b.Queue(copyRequests, id, afterID, limit+1).Query(func(rows pgx.Rows) error { return scanCopiedRequests(rows, &out, limit) })
	b.Queue("COMMIT")
	if err := conn.SendBatch(ctx, b).Close(); err != nil {
		if conn.Conn().PgConn().TxStatus() != 'I' {
			rollback(ctx, conn)
		}
		return nonce.SignerCopy{}, storeError("copy a signer", err)
	}
	return out, nil
}

// scanCopiedRows takes a page. One row more than that tells that there are more.
func scanCopiedRows(rows pgx.Rows, out *nonce.SignerCopy, limit int) error {
	return scanRows(rows, func(_ int64, row nonce.Row) {
		if len(out.Rows) == limit {
			out.More = true
			return
		}
		row.UpdatedAt = time.Time{} // for lists
		out.Rows, out.NextRow = append(out.Rows, row), row.Nonce+1
	})
}

func scanCopiedRequests(rows pgx.Rows, out *nonce.SignerCopy, limit int) error {
	var r nonce.Remembered
	var hash []byte
	_, err := pgx.ForEachRow(rows, []any{&r.ID, &hash, &r.Nonces, &r.Attempts, &r.At}, func() error {
		if len(out.Requests) == limit {
			out.More = true
			return nil
		}
		copy(r.Hash[:], hash)
		out.Requests, out.NextID = append(out.Requests, r), r.ID
		r.Nonces, r.Attempts = nil, nil
		return nil
	})
	return err
}

// enteredText walks the partial index of the signers of the performance engine.
const enteredText = `
SELECT c.now, coalesce(s.signer_id, 0), coalesce(s.signer, ''), coalesce(s.version, 0), coalesce(s.fencing_token, 0),
       coalesce(s.owner_node, ''), coalesce(s.owner_incarnation, 0), s.expires_at, coalesce(g.url, ''), ` + standingColumns + `
FROM (SELECT clock_timestamp() AS now) c
LEFT JOIN (SELECT * FROM signer_nonce_state WHERE engine = 1 AND signer_id > $1 ORDER BY signer_id LIMIT $2) s ON true` + signerJoins + `
ORDER BY s.signer_id`

// walkText is the same for all signers, by the primary key.
var walkText = strings.Replace(enteredText, "engine = 1 AND ", "", 1)

// Entered implements nonce.EngineLedger.
func (s *Store) Entered(ctx context.Context, after int64, limit int) ([]nonce.EnteredSigner, time.Time, error) {
	return s.walk(ctx, enteredText, after, limit)
}

// WalkSigners finds signers of either engine, in order of key, at most limit, from after
// on. The time is the store's.
func (s *Store) WalkSigners(ctx context.Context, after int64, limit int) ([]nonce.EnteredSigner, time.Time, error) {
	return s.walk(ctx, walkText, after, limit)
}

func (s *Store) walk(ctx context.Context, text string, after int64, limit int) ([]nonce.EnteredSigner, time.Time, error) {
	conn, err := s.conn(ctx)
	if err != nil {
		return nil, time.Time{}, err
	}
	defer conn.Release()
	rows, err := conn.Query(ctx, text, after, limit)
	if err != nil {
		return nil, time.Time{}, storeError("walk over signers", err)
	}
	var out []nonce.EnteredSigner
	var e nonce.EnteredSigner
	var standing standingRow
	var expires *time.Time
	var now time.Time
	columns := append([]any{
		&now, &e.ID, &e.Signer, &e.Version, &e.Lease.Token, &e.Lease.Holder.Node, &e.Lease.Holder.Incarnation, &expires, &e.Lease.URL,
	}, standing.into(&e.Standing)...)
	_, err = pgx.ForEachRow(rows, columns, func() error {
		if e.ID == 0 {
			return nil // there is none; the row carries the clock
		}
		standing.finish(&e.Standing)
		e.Lease.ExpiresAt = orZero(expires)
		out = append(out, e)
		return nil
	})
	if err != nil {
		return nil, time.Time{}, storeError("find signers of the performance engine", err)
	}
	return out, now, nil
}
