package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"noncegate/lease"
	"noncegate/nonce"
)

// openHolds finds the HELD rows of signer s. As a rule they lie at the top of the primary
// key, and the walk down it ends with the last one, however low that is: one that a
// repair handed out far below the others makes the walk as long as it is away from them.
const openHolds = `
    SELECT x.nonce, x.attempt, x.held_until, x.promised_until, x.reason FROM signer_nonce_allocation x
    WHERE x.signer_id = s.signer_id AND x.status + 0 = 1 ORDER BY x.signer_id DESC, x.nonce DESC LIMIT s.held`

// unknownText is the condition that nobody knows of hold x whether it was used. Such a
// hold is open whatever its deadline.
const unknownText = `x.reason IS NOT DISTINCT FROM '` + nonce.ReasonUnknown + `'`

// summaryText reads one signer in one statement, so in one snapshot.
const summaryText = `
WITH c AS MATERIALIZED (SELECT clock_timestamp() AS now),
s AS MATERIALIZED (SELECT * FROM signer_nonce_state WHERE signer = $1),
h AS MATERIALIZED (
  SELECT x.nonce, ` + unknownText + ` AS unknown, x.held_until > c.now OR ` + unknownText + ` AS open FROM c, s, LATERAL (` + openHolds + `) x)
SELECT c.now, s.next_nonce, s.floor, s.version, s.pruned, s.fencing_token, coalesce(s.owner_node, ''), coalesce(s.owner_incarnation, 0),
       s.expires_at, coalesce(g.url, ''), ` + standingColumns + `,
       (SELECT count(*) FROM h WHERE open),
       (SELECT count(*) FROM signer_nonce_allocation a WHERE a.signer_id = s.signer_id AND a.status = 2 AND a.nonce >= s.floor),
       (SELECT coalesce(min(nonce), -1) FROM h WHERE open), (SELECT count(*) FROM h WHERE NOT open AND h.nonce >= s.floor), (SELECT count(*) FROM h WHERE unknown)
FROM c LEFT JOIN s ON true` + signerJoins

// Summary implements nonce.Reader.
func (st *Store) Summary(ctx context.Context, signer string) (nonce.Summary, error) {
	conn, err := st.conn(ctx)
	if err != nil {
		return nonce.Summary{}, err
	}
	defer conn.Release()
	var next, floor, version, pruned, token, incarnation *int64
	var expires *time.Time
	var s nonce.Summary
	var node, url string
	var standing standingRow
	columns := append([]any{&s.Now, &next, &floor, &version, &pruned, &token, &node, &incarnation, &expires, &url}, standing.into(&s.Standing)...)
	err = conn.QueryRow(ctx, summaryText, signer).Scan(append(columns, &s.Held, &s.Released, &s.LowestHeld, &s.Overdue, &s.Unknown)...)
	if err != nil {
		return nonce.Summary{}, storeError("read the signer", err)
	}
	if next == nil {
		return nonce.Summary{Now: s.Now, LowestHeld: -1}, nil
	}
	s.Exists, s.Next, s.Floor, s.Version, s.Pruned = true, *next, *floor, *version, *pruned
	s.Released += s.Overdue
	s.Consumed = s.Next - s.Held - s.Released
	s.Lease = lease.Grant{Holder: lease.Holder{Node: node, Incarnation: *incarnation}, URL: url, Token: *token}
	s.Lease.ExpiresAt = orZero(expires)
	standing.finish(&s.Standing)
	return s, nil
}

// A page walks the primary key from where prunings ended, one of RELEASED rows
// their partial index, one of unknown holds the index of what stands out; one of HELD
// rows begins at the lowest.
const (
	listColumns = `SELECT s.signer_id, ` + rowColumns
	listAll     = listColumns + ` FROM signer_nonce_state s, LATERAL (
  SELECT * FROM signer_nonce_allocation x WHERE x.signer_id = s.signer_id AND x.nonce >= greatest($2, s.pruned) ORDER BY x.signer_id, x.nonce LIMIT $3) a
WHERE s.signer = $1 ORDER BY a.nonce`
	listHeld = listColumns + ` FROM signer_nonce_state s, LATERAL (
  SELECT * FROM signer_nonce_allocation x
  WHERE x.signer_id = s.signer_id AND x.status + 0 = 1 AND x.nonce >= $2 AND x.nonce >= (SELECT min(h.nonce) FROM (` + openHolds + `) h)
  ORDER BY x.signer_id, x.nonce LIMIT $3) a
WHERE s.signer = $1 ORDER BY a.nonce`
	listReleased = listColumns + ` FROM signer_nonce_state s, LATERAL (
  SELECT * FROM signer_nonce_allocation x WHERE x.signer_id = s.signer_id AND x.status = 2 AND x.nonce >= $2 ORDER BY x.signer_id, x.nonce LIMIT $3) a
WHERE s.signer = $1 ORDER BY a.nonce`
	listUnknown = listColumns + ` FROM signer_nonce_state s, LATERAL (
  SELECT * FROM signer_nonce_allocation x WHERE x.signer_id = s.signer_id AND ` + isUnknown + ` AND x.nonce >= $2
  ORDER BY x.signer_id, x.nonce LIMIT $3) a
WHERE s.signer = $1 ORDER BY a.nonce`
	listConsumed = listColumns + ` FROM signer_nonce_state s, LATERAL (
  SELECT * FROM signer_nonce_allocation x WHERE x.signer_id = s.signer_id AND x.nonce >= greatest($2, s.pruned) AND x.status = 3 ORDER BY x.signer_id, x.nonce LIMIT $3) a
WHERE s.signer = $1 ORDER BY a.nonce`
	// listRequests finds the ids behind a page of rows.
	listRequests = `
SELECT n.nonce, n.attempt, q.request_id
FROM signer_nonce_state s, signer_nonce_request q, unnest(q.nonces, q.attempts) n(nonce, attempt)
WHERE s.signer = $1 AND q.signer_id = s.signer_id AND q.nonces && $2::bigint[] AND n.nonce = ANY ($2::bigint[])`
)

