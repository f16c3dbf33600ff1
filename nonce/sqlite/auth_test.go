package sqlite_test

import (
	"path/filepath"
	"testing"

	"noncegate/auth"
	"noncegate/auth/authtest"
)

func TestStoreKeepsCredentials(t *testing.T) {
	authtest.Run(t, func(t *testing.T) auth.Store { return open(t, filepath.Join(t.TempDir(), "store.db")) })
}
