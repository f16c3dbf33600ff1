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
	_ "modernc.org/sqlite" // the driver "sqlite"

	"noncegate/test/lab/history"
)

// readSamples looks at all signers; owner and token are of the shard.
func readSamples(ctx context.Context, conn *pgx.Conn, at time.Duration) (samples []history.Sample, err error) {
	err = pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		var ids, ofs, nonces []int64
		rows, err := tx.Query(ctx, `
			SELECT s.signer_id, s.signer, d.owner_node, d.owner_incarnation, d.fencing_token, s.version, s.next_nonce, s.floor, s.fencing_token, s.live
			FROM signer s JOIN shard d USING (shard_id)`)
		if err != nil {
			return err
		}
		s := history.Sample{At: at}
		var id int64
		var live []byte
		_, err = pgx.ForEachRow(rows, []any{&id, &s.Signer, &s.Owner, &s.Incarnation, &s.Token, &s.Version, &s.Next, &s.Floor, &s.Written, &live}, func() error {
			stored := history.StoredSigner{Signer: s.Signer, Next: s.Next}
			if err := stored.Lives(live); err != nil {
				return nil // nobody can read it: the gateways raise the alarm, and so does the end
			}
			ids, samples = append(ids, id), append(samples, s)
			for i := range stored.Rows {
				ofs, nonces = append(ofs, id), append(nonces, stored.Rows[i].Nonce)
			}
			return nil
		})
		if err != nil {
			return err
		}
		return readBoth(ctx, tx, samples, ids, ofs, nonces)
	})
	return samples, err
}

// readBoth finds those of the nonces that live which are in the history too.
func readBoth(ctx context.Context, tx pgx.Tx, samples []history.Sample, ids, ofs, nonces []int64) error {
	rows, err := tx.Query(ctx, `
		SELECT h.signer_id, h.nonce FROM unnest($1::bigint[], $2::bigint[]) AS n(signer_id, nonce) JOIN signer_history h USING (signer_id, nonce)`, ofs, nonces)
	if err != nil {
		return err
	}
	var id, n int64
	_, err = pgx.ForEachRow(rows, []any{&id, &n}, func() error {
		s := &samples[slices.Index(ids, id)]
		s.Both = append(s.Both, n)
		return nil
	})
	return err
}

// query runs a statement and calls each for every row.
type query func(sql string, each func(scan func(...any) error) error) error

// ofPostgres and ofSQLite are statements in a transaction of the one, and of a file.
func ofPostgres(ctx context.Context, tx pgx.Tx) query {
	return func(sql string, each func(scan func(...any) error) error) error {
		rows, err := tx.Query(ctx, sql)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			if err := each(rows.Scan); err != nil {
				return err
			}
		}
		return rows.Err()
	}
}

func ofSQLite(ctx context.Context, db *sql.DB) query {
	return func(sql string, each func(scan func(...any) error) error) error {
		rows, err := db.QueryContext(ctx, sql)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			if err := each(rows.Scan); err != nil {
				return err
			}
		}
		return rows.Err()
	}
}

// readFinal reads all that is stored.
func readFinal(q query, now int64) (*history.Final, error) {
	f, at := &history.Final{Now: now}, make(map[int64]int)
	of := func(id int64) (*history.StoredSigner, error) {
		i, ok := at[id]
		if !ok {
			return nil, fmt.Errorf("a row is of signer %d, which does not exist", id)
		}
		return &f.Signers[i], nil
	}
	signers := q(`SELECT s.signer_id, s.signer, s.next_nonce, s.floor, s.version, d.fencing_token, s.live
		FROM signer s JOIN shard d USING (shard_id) ORDER BY s.signer_id`, func(scan func(...any) error) error {
		var id int64
		var live []byte
		s := history.StoredSigner{Requests: make(map[string][]history.Given)}
		if err := scan(&id, &s.Signer, &s.Next, &s.Floor, &s.Version, &s.Token, &live); err != nil {
			return err
		}
		err := s.Lives(live)
		at[id], f.Signers = len(f.Signers), append(f.Signers, s)
		return err
	})
	if signers != nil {
		return nil, signers
	}
	past := q(`SELECT signer_id, nonce, attempt, tx_hashes, reason FROM signer_history`, func(scan func(...any) error) error {
		var id int64
		var hashes []byte
		row := history.Row{Status: history.Consumed}
		if err := scan(&id, &row.Nonce, &row.Attempt, &hashes, &row.Reason); err != nil {
			return err
		}
		row.Recorded(hashes)
		s, err := of(id)
		if err == nil {
			s.Rows = append(s.Rows, row)
		}
		return err
	})
	asked := q(`SELECT signer_id, request_id, nonces FROM signer_request`, func(scan func(...any) error) error {
		var id int64
		var request, nonces string
		if err := scan(&id, &request, &nonces); err != nil {
			return err
		}
		s, err := of(id)
		if err != nil {
			return err
		}
		s.Requests[request], err = history.ParseGiven([]byte(nonces))
		return err
	})
	for i := range f.Signers {
		slices.SortStableFunc(f.Signers[i].Rows, func(a, b history.Row) int { return cmp.Compare(a.Nonce, b.Nonce) })
	}
	return f, errors.Join(past, asked)
}

// readFile opens the database in a folder as a gateway would after a crash and reads all of it.
// An error is a violation as well: the file cannot be used.
func readFile(ctx context.Context, dir string) (f *history.Final, err error) {
	path := (&url.URL{Path: filepath.Join(dir, database)}).EscapedPath()
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=synchronous(OFF)&_pragma=busy_timeout(5000)")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	db.SetMaxOpenConns(1)
	var verdict string
	if err := db.QueryRowContext(ctx, "PRAGMA integrity_check").Scan(&verdict); err != nil || verdict != "ok" {
		return nil, fmt.Errorf("integrity check: %s %w", verdict, err)
	}
	var migrated bool // to the last table that is read
	const last = `SELECT count(*) > 0 FROM pragma_table_info('signer_request')`
	if err := db.QueryRowContext(ctx, last).Scan(&migrated); err != nil || !migrated {
		return &history.Final{Now: time.Now().UnixMilli()}, err
	}
	return readFinal(ofSQLite(ctx, db), time.Now().UnixMilli())
}

// openHolds counts the holds in the signers' rows.
func openHolds(ctx context.Context, conn *pgx.Conn) (n int64, overdue time.Duration, err error) {
	rows, err := conn.Query(ctx, `SELECT store_millis(), next_nonce, live FROM signer`)
	if err != nil {
		return 0, 0, err
	}
	var now int64
	var s history.StoredSigner
	var live []byte
	_, err = pgx.ForEachRow(rows, []any{&now, &s.Next, &live}, func() error {
		signer := s
		if err := signer.Lives(live); err != nil {
			return err
		}
		for i := range signer.Rows {
			if r := &signer.Rows[i]; r.Status == history.Held {
				n++
				overdue = max(overdue, time.Duration(now-r.HeldUntil)*time.Millisecond)
			}
		}
		return nil
	})
	return n, overdue, err
}
