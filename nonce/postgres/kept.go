package postgres

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"noncegate/nonce"
)

var _ nonce.KeptStore = (*Store)(nil)

const (
	keptClock   = `SELECT store_millis(), EXISTS (SELECT FROM shard WHERE performance)`
	keptNames   = `SELECT principal, name FROM gateway_principal ORDER BY principal`
	keptSigners = `
SELECT s.signer_id, s.signer, s.version, s.next_nonce, s.floor, s.live, s.ceiling, s.epoch,
    coalesce(w.kind, 0), coalesce(w.nonce, 0), coalesce(w.since, 0),
    d.shard_id, d.epoch, d.doubt_until, d.grant_until
FROM signer s JOIN shard d ON d.shard_id = s.shard_id LEFT JOIN signer_watch w ON w.signer_id = s.signer_id
WHERE s.signer > $1 AND (s.version > 0 OR s.ceiling > 0) ORDER BY s.signer LIMIT $2`
	keptRequests = `
SELECT request_id, request_hash, nonces, created_at FROM signer_request
WHERE signer_id = $1 AND request_id > $2 ORDER BY request_id LIMIT $3`
	keptSent = `
SELECT nonce, tx_hash, payment, state, raw, look_at FROM signer_sent
WHERE signer = $1 AND (nonce, tx_hash) > ($2, $3) ORDER BY nonce, tx_hash LIMIT $4`

	putNames = `
INSERT INTO gateway_principal (principal, name) SELECT * FROM unnest($1::bigint[], $2::text[]) ON CONFLICT (principal) DO NOTHING`
	putSigner = `
INSERT INTO signer (signer, shard_id, version, fencing_token, next_nonce, floor, live, updated_at)
VALUES ($1, $2, $3, 0, $4, $5, $6, store_millis()) ON CONFLICT (signer) DO NOTHING RETURNING signer_id`
	putDue     = `INSERT INTO signer_due (signer_id, shard_id, due_at) VALUES ($1, $2, $3)`
	putWatch   = `INSERT INTO signer_watch (signer_id, shard_id, kind, nonce, since) VALUES ($1, $2, $3, $4, $5)`
	putHistory = `INSERT INTO signer_history (signer_id, nonce, attempt, holder, tx_hashes, reason, at) VALUES ($1, $2, $3, $4, $5, $6, $7)`
	putRequest = `INSERT INTO signer_request (signer_id, request_id, request_hash, nonces, created_at) VALUES ($1, $2, $3, $4, $5)`
	putSent    = `
INSERT INTO signer_sent (signer, nonce, tx_hash, shard_id, payment, raw, state, look_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)`

	// The shards cannot get the performance engine before the transaction has ended.
	keptEngine = `SELECT count(*) FILTER (WHERE performance) FROM (SELECT performance FROM shard ORDER BY shard_id FOR SHARE) s`
)

// unhurried lets a transaction wait for the program that reads or writes the file.
const unhurried = `SET LOCAL idle_in_transaction_session_timeout = 0`

// Export implements nonce.KeptStore.
func (s *Store) Export(ctx context.Context, history bool, each func(time.Time, *nonce.Kept) error) error {
	conn, err := s.conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	var told error
	err = pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		var now int64
		var performance bool
		if _, err := tx.Exec(ctx, unhurried); err != nil {
			return err
		}
		if err := tx.QueryRow(ctx, keptClock).Scan(&now, &performance); err != nil {
			return err
		}
		if performance {
			told = nonce.ErrEngineOn
			return told
		}
		return nonce.ExportRows(ctx, keptRows{tx}, history, func(part *nonce.Kept) error {
			told = each(time.UnixMilli(now), part)
			return told
		})
	})
	if told != nil {
		return told
	}
	return nothingCommitted("export", err)
}

// keptRows reads in the transaction of an export.
type keptRows struct{ pgx.Tx }

var _ nonce.KeptRows = keptRows{}

// each runs a query, and calls fn for each row that was scanned.
func (x keptRows) each(ctx context.Context, dest []any, fn func() error, text string, args ...any) error {
	rows, err := x.Query(ctx, text, args...)
	if err == nil {
		_, err = pgx.ForEachRow(rows, dest, fn)
	}
	return err
}

func (x keptRows) Names(ctx context.Context) (map[nonce.Principal]string, error) {
	names := make(map[nonce.Principal]string)
	var key int64
	var name string
	return names, x.each(ctx, []any{&key, &name}, func() error {
		names[nonce.Principal(key)] = name
		return nil
	}, keptNames)
}

func (x keptRows) Signers(ctx context.Context, after string) (out []nonce.KeptRow, err error) {
	var r nonce.KeptRow
	var live []byte
	err = x.each(ctx, []any{
		&r.ID, &r.Name, &r.Version, &r.Next, &r.Floor, &live, &r.Ceiling, &r.Epoch,
		&r.Watch.Kind, &r.Watch.Nonce, &r.Watch.Since,
		&r.Shard.Shard, &r.Shard.Epoch, &r.Shard.DoubtUntil, &r.Shard.GrantUntil,
	}, func() error {
		r.Live, r.Err = nonce.ParseLive(live, r.Next)
		out = append(out, r)
		return nil
	}, keptSigners, after, nonce.KeptPiece)
	return out, err
}

