//go:build unix

package bench

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"noncegate/nonce"
)

// The statements that fill the schema in which all that lives of a signer is one row, after
// the signers. Shards have been acquired and released once. History is what is not live.
const (
	fillShards = `UPDATE shard SET fencing_token = 2`
	fillDue    = `INSERT INTO signer_due (signer_id, shard_id, due_at) SELECT signer_id, shard_id, $1 FROM signer WHERE signer_id % 10 = 0`

	fillHistory = `
INSERT INTO signer_history (signer_id, nonce, attempt, holder, tx_hashes, reason, at)
SELECT s.signer_id, n, 1, 0, int8send(s.signer_id) || int8send(n) || int8send(-n) || int8send(-s.signer_id), '', (SELECT store_millis())
FROM generate_series($1::bigint, $2::bigint) n
CROSS JOIN signer s
WHERE NOT (s.signer_id % 10 = 0 AND n = s.next_nonce - 1 OR s.signer_id % 10 = 5 AND n = s.next_nonce - 2)
ORDER BY n, s.signer_id`
)

// fillRows writes the signers, each with its live state.
func fillRows(ctx context.Context, conn *pgx.Conn, st stored) error {
	var shards int
	if err := conn.QueryRow(ctx, `SELECT count(*) FROM shard`).Scan(&shards); err != nil {
		return err
	}
	if shards == 0 {
		return errors.New("the database has no shards")
	}
	now := time.Now()
	due := now.Add(24 * time.Hour).UnixMilli()
	next := int64(st.each)
	held := nonce.AppendLive(nil, []nonce.Entry{{Nonce: next - 1, Status: nonce.Held, Attempt: 1, Until: due}})
	released := nonce.AppendLive(nil, []nonce.Entry{{Nonce: next - 2, Status: nonce.Released, Attempt: 1}})
	columns := []string{"signer", "shard_id", "version", "fencing_token", "next_nonce", "floor", "live", "updated_at"}
	err := copySigners(ctx, conn, st, "signer", columns, func(id int, name string) []any {
		live := []byte{}
		switch id % 10 {
		case 0:
			live = held
		case 5:
			live = released
		}
		return []any{name, nonce.ShardOf(name, shards), 2 * next, int64(1), next, int64(0), live, now.UnixMilli()}
	})
	if err != nil {
		return err
	}
	if _, err := conn.Exec(ctx, fillShards); err != nil {
		return err
	}
	_, err = conn.Exec(ctx, fillDue, due)
	return err
}
