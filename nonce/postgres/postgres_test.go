package postgres_test

import (
	"os"
	"testing"

	"noncegate/internal/pgtest"
	"noncegate/nonce"
	"noncegate/nonce/postgres"
	"noncegate/nonce/storetest"
)

var server *pgtest.Server

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m, &server)) }

func openStore(t testing.TB, url string) *postgres.Store {
	t.Helper()
	s, err := postgres.Open(t.Context(), url, postgres.Config{MaxConns: 16})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func migrated(t testing.TB) string {
	t.Helper()
	url := server.NewDatabase(t)
	if _, err := openStore(t, url).Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	return url
}

func TestStoreKeepsTheRules(t *testing.T) {
	storetest.Run(t, func(t *testing.T) storetest.Database {
		url := migrated(t)
		return storetest.Database{Open: func(t *testing.T) nonce.Store { return openStore(t, url) }}
	})
}

func TestStoreKeepsTheRulesOfTwoEngines(t *testing.T) {
	storetest.RunEngine(t, func(t *testing.T) storetest.Database {
		url := migrated(t)
		return storetest.Database{Open: func(t *testing.T) nonce.Store { return openStore(t, url) }}
	})
}
