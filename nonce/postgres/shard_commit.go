package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"noncegate/lease"
	"noncegate/nonce"
)

// commitShards is one commit, of any number of signers and shards. Its parts:
//
//	w, asked, past  what is to be written: arrays, an element each; ord is the write's place
//	locked          the rows of the shards. Nobody takes one before the commit has ended
//	mine            the writes whose shard is as the writer believes
//	rows            their signers' rows, locked in order of id; those that others write are left out
//	known           the writes of which a request id is known
//	good            the writes whose conditions hold
//	written         the rows that were updated or inserted; all else depends on them
//
// $1 and $2 are the node and its incarnation. In mode basic $1 is NULL: whoever owns the
// shard, and the row gets token 0.
const commitShards = `
WITH c AS MATERIALIZED (SELECT store_millis() AS now),
w AS MATERIALIZED (
    SELECT * FROM unnest($3::int[], $4::text[], $5::int[], $6::bigint[], $7::bigint[], $8::bigint[], $9::bigint[], $10::bytea[], $11::bool[], $12::bigint[], $13::bigint[])
    AS w(ord, name, shard, token, version, next, floor, live, compare, not_before, due_at)),
asked AS MATERIALIZED (
    SELECT * FROM unnest($14::int[], $15::text[], $16::bytea[], $17::text[]) AS a(ord, request_id, request_hash, nonces)),
past AS MATERIALIZED (
    SELECT * FROM unnest($18::int[], $19::bigint[], $20::bigint[], $21::bigint[], $22::bytea[], $23::text[])
    AS p(ord, nonce, attempt, holder, tx_hashes, reason)),
locked AS MATERIALIZED (
    SELECT s.shard_id, s.fencing_token, s.owner_node, s.owner_incarnation FROM shard s
    WHERE s.shard_id = ANY ($5) ORDER BY s.shard_id FOR SHARE),
mine AS MATERIALIZED (
    SELECT w.* FROM w JOIN locked l ON l.shard_id = w.shard
    WHERE $1::text IS NULL OR l.owner_node = $1 AND l.owner_incarnation = $2 AND l.fencing_token = w.token),
rows AS MATERIALIZED (
    SELECT s.signer_id, s.signer, s.version FROM signer s
    WHERE s.signer = ANY (ARRAY (SELECT name FROM mine)) ORDER BY s.signer_id FOR NO KEY UPDATE SKIP LOCKED),
known AS MATERIALIZED (
    SELECT DISTINCT a.ord FROM asked a JOIN mine m ON m.ord = a.ord JOIN rows r ON r.signer = m.name
    JOIN signer_request q ON q.signer_id = r.signer_id AND q.request_id = a.request_id),
good AS MATERIALIZED (
    SELECT m.*, r.signer_id FROM mine m CROSS JOIN c LEFT JOIN rows r ON r.signer = m.name
    WHERE coalesce(r.version, 0) = m.version AND m.not_before <= c.now AND NOT EXISTS (SELECT 1 FROM known k WHERE k.ord = m.ord)
      AND (m.version > 0 OR NOT EXISTS (SELECT 1 FROM signer s WHERE s.signer = m.name))),
updated AS (
    UPDATE signer s SET version = s.version + 1, fencing_token = CASE WHEN $1::text IS NULL THEN 0 ELSE g.token END,
        next_nonce = g.next, floor = g.floor, live = g.live, updated_at = c.now
    FROM good g, c
    WHERE s.signer_id = g.signer_id AND s.version = g.version AND NOT g.compare
      AND (g.next >= s.next_nonce AND g.floor >= s.floor OR broken('the cursor or the floor of a signer falls'))
    RETURNING g.ord, s.signer_id),
inserted AS (
    INSERT INTO signer (signer, shard_id, version, fencing_token, next_nonce, floor, live, updated_at)
    SELECT g.name, g.shard, 1, CASE WHEN $1::text IS NULL THEN 0 ELSE g.token END, g.next, g.floor, g.live, c.now
    FROM good g, c WHERE g.signer_id IS NULL AND NOT g.compare ORDER BY g.name
    ON CONFLICT (signer) DO NOTHING
    RETURNING signer, signer_id),
written AS MATERIALIZED (
    SELECT ord, signer_id FROM updated
    UNION ALL SELECT g.ord, i.signer_id FROM inserted i JOIN good g ON g.name = i.signer),
history AS (
    INSERT INTO signer_history AS h (signer_id, nonce, attempt, holder, tx_hashes, reason, at)
    SELECT x.signer_id, p.nonce, p.attempt, p.holder, p.tx_hashes, p.reason, c.now FROM past p JOIN written x ON x.ord = p.ord CROSS JOIN c
    ON CONFLICT (signer_id, nonce) DO UPDATE SET attempt = excluded.attempt, holder = excluded.holder, tx_hashes = excluded.tx_hashes,
        reason = excluded.reason, at = excluded.at
    WHERE h.attempt <= excluded.attempt OR broken('a nonce was consumed with a higher attempt')),
requests AS (
    INSERT INTO signer_request (signer_id, request_id, request_hash, nonces, created_at)
    SELECT x.signer_id, a.request_id, a.request_hash, a.nonces, c.now FROM asked a JOIN written x ON x.ord = a.ord CROSS JOIN c),
due AS (
    INSERT INTO signer_due AS d (signer_id, shard_id, due_at)
    SELECT x.signer_id, g.shard, g.due_at FROM good g JOIN written x ON x.ord = g.ord WHERE g.due_at <> 0
    ON CONFLICT (signer_id) DO UPDATE SET due_at = excluded.due_at
    WHERE excluded.due_at < d.due_at OR d.due_at <= (SELECT now FROM c))
SELECT w.ord, c.now, CASE
    WHEN x.ord IS NOT NULL OR g.compare THEN 'applied'
    WHEN m.ord IS NULL THEN 'owner'
    WHEN coalesce(r.version, 0) <> m.version THEN 'moved'
    WHEN k.ord IS NOT NULL THEN 'known'
    WHEN m.not_before > c.now THEN 'early'
    ELSE 'moved' END
FROM w CROSS JOIN c LEFT JOIN mine m ON m.ord = w.ord LEFT JOIN good g ON g.ord = w.ord LEFT JOIN written x ON x.ord = w.ord
    LEFT JOIN rows r ON r.signer = w.name LEFT JOIN known k ON k.ord = w.ord
ORDER BY w.ord`

