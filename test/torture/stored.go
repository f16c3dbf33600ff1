//go:build unix

package torture

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"noncegate/test/lab/history"
)

// sampleEvery is how often the signers' rows are looked at while clients work.
const sampleEvery = 40 * time.Millisecond

// sample looks at the signers' rows until ctx ends, through every end and start of the database.
func (c *cluster) sample(ctx context.Context) {
	options := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	for ; ctx.Err() == nil; lasts(ctx, sampleEvery) {
		var samples []history.Sample
		look, cancel := context.WithTimeout(ctx, answerTimeout) // a server may stand still
		err := pgx.BeginTxFunc(look, c.db, options, func(tx pgx.Tx) (err error) {
			samples, err = readSamples(look, tx, time.Since(c.began))
			return err
		})
		cancel()
		if err == nil { // else the database is away
			c.h.Samples = append(c.h.Samples, samples...)
		}
	}
}

// readSamples looks at all signers; owner and token are of the shard. A row that nobody can read is left out: the gateways raise the
// alarm, and so does the end.
func readSamples(ctx context.Context, tx pgx.Tx, at time.Duration) (samples []history.Sample, err error) {
	rows, err := tx.Query(ctx, `
		SELECT s.signer, d.owner_node, d.owner_incarnation, d.fencing_token, s.version, s.next_nonce, s.floor, s.fencing_token, s.live
		FROM signer s JOIN shard d USING (shard_id)`)
	if err != nil {
		return nil, err
	}
	both := new(pgx.Batch) // what lives and is in the history
	s, live := history.Sample{At: at}, []byte(nil)
	into := []any{&s.Signer, &s.Owner, &s.Incarnation, &s.Token, &s.Version, &s.Next, &s.Floor, &s.Written, &live}
	_, err = pgx.ForEachRow(rows, into, func() error {
		stored := history.StoredSigner{Signer: s.Signer, Next: s.Next}
		if stored.Lives(live) != nil {
			return nil
		}
		var nonces []int64
		for i := range stored.Rows {
			nonces = append(nonces, stored.Rows[i].Nonce)
		}
		place := len(samples)
		samples = append(samples, s)
		both.Queue(`SELECT nonce FROM signer_history JOIN signer USING (signer_id) WHERE signer = $1 AND nonce = ANY ($2)`, s.Signer, nonces).
			Query(func(rows pgx.Rows) (err error) {
				samples[place].Both, err = pgx.CollectRows(rows, pgx.RowTo[int64])
				return err
			})
		return nil
	})
	return samples, errors.Join(err, tx.SendBatch(ctx, both).Close())
}

// patience bounds the wait for the last hold to end.
const patience = 12 * time.Second

// quiet waits until no hold is open, whoever owns its signer or nobody. After patience it gives up, and the rules judge what is there.
func (c *cluster) quiet(ctx context.Context) error {
	late := int64(0)
	for began, open := time.Now(), int64(1); open > 0 && time.Since(began) < patience; lasts(ctx, 5*poll) {
		err := c.db.QueryRow(ctx, `SELECT count(*), greatest($1, max(store_millis() - e.held_until))
			FROM signer s, live_entries(s.live) e WHERE e.status = 'HELD'`, late).Scan(&open, &late)
		if err != nil {
			return fmt.Errorf("look for open holds: %w", err)
		}
	}
	if overdue := time.Duration(late) * time.Millisecond; overdue > c.mayBeLate() {
		c.wrong(history.Hole, "", "a hold was overdue by %v when it was ended", overdue)
	}
	return nil
}
