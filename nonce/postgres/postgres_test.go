package postgres_test

import (
	"os"
	"testing"

	"noncegate/internal/testenv/pgtest"
)

var server *pgtest.Server

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m, &server)) }
