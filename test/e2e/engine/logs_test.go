//go:build unix

package engine

import (
	"slices"
	"strings"
	"syscall"
	"testing"

	"noncegate/nonce/performance"
	"noncegate/test/e2e"
	"noncegate/test/lab/wait"
	"noncegate/wire"
)

// logLimits are short times for what tests wait for.
const logLimits = "--engine-grant=3s --engine-timeout=500ms --redis-lost-after=1500ms --engine-rehearsal=300ms --max-hold=60s --hold-ttl=60s"

func startLogs(t *testing.T, names, redis string, args ...string) *e2e.Fleet {
	t.Helper()
	return e2e.ServeEach(t, names, slices.Concat([]string{"--redis=" + redis, "--perf-interval=200ms"}, strings.Fields(logLimits), args)...)
}

// saysEngine compares what clients are told of the engines.
func saysEngine(c *e2e.Peer, engine string, state performance.State, signer string) {
	c.Helper()
	wait.Until(c, "the node knows of the engine", func() bool {
		info := e2e.Decode[wire.InfoResult](c, c.Want("ok", wire.MethodInfo, "{}"))
		return info.Engine == engine && info.EngineState == string(state) && info.Store == "postgres"
	})
	if st := e2e.StatusOf(c, signer); st.Engine != engine {
		c.Errorf("nonce_status says %+v", st)
	}
	wait.Until(c, "gateway_stats tells of the engine", func() bool {
		e := e2e.Decode[wire.StatsResult](c, c.Want("ok", wire.MethodStats, "{}")).Engine
		return e != nil && e.State == string(state) && (e.Shards > 0) == (engine == wire.EnginePerformance)
	})
}

func TestLongShardsGoToThePerformanceEngineAndBack(t *testing.T) {
	t.Parallel()
	f := startLogs(t, "a b", e2e.StartRedis(t).URL())
	a, conns := f.Nodes["a"], f.ConnectEach()
	if s := engine(a); !s.Available || s.State != performance.Reliable || s.Redis != "ok" {
		t.Errorf("at the start the status is %+v", s)
	}
	if out := mustRun(a, "engine", "switch", "performance", "--wait"); !strings.HasPrefix(out[strings.LastIndex(strings.TrimSpace(out), "\n")+1:], "the state is PERFORMANCE, generation 1") {
		t.Errorf("the command said %s", out)
	}
	signers := e2e.Signers("account", 8)
	for i := range int64(20) {
		for _, s := range signers {
			if n := conns["b"].Allocate(s, ""); n.Nonce != i || n.Attempt != 1 {
				t.Fatalf("%s: allocated %+v, want nonce %d", s, n, i)
			}
			if i%2 == 0 {
				conns["a"].Want("ok", wire.MethodMarkUsed, e2e.Mark(s, i))
			}
		}
	}
	if out := mustRun(a, "engine", "reconcile"); !strings.Contains(out, " 0 different") {
		t.Errorf("reconcile said %s", out)
	}
	if out := mustRun(a, "engine", "replay"); !strings.Contains(out, " logs shipped, 0 left") {
		t.Errorf("replay said %s", out)
	}
	for _, c := range conns {
		saysEngine(c, wire.EnginePerformance, performance.Performance, signers[0])
	}
	if o := command(a, "engine", "switch", "reliable", "--generation=0"); o.Code != e2e.ExitFailure || !strings.Contains(o.Stderr, "the engine was switched meanwhile (generation 1: ") {
		t.Errorf("a switch of the generation before ended with %d: %s", o.Code, o.Stderr)
	}
	mustRun(f.Nodes["b"], "engine", "switch", "reliable", "--wait")
	saysEngine(conns["a"], wire.EngineReliable, performance.Reliable, signers[0])
	for _, s := range signers {
		if st := e2e.StatusOf(conns["a"], s); st.Next != 20 || st.Consumed != 10 {
			t.Errorf("%s: %+v", s, st)
		}
	}
	e2e.Consistent(t, f.DB)
}

func TestAnOwnerWithALogIsKilledAndNothingItSaidIsLost(t *testing.T) {
	t.Parallel()
	f := startLogs(t, "a b", e2e.StartRedis(t).URL())
	mustRun(f.Nodes["b"], "engine", "switch", "performance", "--wait")
	conns := f.ConnectEach()
	signers := e2e.Signers("account", 16)
	given := make(map[string]int64)
	for range 10 {
		for _, s := range signers {
			given[s] = conns["a"].Allocate(s, "").Nonce
		}
	}
	a := f.Nodes["a"]
	a.Signal(syscall.SIGKILL)
	for _, s := range signers {
		wait.Until(t, s+" is handed out of by b", func() bool {
			reply := conns["b"].Call(wire.MethodAllocate, `{"signer":"`+s+`"}`)
			if reply.Error != nil {
				return false
			}
			if n := e2e.Decode[wire.AllocateResult](t, reply); n.Nonce != given[s]+1 && n.Attempt == 1 {
				t.Fatalf("%s: got %+v, and %d was given", s, n, given[s])
			}
			return true
		})
	}
}
