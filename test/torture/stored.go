//go:build unix

package torture

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	_ "modernc.org/sqlite"             // the driver "sqlite"

	"noncegate/test/lab/history"
)

// sampleEvery is how often the signers' rows are looked at while clients work.
const sampleEvery = 40 * time.Millisecond

// sample looks at the signers' rows until ctx ends, through every end and start of the database.
func (c *cluster) sample(ctx context.Context, began time.Time) (samples []history.Sample) {
	for ctx.Err() == nil {
		lasts(ctx, sampleEvery)
		conn, err := c.connect(ctx)
		if err != nil {
			continue // the database is away
		}
		for err == nil {
			var read []history.Sample
			if read, err = readSamples(ctx, conn, time.Since(began)); err == nil {
				samples = append(samples, read...)
			}
			lasts(ctx, sampleEvery)
		}
		conn.Close(context.WithoutCancel(ctx))
	}
	return samples
}

// readSamples looks at all signers; owner and token are of the shard. A row that nobody can read is left out: the gateways raise the
// alarm, and so does the end.
func readSamples(ctx context.Context, conn *pgx.Conn, at time.Duration) (samples []history.Sample, err error) {
	options := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	return samples, pgx.BeginTxFunc(ctx, conn, options, func(tx pgx.Tx) error {
		var places, nonces []int64 // of what lives
		rows, err := tx.Query(ctx, `
			SELECT s.signer, d.owner_node, d.owner_incarnation, d.fencing_token, s.version, s.next_nonce, s.floor, s.fencing_token, s.live
			FROM signer s JOIN shard d USING (shard_id)`)
		if err != nil {
			return err
		}
		s, live := history.Sample{At: at}, []byte(nil)
		into := []any{&s.Signer, &s.Owner, &s.Incarnation, &s.Token, &s.Version, &s.Next, &s.Floor, &s.Written, &live}
		_, err = pgx.ForEachRow(rows, into, func() error {
			stored := history.StoredSigner{Signer: s.Signer, Next: s.Next}
			if stored.Lives(live) == nil {
				for i := range stored.Rows {
					places, nonces = append(places, int64(len(samples))), append(nonces, stored.Rows[i].Nonce)
				}
				samples = append(samples, s)
			}
			return nil
		})
		if err != nil {
			return err
		}
		names := make([]string, len(samples))
		for i := range samples {
			names[i] = samples[i].Signer
		}
		both, err := tx.Query(ctx, `
			SELECT n.place, n.nonce FROM unnest($1::bigint[], $2::bigint[]) AS n(place, nonce)
			JOIN signer s ON s.signer = ($3::text[])[n.place + 1] JOIN signer_history h USING (signer_id, nonce)`, places, nonces, names)
		if err != nil {
			return err
		}
		var place, n int64
		_, err = pgx.ForEachRow(both, []any{&place, &n}, func() error {
			samples[place].Both = append(samples[place].Both, n)
			return nil
		})
		return err
	})
}

// final reads all that is stored, in one transaction. Of a file that a gateway cannot use, or that is not whole, there is none, and
// the error is a violation.
func (c *cluster) final(ctx context.Context) (f *history.Final, err error) {
	driver, source, now := "pgx", c.url, `SELECT store_millis()`
	options := &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true}
	if c.file != nil {
		path := (&url.URL{Path: filepath.Join(c.file.store(), database)}).EscapedPath()
		driver, source, options = "sqlite", "file:"+path+"?_pragma=busy_timeout(5000)", nil
		now = `SELECT CAST(unixepoch('subsec') * 1000 AS integer)`
	}
	db, err := sql.Open(driver, source)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if c.file != nil {
		var verdict string
		if err := db.QueryRowContext(ctx, "PRAGMA integrity_check").Scan(&verdict); err != nil || verdict != "ok" {
			return nil, fmt.Errorf("integrity check: %s %w", verdict, err)
		}
	}
	tx, err := db.BeginTx(ctx, options)
	if err != nil {
		return nil, fmt.Errorf("read what is stored: %w", err)
	}
	defer tx.Rollback()
	f = new(history.Final)
	if err := tx.QueryRowContext(ctx, now).Scan(&f.Now); err != nil {
		return nil, err
	}
	return f, readFinal(ctx, tx, f)
}

// each runs a statement and calls do for every row.
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

func readFinal(ctx context.Context, tx *sql.Tx, f *history.Final) error {
	var orphan error
	at := make(map[int64]int)
	of := func(id int64) *history.StoredSigner {
		i, ok := at[id]
		if !ok {
			orphan = fmt.Errorf("a row is of signer %d, which does not exist", id)
			return &history.StoredSigner{Requests: make(map[string][]history.Given)}
		}
		return &f.Signers[i]
	}
	var id int64
	err := each(ctx, tx, `SELECT s.signer_id, s.signer, s.next_nonce, s.floor, s.version, d.fencing_token, s.live
		FROM signer s JOIN shard d USING (shard_id) ORDER BY s.signer_id`, func(scan func(...any) error) error {
		s, live := history.StoredSigner{Requests: make(map[string][]history.Given)}, []byte(nil)
		if err := scan(&id, &s.Signer, &s.Next, &s.Floor, &s.Version, &s.Token, &live); err != nil {
			return err
		}
		err := s.Lives(live)
		at[id], f.Signers = len(f.Signers), append(f.Signers, s)
		return err
	})
	if err != nil {
		return err
	}
	err = each(ctx, tx, `SELECT signer_id, nonce, attempt, tx_hashes, reason FROM signer_history`, func(scan func(...any) error) error {
		row, hashes := history.Row{Status: history.Consumed}, []byte(nil)
		err := scan(&id, &row.Nonce, &row.Attempt, &hashes, &row.Reason)
		row.Recorded(hashes)
		of(id).Rows = append(of(id).Rows, row)
		return err
	})
	for i := range f.Signers {
		slices.SortStableFunc(f.Signers[i].Rows, func(a, b history.Row) int { return cmp.Compare(a.Nonce, b.Nonce) })
	}
	asked := each(ctx, tx, `SELECT signer_id, request_id, nonces FROM signer_request`, func(scan func(...any) error) error {
		var request, nonces string
		err := scan(&id, &request, &nonces)
		if err == nil {
			of(id).Requests[request], err = history.ParseGiven([]byte(nonces))
		}
		return err
	})
	return errors.Join(err, asked, orphan)
}

// patience bounds the wait for the last hold to end.
const patience = 12 * time.Second

// quiet waits until no hold is open, whoever owns its signer or nobody, and returns how long that took and by how much a hold was
// overdue at most. After patience it gives up, and the rules judge what is there.
func (c *cluster) quiet(ctx context.Context) (took, overdue time.Duration, err error) {
	conn, err := c.connect(ctx)
	if err != nil {
		return 0, 0, err
	}
	defer conn.Close(ctx)
	for began, open := time.Now(), int64(1); open > 0 && time.Since(began) < patience; took = time.Since(began) {
		lasts(ctx, 5*poll)
		var late int64
		err := conn.QueryRow(ctx, `SELECT count(*), coalesce(max(store_millis() - e.held_until), 0)
			FROM signer s, live_entries(s.live) e WHERE e.status = 'HELD'`).Scan(&open, &late)
		if err != nil {
			return 0, 0, fmt.Errorf("look for open holds: %w", err)
		}
		overdue = max(overdue, time.Duration(late)*time.Millisecond)
	}
	return took, overdue, nil
}
