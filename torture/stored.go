//go:build unix

package torture

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"noncegate/torture/history"
)

// sampleEvery is how often the signers' rows are looked at while clients work.
const sampleEvery = 40 * time.Millisecond

// sample looks at the signers' rows until ctx ends, through every end and start of
// the database.
func (c *Cluster) sample(ctx context.Context, began time.Time) []history.Sample {
	var samples []history.Sample
	var conn *pgx.Conn
	tick := time.NewTicker(sampleEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			if conn != nil {
				conn.Close(context.WithoutCancel(ctx))
			}
			return samples
		case <-tick.C:
		}
		var err error
		if conn == nil {
			if conn, err = c.connect(ctx); err != nil {
				continue // the database is away
			}
		}
		read, err := c.heart.samples(ctx, conn, time.Since(began))
		if err != nil {
			conn.Close(context.WithoutCancel(ctx))
			conn = nil
			continue
		}
		samples = append(samples, read...)
	}
}

func readSamples(ctx context.Context, conn *pgx.Conn, at time.Duration) ([]history.Sample, error) {
	rows, err := conn.Query(ctx, `
		SELECT signer, coalesce(owner_node, ''), coalesce(owner_incarnation, 0), fencing_token, version, next_nonce, floor,
		       coalesce((extract(epoch FROM acquired_at) * 1000000)::bigint, 0)
		FROM signer_nonce_state`)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (history.Sample, error) {
		s := history.Sample{At: at}
		return s, row.Scan(&s.Signer, &s.Owner, &s.Incarnation, &s.Token, &s.Version, &s.Next, &s.Floor, &s.AcquiredAt)
	})
}

// final reads all that is stored, in one transaction.
func (c *Cluster) final(ctx context.Context) (*history.Final, error) {
	conn, err := c.connect(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Close(ctx)
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	if err != nil {
		return nil, fmt.Errorf("read what is stored: %w", err)
	}
	defer tx.Rollback(ctx)
	return c.heart.final(ctx, tx)
}

// readFinal reads all that is stored of signers in many rows.
func readFinal(ctx context.Context, tx pgx.Tx) (*history.Final, error) {
	f := new(history.Final)
	var now time.Time
	if err := tx.QueryRow(ctx, `SELECT clock_timestamp()`).Scan(&now); err != nil {
		return nil, err
	}
	f.Now = now.UnixMilli()
	rows, err := tx.Query(ctx, `SELECT signer_id, signer, next_nonce, floor, pruned, held, version, fencing_token FROM signer_nonce_state ORDER BY signer_id`)
	if err != nil {
		return nil, err
	}
	at := make(map[int64]int)
	var id int64
	var s history.StoredSigner
	_, err = pgx.ForEachRow(rows, []any{&id, &s.Signer, &s.Next, &s.Floor, &s.Pruned, &s.Held, &s.Version, &s.Token}, func() error {
		at[id] = len(f.Signers)
		f.Signers = append(f.Signers, s)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return f, readRows(ctx, tx, f, at)
}

func readRows(ctx context.Context, tx pgx.Tx, f *history.Final, at map[int64]int) error {
	rows, err := tx.Query(ctx, `
		SELECT signer_id, nonce, (ARRAY['HELD', 'RELEASED', 'CONSUMED'])[status], attempt,
		       tx_hash, coalesce(reason, ''), held_until
		FROM signer_nonce_allocation ORDER BY signer_id, nonce`)
	if err != nil {
		return err
	}
	var id int64
	var r history.Row
	var until *time.Time
	var hashes []byte
	_, err = pgx.ForEachRow(rows, []any{&id, &r.Nonce, &r.Status, &r.Attempt, &hashes, &r.Reason, &until}, func() error {
		row := r
		row.Recorded(hashes)
		if until != nil && row.Status == history.Held {
			row.HeldUntil = until.UnixMilli()
		}
		i, ok := at[id]
		if !ok {
			return fmt.Errorf("an allocation of signer %d, which does not exist", id)
		}
		f.Signers[i].Rows = append(f.Signers[i].Rows, row)
		return nil
	})
	return err
}

// quiet waits until no hold is open, whoever owns its signer or nobody, and returns
// how long that took and by how much a hold was overdue at most. After patience it
// gives up, and the rules judge what is there.
func (c *Cluster) quiet(ctx context.Context, patience time.Duration) (took, overdue time.Duration, err error) {
	conn, err := c.connect(ctx)
	if err != nil {
		return 0, 0, err
	}
	defer conn.Close(ctx)
	began := time.Now()
	tick := time.NewTicker(5 * poll)
	defer tick.Stop()
	for {
		open, late, err := c.heart.open(ctx, conn)
		if err != nil {
			return 0, 0, fmt.Errorf("look for open holds: %w", err)
		}
		overdue = max(overdue, late)
		if open == 0 || time.Since(began) > patience {
			return time.Since(began), overdue, nil
		}
		select {
		case <-ctx.Done():
			return 0, 0, ctx.Err()
		case <-tick.C:
		}
	}
}

// openHolds counts the holds in the rows of nonces.
func openHolds(ctx context.Context, conn *pgx.Conn) (n int64, overdue time.Duration, err error) {
	var late int64
	err = conn.QueryRow(ctx, `
		SELECT count(*), coalesce(1000 * extract(epoch FROM clock_timestamp() - min(held_until)), 0)::bigint
		FROM signer_nonce_allocation WHERE status = 1`).Scan(&n, &late)
	return n, time.Duration(late) * time.Millisecond, err
}
