//go:build unix

package main

import (
	"net/url"
	"strings"
	"testing"

	"noncegate/internal/testenv/tlstest"
	"noncegate/nonce/service"
	"noncegate/wire"
)

// aclRights are what docs/engine.md says that a user of Redis needs; that nonce/redislog needs
// each of its own is tested there.
const aclRights = "~noncegate:* &noncegate:* +info +config|get +get +set +del +pttl +eval +evalsha +xadd +xrange +xtrim +spublish +ssubscribe +sunsubscribe +ping"

// TestTheEngineIsUsedOverTLSByAUserWithItsRightsOnly: events and the guard use the same Redis.
func TestTheEngineIsUsedOverTLSByAUserWithItsRightsOnly(t *testing.T) {
	ca := tlstest.New(t, "ca")
	address, err := url.Parse(encryptedRedis(t, ca, "user gateway on >secret "+aclRights))
	if err != nil {
		t.Fatal(err)
	}
	address.User = url.UserPassword("gateway", "secret")
	t.Setenv("SSL_CERT_FILE", ca.WriteCA())
	f := startLogs(t, "a b", address.String())
	a, conns := f.nodes["a"], f.connectEach()
	a.mustRun("engine", "switch", "performance", "--wait")
	for i := range int64(5) {
		if n := conns["a"].allocate(account, ""); n.Nonce != i {
			t.Errorf("got %+v", n)
		}
		conns["b"].want("ok", wire.MethodMarkUsed, mark(account, i))
	}
	conns["a"].want("ok", wire.MethodAllocate, `{"signer":"`+account+`","guard":{"key":"k"}}`)
	if out := a.mustRun("engine", "reconcile"); !strings.Contains(out, " 0 different") {
		t.Errorf("reconcile said %s", out)
	}
	a.mustRun("engine", "switch", "reliable", "--wait")
	if s := a.engine(); s.State != service.StateReliable || s.Lost > 0 {
		t.Errorf("the status is %+v", s)
	}
	if a.logged("NOPERM") {
		t.Error("something is refused")
	}
}

func TestARedisThatCannotKeepLogsStopsTheStart(t *testing.T) {
	t.Parallel()
	master := startRedis(t)
	host, port, password := master.Master()
	for want, redis := range map[string]string{
		"would lose holds by eviction": startRedis(t, "maxmemory 100mb", "maxmemory-policy allkeys-lru").URL(),
		"is a read-only replica":       startRedis(t, "replicaof "+host+" "+port, "masterauth "+password).URL(),
	} {
		said := refused(t, exitUsage, "--listen=127.0.0.1:0", "--admin-listen=127.0.0.1:0", "--store="+pg.NewDatabase(t), "--redis="+redis)
		if !strings.Contains(said, "--redis cannot be used") || !strings.Contains(said, want) {
			t.Errorf("said %s, want %s", said, want)
		}
	}
}

// TestAFullRedisIsLeftAndNothingIsLost: it takes no record any more.
func TestAFullRedisIsLeftAndNothingIsLost(t *testing.T) {
	t.Parallel()
	redis := startRedis(t)
	f := startLogs(t, "a", redis.URL())
	a, c := f.nodes["a"], f.connectEach()["a"]
	a.mustRun("engine", "switch", "performance", "--wait")
	for range 5 {
		c.allocate(account, "")
	}
	if err := redis.Client(t).ConfigSet(t.Context(), "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	await(t, "it is handed out of", func() bool {
		reply := c.call(wire.MethodAllocate, `{"signer":"`+account+`"}`)
		if reply.Error == nil {
			if n := decode[wire.AllocateResult](t, reply); n.Nonce != 5 {
				t.Fatalf("got %+v", n)
			}
		}
		return reply.Error == nil
	})
	a.awaitEngine(service.StateDegraded)
	if s := a.engine(); s.Lost > 0 || s.Logs > 0 || !strings.Contains(s.Reason, "OOM") {
		t.Errorf("the status is %+v", s)
	}
}
