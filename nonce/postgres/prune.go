package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"noncegate/lease"
	"noncegate/nonce"
)

// oldPrefix counts the lowest rows of a signer that may be pruned and finds where
// they end. It walks the primary key from where the last pruning ended, so it does
// not step over the dead entries that prunings leave there until the next vacuum.
func oldPrefix(signerID, from, most, before string) string {
	return `
    SELECT count(*) AS rows, max(x.nonce) + 1 AS below FROM (
      SELECT y.nonce, bool_and(y.status = 3 AND y.updated_at < ` + before + `) OVER (ORDER BY y.nonce) AS old
      FROM (SELECT a.nonce, a.status, a.updated_at FROM signer_nonce_allocation a
            WHERE a.signer_id = ` + signerID + ` AND a.nonce >= ` + from + ` ORDER BY a.signer_id, a.nonce LIMIT ` + most + `) y) x
    WHERE x.old`
}

// prunableText walks signers by primary key and looks at the lowest row of each.
// Only where that one is old are more counted; those of the performance engine are
// left alone. It ends with the last signer it
// was to find, so what it reads is bounded by both.
//
// Parameters: $1 after, $2 age in microseconds, $3 signers, $4 found, $5 rows.
var prunableText = `
SELECT c.now, coalesce(walk.last, 0), walk.signers, coalesce(f.signer_id, 0), coalesce(f.signer, ''), coalesce(f.version, 0), coalesce(f.rows, 0),
       coalesce(f.owner_node, ''), coalesce(f.owner_incarnation, 0), coalesce(f.fencing_token, 0), f.expires_at
FROM (SELECT clock_timestamp() AS now) c
CROSS JOIN (
  SELECT max(signer_id) AS last, count(*) AS signers
  FROM (SELECT signer_id FROM signer_nonce_state WHERE signer_id > $1::bigint ORDER BY signer_id LIMIT $3::bigint) w) walk
LEFT JOIN (
  SELECT s.*, p.rows
  FROM (SELECT * FROM signer_nonce_state WHERE signer_id > $1::bigint ORDER BY signer_id LIMIT $3::bigint) s,
  LATERAL (
    SELECT a.status, a.updated_at FROM signer_nonce_allocation a
    WHERE a.signer_id = s.signer_id AND a.nonce >= s.pruned ORDER BY a.signer_id, a.nonce LIMIT 1) lowest,
  LATERAL (` + oldPrefix("s.signer_id", "s.pruned", "$5::bigint", beforeText) + `) p
  WHERE s.engine = 0 AND lowest.status = 3 AND lowest.updated_at < ` + beforeText + `
  ORDER BY s.signer_id LIMIT $4::bigint) f ON true`

// beforeText is when a row must have been written last. The clock is read once a
// statement.
const beforeText = `(SELECT clock_timestamp() - $2::bigint * interval '1 microsecond')`

// Prunable implements nonce.Pruner.
func (st *Store) Prunable(ctx context.Context, q nonce.PruneQuery) (nonce.PrunePage, error) {
	conn, err := st.conn(ctx)
	if err != nil {
		return nonce.PrunePage{}, err
	}
	defer conn.Release()
	rows, err := conn.Query(ctx, prunableText, q.After, q.Age.Microseconds(), q.Signers, q.Found, q.Rows)
	if err != nil {
		return nonce.PrunePage{}, storeError("find allocations to prune", err)
	}
	var page nonce.PrunePage
	var last int64
	var walked int
	var f nonce.Prunable
	var expires *time.Time
	_, err = pgx.ForEachRow(rows, []any{
		&page.Now, &last, &walked, &f.ID, &f.Signer, &f.Version, &f.Rows,
		&f.Lease.Holder.Node, &f.Lease.Holder.Incarnation, &f.Lease.Token, &expires,
	}, func() error {
		if f.ID == 0 {
			return nil // nothing was found; the row carries the clock and the place
		}
		f.Lease.ExpiresAt = time.Time{}
		if expires != nil {
			f.Lease.ExpiresAt = *expires
		}
		page.Found = append(page.Found, f)
		return nil
	})
	switch {
	case err != nil:
		return nonce.PrunePage{}, storeError("find allocations to prune", err)
	case len(page.Found) == q.Found:
		page.After = page.Found[q.Found-1].ID
	case walked == q.Signers:
		page.After = last
	}
	return page, nil
}

