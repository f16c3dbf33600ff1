//go:build unix

package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"time"

	_ "modernc.org/sqlite" // the driver "sqlite"

	"noncegate/torture/history"
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
	var inShards, migrated bool // the latter to the last column that is read
	const shards = `SELECT count(*) > 0 FROM pragma_table_info('signer_request')`
	if err := db.QueryRowContext(ctx, shards).Scan(&inShards); err != nil || inShards {
		return s, errors.Join(err, s.readShards(ctx, db))
	}
	const query = `SELECT count(*) > 0 FROM pragma_table_info('signer_nonce_state') WHERE name = 'pruned'`
	if err := db.QueryRowContext(ctx, query).Scan(&migrated); err != nil || !migrated {
		return s, err
	}
	return s, errors.Join(s.readSigners(ctx, db), s.readRows(ctx, db), s.readRequests(ctx, db))
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

func (s *stored) readSigners(ctx context.Context, db *sql.DB) error {
	const query = `SELECT signer, next_nonce, floor, pruned, held, version, fencing_token FROM signer_nonce_state ORDER BY signer_id`
	return each(ctx, db, query, func(scan func(...any) error) error {
		var v history.StoredSigner
		err := scan(&v.Signer, &v.Next, &v.Floor, &v.Pruned, &v.Held, &v.Version, &v.Token)
		s.Signers = append(s.Signers, v)
		return err
	})
}

func (s *stored) readRows(ctx context.Context, db *sql.DB) error {
	const query = `SELECT s.signer, a.nonce, a.status, a.attempt, a.tx_hash, coalesce(a.reason, ''), coalesce(a.held_until, 0) / 1000
		FROM signer_nonce_allocation a LEFT JOIN signer_nonce_state s USING (signer_id) ORDER BY a.signer_id, a.nonce`
	at := 0
	return each(ctx, db, query, func(scan func(...any) error) error {
		var signer sql.NullString
		var row history.Row
		var status int
		var hash []byte
		if err := scan(&signer, &row.Nonce, &status, &row.Attempt, &hash, &row.Reason, &row.HeldUntil); err != nil {
			return err
		}
		row.Status = []string{"", history.Held, history.Released, history.Consumed}[status]
		row.Recorded(hash)
		for at < len(s.Signers) && s.Signers[at].Signer != signer.String {
			at++
		}
		if at == len(s.Signers) {
			return fmt.Errorf("an allocation of a signer that is not there")
		}
		s.Signers[at].Rows = append(s.Signers[at].Rows, row)
		return nil
	})
}

func (s *stored) readRequests(ctx context.Context, db *sql.DB) error {
	const query = `SELECT s.signer, r.request_id, r.nonces FROM signer_nonce_request r JOIN signer_nonce_state s USING (signer_id)`
	return each(ctx, db, query, func(scan func(...any) error) error {
		var k requestKey
		var text []byte
		if err := scan(&k.signer, &k.id, &text); err != nil {
			return err
		}
		var pairs [][2]int64
		if err := json.Unmarshal(text, &pairs); err != nil {
			return err
		}
		for _, p := range pairs {
			s.requests[k] = append(s.requests[k], history.Given{Nonce: p[0], Attempt: p[1]})
		}
		return nil
	})
}
