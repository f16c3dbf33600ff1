package sqlite

import (
	"context"
	"time"

	"noncegate/nonce"
)

// All of these go by the primary key, whose first column is the signer, but sqlDueSent, which goes
// by the index on the time.
const (
	sqlSentState  = `SELECT state FROM signer_sent WHERE signer = ? AND nonce = ? AND tx_hash = ?`
	sqlSentKept   = `SELECT count(*), coalesce(sum(length(raw)), 0) FROM signer_sent WHERE signer = ?`
	sqlInsertSent = `
INSERT INTO signer_sent (signer, nonce, tx_hash, shard_id, payment, raw, state, look_at) VALUES (?, ?, ?, ?, ?, ?, 1, ?)`
	sqlReopenSent = `
UPDATE signer_sent SET raw = ?4, look_at = CASE state WHEN 3 THEN ?5 ELSE look_at END, state = 1
WHERE signer = ?1 AND nonce = ?2 AND tx_hash = ?3 AND state <> 2`
	sqlSettleSent = `
UPDATE signer_sent SET state = ?4, raw = CASE ?4 WHEN 1 THEN raw ELSE x'' END, look_at = ?5 WHERE signer = ?1 AND nonce = ?2 AND tx_hash = ?3`
	sqlDropSent   = `DELETE FROM signer_sent WHERE signer = ? AND nonce = ? AND tx_hash = ?`
	sqlForgetSent = `DELETE FROM signer_sent WHERE signer = ? AND nonce < ?`
	sqlSentOf     = `
SELECT signer, nonce, tx_hash, payment, state, x'' FROM signer_sent WHERE signer = ? AND nonce >= ? ORDER BY nonce, tx_hash`
	sqlDueSent = `
SELECT signer, nonce, tx_hash, payment, state, raw FROM signer_sent
WHERE shard_id IN (SELECT value FROM json_each(?)) AND look_at <= ? ORDER BY look_at LIMIT ?`
	sqlDelaySent  = `UPDATE signer_sent SET look_at = ?4 WHERE signer = ?1 AND nonce = ?2 AND tx_hash = ?3`
	sqlSentTotals = `SELECT count(*), coalesce(sum(length(raw)), 0) FROM signer_sent`
)

func (s *Store) after(wait time.Duration) int64 { return s.now().Add(wait).UnixMilli() }

// KeepSent implements nonce.SentStore.
func (s *Store) KeepSent(ctx context.Context, t nonce.Sent, below int64, wait time.Duration) (was nonce.SentState, err error) {
	err = s.write(ctx, func(ctx context.Context, c *session) error {
		if _, err := c.exec(ctx, sqlForgetSent, t.Signer, below); err != nil {
			return err
		}
		var state, rows, bytes int64
		there, err := c.one(ctx, []any{&state}, sqlSentState, t.Signer, t.Nonce, t.Hash[:])
		if err != nil {
			return err
		}
		if there {
			was = nonce.SentState(state)
			_, err := c.exec(ctx, sqlReopenSent, t.Signer, t.Nonce, t.Hash[:], t.Raw, s.after(wait))
			return err
		}
		if _, err := c.one(ctx, []any{&rows, &bytes}, sqlSentKept, t.Signer); err != nil {
			return err
		}
		if rows >= nonce.MaxSent || bytes+int64(len(t.Raw)) > nonce.MaxSentBytes {
			return errPlan{nonce.ErrSentFull}
		}
		_, err = c.exec(ctx, sqlInsertSent, t.Signer, t.Nonce, t.Hash[:], nonce.ShardOf(t.Signer, s.shards), t.Payment[:], t.Raw, s.after(wait))
		return err
	})
	return was, err
}

// SettleSent implements nonce.SentStore.
func (s *Store) SettleSent(ctx context.Context, signer string, n int64, hash nonce.TxHash, state nonce.SentState, wait time.Duration) error {
	return s.changeSent(ctx, sqlSettleSent, signer, n, hash[:], int64(state), s.after(wait))
}

// DropSent implements nonce.SentStore.
func (s *Store) DropSent(ctx context.Context, signer string, n int64, hash nonce.TxHash) error {
	return s.changeSent(ctx, sqlDropSent, signer, n, hash[:])
}

// ForgetSent implements nonce.SentStore.
func (s *Store) ForgetSent(ctx context.Context, signer string, below int64) error {
	return s.changeSent(ctx, sqlForgetSent, signer, below)
}

func (s *Store) changeSent(ctx context.Context, query string, args ...any) error {
	return s.write(ctx, func(ctx context.Context, c *session) error {
		_, err := c.exec(ctx, query, args...)
		return err
	})
}

// SentOf implements nonce.SentStore.
func (s *Store) SentOf(ctx context.Context, signer string, from int64) ([]nonce.Sent, error) {
	return s.sent(ctx, sqlSentOf, signer, from)
}

// DueSent implements nonce.SentStore.
func (s *Store) DueSent(ctx context.Context, shards []int, limit int) ([]nonce.Sent, error) {
	return s.sent(ctx, sqlDueSent, listOf(shards), s.after(0), limit)
}

func (s *Store) sent(ctx context.Context, query string, args ...any) (all []nonce.Sent, err error) {
	err = s.read(ctx, func(ctx context.Context, c *session) error {
		return c.each(ctx, func(scan func(...any) error) error {
			var t nonce.Sent
			var hash, payment []byte
			var state int64
			err := scan(&t.Signer, &t.Nonce, &hash, &payment, &state, &t.Raw)
			copy(t.Hash[:], hash)
			copy(t.Payment[:], payment)
			t.State = nonce.SentState(state)
			all = append(all, t)
			return err
		}, query, args...)
	})
	return all, err
}

// DelaySent implements nonce.SentStore.
func (s *Store) DelaySent(ctx context.Context, all []nonce.Sent, wait time.Duration) error {
	return s.write(ctx, func(ctx context.Context, c *session) error {
		for i := range all {
			if _, err := c.exec(ctx, sqlDelaySent, all[i].Signer, all[i].Nonce, all[i].Hash[:], s.after(wait)); err != nil {
				return err
			}
		}
		return nil
	})
}

// SentTotals implements nonce.SentStore.
func (s *Store) SentTotals(ctx context.Context) (rows, bytes int64, err error) {
	err = s.read(ctx, func(ctx context.Context, c *session) error {
		_, err := c.one(ctx, []any{&rows, &bytes}, sqlSentTotals)
		return err
	})
	return rows, bytes, err
}