// shardResults are the words of commitShards.
var shardResults = map[string]nonce.WriteResult{
	"applied": nonce.Applied, "owner": nonce.NotOwner, "moved": nonce.Moved, "known": nonce.IDKnown, "early": nonce.TooEarly,
}

// packed are the arrays of commitShards, in its order.
type packed struct {
	ord, shard                         []int
	name                               []string
	token, version, next, floor        []int64
	live                               [][]byte
	compare                            []bool
	notBefore, dueAt                   []int64
	askedOf                            []int
	requestID                          []string
	requestHash                        [][]byte
	requestNonces                      []string
	pastOf                             []int
	pastNonce, pastAttempt, pastHolder []int64
	pastHashes                         [][]byte
	pastReason                         []string
}

func (p *packed) args(node any, incarnation int64) []any {
	return []any{
		node, incarnation, p.ord, p.name, p.shard, p.token, p.version, p.next, p.floor, p.live, p.compare, p.notBefore, p.dueAt,
		p.askedOf, p.requestID, p.requestHash, p.requestNonces,
		p.pastOf, p.pastNonce, p.pastAttempt, p.pastHolder, p.pastHashes, p.pastReason,
	}
}

// add packs one write.
func (p *packed) add(ord, shards int, w *nonce.Write) error {
	believed := w.Signer.Version
	if !w.Check {
		believed--
	}
	shard := w.Term.Shard
	if shard != nonce.ShardOf(w.Name, shards) {
		shard = -1 // nobody owns it
	}
	p.ord, p.name, p.shard = append(p.ord, ord), append(p.name, w.Name), append(p.shard, shard)
	p.token, p.version = append(p.token, w.Term.Token), append(p.version, believed)
	p.next, p.floor = append(p.next, w.Signer.Next), append(p.floor, w.Signer.Floor)
	p.live = append(p.live, nonce.AppendLive([]byte{}, w.Signer.Live))
	p.compare, p.notBefore, p.dueAt = append(p.compare, w.Check), append(p.notBefore, w.NotBefore), append(p.dueAt, w.DueAt)
	for i := range w.Requests {
		q := &w.Requests[i]
		pairs := make([][2]int64, len(q.Nonces))
		for j := range pairs {
			pairs[j] = [2]int64{q.Nonces[j], q.Attempts[j]}
		}
		text, err := json.Marshal(pairs)
		if err != nil {
			return err
		}
		p.askedOf, p.requestID = append(p.askedOf, ord), append(p.requestID, q.ID)
		p.requestHash, p.requestNonces = append(p.requestHash, q.Hash[:]), append(p.requestNonces, string(text))
	}
	for i := range w.History {
		h := &w.History[i]
		p.pastOf, p.pastNonce, p.pastAttempt = append(p.pastOf, ord), append(p.pastNonce, h.Nonce), append(p.pastAttempt, h.Attempt)
		p.pastHolder = append(p.pastHolder, int64(h.Holder))
		p.pastHashes = append(p.pastHashes, append([]byte{}, nonce.JoinHashes(h.TxHash, h.Replaced)...))
		p.pastReason = append(p.pastReason, h.Reason)
	}
	return nil
}

