package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"noncegate/lease"
	"noncegate/nonce"
)

const (
	loadShardSigners = `
WITH c AS MATERIALIZED (SELECT store_millis() AS now)
SELECT n.ord, c.now, d.shard_id, d.owner_node, d.owner_incarnation, d.fencing_token, d.performance, d.log_identity, d.log_shipped, d.grant_until, d.epoch, d.doubt_until, d.rehearsed,
    coalesce(s.signer_id, 0), coalesce(s.version, 0), coalesce(s.fencing_token, 0), coalesce(s.next_nonce, 0), coalesce(s.floor, 0), s.live, coalesce(s.ceiling, 0), coalesce(s.epoch, 0)
FROM c CROSS JOIN unnest($1::int[], $2::text[], $3::int[]) AS n(ord, name, shard) JOIN shard d ON d.shard_id = n.shard LEFT JOIN signer s ON s.signer = n.name
ORDER BY n.ord`

	loadShardHistory = `
SELECT n.ord, h.nonce, h.attempt, h.holder, h.tx_hashes, h.reason, h.at
FROM unnest($1::int[], $2::text[], $3::bigint[]) AS n(ord, name, nonce) JOIN signer s ON s.signer = n.name
JOIN signer_history h ON h.signer_id = s.signer_id AND h.nonce = n.nonce`

	loadShardRequests = `
SELECT n.ord, q.request_id, q.request_hash, q.nonces
FROM unnest($1::int[], $2::text[], $3::text[]) AS n(ord, name, request_id) JOIN signer s ON s.signer = n.name
JOIN signer_request q ON q.signer_id = s.signer_id AND q.request_id = n.request_id`

	// A shard with the performance engine is refused, and not kept from its owner's shipments.
	lockShard       = `SELECT 1 FROM shard WHERE shard_id = $1 AND NOT performance FOR SHARE`
	lockShardSigner = `SELECT 1 FROM signer WHERE signer = $1 FOR NO KEY UPDATE`

	// Of each shard no more than the limit is read, however much is due.
	dueSigners = `
WITH due AS MATERIALIZED (
    SELECT d.* FROM unnest($1::int[]) AS w(shard_id), LATERAL (
        SELECT * FROM signer_due d WHERE d.shard_id = w.shard_id AND d.due_at <= (SELECT store_millis()) ORDER BY d.shard_id, d.due_at LIMIT $2) d
    ORDER BY d.due_at LIMIT $2)
SELECT d.shard_id, s.signer, d.due_at FROM due d JOIN signer s ON s.signer_id = d.signer_id ORDER BY d.due_at, s.signer`

	watchedSigners = `
WITH listed AS MATERIALIZED (
    SELECT w.* FROM unnest($1::int[]) AS of(shard_id), LATERAL (
        SELECT * FROM signer_watch w WHERE w.shard_id = of.shard_id AND w.signer_id > $2 ORDER BY w.shard_id, w.signer_id LIMIT $3) w
    ORDER BY w.signer_id LIMIT $3)
SELECT w.signer_id, s.signer, w.kind, w.nonce, w.since FROM listed w JOIN signer s ON s.signer_id = w.signer_id ORDER BY w.signer_id`
)

// queueLoad queues what reads signers, and fills what is returned when it is sent.
func (s *Store) queueLoad(b *pgx.Batch, needs []nonce.SignerNeed) *nonce.Loaded {
	out := &nonce.Loaded{Signers: make([]nonce.LoadedSigner, len(needs))}
	var ords, shards, historyOf, requestsOf []int
	var names, historyNames, requestNames, ids []string
	var nonces []int64
	for i := range needs {
		n := &needs[i]
		l := &out.Signers[i]
		l.History, l.Requests = make(map[int64]*nonce.Past), make(map[string]*nonce.Remembered)
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
		b.Queue(loadShardHistory, historyOf, historyNames, nonces).Query(func(rows pgx.Rows) error {
			return scanHistory(rows, func(ord int, p *nonce.Past) { out.Signers[ord].History[p.Nonce] = p })
		})
	}
	if len(ids) > 0 {
		b.Queue(loadShardRequests, requestsOf, requestNames, ids).Query(func(rows pgx.Rows) error {
			return scanRequests(rows, func(ord int, q *nonce.Remembered) { out.Signers[ord].Requests[q.ID] = q })
		})
	}
	return out
}

func scanSigners(rows pgx.Rows, out *nonce.Loaded) error {
	var ord int
	var now, id int64
	var l nonce.LoadedSigner
	var live []byte
	_, err := pgx.ForEachRow(rows, []any{
		&ord, &now, &l.Shard.Shard, &l.Shard.Owner.Node, &l.Shard.Owner.Incarnation, &l.Shard.Token, &l.Shard.Performance, &l.Shard.Identity, &l.Shard.Shipped, &l.Shard.GrantUntil, &l.Shard.Epoch, &l.Shard.DoubtUntil, &l.Shard.Rehearsed,
		&id, &l.Signer.Version, &l.Token, &l.Signer.Next, &l.Signer.Floor, &live, &l.Signer.Ceiling, &l.Signer.Epoch,
	}, func() error {
		at := &out.Signers[ord]
		out.Now = time.UnixMilli(now)
		at.Shard, at.Token, at.Signer = l.Shard, l.Token, l.Signer
		at.Signer.Live, at.Err = nonce.ParseLive(live, l.Signer.Next)
		return nil
	})
	return err
}

