package postgres_test

import (
	"os"
	"testing"

	"noncegate/test/lab/pgtest"
)

var server *pgtest.Server

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m, &server)) }
