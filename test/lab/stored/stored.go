// Package stored reads what gateways keep in their store, for the judge of histories.
package stored

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"slices"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	_ "modernc.org/sqlite"             // the driver "sqlite"

	"noncegate/test/lab/history"
)

// Postgres reads a database.
func Postgres(ctx context.Context, url string) (final *history.Final, err error) {
	db, err := sql.Open("pgx", url)
	if err != nil {
		return nil, err
	}
	final, err = read(ctx, db, &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true}, `SELECT store_millis()`)
	return final, errors.Join(err, db.Close())
}

// SQLite reads a file that no gateway has. That it is not whole is an error.
func SQLite(ctx context.Context, file string) (final *history.Final, err error) {
	db, err := sql.Open("sqlite", "file:"+(&url.URL{Path: file}).EscapedPath()+"?_pragma=busy_timeout(5000)")
	if err != nil {
		return nil, err
	}
	var verdict string
	if err = db.QueryRowContext(ctx, "PRAGMA integrity_check").Scan(&verdict); err == nil && verdict != "ok" {
		err = fmt.Errorf("integrity check: %s", verdict)
	}
	if err == nil {
		final, err = read(ctx, db, nil, `SELECT CAST(unixepoch('subsec') * 1000 AS integer)`)
	}
	return final, errors.Join(err, db.Close())
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

// read reads what both stores keep alike, in one transaction; now asks for the store's clock.
func read(ctx context.Context, db *sql.DB, options *sql.TxOptions, now string) (*history.Final, error) {
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
