//go:build unix

package cluster

import (
	"context"
	"net"
	"strings"
	"testing"

	"noncegate/client"
	"noncegate/test/e2e"
	"noncegate/test/lab/expect"
	"noncegate/test/lab/wait"
)

func TestARedisThatCannotBeUsedStopsTheStartWithASentence(t *testing.T) {
	t.Parallel()
	good, gone := e2e.StartRedis(t), e2e.StartRedis(t)
	e2e.Do(t, "stop", gone.Stop)
	host, port, err := net.SplitHostPort(good.Addr())
	expect.Must(t, err)
	password := strings.TrimSuffix(strings.TrimPrefix(good.URL(), "redis://:"), "@"+good.Addr()+"/0")
	db := e2e.Database(t)
	for name, tt := range map[string]struct{ redis, want string }{
		"away":               {gone.URL(), "does not answer"},
		"the wrong password": {"redis://:secret@" + good.Addr(), "refuses the user or password"},
		"a replica":          {e2e.StartRedis(t, "replicaof "+host+" "+port, "masterauth "+password).URL(), "read-only replica"},
		"eviction":           {e2e.StartRedis(t, "maxmemory 50mb", "maxmemory-policy allkeys-lru").URL(), "noeviction"},
	} {
		t.Run(name, func(t *testing.T) {
			said := e2e.Refused(t, e2e.ExitUsage, "--listen=127.0.0.1:0", "--admin-listen=127.0.0.1:0", "--store="+db, "--redis="+tt.redis)
			if !strings.Contains(said, "--redis cannot be used: ") || !strings.Contains(said, tt.want) || strings.Contains(said, "secret") || strings.Contains(said, password) {
				t.Errorf("said %q", said)
			}
		})
	}
}

// dialAt connects the Go client to a gateway.
func dialAt(t testing.TB, url string) *client.Client {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), wait.Patience)
	defer cancel()
	c, err := client.Dial(ctx, url, client.Config{})
	expect.Must(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}
