//go:build unix

package engine

import (
	"net/url"
	"strings"
	"testing"

	"noncegate/nonce/performance"
	"noncegate/test/e2e"
	"noncegate/test/lab/expect"
	"noncegate/test/lab/tlstest"
	"noncegate/wire"
)

// aclRights are what docs/engine.md says that a user of Redis needs; that nonce/redislog needs each of its own is tested there.
const aclRights = "~noncegate:* +info +config|get +get +set +del +pttl +eval +evalsha +xadd +xrange +xtrim +ping"

// TestTheEngineIsUsedOverTLSByAUserWithItsRightsOnly: the guard uses the same Redis.
func TestTheEngineIsUsedOverTLSByAUserWithItsRightsOnly(t *testing.T) {
	ca := tlstest.New(t, "ca")
	address, err := url.Parse(e2e.EncryptedRedis(t, ca, "user gateway on >secret "+aclRights))
	expect.Must(t, err)
	address.User = url.UserPassword("gateway", "secret")
	// On a busy machine a handshake may take longer than a second.
	address.RawQuery = "dial_timeout=5s&read_timeout=5s&write_timeout=5s"
	t.Setenv("SSL_CERT_FILE", ca.WriteCA())
	f := startLogs(t, "a b", address.String())
	a, conns := f.Nodes["a"], f.ConnectEach()
	if info := e2e.Decode[wire.InfoResult](t, conns["a"].Want("ok", wire.MethodInfo, "{}")); info.Redis != "server" {
		t.Errorf("gateway_info says of Redis %q", info.Redis)
	}
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
	if s := engine(a); s.State != performance.Reliable || s.Lost > 0 {
		t.Errorf("the status is %+v", s)
	}
	if a.Logged("NOPERM") {
		t.Error("something is refused")
	}
}
