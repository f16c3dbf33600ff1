//go:build unix

package torture

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite" // the driver "sqlite"

	"noncegate/test/lab/history"
)

// sampleEvery is how often the signers' rows are looked at while clients work.
const sampleEvery = 40 * time.Millisecond

// sample looks at the signers' rows until ctx ends, through every end and start of the database.
func (c *cluster) sample(ctx context.Context) {
	options := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	for ; ctx.Err() == nil; lasts(ctx, sampleEvery) {
		var samples []history.Sample
		err := pgx.BeginTxFunc(ctx, c.db, options, func(tx pgx.Tx) (err error) {
			samples, err = readSamples(ctx, tx, time.Since(c.began))
			return err
		})
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

// finalOfPostgres reads all that is stored, in one transaction.
func (c *cluster) finalOfPostgres(ctx context.Context) (err error) {
	db := stdlib.OpenDBFromPool(c.db)
	c.h.Final, err = readFinal(ctx, db, &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true}, `SELECT store_millis()`)
	return errors.Join(err, db.Close())
}

// finalOfFile reads all that is stored. That a gateway cannot use the file, or that it is not whole, is an error.
func (c *cluster) finalOfFile(ctx context.Context) error {
	path := (&url.URL{Path: c.file.database()}).EscapedPath()
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(5000)")
	if err != nil {
		return err
	}
	var verdict string
	if err = db.QueryRowContext(ctx, "PRAGMA integrity_check").Scan(&verdict); err == nil && verdict != "ok" {
		err = fmt.Errorf("integrity check: %s", verdict)
	}
	if err == nil {
		c.h.Final, err = readFinal(ctx, db, nil, `SELECT CAST(unixepoch('subsec') * 1000 AS integer)`)
	}
	return errors.Join(err, db.Close())
}

func each(ctx context.Context, tx *sql.Tx, statement string, do func(scan func(...any) error) error) error {
	rows, err := tx.QueryContext(ctx, statement)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := do(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}

// readFinal reads what both stores keep alike; now asks for the store's clock.
func readFinal(ctx context.Context, db *sql.DB, options *sql.TxOptions, now string) (*history.Final, error) {
	tx, err := db.BeginTx(ctx, options)
	if err != nil {
		return nil, fmt.Errorf("read what is stored: %w", err)
	}
	defer tx.Rollback()
	f, byID := new(history.Final), make(map[int64]*history.StoredSigner)
	var id int64
	put := func(err error, do func(*history.StoredSigner)) error {
		if s := byID[id]; err == nil && s != nil {
			do(s)
			return nil
		}
		return cmp.Or(err, fmt.Errorf("a row is of signer %d, which does not exist", id))
	}
	err = tx.QueryRowContext(ctx, now).Scan(&f.Now)
	signers := each(ctx, tx, `SELECT s.signer_id, s.signer, s.next_nonce, s.floor, s.version, d.fencing_token, s.live
		FROM signer s JOIN shard d USING (shard_id)`, func(scan func(...any) error) error {
		s, live := &history.StoredSigner{Requests: make(map[string][]history.Given)}, []byte(nil)
		err := scan(&id, &s.Signer, &s.Next, &s.Floor, &s.Version, &s.Token, &live)
		byID[id] = s
		return errors.Join(err, s.Lives(live))
	})
	consumed := each(ctx, tx, `SELECT signer_id, nonce, attempt, tx_hashes, reason FROM signer_history`, func(scan func(...any) error) error {
		row, hashes := history.Row{Status: history.Consumed}, []byte(nil)
		err := scan(&id, &row.Nonce, &row.Attempt, &hashes, &row.Reason)
		row.Recorded(hashes)
		return put(err, func(s *history.StoredSigner) { s.Rows = append(s.Rows, row) })
	})
	requests := each(ctx, tx, `SELECT signer_id, request_id, nonces FROM signer_request`, func(scan func(...any) error) error {
		var request, nonces string
		err := scan(&id, &request, &nonces)
		given, unread := history.ParseGiven([]byte(nonces))
		return put(cmp.Or(err, unread), func(s *history.StoredSigner) { s.Requests[request] = given })
	})
	for _, s := range byID {
		slices.SortStableFunc(s.Rows, func(a, b history.Row) int { return cmp.Compare(a.Nonce, b.Nonce) })
		f.Signers = append(f.Signers, *s)
	}
	return f, errors.Join(err, signers, consumed, requests)
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
