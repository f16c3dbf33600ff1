//go:build unix

package torture

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"noncegate/test/lab/history"
)

// sampleEvery is how often the signers' rows are looked at while clients work.
const sampleEvery = 40 * time.Millisecond

// sample looks at the signers' rows until ctx ends, through every end and start of
// the database.
func (c *cluster) sample(ctx context.Context, began time.Time) []history.Sample {
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
		read, err := readSamples(ctx, conn, time.Since(began))
		if err != nil {
			conn.Close(context.WithoutCancel(ctx))
			conn = nil
			continue
		}
		samples = append(samples, read...)
	}
}

// final reads all that is stored, in one transaction.
func (c *cluster) final(ctx context.Context) (*history.Final, error) {
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
	var now int64
	if err := tx.QueryRow(ctx, `SELECT store_millis()`).Scan(&now); err != nil {
		return nil, err
	}
	return readFinal(ofPostgres(ctx, tx), now)
}

// quiet waits until no hold is open, whoever owns its signer or nobody, and returns
// how long that took and by how much a hold was overdue at most. After patience it
// gives up, and the rules judge what is there.
func (c *cluster) quiet(ctx context.Context, patience time.Duration) (took, overdue time.Duration, err error) {
	conn, err := c.connect(ctx)
	if err != nil {
		return 0, 0, err
	}
	defer conn.Close(ctx)
	began := time.Now()
	tick := time.NewTicker(5 * poll)
	defer tick.Stop()
	for {
		open, late, err := openHolds(ctx, conn)
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