// Commit implements nonce.ShardStore.
func (s *ShardStore) Commit(ctx context.Context, h lease.Holder, writes []nonce.Write) (nonce.Committed, error) {
	return s.commit(ctx, s.pool, h.Node, h.Incarnation, writes)
}

func (s *ShardStore) commit(ctx context.Context, q querier, node any, incarnation int64, writes []nonce.Write) (nonce.Committed, error) {
	var p packed
	for i := range writes {
		if err := p.add(i, s.shards, &writes[i]); err != nil {
			return nonce.Committed{}, notSent("commit", err)
		}
	}
	rows, err := q.Query(ctx, commitShards, p.args(node, incarnation)...)
	if err != nil {
		return nonce.Committed{}, storeError("commit", err)
	}
	out := nonce.Committed{Results: make([]nonce.WriteResult, 0, len(writes))}
	var ord int
	var now int64
	var word string
	_, err = pgx.ForEachRow(rows, []any{&ord, &now, &word}, func() error {
		out.Now = time.UnixMilli(now)
		out.Results = append(out.Results, shardResults[word])
		return nil
	})
	if err != nil {
		return nonce.Committed{}, storeError("commit", err)
	}
	return out, nil
}

const (
	loadShardSigners = `
SELECT n.ord, store_millis(), d.shard_id, d.owner_node, d.owner_incarnation, d.fencing_token,
    coalesce(s.signer_id, 0), coalesce(s.version, 0), coalesce(s.fencing_token, 0), coalesce(s.next_nonce, 0), coalesce(s.floor, 0), s.live
FROM unnest($1::int[], $2::text[], $3::int[]) AS n(ord, name, shard) JOIN shard d ON d.shard_id = n.shard LEFT JOIN signer s ON s.signer = n.name
ORDER BY n.ord`

	loadShardHistory = `
SELECT n.ord, h.nonce, h.attempt, h.holder, h.tx_hashes, h.reason, h.at
FROM unnest($1::int[], $2::text[], $3::bigint[]) AS n(ord, name, nonce) JOIN signer s ON s.signer = n.name
JOIN signer_history h ON h.signer_id = s.signer_id AND h.nonce = n.nonce`

	loadShardRequests = `
SELECT n.ord, q.request_id, q.request_hash, q.nonces
FROM unnest($1::int[], $2::text[], $3::text[]) AS n(ord, name, request_id) JOIN signer s ON s.signer = n.name
JOIN signer_request q ON q.signer_id = s.signer_id AND q.request_id = n.request_id`

	lockShardSigner = `SELECT signer_id FROM signer WHERE signer = $1 FOR NO KEY UPDATE`
)

