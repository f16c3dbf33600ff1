//go:build unix

package sqlite

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

	_ "modernc.org/sqlite" // the driver "sqlite"

	"noncegate/test/lab/history"
)

// stored is what a database file holds.
type stored struct {
	history.Final
	requests map[requestKey][]history.Given
}

type requestKey struct{ signer, id string }

// readImage opens the database in a directory as a gateway would after a crash and
// reads all of it. An error is a violation as well: the file cannot be used.
func readImage(ctx context.Context, dir string) (s *stored, err error) {
	path := (&url.URL{Path: filepath.Join(dir, database)}).EscapedPath()
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=synchronous(OFF)&_pragma=busy_timeout(5000)")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	db.SetMaxOpenConns(1)
	var verdict string
	if err := db.QueryRowContext(ctx, "PRAGMA integrity_check").Scan(&verdict); err != nil {
		return nil, fmt.Errorf("integrity check: %w", err)
	}
	if verdict != "ok" {
		return nil, fmt.Errorf("integrity check: %s", verdict)
	}
	s = &stored{requests: map[requestKey][]history.Given{}}
	s.Now = time.Now().UnixMilli()
	var migrated bool // to the last table that is read
	const query = `SELECT count(*) > 0 FROM pragma_table_info('signer_request')`
	if err := db.QueryRowContext(ctx, query).Scan(&migrated); err != nil || !migrated {
		return s, err
	}
	return s, s.readSigners(ctx, db)
}

// each runs a query and calls fn for each row.
func each(ctx context.Context, db *sql.DB, query string, fn func(scan func(...any) error) error) error {
	rows, err := db.QueryContext(ctx, query)
	if err != nil {
		return fmt.Errorf("read the file: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := fn(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}

// readSigners reads the signers, and what belongs to each.
func (s *stored) readSigners(ctx context.Context, db *sql.DB) error {
	at := make(map[int64]int) // by id of the signer
	const signers = `SELECT s.signer_id, s.signer, s.next_nonce, s.floor, s.version, d.fencing_token, s.live FROM signer s JOIN shard d USING (shard_id) ORDER BY s.signer_id`
	err := each(ctx, db, signers, func(scan func(...any) error) error {
		var v history.StoredSigner
		var id int64
		var live []byte
		if err := scan(&id, &v.Signer, &v.Next, &v.Floor, &v.Version, &v.Token, &live); err != nil {
			return err
		}
		v.Requests = make(map[string][]history.Given)
		at[id] = len(s.Signers)
		err := v.Lives(live)
		s.Signers = append(s.Signers, v)
		return err
	})
	if err != nil {
		return err
	}
	return errors.Join(s.readPast(ctx, db, at), s.readAsked(ctx, db, at))
}

// readPast adds what was consumed.
func (s *stored) readPast(ctx context.Context, db *sql.DB, at map[int64]int) error {
	err := each(ctx, db, `SELECT signer_id, nonce, attempt, tx_hashes, reason FROM signer_history`, func(scan func(...any) error) error {
		var id int64
		row := history.Row{Status: history.Consumed}
		var hashes []byte
		if err := scan(&id, &row.Nonce, &row.Attempt, &hashes, &row.Reason); err != nil {
			return err
		}
		row.Recorded(hashes)
		i, ok := at[id]
		if !ok {
			return fmt.Errorf("a consumed nonce of a signer that is not there")
		}
		s.Signers[i].Rows = append(s.Signers[i].Rows, row)
		return nil
	})
	for i := range s.Signers {
		slices.SortStableFunc(s.Signers[i].Rows, func(a, b history.Row) int { return cmp.Compare(a.Nonce, b.Nonce) })
	}
	return err
}

// readAsked adds the request ids.
func (s *stored) readAsked(ctx context.Context, db *sql.DB, at map[int64]int) error {
	return each(ctx, db, `SELECT signer_id, request_id, nonces FROM signer_request`, func(scan func(...any) error) error {
		var id int64
		var request string
		var nonces []byte
		if err := scan(&id, &request, &nonces); err != nil {
			return err
		}
		i, ok := at[id]
		if !ok {
			return fmt.Errorf("request %q of a signer that is not there", request)
		}
		given, err := history.ParseGiven(nonces)
		s.Signers[i].Requests[request] = given
		s.requests[requestKey{s.Signers[i].Signer, request}] = given
		return err
	})
}
