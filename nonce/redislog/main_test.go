package redislog

import (
	"context"
	"os"
	"testing"

	"github.com/redis/go-redis/v9"

	"noncegate/test/lab/redistest"
)

var server *redistest.Server

func TestMain(m *testing.M) {
	redis.SetLogger(quiet{}) // it says of each dial that fails that it failed
	os.Exit(redistest.Main(m, &server))
}

type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}
