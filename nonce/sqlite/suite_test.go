package sqlite_test

import (
	"database/sql"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"noncegate/internal/access"
	"noncegate/internal/access/accesstest"
	"noncegate/nonce"
	"noncegate/nonce/sqlite"
	"noncegate/nonce/storetest"
)

func openShards(t *testing.T, path string, shards int, cfg sqlite.Config) *sqlite.Store {
	t.Helper()
	s, err := sqlite.Open(t.Context(), path, shards, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// execute runs a statement beside the store that has the file.
func execute(t *testing.T, path, statement string, args ...any) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(t.Context(), statement, args...); err != nil {
		t.Fatal(err)
	}
}

func TestAStoreInShardsKeepsCredentials(t *testing.T) {
	accesstest.Run(t, func(t *testing.T) access.Store {
		return openShards(t, filepath.Join(t.TempDir(), "db"), 0, sqlite.Config{})
	})
}

// newFile copies a new file of two shards: to migrate one takes longer than most rules.
func newFile(t *testing.T, template string) (path string) {
	t.Helper()
	text, err := os.ReadFile(template)
	path = filepath.Join(t.TempDir(), "db")
	if err == nil {
		err = os.WriteFile(path, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func TestAStoreInShardsKeepsTheRules(t *testing.T) {
	template := filepath.Join(t.TempDir(), "template")
	if err := openShards(t, template, 2, sqlite.Config{}).Close(); err != nil {
		t.Fatal(err)
	}
	open := func(t *testing.T) storetest.Database {
		var ahead atomic.Int64 // milliseconds
		began := time.UnixMilli(1_790_000_000_000)
		now := func() time.Time { return began.Add(time.Duration(ahead.Load()) * time.Millisecond) }
		path := newFile(t, template)
		s := openShards(t, path, 2, sqlite.Config{Now: now})
		return storetest.Database{
			Open: func(*testing.T) nonce.Store { return s },
			Damage: func(t *testing.T, signer string) {
				execute(t, path, `UPDATE signer SET live = x'ff' WHERE signer = ?`, signer)
			},
			Advance: func(d time.Duration) { ahead.Add(d.Milliseconds()) },
		}
	}
	storetest.Run(t, open)
	t.Run("kept", func(t *testing.T) { storetest.RunKept(t, open) })
}

func TestTheNumberOfShardsIsThatOfTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	open := func(shards int) (int, error) {
		s, err := sqlite.Open(t.Context(), path, shards, sqlite.Config{})
		if err != nil {
			return 0, err
		}
		return s.Shards(), s.Close()
	}
	for _, shards := range []int{0, 0, sqlite.DefaultShards} {
		if n, err := open(shards); n != sqlite.DefaultShards || err != nil {
			t.Errorf("opened with %d: %d, %v", shards, n, err)
		}
	}
	if _, err := open(7); err == nil || !strings.Contains(err.Error(), "has 4 shards, and 7 are wanted") {
		t.Errorf("got %v", err)
	}
}

func TestAFileOfAnotherSchemaIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	execute(t, path, `CREATE TABLE gateway_node (node_id text)`)
	if _, err := sqlite.Open(t.Context(), path, 0, sqlite.Config{}); err == nil || !strings.Contains(err.Error(), "its schema is none of this program's; name another file") {
		t.Errorf("got %v", err)
	}
}
