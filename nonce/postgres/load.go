package postgres

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"noncegate/lease"
	"noncegate/nonce"
)

// Load implements nonce.Ledger. The statements run in one round trip, each with
// its own snapshot, the signers' rows first: what the later ones see is at least
// as new, so a commit that finds the version unchanged proves that all was true
// together.
func (s *Store) Load(ctx context.Context, needs []nonce.Need) ([]nonce.Snapshot, error) {
	conn, err := s.conn(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Release()
	snaps := blank(needs)
	b := &pgx.Batch{}
	queueLoad(b, needs, snaps)
	if err := conn.SendBatch(ctx, b).Close(); err != nil {
		return nil, storeError("load", err)
	}
	return snaps, nil
}

// Acquire implements nonce.Ledger: one implicit transaction in one round trip.
// The load must be statements of its own: a single one would keep the snapshot
// from before it waited for the old owner's commit, and miss its allocations.
func (s *Store) Acquire(ctx context.Context, h lease.Holder, ttl time.Duration, needs []nonce.Need) ([]nonce.Snapshot, error) {
	conn, err := s.conn(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Release()
	signers := make([]string, len(needs))
	for i := range needs {
		signers[i] = needs[i].Signer
	}
	snaps := blank(needs)
	b := &pgx.Batch{}
	b.Queue(createSigners, signers)
	b.Queue(acquireSigners, signers, h.Node, h.Incarnation, ttl.Microseconds()).Query(func(rows pgx.Rows) error {
		return scanAcquired(rows, snaps)
	})
	queueLoad(b, needs, snaps)
	if err := conn.SendBatch(ctx, b).Close(); err != nil {
		return nil, storeError("acquire", err)
	}
	if syncRepCancelled(conn.Conn().PgConn()) {
		return nil, errSyncRep
	}
	return snaps, nil
}

// createSigners inserts in order of name, so that two of them cannot deadlock.
// Looking first keeps the identity sequence from being used up.
const createSigners = `
INSERT INTO signer_nonce_state (signer, updated_at)
SELECT w.signer, clock_timestamp() FROM unnest($1::text[]) w(signer)
WHERE NOT EXISTS (SELECT 1 FROM signer_nonce_state s WHERE s.signer = w.signer)
ORDER BY w.signer
ON CONFLICT (signer) DO NOTHING`

// acquireSigners takes leases that are free, expired, or of this node. The rows
// are locked in order of id and judged again under the lock. The token always
// grows, the version stays.
const acquireSigners = `
WITH w AS MATERIALIZED (SELECT signer, ord FROM unnest($1::text[]) WITH ORDINALITY w(signer, ord)),
l AS MATERIALIZED (
  SELECT w.ord, s.signer_id, s.owner_node AS was
  FROM w, signer_nonce_state s
  WHERE s.signer = w.signer
    AND (s.owner_node IS NULL OR s.expires_at <= clock_timestamp() OR s.owner_node = $2 AND s.owner_incarnation <= $3)
  ORDER BY s.signer_id FOR NO KEY UPDATE OF s),
c AS MATERIALIZED (SELECT clock_timestamp() AS now FROM (SELECT count(*) FROM l) locked)
UPDATE signer_nonce_state s
SET fencing_token = s.fencing_token + 1, owner_node = $2, owner_incarnation = $3,
    acquired_at = c.now, expires_at = c.now + $4::bigint * interval '1 microsecond', updated_at = c.now
FROM l, c
WHERE s.signer_id = l.signer_id
RETURNING l.ord, CASE WHEN l.was <> $2 THEN l.was ELSE '' END`

func scanAcquired(rows pgx.Rows, snaps []nonce.Snapshot) error {
	var ord int64
	var was *string
	_, err := pgx.ForEachRow(rows, []any{&ord, &was}, func() error {
		s := &snaps[ord-1]
		s.Acquired = true
		if was != nil {
			s.TookOverFrom = *was
		}
		return nil
	})
	return err
}

func blank(needs []nonce.Need) []nonce.Snapshot {
	snaps := make([]nonce.Snapshot, len(needs))
	for i := range needs {
		snaps[i].Signer = needs[i].Signer
	}
	return snaps
}

// queueLoad adds the statements that fill snaps. The signers' rows come first.
func queueLoad(b *pgx.Batch, needs []nonce.Need, snaps []nonce.Snapshot) {
	l := newLoading(needs, snaps)
	b.Queue(loadSigners, l.signers).Query(l.scanSigners)
	if len(l.freeOrds) > 0 {
		b.Queue(loadReleased, l.freeOrds, l.freeSigners, l.freeLimits).Query(l.scanReleased)
	}
	if len(l.dueOrds) > 0 {
		b.Queue(loadDue, l.dueOrds, l.dueSigners, l.dueLimit).Query(l.scanDue)
	}
	if len(l.ids) > 0 {
		b.Queue(loadRequests, l.idOrds, l.idSigners, l.ids).Query(l.scanRequests)
		b.Queue(loadRequestRows, l.idOrds, l.idSigners, l.ids).Query(l.scanRows)
	}
	if len(l.nonces) > 0 {
		b.Queue(loadRows, l.nonceOrds, l.nonceSigners, l.nonces).Query(l.scanRows)
	}
}

// loading spreads needs over the parameters of the statements, and gathers rows.
type loading struct {
	snaps   []nonce.Snapshot
	needs   []nonce.Need
	seen    []map[int64]struct{} // nonces already in snaps[i].Rows
	signers []string

	freeOrds, dueOrds, idOrds, nonceOrds             []int64
	freeSigners, dueSigners, idSigners, nonceSigners []string
	freeLimits                                       []int64
	dueLimit                                         int64 // of all signers together; each has its own as well
	ids                                              []string
	nonces                                           []int64
}

func newLoading(needs []nonce.Need, snaps []nonce.Snapshot) *loading {
	l := &loading{snaps: snaps, needs: needs, seen: make([]map[int64]struct{}, len(needs))}
	for i := range needs {
		n, ord := &needs[i], int64(i)
		l.signers = append(l.signers, n.Signer)
		if n.Released > 0 {
			l.freeOrds, l.freeSigners = append(l.freeOrds, ord), append(l.freeSigners, n.Signer)
			l.freeLimits = append(l.freeLimits, int64(n.Released)+1)
		}
		if n.Due > 0 {
			l.dueOrds, l.dueSigners = append(l.dueOrds, ord), append(l.dueSigners, n.Signer)
			l.dueLimit += int64(n.Due)
		}
		for _, id := range n.RequestIDs {
			l.idOrds, l.idSigners, l.ids = append(l.idOrds, ord), append(l.idSigners, n.Signer), append(l.ids, id)
		}
		for _, k := range n.Nonces {
			l.nonceOrds, l.nonceSigners, l.nonces = append(l.nonceOrds, ord), append(l.nonceSigners, n.Signer), append(l.nonces, k)
		}
	}
	return l
}

const loadSigners = `
SELECT w.ord, ` + signerColumns + `
FROM unnest($1::text[]) WITH ORDINALITY w(signer, ord)
LEFT JOIN signer_nonce_state s ON s.signer = w.signer` + signerJoins

func (l *loading) scanSigners(rows pgx.Rows) error {
	var ord int64
	var t nonce.Snapshot
	var columns signerRow
	_, err := pgx.ForEachRow(rows, append([]any{&ord}, columns.into(&t)...), func() error {
		s := &l.snaps[ord-1]
		columns.finish(&t)
		t.Signer, t.Acquired, t.TookOverFrom = s.Signer, s.Acquired, s.TookOverFrom
		*s = t
		return nil
	})
	return err
}

const rowColumns = `a.nonce, a.status, a.attempt, a.fencing_token, a.tx_hash, coalesce(a.reason, ''), coalesce(a.promised_until, a.held_until), coalesce(a.holder, 0), a.updated_at`

// loadReleased walks the partial index of RELEASED rows from the floor upwards, or
// from where no doubt is left.
const loadReleased = `
SELECT w.ord, ` + rowColumns + `
FROM unnest($1::bigint[], $2::text[], $3::bigint[]) w(ord, signer, most),
signer_nonce_state s ` + engineJoin + `,
LATERAL (SELECT * FROM signer_nonce_allocation x
         WHERE x.signer_id = s.signer_id AND x.status = 2 AND x.nonce >= greatest(s.floor, ` + doubtText + `) ORDER BY x.nonce LIMIT w.most) a
WHERE s.signer = w.signer ORDER BY w.ord, a.nonce`

// dueWindow bounds the overdue holds, of any signer, that one look walks over. While
// sweeps keep up there are few. When very many ended together, those beyond the
// window are found once sweeps, which go by deadline too, have ended the earlier.
const dueWindow = "16384"

// loadDue walks the index of deadlines from its earliest entry. The clock is read
// once, in a subquery, so that it can be an index condition.
const loadDue = `
SELECT d.ord, ` + rowColumns + `
FROM (SELECT array_agg(s.signer_id) AS ids, array_agg(w.ord) AS ords
      FROM unnest($1::bigint[], $2::text[]) w(ord, signer), signer_nonce_state s WHERE s.signer = w.signer) k,
LATERAL (SELECT x.*, k.ords[array_position(k.ids, x.signer_id)] AS ord
         FROM (SELECT * FROM signer_nonce_allocation
               WHERE status = 1 AND held_until <= (SELECT clock_timestamp())
               ORDER BY held_until LIMIT ` + dueWindow + `) x
         WHERE x.signer_id = ANY (k.ids)
         ORDER BY x.held_until LIMIT $3) d,
LATERAL (SELECT d.*) a`

const loadRequests = `
SELECT w.ord, q.request_id, q.request_hash, q.nonces, q.attempts
FROM unnest($1::bigint[], $2::text[], $3::text[]) w(ord, signer, id), signer_nonce_state s, signer_nonce_request q
WHERE s.signer = w.signer AND q.signer_id = s.signer_id AND q.request_id = w.id`

const loadRequestRows = `
SELECT w.ord, ` + rowColumns + `
FROM unnest($1::bigint[], $2::text[], $3::text[]) w(ord, signer, id), signer_nonce_state s, signer_nonce_request q,
     unnest(q.nonces) n(nonce), signer_nonce_allocation a
WHERE s.signer = w.signer AND q.signer_id = s.signer_id AND q.request_id = w.id
  AND a.signer_id = s.signer_id AND a.nonce = n.nonce`

const loadRows = `
SELECT w.ord, ` + rowColumns + `
FROM unnest($1::bigint[], $2::text[], $3::bigint[]) w(ord, signer, nonce), signer_nonce_state s, signer_nonce_allocation a
WHERE s.signer = w.signer AND a.signer_id = s.signer_id AND a.nonce = w.nonce`

func (l *loading) scanReleased(rows pgx.Rows) error {
	return scanRows(rows, func(ord int64, row nonce.Row) {
		s := &l.snaps[ord]
		if len(s.Released) == l.needs[ord].Released {
			s.ReleasedMore = true
			return
		}
		s.Released = append(s.Released, row.Nonce)
		l.addRow(ord, row)
	})
}

func (l *loading) scanDue(rows pgx.Rows) error {
	return scanRows(rows, func(ord int64, row nonce.Row) {
		if len(l.snaps[ord].Due) == l.needs[ord].Due {
			return
		}
		row.UpdatedAt = time.Time{} // for lists
		l.snaps[ord].Due = append(l.snaps[ord].Due, row)
		l.addRow(ord, row)
	})
}

func (l *loading) scanRows(rows pgx.Rows) error { return scanRows(rows, l.addRow) }

func (l *loading) scanRequests(rows pgx.Rows) error {
	var ord int64
	var req nonce.Request
	var hash []byte
	seen := make(map[string]struct{}, len(l.ids))
	_, err := pgx.ForEachRow(rows, []any{&ord, &req.ID, &hash, &req.Nonces, &req.Attempts}, func() error {
		if _, twice := seen[l.signers[ord]+" "+req.ID]; twice {
			return nil
		}
		seen[l.signers[ord]+" "+req.ID] = struct{}{}
		copy(req.Hash[:], hash)
		l.snaps[ord].Requests = append(l.snaps[ord].Requests, req)
		req.Nonces, req.Attempts = nil, nil
		return nil
	})
	return err
}

// addRow keeps each nonce once, however many statements found it.
func (l *loading) addRow(ord int64, row nonce.Row) {
	if l.seen[ord] == nil {
		l.seen[ord] = make(map[int64]struct{})
	}
	if _, twice := l.seen[ord][row.Nonce]; twice {
		return
	}
	row.UpdatedAt = time.Time{} // for lists
	l.seen[ord][row.Nonce] = struct{}{}
	l.snaps[ord].Rows = append(l.snaps[ord].Rows, row)
}

func scanRows(rows pgx.Rows, each func(ord int64, row nonce.Row)) error {
	var ord int64
	var status int16
	var row nonce.Row
	var hash []byte
	var holder int64
	var until *time.Time
	_, err := pgx.ForEachRow(rows, []any{
		&ord, &row.Nonce, &status, &row.Attempt, &row.Token, &hash, &row.Reason, &until, &holder, &row.UpdatedAt,
	}, func() error {
		row.Status, row.HeldUntil = nonce.Status(status), time.Time{}
		row.Holder = nonce.Principal(holder)
		row.TxHash, row.Replaced = nonce.SplitHashes(hash)
		if until != nil {
			row.HeldUntil = *until
		}
		each(ord, row)
		return nil
	})
	return err
}

// Release implements nonce.Ledger. A row that somebody else has locked is waited for
// after the others, for lock_timeout: it may be a flush, which leaves the lease alone,
// as well as a node that takes the signer over.
func (s *Store) Release(ctx context.Context, h lease.Holder, terms []nonce.ReleaseTerm) (int, error) {
	ids, tokens := make([]int64, len(terms)), make([]int64, len(terms))
	for i, t := range terms {
		ids[i], tokens[i] = t.ID, t.Token
	}
	conn, err := s.conn(ctx)
	if err != nil {
		return 0, err
	}
	defer conn.Release()
	var released int
	var locked []int64
	if err := conn.QueryRow(ctx, releaseSigners, ids, tokens, h.Node, h.Incarnation).Scan(&released, &locked); err != nil {
		return 0, storeError("release", err)
	}
	for _, t := range terms {
		if !slices.Contains(locked, t.ID) {
			continue
		}
		tag, err := conn.Exec(ctx, releaseSigner, t.ID, t.Token, h.Node, h.Incarnation)
		if err != nil {
			return released, storeError("release", err)
		}
		released += int(tag.RowsAffected())
	}
	return released, nil
}

// releaseSigners leaves out rows that somebody else has locked just now, such as a
// flush or a sweep of another node, and returns their ids.
const releaseSigners = `
WITH w AS MATERIALIZED (
  SELECT s.signer_id, w.token
  FROM unnest($1::bigint[], $2::bigint[]) w(id, token), signer_nonce_state s
  WHERE s.signer_id = w.id AND s.fencing_token = w.token AND s.owner_node = $3 AND s.owner_incarnation = $4),
l AS MATERIALIZED (
  SELECT s.signer_id, w.token
  FROM w, signer_nonce_state s
  WHERE s.signer_id = w.signer_id AND s.fencing_token = w.token AND s.owner_node = $3 AND s.owner_incarnation = $4
  ORDER BY s.signer_id FOR NO KEY UPDATE OF s SKIP LOCKED),
u AS (
  UPDATE signer_nonce_state s ` + releaseSet + `
  FROM l WHERE s.signer_id = l.signer_id AND s.fencing_token = l.token RETURNING 1)
SELECT (SELECT count(*) FROM u), ARRAY(SELECT signer_id FROM w EXCEPT SELECT signer_id FROM l)`

// releaseSigner waits for the row, for lock_timeout at most. It is run for one signer
// at a time: who holds no other lock while it waits cannot be part of a deadlock.
const releaseSigner = `UPDATE signer_nonce_state s ` + releaseSet + `
WHERE s.signer_id = $1 AND s.fencing_token = $2 AND s.owner_node = $3 AND s.owner_incarnation = $4`

const releaseSet = `SET fencing_token = s.fencing_token + 1, owner_node = NULL, owner_incarnation = NULL, expires_at = clock_timestamp(), updated_at = clock_timestamp()`

// send runs a batch on a connection that is inside a transaction.
func send(ctx context.Context, conn *pgxpool.Conn, b *pgx.Batch) error {
	return conn.SendBatch(ctx, b).Close()
}
