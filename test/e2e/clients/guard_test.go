//go:build unix

package clients

import (
	"fmt"
	"testing"

	"noncegate/test/e2e"
	"noncegate/wire"
)

// allocateGuarded is the params of an allocate with a guard.
func allocateGuarded(signer, requestID, guard string) string {
	if requestID != "" {
		requestID = fmt.Sprintf(`"requestId":%q,`, requestID)
	}
	return fmt.Sprintf(`{"signer":%q,%s"guard":%s}`, signer, requestID, guard)
}

const keptGuard = `{"key":"payout","keep":true,"intervalMs":60000}`

// The lock is taken at the node that the client talks to, and nowhere else. What it
// refuses is still asked for at the owner, if it may be known there.
func TestAGuardedCallIsForwardedAndGuardedOnce(t *testing.T) {
	t.Parallel()
	f := e2e.ServeEach(t, "a b", "--lease-ttl=10s", "--redis="+e2e.StartRedis(t).URL())
	conns := f.ConnectEach()
	owner := e2e.Owners(conns["a"], e2e.Signers("s", 12))
	signer := e2e.OwnedBy(owner, "a")[0]
	first := e2e.Decode[wire.AllocateResult](t, conns["b"].Want("ok", wire.MethodAllocate, allocateGuarded(signer, "r", keptGuard)))
	for name, c := range conns { // the lock is in Redis, which both nodes ask
		refused := c.Want("duplicate_submit", wire.MethodAllocate, allocateGuarded(signer, "s-"+name, keptGuard))
		if after := refused.Error.Data.RetryAfterMs; after <= 0 || after > 60_000 || refused.Error.Code != wire.CodeDuplicateSubmit {
			t.Errorf("%s refused with %+v, want -32016 and what is left of a minute", name, refused.Error)
		}
	}
	again := e2e.Decode[wire.AllocateResult](t, conns["b"].Want("ok", wire.MethodAllocate, allocateGuarded(signer, "r", keptGuard)))
	if again.Nonce != first.Nonce || again.Attempt != first.Attempt {
		t.Errorf("a known request id is answered %+v, want %+v", again, first)
	}
	conns["b"].Want("invalid_params", wire.MethodAllocate, fmt.Sprintf(`{"signer":%q,"requestId":"s","onlyKnown":true}`, signer))
	for node, want := range map[string]float64{"a": 0, "b": 1} {
		if got := f.Nodes[node].Value("noncegate_guard_acquired_total"); got != want {
			t.Errorf("%s took %v locks, want %v", node, got, want)
		}
	}
	if got := f.Nodes["b"].Value(`noncegate_forwarded_total{result="answered"}`); got < 3 {
		t.Errorf("%v forwards were answered, want the allocate, the refused one and the repeat at least", got)
	}
	if s := e2e.StatusOf(conns["a"], signer); s.Next != 2 {
		t.Errorf("%d nonces were handed out, want 2", s.Next)
	}
}

func TestCallsAreGuardedByThemselvesWithASubmitGuardInterval(t *testing.T) {
	t.Parallel()
	p := e2e.Launch(t, "--store=sqlite:"+t.TempDir()+"/n.db", "--submit-guard-interval=10s")
	c := p.Connect()
	for range 3 {
		c.Allocate("a", "")
	}
	c.Want("ok", wire.MethodMarkUsed, e2e.Mark("a", 1))
	if got := p.Value("noncegate_guard_released_total"); got != 4 {
		t.Errorf("%v locks were given back, want 4", got)
	}
}
