package sqlite_test

import (
	"database/sql"
	"path/filepath"
	"testing"
	"time"

	"noncegate/lease"
	"noncegate/nonce/sqlite"
)

// edit changes the file behind the back of the store, which is closed.
func edit(t *testing.T, path string, statements ...string) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range statements {
		if _, err := db.ExecContext(t.Context(), s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

// during opens the file for as long as fn runs.
func during(t *testing.T, path string, fn func(*sqlite.Store)) {
	t.Helper()
	s, err := sqlite.Open(t.Context(), path, sqlite.Config{Fatal: func(err error) { t.Error(err) }})
	if err != nil {
		t.Fatal(err)
	}
	fn(s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestANodeThatWasNotSeenForADayIsShownNoMoreUnlessItsPatienceIsLongerStill(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	during(t, path, func(s *sqlite.Store) {
		for id, patience := range map[string]time.Duration{"silent": time.Hour, "stubborn": 3 * lease.Remembered} {
			if _, err := s.Register(t.Context(), lease.Presence{Node: id, Patience: patience}); err != nil {
				t.Fatal(err)
			}
		}
	})
	for _, want := range []int{2, 1} {
		edit(t, path, `UPDATE gateway_node SET beat_at = beat_at - 23 * 3600 * 1000000`)
		during(t, path, func(s *sqlite.Store) {
			list, _, err := s.Nodes(t.Context())
			if err != nil || len(list) != want || !list[want-1].Live || list[want-1].Node != "stubborn" {
				t.Errorf("got %+v, %v, want %d nodes", list, err, want)
			}
		})
	}
	during(t, path, func(s *sqlite.Store) {
		if h, err := s.Register(t.Context(), lease.Presence{Node: "silent"}); err != nil || h.Incarnation != 2 {
			t.Errorf("it was forgotten: got %v, %v", h, err)
		}
	})
}

func TestAFileOfAnOlderVersionKeepsItsNodes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	during(t, path, func(*sqlite.Store) {})
	edit(t, path,
		`DROP TABLE auth_key`, `DROP TABLE auth_key_generation`, `DROP TABLE auth_ticket`, `DROP TABLE gateway_principal`,
		`DROP VIEW signer_allocation`, `CREATE VIEW signer_allocation AS SELECT nonce FROM signer_nonce_allocation`,
		`DROP INDEX signer_nonce_allocation_notable`,
		`ALTER TABLE signer_nonce_allocation DROP COLUMN holder`,
		`ALTER TABLE gateway_node DROP COLUMN mode`, `ALTER TABLE gateway_node DROP COLUMN patience`, `ALTER TABLE gateway_node DROP COLUMN signers`,
		`DELETE FROM goose_db_version WHERE version_id > 2`,
		`INSERT INTO gateway_node VALUES ('older', 'ws://older', 7, 3, 1, unixepoch() * 1000000, unixepoch() * 1000000)`)
	during(t, path, func(s *sqlite.Store) {
		list, _, err := s.Nodes(t.Context())
		if err != nil || len(list) != 1 || list[0].Holder != (lease.Holder{Node: "older", Incarnation: 7}) || list[0].Mode != "" || list[0].Left {
			t.Fatalf("got %+v, %v", list, err)
		}
		h, err := s.Register(t.Context(), lease.Presence{Node: "older", Mode: "worker-queue", Patience: time.Hour})
		if err != nil || h.Incarnation != 8 {
			t.Errorf("started as %v, %v", h, err)
		}
	})
}
