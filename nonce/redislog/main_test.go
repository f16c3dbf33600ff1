package redislog

import (
	"os"
	"testing"

	"noncegate/internal/redistest"
)

var server *redistest.Server

func TestMain(m *testing.M) { os.Exit(redistest.Main(m, &server)) }