// scanHistory reads rows of the history, each with the position of its signer.
func scanHistory(rows pgx.Rows, each func(ord int, p *nonce.Past)) error {
	var ord int
	var p nonce.Past
	var holder, at int64
	var hashes []byte
	_, err := pgx.ForEachRow(rows, []any{&ord, &p.Nonce, &p.Attempt, &holder, &hashes, &p.Reason, &at}, func() error {
		past := p
		past.Holder, past.At = nonce.Principal(holder), time.UnixMilli(at)
		past.TxHash, past.Replaced = nonce.SplitHashes(hashes)
		each(ord, &past)
		return nil
	})
	return err
}

func scanRequests(rows pgx.Rows, each func(ord int, q *nonce.Remembered)) error {
	var ord int
	var id, text string
	var hash []byte
	_, err := pgx.ForEachRow(rows, []any{&ord, &id, &hash, &text}, func() error {
		q := &nonce.Remembered{ID: id}
		copy(q.Hash[:], hash)
		if err := q.UnpackNonces([]byte(text)); err != nil {
			return err
		}
		each(ord, q)
		return nil
	})
	return err
}

// Load implements nonce.Store.
func (s *Store) Load(ctx context.Context, needs []nonce.SignerNeed) (nonce.Loaded, error) {
	var out *nonce.Loaded
	if err := s.moment(ctx, "load", func(b *pgx.Batch) { out = s.queueLoad(b, needs) }); err != nil {
		return nonce.Loaded{}, err
	}
	return *out, nil
}

var errOtherSigner = errors.New("the plan is of another signer than was locked")

// Locked implements nonce.Store in three round trips: begin, lock and load; write;
// commit. A signer without a row has none to lock: of two that begin it, the later one is told
// Moved.
func (s *Store) Locked(ctx context.Context, need nonce.SignerNeed, plan func(nonce.Loaded) (nonce.Write, error)) (nonce.Committed, error) {
	conn, err := s.conn(ctx)
	if err != nil {
		return nonce.Committed{}, err
	}
	defer conn.Release()
	out, err := s.lockedWrite(ctx, conn, need, plan)
	if err != nil && conn.Conn().PgConn().TxStatus() != 'I' {
		rollback(ctx, conn)
	}
	return out, err
}

func (s *Store) lockedWrite(ctx context.Context, conn *pgxpool.Conn, need nonce.SignerNeed, plan func(nonce.Loaded) (nonce.Write, error)) (nonce.Committed, error) {
	shard := nonce.ShardOf(need.Signer, s.shards)
	b := &pgx.Batch{}
	b.Queue(`BEGIN`)
	// Nobody who waits to change the shard's row is passed.
	b.Queue(lockShardShared+`, set_config('idle_in_transaction_session_timeout', $2, true)`, shard, basicIdle)
	b.Queue(lockShard, shard)
	b.Queue(lockShardSigner, need.Signer)
	loaded := s.queueLoad(b, []nonce.SignerNeed{need}) // later statements see what the locks waited for
	if err := conn.SendBatch(ctx, b).Close(); err != nil {
		return nonce.Committed{}, nothingCommitted("lock", err)
	}
	w, err := plan(*loaded)
	if err == nil && w.Name != need.Signer {
		err = aborted(errOtherSigner)
	}
	if err != nil {
		return nonce.Committed{}, err
	}
	w.Term = lease.ShardTerm{Shard: shard}
	out, err := s.commit(ctx, conn, formBasic, lease.Holder{}, nonce.Shipment{Writes: []nonce.Write{w}})
	if err != nil {
		return nonce.Committed{}, nothingCommitted("write", err)
	}
	return out.Committed, commit(ctx, conn)
}

// Due implements nonce.Store.
func (s *Store) Due(ctx context.Context, shards []int, limit int) (due []nonce.DueEntry, err error) {
	err = s.moment(ctx, "look for what is due", func(b *pgx.Batch) {
		b.Queue(dueSigners, shards, limit).Query(func(rows pgx.Rows) (err error) {
			due, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (e nonce.DueEntry, err error) {
				return e, row.Scan(&e.Shard, &e.Signer, &e.At)
			})
			return err
		})
	})
	return due, err
}

// Watched implements nonce.Store.
func (s *Store) Watched(ctx context.Context, shards []int, after int64, limit int) (list []nonce.WatchEntry, err error) {
	err = s.moment(ctx, "read the signers that are watched", func(b *pgx.Batch) {
		b.Queue(watchedSigners, shards, after, limit).Query(func(rows pgx.Rows) (err error) {
			list, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (e nonce.WatchEntry, err error) {
				return e, row.Scan(&e.ID, &e.Signer, &e.Kind, &e.Nonce, &e.Since)
			})
			return err
		})
	})
	return list, err
}
