package sqlite_test

import (
	"context"
	"path/filepath"
	"testing"

	"noncegate/nonce"
	"noncegate/nonce/sqlite"
	"noncegate/nonce/storetest"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// open opens the file for the rest of the test.
func open(t testing.TB, path string) *sqlite.Store {
	t.Helper()
	s, err := sqlite.Open(context.Background(), path, sqlite.Config{Fatal: func(err error) { t.Error(err) }})
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

func TestStoreKeepsTheRules(t *testing.T) {
	storetest.Run(t, func(t *testing.T) storetest.Database {
		s := open(t, filepath.Join(t.TempDir(), "store.db"))
		return storetest.Database{Open: func(*testing.T) nonce.Store { return s }}
	})
}