// List implements nonce.Reader.
func (st *Store) List(ctx context.Context, q nonce.ListQuery) (nonce.ListPage, error) {
	conn, err := st.conn(ctx)
	if err != nil {
		return nonce.ListPage{}, err
	}
	defer conn.Release()
	text := map[nonce.Status]string{0: listAll, nonce.Held: listHeld, nonce.Released: listReleased, nonce.Consumed: listConsumed}[q.Status]
	if q.Unknown {
		text = listUnknown
	}
	rows, err := conn.Query(ctx, text, q.Signer, q.From, q.Limit+1)
	if err != nil {
		return nonce.ListPage{}, storeError("list", err)
	}
	page := nonce.ListPage{NextFrom: -1}
	if err := scanRows(rows, func(_ int64, row nonce.Row) { page.Rows = append(page.Rows, row) }); err != nil {
		return nonce.ListPage{}, storeError("list", err)
	}
	if len(page.Rows) > q.Limit {
		page.NextFrom = page.Rows[q.Limit].Nonce
		page.Rows = page.Rows[:q.Limit]
	}
	return page, st.nameRequests(ctx, conn.Conn(), q.Signer, page.Rows)
}

// nameRequests fills the request ids of rows, where they are remembered.
func (st *Store) nameRequests(ctx context.Context, conn *pgx.Conn, signer string, rows []nonce.Row) error {
	if len(rows) == 0 {
		return nil
	}
	nonces := make([]int64, len(rows))
	at := make(map[[2]int64]*nonce.Row, len(rows))
	for i := range rows {
		nonces[i] = rows[i].Nonce
		at[[2]int64{rows[i].Nonce, rows[i].Attempt}] = &rows[i]
	}
	result, err := conn.Query(ctx, listRequests, signer, nonces)
	if err != nil {
		return storeError("list request ids", err)
	}
	var n, attempt int64
	var id string
	_, err = pgx.ForEachRow(result, []any{&n, &attempt, &id}, func() error {
		if row, ok := at[[2]int64{n, attempt}]; ok {
			row.RequestID = id
		}
		return nil
	})
	return storeError("list request ids", err)
}

// dueText walks the index on deadlines from its earliest entry. The clock is read
// once, before, so that it can be an index condition and nothing that is found is
// overdue by less than nothing.
const dueText = `
WITH c AS MATERIALIZED (SELECT clock_timestamp() AS now),
d AS MATERIALIZED (
  SELECT a.signer_id, a.held_until FROM signer_nonce_allocation a
  WHERE a.status = 1 AND a.held_until <= (SELECT now FROM c) ORDER BY a.held_until LIMIT ` + dueWindow + `)
SELECT coalesce(s.signer, ''), coalesce(s.owner_node, ''), coalesce(s.owner_incarnation, 0), coalesce(s.fencing_token, 0), s.expires_at, d.first, c.now
FROM c
LEFT JOIN (SELECT signer_id, min(held_until) AS first FROM d GROUP BY signer_id) d ON true
LEFT JOIN signer_nonce_state s ON s.signer_id = d.signer_id
ORDER BY d.first LIMIT $1`

// Due implements nonce.Reader. It looks at the earliest of the overdue holds only
// (dueWindow), so many that nobody sweeps could hide later ones of other signers.
func (st *Store) Due(ctx context.Context, limit int) ([]nonce.DueSigner, time.Time, error) {
	conn, err := st.conn(ctx)
	if err != nil {
		return nil, time.Time{}, err
	}
	defer conn.Release()
	rows, err := conn.Query(ctx, dueText, limit)
	if err != nil {
		return nil, time.Time{}, storeError("find overdue holds", err)
	}
	var due []nonce.DueSigner
	var d nonce.DueSigner
	var expires, first *time.Time
	var now time.Time
	_, err = pgx.ForEachRow(rows, []any{&d.Signer, &d.Lease.Holder.Node, &d.Lease.Holder.Incarnation, &d.Lease.Token, &expires, &first, &now}, func() error {
		if d.Signer == "" {
			return nil // none is due; the row carries the clock
		}
		d.Overdue = now.Sub(*first)
		d.Lease.ExpiresAt = time.Time{}
		if expires != nil {
			d.Lease.ExpiresAt = *expires
		}
		due = append(due, d)
		return nil
	})
	return due, now, storeError("find overdue holds", err)
}

const pruneText = `
DELETE FROM signer_nonce_request WHERE ctid = ANY (ARRAY(
  SELECT ctid FROM signer_nonce_request
  WHERE created_at < (SELECT clock_timestamp()) - $1::bigint * interval '1 microsecond' LIMIT $2))`

// PruneRequests implements nonce.Reader.
func (st *Store) PruneRequests(ctx context.Context, age time.Duration, limit int) (int, error) {
	conn, err := st.conn(ctx)
	if err != nil {
		return 0, err
	}
	defer conn.Release()
	tag, err := conn.Exec(ctx, pruneText, age.Microseconds(), limit)
	return int(tag.RowsAffected()), storeError("prune request ids", err)
}
