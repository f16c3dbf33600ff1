//go:build unix

package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"

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
				flags = []string{"--store=" + database(t)}
			} else {
				flags = append(flags, "--store=sqlite:"+t.TempDir()+"/n.db")
			}
			p := launch(t, append(flags, "--log-level=debug")...)
			c, other := p.connect(), p.connect()
			first := decode[wire.AllocateResult](t, c.want("ok", wire.MethodAllocate, allocateGuarded("a", "r", keptGuard)))
			refused := other.want("duplicate_submit", wire.MethodAllocate, allocateGuarded("b", "", keptGuard))
			if after := refused.Error.Data.RetryAfterMs; after < 1000 || after > 60_000 || refused.Error.Code != wire.CodeDuplicateSubmit {
				t.Errorf("refused with %+v, want -32016 and what is left of a minute", refused.Error)
			}
			again := decode[wire.AllocateResult](t, other.want("ok", wire.MethodAllocate, allocateGuarded("a", "r", keptGuard)))
			if again.Nonce != first.Nonce || again.Attempt != first.Attempt || !slices.Equal(again.Nonces, first.Nonces) {
				t.Errorf("a known request id is answered %+v, want %+v", again, first)
			}
			for range 3 {
				c.want("ok", wire.MethodMarkUsed, strings.TrimSuffix(mark("a", 0), "}")+`,"guard":{"key":"mark"}}`)
			}
			for metric, want := range map[string]float64{
				"noncegate_guard_acquired_total": 4, "noncegate_guard_refused_total": 2, "noncegate_guard_released_total": 3,
				"noncegate_guard_kept_total": 1, "noncegate_guard_hold_seconds_count": 3, "noncegate_guard_places_used": 0,
				`noncegate_guard_release_failed_total{reason="value_mismatch"}`: 0, `noncegate_refused_total{reason="duplicate_submit"}`: 1,
			} {
				if got := p.value(metric); got != want {
					t.Errorf("%s is %v, want %v", metric, got, want)
				}
			}
			p.says(`"msg":"lock taken","component":"guard","key":"k:0::payout","value":"`)
		})
	}
}

// The lock is taken at the node that the client talks to, and nowhere else. What it
// refuses is still asked for at the owner, if it may be known there.
func TestAGuardedCallIsForwardedAndGuardedOnce(t *testing.T) {
	t.Parallel()
	f := serveEach(t, "a b")
	conns := f.connectEach()
	owner := owners(conns["a"], named("s", 12))
	signer := of(owner, "a")[0]
	first := decode[wire.AllocateResult](t, conns["b"].want("ok", wire.MethodAllocate, allocateGuarded(signer, "r", keptGuard)))
	conns["b"].want("duplicate_submit", wire.MethodAllocate, allocateGuarded(signer, "s", keptGuard))
	again := decode[wire.AllocateResult](t, conns["b"].want("ok", wire.MethodAllocate, allocateGuarded(signer, "r", keptGuard)))
	if again.Nonce != first.Nonce || again.Attempt != first.Attempt {
		t.Errorf("a known request id is answered %+v, want %+v", again, first)
	}
	conns["b"].want("invalid_params", wire.MethodAllocate, fmt.Sprintf(`{"signer":%q,"requestId":"s","onlyKnown":true}`, signer))
	for node, want := range map[string]float64{"a": 0, "b": 1} {
		if got := f.nodes[node].value("noncegate_guard_acquired_total"); got != want {
			t.Errorf("%s took %v locks, want %v", node, got, want)
		}
	}
	if got := f.nodes["b"].value(`noncegate_forwarded_total{result="answered"}`); got < 3 {
		t.Errorf("%v forwards were answered, want the allocate, the refused one and the repeat at least", got)
	}
	if s := statusOf(conns["a"], signer); s.Next != 2 {
		t.Errorf("%d nonces were handed out, want 2", s.Next)
	}
}

func TestCallsAreGuardedByThemselvesWithASubmitGuardInterval(t *testing.T) {
	t.Parallel()
	p := launch(t, "--store=sqlite:"+t.TempDir()+"/n.db", "--submit-guard-interval=10s")
	c := p.connect()
	for range 3 {
		c.allocate("a", "")
	}
	c.want("ok", wire.MethodMarkUsed, mark("a", 1))
	if got := p.value("noncegate_guard_released_total"); got != 4 {
		t.Errorf("%v locks were given back, want 4", got)
	}
}

// The store is held by a lock on the signer's row, for less long than a worker waits
// for one.
func TestLongOfAHundredSubmissionsToTwoNodesOnePasses(t *testing.T) {
	t.Parallel()
	r := startRedis(t)
	f := serveEach(t, "a b", "--redis="+r.URL())
	first := f.nodes["a"].connect()
	first.allocate("s", "")

	db := dial(t, f.db)
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
	var conns []*peer
	for i := range connections {
		conns = append(conns, f.nodes[f.names[i%2]].connect())
	}
	held := first.send(wire.MethodAllocate, submission)
	f.nodes["a"].await("the first to have the lock", func() bool { return f.nodes["a"].value("noncegate_guard_acquired_total") == 1 })
	for _, c := range conns {
		for range each {
			c.send(wire.MethodAllocate, submission)
		}
	}
	for _, c := range conns {
		for id := range int64(each) {
			a := c.answer(id + 1)
			if a.reason() != "duplicate_submit" || a.Error.Data.RetryAfterMs < 40_000 || a.Error.Data.RetryAfterMs > 60_000 {
				t.Fatalf("told %s (%+v), want duplicate_submit and nearly a minute", a.reason(), a.Error)
			}
		}
	}
	execute("ROLLBACK")
	if a := first.answer(held); a.reason() != "ok" {
		t.Fatalf("the one that passes is told %v", a.Error)
	}
	next := f.nodes["b"].connect()
	next.want("ok", wire.MethodAllocate, submission)
	if got := f.sum("noncegate_guard_refused_total"); got != connections*each {
		t.Errorf("%v are counted as refused, want %d", got, connections*each)
	}
	if s := statusOf(next, "s"); s.Next != 3 {
		t.Errorf("%d nonces were handed out, want 3", s.Next)
	}

	do(t, "stop Redis", r.Stop)
	next.want("unavailable none", wire.MethodAllocate, submission)
	next.allocate("s", "")
	do(t, "start Redis", r.Restart)
	f.nodes["b"].await("guarded calls to be served again", func() bool {
		return next.call(wire.MethodAllocate, submission).reason() == "ok"
	})
	f.nodes["a"].signal(syscall.SIGTERM)
	if code := f.nodes["a"].exit(); code != exitOK {
		t.Errorf("a node with a guard ended with %d", code)
	}
	client := r.Client(t)
	if keys, err := client.Keys(context.WithoutCancel(t.Context()), "noncegate:guard:*").Result(); err != nil || len(keys) != 0 {
		t.Errorf("locks left in Redis: %v, %v", keys, err)
	}
}
