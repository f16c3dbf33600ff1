package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"noncegate/nonce"
)

// All of these go by the primary key, whose first column is the signer, but dueSent, which goes by
// the index on shard and time.
const (
	keepSent = `
WITH used AS (DELETE FROM signer_sent WHERE signer = $1 AND nonce < $8),
there AS (SELECT state FROM signer_sent WHERE signer = $1 AND nonce = $2 AND tx_hash = $3),
kept AS (SELECT count(*) AS rows, coalesce(sum(octet_length(raw)), 0) AS bytes FROM signer_sent WHERE signer = $1 AND nonce >= $8)
INSERT INTO signer_sent AS s (signer, nonce, tx_hash, shard_id, payment, raw, state, look_at)
SELECT $1, $2, $3, $4, $5, $6, 1, store_millis() + $7 FROM kept
WHERE rows < $9 AND bytes + octet_length($6::bytea) <= $10 OR EXISTS (SELECT FROM there)
ON CONFLICT (signer, nonce, tx_hash) DO UPDATE SET
    raw = CASE WHEN s.state = 2 THEN s.raw ELSE excluded.raw END,
    state = CASE WHEN s.state = 2 THEN s.state ELSE 1 END,
    look_at = CASE WHEN s.state = 3 THEN excluded.look_at ELSE s.look_at END
RETURNING coalesce((SELECT state FROM there), 0)`

	settleSent = `
UPDATE signer_sent SET state = $4::smallint, raw = CASE WHEN $4::smallint = 1 THEN raw ELSE '' END, look_at = store_millis() + $5
WHERE signer = $1 AND nonce = $2 AND tx_hash = $3`

	dropSent   = `DELETE FROM signer_sent WHERE signer = $1 AND nonce = $2 AND tx_hash = $3`
	forgetSent = `DELETE FROM signer_sent WHERE signer = $1 AND nonce < $2`
	sentOf     = `SELECT signer, nonce, tx_hash, payment, state, ''::bytea FROM signer_sent WHERE signer = $1 AND nonce >= $2 ORDER BY nonce, tx_hash`
	dueSent    = `
SELECT signer, nonce, tx_hash, payment, state, raw FROM signer_sent
WHERE shard_id = ANY ($1::int[]) AND look_at <= store_millis() ORDER BY look_at LIMIT $2`

	delaySent = `
UPDATE signer_sent s SET look_at = store_millis() + $4 FROM unnest($1::text[], $2::bigint[], $3::bytea[]) w(signer, nonce, tx_hash)
WHERE s.signer = w.signer AND s.nonce = w.nonce AND s.tx_hash = w.tx_hash`

	sentTotals = `SELECT count(*), coalesce(sum(octet_length(raw)), 0) FROM signer_sent`
)

// KeepSent implements nonce.SentStore.
func (s *Store) KeepSent(ctx context.Context, t nonce.Sent, below int64, wait time.Duration) (was nonce.SentState, err error) {
	kept, b := false, &pgx.Batch{}
	b.Queue(keepSent, t.Signer, t.Nonce, t.Hash[:], nonce.ShardOf(t.Signer, s.Shards()), t.Payment[:], t.Raw, wait.Milliseconds(), below,
		nonce.MaxSent, nonce.MaxSentBytes).Query(func(rows pgx.Rows) error {
		var state int16
		_, err := pgx.ForEachRow(rows, []any{&state}, func() error { kept, was = true, nonce.SentState(state); return nil })
		return err
	})
	if err := roundTrip(ctx, s.pool, "keep a transaction", b); err != nil {
		return 0, err
	}
	if !kept {
		return 0, nonce.ErrSentFull
	}
	return was, nil
}

// SettleSent implements nonce.SentStore.
func (s *Store) SettleSent(ctx context.Context, signer string, n int64, hash nonce.TxHash, state nonce.SentState, wait time.Duration) error {
	_, err := s.change(ctx, "settle a transaction", settleSent, signer, n, hash[:], int16(state), wait.Milliseconds())
	return err
}

// DropSent implements nonce.SentStore.
func (s *Store) DropSent(ctx context.Context, signer string, n int64, hash nonce.TxHash) error {
	_, err := s.change(ctx, "drop a transaction", dropSent, signer, n, hash[:])
	return err
}

// ForgetSent implements nonce.SentStore.
func (s *Store) ForgetSent(ctx context.Context, signer string, below int64) error {
	_, err := s.change(ctx, "forget transactions", forgetSent, signer, below)
	return err
}

// SentOf implements nonce.SentStore.
func (s *Store) SentOf(ctx context.Context, signer string, from int64) ([]nonce.Sent, error) {
	return s.sent(ctx, "read transactions", sentOf, signer, from)
}

// DueSent implements nonce.SentStore.
func (s *Store) DueSent(ctx context.Context, shards []int, limit int) ([]nonce.Sent, error) {
	return s.sent(ctx, "look for transactions", dueSent, shards, limit)
}

func (s *Store) sent(ctx context.Context, doing, text string, args ...any) (all []nonce.Sent, err error) {
	err = s.moment(ctx, doing, func(b *pgx.Batch) {
		b.Queue(text, args...).Query(func(rows pgx.Rows) (err error) {
			all, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (t nonce.Sent, err error) {
				var hash, payment []byte
				var state int16
				err = row.Scan(&t.Signer, &t.Nonce, &hash, &payment, &state, &t.Raw)
				copy(t.Hash[:], hash)
				copy(t.Payment[:], payment)
				t.State = nonce.SentState(state)
				return t, err
			})
			return err
		})
	})
	return all, err
}

// DelaySent implements nonce.SentStore.
func (s *Store) DelaySent(ctx context.Context, all []nonce.Sent, wait time.Duration) error {
	signers, nonces, hashes := make([]string, len(all)), make([]int64, len(all)), make([][]byte, len(all))
	for i := range all {
		signers[i], nonces[i], hashes[i] = all[i].Signer, all[i].Nonce, all[i].Hash[:]
	}
	_, err := s.change(ctx, "delay transactions", delaySent, signers, nonces, hashes, wait.Milliseconds())
	return err
}

// SentTotals implements nonce.SentStore.
func (s *Store) SentTotals(ctx context.Context) (rows, bytes int64, err error) {
	err = s.moment(ctx, "count transactions", func(b *pgx.Batch) {
		b.Queue(sentTotals).QueryRow(func(row pgx.Row) error { return row.Scan(&rows, &bytes) })
	})
	return rows, bytes, err
}
