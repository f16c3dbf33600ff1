package postgres_test

import (
	"testing"

	"noncegate/auth"
	"noncegate/auth/authtest"
)

func TestStoreKeepsCredentials(t *testing.T) {
	authtest.Run(t, func(t *testing.T) auth.Store { return openStore(t, migrated(t)) })
}