// queueLoad queues what reads signers, and fills what is returned when it is sent.
func (s *ShardStore) queueLoad(b *pgx.Batch, needs []nonce.SignerNeed) *nonce.Loaded {
	out := &nonce.Loaded{Signers: make([]nonce.LoadedSigner, len(needs))}
	var ords, shards, historyOf, requestsOf []int
	var names, historyNames, requestNames, ids []string
	var nonces []int64
	for i := range needs {
		n := &needs[i]
		l := &out.Signers[i]
		l.History, l.Requests = make(map[int64]*nonce.Past), make(map[string]*nonce.Request)
		ords, names, shards = append(ords, i), append(names, n.Signer), append(shards, nonce.ShardOf(n.Signer, s.shards))
		for _, at := range n.History {
			l.History[at] = nil
			historyOf, historyNames, nonces = append(historyOf, i), append(historyNames, n.Signer), append(nonces, at)
		}
		for _, id := range n.Requests {
			l.Requests[id] = nil
			requestsOf, requestNames, ids = append(requestsOf, i), append(requestNames, n.Signer), append(ids, id)
		}
	}
	b.Queue(loadShardSigners, ords, names, shards).Query(func(rows pgx.Rows) error { return scanSigners(rows, out) })
	if len(nonces) > 0 {
		b.Queue(loadShardHistory, historyOf, historyNames, nonces).Query(func(rows pgx.Rows) error { return scanHistory(rows, out) })
	}
	if len(ids) > 0 {
		b.Queue(loadShardRequests, requestsOf, requestNames, ids).Query(func(rows pgx.Rows) error { return scanRequests(rows, out) })
	}
	return out
}

func scanSigners(rows pgx.Rows, out *nonce.Loaded) error {
	var ord int
	var now, id int64
	var l nonce.LoadedSigner
	var live []byte
	_, err := pgx.ForEachRow(rows, []any{
		&ord, &now, &l.Shard.Shard, &l.Shard.Owner.Node, &l.Shard.Owner.Incarnation, &l.Shard.Token,
		&id, &l.Signer.Version, &l.Token, &l.Signer.Next, &l.Signer.Floor, &live,
	}, func() error {
		at := &out.Signers[ord]
		out.Now = time.UnixMilli(now)
		at.Shard, at.Token, at.Signer = l.Shard, l.Token, l.Signer
		at.Signer.Live, at.Err = nonce.ParseLive(live, l.Signer.Next)
		return nil
	})
	return err
}

func scanHistory(rows pgx.Rows, out *nonce.Loaded) error {
	var ord int
	var p nonce.Past
	var holder, at int64
	var hashes []byte
	_, err := pgx.ForEachRow(rows, []any{&ord, &p.Nonce, &p.Attempt, &holder, &hashes, &p.Reason, &at}, func() error {
		past := p
		past.Holder, past.At = nonce.Principal(holder), time.UnixMilli(at)
		past.TxHash, past.Replaced = nonce.SplitHashes(hashes)
		out.Signers[ord].History[p.Nonce] = &past
		return nil
	})
	return err
}

func scanRequests(rows pgx.Rows, out *nonce.Loaded) error {
	var ord int
	var id, text string
	var hash []byte
	_, err := pgx.ForEachRow(rows, []any{&ord, &id, &hash, &text}, func() error {
		q := &nonce.Request{ID: id}
		copy(q.Hash[:], hash)
		var pairs [][2]int64
		if err := json.Unmarshal([]byte(text), &pairs); err != nil {
			return err
		}
		for _, p := range pairs {
			q.Nonces, q.Attempts = append(q.Nonces, p[0]), append(q.Attempts, p[1])
		}
		out.Signers[ord].Requests[id] = q
		return nil
	})
	return err
}