func (x keptRows) Pasts(ctx context.Context, signer, from int64) (out []nonce.Past, err error) {
	rows, err := x.Query(ctx, listHistory, signer, from, nonce.KeptPiece)
	if err == nil {
		err = scanHistory(rows, func(_ int, p *nonce.Past) { out = append(out, *p) })
	}
	return out, err
}

func (x keptRows) Requests(ctx context.Context, signer int64, after string) (out []nonce.KeptRequest, err error) {
	var id, text string
	var hash []byte
	var at int64
	err = x.each(ctx, []any{&id, &hash, &text, &at}, func() error {
		q := nonce.KeptRequest{Remembered: nonce.Remembered{ID: id}, At: time.UnixMilli(at)}
		copy(q.Hash[:], hash)
		err := q.UnpackNonces([]byte(text))
		out = append(out, q)
		return err
	}, keptRequests, signer, after, nonce.KeptPiece)
	return out, err
}

func (x keptRows) Sent(ctx context.Context, name string, after *nonce.KeptSent) (out []nonce.KeptSent, err error) {
	var t nonce.KeptSent
	var hash, payment []byte
	var state int16
	var at int64
	err = x.each(ctx, []any{&t.Nonce, &hash, &payment, &state, &t.Raw, &at}, func() error {
		sent := nonce.KeptSent{Sent: t.Sent, LookAt: time.UnixMilli(at)}
		sent.Signer, sent.State = name, nonce.SentState(state)
		copy(sent.Hash[:], hash)
		copy(sent.Payment[:], payment)
		sent.Raw = append([]byte{}, t.Raw...)
		out = append(out, sent)
		return nil
	}, keptSent, name, after.Nonce, after.Hash[:], nonce.KeptPiece)
	return out, err
}

// Import implements nonce.KeptStore. Nothing of a shard is locked until the end.
func (s *Store) Import(ctx context.Context, next func() (*nonce.Kept, error)) (err error) {
	conn, err := s.conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	for _, text := range []string{"BEGIN ISOLATION LEVEL READ COMMITTED", unhurried} {
		if _, err := conn.Exec(ctx, text); err != nil {
			rollback(ctx, conn)
			return nothingCommitted("import", err)
		}
	}
	x := importing{conn: conn, shards: s.shards}
	if err := x.all(ctx, next); err != nil {
		rollback(ctx, conn)
		if _, ours := errors.AsType[*pgconn.PgError](err); ours || x.told == nil {
			return nothingCommitted("import", err)
		}
		return x.told
	}
	return commit(ctx, conn)
}

// importing is an import in its transaction.
type importing struct {
	conn   *pgxpool.Conn
	shards int
	id     int64 // the key of the last signer
	told   error // why it ends, where that is no error of the database
}

func (x *importing) all(ctx context.Context, next func() (*nonce.Kept, error)) error {
	for {
		part, err := next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = x.take(ctx, part)
		} else {
			x.told = err
		}
		if err != nil {
			return err
		}
	}
	var performance int
	err := x.conn.QueryRow(ctx, keptEngine).Scan(&performance)
	if err == nil && performance > 0 {
		x.told = nonce.ErrEngineOn
		return x.told
	}
	return err
}

// take writes a part, in one round trip but for the key of a signer.
func (x *importing) take(ctx context.Context, part *nonce.Kept) error {
	b := &pgx.Batch{}
	if len(part.Names) > 0 {
		var keys []int64
		var names []string
		for key, name := range part.Names {
			keys, names = append(keys, int64(key)), append(names, name)
		}
		b.Queue(putNames, keys, names)
	}
	shard := nonce.ShardOf(part.Name, x.shards)
	if at := part.Signer; at != nil {
		err := x.conn.QueryRow(ctx, putSigner, part.Name, shard, at.Version, at.Next, at.Floor, nonce.AppendLive([]byte{}, at.Live)).Scan(&x.id)
		if errors.Is(err, pgx.ErrNoRows) {
			x.told = &nonce.KnownSignerError{Name: part.Name}
			return x.told
		}
		if err != nil {
			return err
		}
		if due := at.FirstDeadline(); due > 0 {
			b.Queue(putDue, x.id, shard, due)
		}
		if w := at.Watch; w.Kind >= nonce.WatchOn {
			b.Queue(putWatch, x.id, shard, int16(w.Kind), w.Nonce, w.Since)
		}
	}
	for i := range part.History {
		p := &part.History[i]
		hashes := nonce.AppendHashes([]byte{}, p.TxHash, p.Replaced)
		b.Queue(putHistory, x.id, p.Nonce, p.Attempt, int64(p.Holder), hashes, p.Reason, p.At.UnixMilli())
	}
	for i := range part.Requests {
		q := &part.Requests[i]
		b.Queue(putRequest, x.id, q.ID, q.Hash[:], q.PackNonces(), q.At.UnixMilli())
	}
	for i := range part.Sent {
		t := &part.Sent[i]
		b.Queue(putSent, part.Name, t.Nonce, t.Hash[:], shard, t.Payment[:], append([]byte{}, t.Raw...), int16(t.State), t.LookAt.UnixMilli())
	}
	return x.conn.SendBatch(ctx, b).Close()
}