// consumedText is the one statement of a pruning: everything it deletes hangs on the
// rows that the update of the signers returned (u). The update compares the
// version, which every write of a signer's allocations raises, so what the
// statement's snapshot shows of them (l) is what is there. A signer whose row is
// locked is left out, so a pruning waits for nobody and cannot deadlock.
//
// That as many rows were deleted as were judged is asserted, as in a commit.
//
// Parameters: $1 owner, $2 age in microseconds, $3 incarnation, and the pieces as
// arrays: $4 ids, $5 tokens, $6 versions, $7 rows.
func consumedText(locked bool) string {
	return `
WITH c AS MATERIALIZED (SELECT clock_timestamp() AS now, ` + beforeText + ` AS before, $1::text AS owner, $3::bigint AS incarnation),
w AS MATERIALIZED (
  SELECT w.* FROM unnest($4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[]) WITH ORDINALITY w(id, token, version, most, ord) ORDER BY w.id),
l AS MATERIALIZED (
  SELECT w.*, free.pruned AS was, p.rows, p.below
  FROM c, w,
  LATERAL (SELECT s.pruned FROM signer_nonce_state s WHERE s.signer_id = w.id FOR NO KEY UPDATE SKIP LOCKED) free,
  LATERAL (` + oldPrefix("w.id", "free.pruned", "w.most", "c.before") + `) p
  WHERE p.rows > 0),
u AS (
  UPDATE signer_nonce_state s SET pruned = w.below, version = s.version + 1, updated_at = c.now
  FROM c, l w
  WHERE s.signer_id = w.id AND s.version = w.version` + reliableText + choose(locked, "", ownerText) + `
  RETURNING s.signer_id, w.ord, w.was, w.rows, s.pruned),
d AS (
  DELETE FROM signer_nonce_allocation a USING c, u
  WHERE a.signer_id = u.signer_id AND a.nonce >= u.was AND a.nonce < u.pruned AND a.status = 3 AND a.updated_at < c.before
  RETURNING 1)
SELECT u.ord, u.pruned, u.rows,
       1 / (CASE WHEN (SELECT count(*) FROM d) = (SELECT sum(u.rows) FROM u) THEN 1 ELSE 0 END)
FROM u`
}

var consumedOwned, consumedLocked = consumedText(false), consumedText(true)

// Prune implements nonce.Pruner.
func (st *Store) Prune(ctx context.Context, h lease.Holder, p nonce.Pruning) ([]nonce.Pruned, error) {
	conn, err := st.conn(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Release()
	text := consumedLocked
	if h != (lease.Holder{}) {
		if text = consumedOwned; conn.Conn().PgConn().CustomData()[epochKey] != p.Epoch {
			return nil, notSent("prune", errEpoch)
		}
	}
	ids, tokens := make([]int64, len(p.Pieces)), make([]int64, len(p.Pieces))
	versions, most := make([]int64, len(p.Pieces)), make([]int64, len(p.Pieces))
	for i, piece := range p.Pieces {
		ids[i], tokens[i], versions[i], most[i] = piece.ID, piece.Token, piece.Version, int64(piece.Rows)
	}
	results := make([]nonce.Pruned, len(p.Pieces))
	rows, err := conn.Query(ctx, text, h.Node, p.Age.Microseconds(), h.Incarnation, ids, tokens, versions, most)
	if err != nil {
		return nil, storeError("prune", err)
	}
	var ord, one int64
	var r nonce.Pruned
	_, err = pgx.ForEachRow(rows, []any{&ord, &r.Below, &r.Rows, &one}, func() error {
		results[ord-1] = nonce.Pruned{Applied: true, Below: r.Below, Rows: r.Rows}
		return nil
	})
	switch {
	case err != nil:
		return nil, storeError("prune", err)
	case syncRepCancelled(conn.Conn().PgConn()):
		return nil, errSyncRep
	}
	return results, nil
}