// Load implements nonce.ShardStore: one round trip, in a transaction of its own, so that
// all is of one moment.
func (s *ShardStore) Load(ctx context.Context, needs []nonce.SignerNeed) (nonce.Loaded, error) {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return nonce.Loaded{}, notSent("load", err)
	}
	defer conn.Release()
	b := &pgx.Batch{}
	b.Queue(`BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY`)
	out := s.queueLoad(b, needs)
	b.Queue(`COMMIT`)
	if err := conn.SendBatch(ctx, b).Close(); err != nil {
		_, _ = conn.Exec(ctx, `ROLLBACK`) // it may be open, and then the pool closes the connection
		return nonce.Loaded{}, storeError("load", err)
	}
	return *out, nil
}

var errOtherSigner = errors.New("the plan is of another signer than was locked")

// Locked implements nonce.ShardStore.
func (s *ShardStore) Locked(ctx context.Context, need nonce.SignerNeed, plan func(nonce.Loaded) (nonce.Write, error)) (nonce.Committed, error) {
	tx, err := s.pool.Begin(ctx)
	if err != nil {
		return nonce.Committed{}, notSent("lock", err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }() // nothing once it is committed
	lock := &pgx.Batch{}
	lock.Queue(`SELECT 1 FROM shard WHERE shard_id = $1 FOR SHARE`, nonce.ShardOf(need.Signer, s.shards))
	lock.Queue(lockShardSigner, need.Signer)
	if err := tx.SendBatch(ctx, lock).Close(); err != nil {
		return nonce.Committed{}, aborted(err)
	}
	read := &pgx.Batch{}
	loaded := s.queueLoad(read, []nonce.SignerNeed{need}) // later statements see what the locks waited for
	if err := tx.SendBatch(ctx, read).Close(); err != nil {
		return nonce.Committed{}, aborted(err)
	}
	w, err := plan(*loaded)
	if err != nil {
		return nonce.Committed{}, err
	}
	if w.Name != need.Signer {
		return nonce.Committed{}, aborted(errOtherSigner)
	}
	w.Term = nonce.ShardTerm{Shard: nonce.ShardOf(need.Signer, s.shards)}
	out, err := s.commit(ctx, tx, nil, 0, []nonce.Write{w})
	if err != nil {
		return nonce.Committed{}, &nonce.StoreError{Outcome: nonce.Aborted, Err: err} // nothing is committed before COMMIT
	}
	return out, storeError("commit", tx.Commit(ctx))
}

// Due implements nonce.ShardStore.
func (s *ShardStore) Due(ctx context.Context, shards []int, limit int) ([]nonce.DueEntry, error) {
	rows, err := s.pool.Query(ctx, `
SELECT d.shard_id, s.signer, d.due_at FROM signer_due d JOIN signer s ON s.signer_id = d.signer_id
WHERE d.shard_id = ANY ($1) AND d.due_at <= store_millis() ORDER BY d.due_at, s.signer LIMIT $2`, shards, limit)
	if err != nil {
		return nil, storeError("look for what is due", err)
	}
	due, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (e nonce.DueEntry, err error) {
		return e, row.Scan(&e.Shard, &e.Signer, &e.At)
	})
	return due, storeError("look for what is due", err)
}

// Prune implements nonce.ShardStore.
func (s *ShardStore) Prune(ctx context.Context, before time.Time, limit int) (int, error) {
	done, err := s.pool.Exec(ctx, `
DELETE FROM signer_history WHERE ctid = ANY (ARRAY (SELECT ctid FROM signer_history WHERE at < $1 LIMIT $2))`, before.UnixMilli(), limit)
	return int(done.RowsAffected()), storeError("prune", err)
}
