//go:build unix

package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"

	"noncegate/nonce"
	"noncegate/scripts/loadtest/traffic"
)

// What the full database has: so many nonces of each of its signers, whom nobody owns. The last one of every tenth is HELD for a day, the
// last but one of another tenth RELEASED, all others CONSUMED just now. The history is in the order of time, one nonce of every signer
// after the other, so that a signer's rows lie apart.
const fullEach = 20

var fullSigners = 1_000_000 // fewer in tests

// fullDatabase finds the filled database, or makes it.
func (a *arena) fullDatabase(ctx context.Context) (string, error) {
	if a.full != "" {
		return a.full, nil
	}
	begin := time.Now()
	fmt.Fprintln(a.Progress, "filling a database, which takes minutes")
	name, err := a.pg.CreateDatabase(ctx)
	if err != nil {
		return "", err
	}
	url := a.pg.URL(name)
	if _, err := a.gateway(ctx, "migrate", "--store", url); err != nil {
		return "", err
	}
	if err := fill(ctx, url, fullSigners, fullEach); err != nil {
		return "", fmt.Errorf("fill a database: %w", err)
	}
	fmt.Fprintf(a.Progress, "filled after %v\n", time.Since(begin).Round(time.Second))
	a.full = name
	return name, nil
}

// The statements after the signers. Shards have been acquired and released once. History is what is not live.
const (
	fillShards  = `UPDATE shard SET fencing_token = 2`
	fillDue     = `INSERT INTO signer_due (signer_id, shard_id, due_at) SELECT signer_id, shard_id, $1 FROM signer WHERE signer_id % 10 = 0`
	fillHistory = `
INSERT INTO signer_history (signer_id, nonce, attempt, holder, tx_hashes, reason, at)
SELECT signer_id, $1, 1, 0, int8send(signer_id) || int8send($1) || int8send(-$1) || int8send(-signer_id), '', store_millis()
FROM signer
WHERE NOT (signer_id % 10 = 0 AND $1 = next_nonce - 1 OR signer_id % 10 = 5 AND $1 = next_nonce - 2)
ORDER BY signer_id`
)

// fill writes the signers, each with its live state, in an order without order, the same each time: the accounts of a load, which have
// numbers in a row, lie all over the table.
func fill(ctx context.Context, url string, signers, each int) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	var shards int
	if err := conn.QueryRow(ctx, `SELECT count(*) FROM shard`).Scan(&shards); err != nil {
		return err
	}
	now, next := time.Now(), int64(each)
	due := now.Add(24 * time.Hour).UnixMilli()
	live := map[int][]byte{
		0: nonce.AppendLive(nil, []nonce.Entry{{Nonce: next - 1, Status: nonce.Held, Attempt: 1, Until: due}}),
		5: nonce.AppendLive(nil, []nonce.Entry{{Nonce: next - 2, Status: nonce.Released, Attempt: 1}}),
	}
	columns := []string{"signer", "shard_id", "version", "fencing_token", "next_nonce", "floor", "live", "updated_at"}
	accounts, order := traffic.Signers{Count: signers}, rand.New(rand.NewPCG(1, 1)).Perm(signers)
	_, err = conn.CopyFrom(ctx, pgx.Identifier{"signer"}, columns, pgx.CopyFromSlice(signers, func(i int) ([]any, error) {
		name := accounts.Name(order[i])
		is := append([]byte{}, live[(i+1)%10]...)
		return []any{name, nonce.ShardOf(name, shards), 2 * next, int64(1), next, int64(0), is, now.UnixMilli()}, nil
	}))
	if err != nil {
		return err
	}
	if _, err := conn.Exec(ctx, fillShards); err != nil {
		return err
	}
	if _, err := conn.Exec(ctx, fillDue, due); err != nil {
		return err
	}
	for n := range next {
		if _, err := conn.Exec(ctx, fillHistory, n); err != nil {
			return err
		}
	}
	_, err = conn.Exec(ctx, "VACUUM (ANALYZE)")
	return err
}
