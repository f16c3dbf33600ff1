//go:build unix

package engine

import (
	"net/url"
	"strings"
	"testing"

	"noncegate/nonce/service"
	"noncegate/test/e2e"
	"noncegate/test/lab/tlstest"
	"noncegate/wire"
)

// aclRights are what docs/engine.md says that a user of Redis needs; that nonce/redislog needs
// each of its own is tested there.
const aclRights = "~noncegate:* &noncegate:* +info +config|get +get +set +del +pttl +eval +evalsha +xadd +xrange +xtrim +spublish +ssubscribe +sunsubscribe +ping"

// TestTheEngineIsUsedOverTLSByAUserWithItsRightsOnly: events and the guard use the same Redis.
func TestTheEngineIsUsedOverTLSByAUserWithItsRightsOnly(t *testing.T) {
	ca := tlstest.New(t, "ca")
	address, err := url.Parse(e2e.EncryptedRedis(t, ca, "user gateway on >secret "+aclRights))
	if err != nil {
		t.Fatal(err)
	}
	address.User = url.UserPassword("gateway", "secret")
	// On a busy machine a handshake may take longer than a second.
	address.RawQuery = "dial_timeout=5s&read_timeout=5s&write_timeout=5s"
	t.Setenv("SSL_CERT_FILE", ca.WriteCA())
	f := startLogs(t, "a b", address.String())
	a, conns := f.Nodes["a"], f.ConnectEach()
	mustRun(a, "engine", "switch", "performance", "--wait")
	for i := range int64(5) {
		if n := conns["a"].Allocate(e2e.Account, ""); n.Nonce != i {
			t.Errorf("got %+v", n)
		}
		conns["b"].Want("ok", wire.MethodMarkUsed, e2e.Mark(e2e.Account, i))
	}
	conns["a"].Want("ok", wire.MethodAllocate, `{"signer":"`+e2e.Account+`","guard":{"key":"k"}}`)
	if out := mustRun(a, "engine", "reconcile"); !strings.Contains(out, " 0 different") {
		t.Errorf("reconcile said %s", out)
	}
	mustRun(a, "engine", "switch", "reliable", "--wait")
	if s := engine(a); s.State != service.StateReliable || s.Lost > 0 {
		t.Errorf("the status is %+v", s)
	}
	if a.Logged("NOPERM") {
		t.Error("something is refused")
	}
}

func TestARedisThatCannotKeepLogsStopsTheStart(t *testing.T) {
	t.Parallel()
	master := e2e.StartRedis(t)
	host, port, password := master.Master()
	for want, redis := range map[string]string{
		"would lose holds by eviction": e2e.StartRedis(t, "maxmemory 100mb", "maxmemory-policy allkeys-lru").URL(),
		"is a read-only replica":       e2e.StartRedis(t, "replicaof "+host+" "+port, "masterauth "+password).URL(),
	} {
		said := e2e.Refused(t, e2e.ExitUsage, "--listen=127.0.0.1:0", "--admin-listen=127.0.0.1:0", "--store="+e2e.PG.NewDatabase(t), "--redis="+redis)
		if !strings.Contains(said, "--redis cannot be used") || !strings.Contains(said, want) {
			t.Errorf("said %s, want %s", said, want)
		}
	}
}

// TestAFullRedisIsLeftAndNothingIsLost: it takes no record any more.
func TestAFullRedisIsLeftAndNothingIsLost(t *testing.T) {
	t.Parallel()
	redis := e2e.StartRedis(t)
	f := startLogs(t, "a", redis.URL())
	a, c := f.Nodes["a"], f.ConnectEach()["a"]
	mustRun(a, "engine", "switch", "performance", "--wait")
	for range 5 {
		c.Allocate(e2e.Account, "")
	}
	if err := redis.Client(t).ConfigSet(t.Context(), "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	e2e.Await(t, "it is handed out of", func() bool {
		reply := c.Call(wire.MethodAllocate, `{"signer":"`+e2e.Account+`"}`)
		if reply.Error == nil {
			if n := e2e.Decode[wire.AllocateResult](t, reply); n.Nonce != 5 {
				t.Fatalf("got %+v", n)
			}
		}
		return reply.Error == nil
	})
	awaitEngine(a, service.StateDegraded)
	if s := engine(a); s.Lost > 0 || s.Logs > 0 || !strings.Contains(s.Reason, "OOM") {
		t.Errorf("the status is %+v", s)
	}
}
