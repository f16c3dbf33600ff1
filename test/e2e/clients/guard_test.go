//go:build unix

package clients

import (
	"context"
	"fmt"
	"slices"
	"strings"
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

func TestAGuardedSubmissionIsMadeOnceByAGatewayOfEachKind(t *testing.T) {
	t.Parallel()
	for _, args := range []string{"--mode=worker-queue", "--mode=basic", "--worker-reject-policy=caller-runs --worker-queue-capacity=1", "postgres"} {
		t.Run(args, func(t *testing.T) {
			t.Parallel()
			flags := strings.Fields(args)
			if args == "postgres" {
				flags = []string{"--store=" + e2e.Database(t)}
			} else {
				flags = append(flags, "--store=sqlite:"+t.TempDir()+"/n.db")
			}
			p := e2e.Launch(t, append(flags, "--log-level=debug")...)
			c, other := p.Connect(), p.Connect()
			first := e2e.Decode[wire.AllocateResult](t, c.Want("ok", wire.MethodAllocate, allocateGuarded("a", "r", keptGuard)))
			refused := other.Want("duplicate_submit", wire.MethodAllocate, allocateGuarded("b", "", keptGuard))
			if after := refused.Error.Data.RetryAfterMs; after < 1000 || after > 60_000 || refused.Error.Code != wire.CodeDuplicateSubmit {
				t.Errorf("refused with %+v, want -32016 and what is left of a minute", refused.Error)
			}
			again := e2e.Decode[wire.AllocateResult](t, other.Want("ok", wire.MethodAllocate, allocateGuarded("a", "r", keptGuard)))
			if again.Nonce != first.Nonce || again.Attempt != first.Attempt || !slices.Equal(again.Nonces, first.Nonces) {
				t.Errorf("a known request id is answered %+v, want %+v", again, first)
			}
			for range 3 {
				c.Want("ok", wire.MethodMarkUsed, strings.TrimSuffix(e2e.Mark("a", 0), "}")+`,"guard":{"key":"mark"}}`)
			}
			for metric, want := range map[string]float64{
				"noncegate_guard_acquired_total": 4, "noncegate_guard_refused_total": 2, "noncegate_guard_released_total": 3,
				"noncegate_guard_kept_total": 1, "noncegate_guard_hold_seconds_count": 3, "noncegate_guard_slots_used": 0,
				`noncegate_guard_release_failed_total{reason="value_mismatch"}`: 0, `noncegate_refused_total{reason="duplicate_submit"}`: 1,
			} {
				if got := p.Value(metric); got != want {
					t.Errorf("%s is %v, want %v", metric, got, want)
				}
			}
			p.Says(`"msg":"lock taken","component":"guard","key":"k:0::payout","value":"`)
		})
	}
}

// The lock is taken at the node that the client talks to, and nowhere else. What it
// refuses is still asked for at the owner, if it may be known there.
func TestAGuardedCallIsForwardedAndGuardedOnce(t *testing.T) {
	t.Parallel()
	f := e2e.ServeEach(t, "a b")
	conns := f.ConnectEach()
	owner := e2e.Owners(conns["a"], e2e.Signers("s", 12))
	signer := e2e.OwnedBy(owner, "a")[0]
	first := e2e.Decode[wire.AllocateResult](t, conns["b"].Want("ok", wire.MethodAllocate, allocateGuarded(signer, "r", keptGuard)))
	conns["b"].Want("duplicate_submit", wire.MethodAllocate, allocateGuarded(signer, "s", keptGuard))
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

// The store is held by a lock on the signer's row, for less long than a worker waits
// for one.
func TestLongOfAHundredSubmissionsToTwoNodesOnePasses(t *testing.T) {
	t.Parallel()
	r := e2e.StartRedis(t)
	f := e2e.ServeEach(t, "a b", "--redis="+r.URL())
	first := f.Nodes["a"].Connect()
	first.Allocate("s", "")

	db := e2e.Dial(t, f.DB)
	execute := func(sql string) {
		t.Helper()
		if _, err := db.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	execute("BEGIN")
	execute("SELECT 1 FROM " + "signer" + " FOR UPDATE")
	submission := allocateGuarded("s", "", `{"key":"payout","intervalMs":60000}`)
	const connections, each = 9, 11
	var conns []*e2e.Peer
	for i := range connections {
		conns = append(conns, f.Nodes[f.Names[i%2]].Connect())
	}
	held := first.Send(wire.MethodAllocate, submission)
	f.Nodes["a"].Await("the first to have the lock", func() bool { return f.Nodes["a"].Value("noncegate_guard_acquired_total") == 1 })
	for _, c := range conns {
		for range each {
			c.Send(wire.MethodAllocate, submission)
		}
	}
	for _, c := range conns {
		for id := range int64(each) {
			a := c.Answer(id + 1)
			if a.Reason() != "duplicate_submit" || a.Error.Data.RetryAfterMs < 40_000 || a.Error.Data.RetryAfterMs > 60_000 {
				t.Fatalf("told %s (%+v), want duplicate_submit and nearly a minute", a.Reason(), a.Error)
			}
		}
	}
	execute("ROLLBACK")
	if a := first.Answer(held); a.Reason() != "ok" {
		t.Fatalf("the one that passes is told %v", a.Error)
	}
	next := f.Nodes["b"].Connect()
	next.Want("ok", wire.MethodAllocate, submission)
	if got := f.Sum("noncegate_guard_refused_total"); got != connections*each {
		t.Errorf("%v are counted as refused, want %d", got, connections*each)
	}
	if s := e2e.StatusOf(next, "s"); s.Next != 3 {
		t.Errorf("%d nonces were handed out, want 3", s.Next)
	}

	e2e.Do(t, "stop Redis", r.Stop)
	next.Want("unavailable none", wire.MethodAllocate, submission)
	next.Allocate("s", "")
	e2e.Do(t, "start Redis", r.Restart)
	f.Nodes["b"].Await("guarded calls to be served again", func() bool {
		return next.Call(wire.MethodAllocate, submission).Reason() == "ok"
	})
	f.Nodes["a"].Stop()
	client := r.Client(t)
	if keys, err := client.Keys(context.WithoutCancel(t.Context()), "noncegate:guard:*").Result(); err != nil || len(keys) != 0 {
		t.Errorf("locks left in Redis: %v, %v", keys, err)
	}
}
