//go:build unix

package main

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"syscall"
	"testing"

	"noncegate/internal/testenv/pgtest"
	"noncegate/internal/testenv/redistest"
	"noncegate/nonce/service"
	"noncegate/wire"
)

// logLimits are short times for what tests wait for.
const logLimits = "--engine-grant=3s --engine-timeout=500ms --redis-lost-after=1500ms --engine-rehearsal=300ms --max-hold=60s --hold-ttl=60s"

func startLogs(t *testing.T, names, redis string, args ...string) *fleet {
	t.Helper()
	return serveEach(t, names, slices.Concat([]string{"--redis=" + redis, "--perf-interval=200ms"}, strings.Fields(logLimits), args)...)
}

func (p *process) awaitEngine(state service.EngineState) {
	p.Helper()
	await(p.TB, "the state is "+string(state), func() bool { return p.engine().State == state })
}

// saysEngine compares what clients are told of the engines.
func (c *peer) saysEngine(engine string, state service.EngineState, signer string) {
	c.Helper()
	await(c, "the node knows of the engine", func() bool {
		info := decode[wire.InfoResult](c, c.want("ok", wire.MethodInfo, "{}"))
		return info.Engine == engine && info.EngineState == string(state) && info.Store == "postgres"
	})
	if st := statusOf(c, signer); st.Engine != engine {
		c.Errorf("nonce_status says %+v", st)
	}
	await(c, "gateway_stats tells of the engine", func() bool {
		e := decode[wire.StatsResult](c, c.want("ok", wire.MethodStats, "{}")).Engine
		return e != nil && e.State == string(state) && (e.Shards > 0) == (engine == wire.EnginePerformance)
	})
}

func TestLongTheWayUpIsRehearsed(t *testing.T) {
	t.Parallel()
	f := startLogs(t, "a b", startRedis(t).URL(), "--engine-rehearsal=3s")
	a, c := f.nodes["a"], f.connectEach()["a"]
	a.mustRun("engine", "switch", "performance")
	a.awaitEngine(service.StateDualWrite)
	await(t, "the status shows how far the shards are", func() bool {
		s := a.engine()
		return len(s.Rehearsing) > 0 && s.Rehearse == "3s" && s.Logs == 0
	})
	out := a.mustRun("engine", "status")
	if !strings.Contains(out, "shards have kept up for 3s") || !strings.Contains(out, "kept up for ") {
		t.Errorf("the status is %s", out)
	}
	c.allocate("one", "")
	a.awaitEngine(service.StatePerformance)
	if n := c.allocate("one", ""); n.Nonce != 1 {
		t.Errorf("after the rehearsal: %+v", n)
	}
}

// TestLongAGatewayThatDoesNotReachRedisLeavesItsShardsToOneThatDoes: and nothing is lost by it.
func TestLongAGatewayThatDoesNotReachRedisLeavesItsShardsToOneThatDoes(t *testing.T) {
	redis := startRedis(t)
	proxy, err := pgtest.NewProxy(redis.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { do(t, "close", proxy.Close) })
	f := startLogs(t, "a", redis.URL(), "--redis-lost-after=4s")
	f.launch("b", "--redis="+strings.Replace(redis.URL(), redis.Addr(), proxy.Addr(), 1))
	f.linked()
	a, b, conns := f.nodes["a"], f.nodes["b"], f.connectEach()
	a.mustRun("engine", "switch", "performance", "--wait")
	await(t, "both serve logs", func() bool { return a.value("noncegate_logs_served") > 0 && b.value("noncegate_logs_served") > 0 })
	signers := named("account", 16)
	for i := range int64(3) {
		for _, s := range signers {
			if n := conns["b"].allocate(s, ""); n.Nonce != i {
				t.Fatalf("%s: %+v", s, n)
			}
		}
	}
	proxy.Refuse()
	await(t, "a serves all logs", func() bool {
		return a.value("noncegate_logs_served") == a.value("noncegate_shards_logged") && b.value("noncegate_logs_served") == 0
	})
	for _, s := range signers {
		await(t, s+" is handed out of by b", func() bool {
			reply := conns["b"].call(wire.MethodAllocate, `{"signer":"`+s+`"}`)
			if reply.Error != nil {
				return false
			}
			if n := decode[wire.AllocateResult](t, reply); n.Nonce < 3 && n.Attempt == 1 {
				t.Fatalf("%s: got %+v again", s, n)
			}
			return true
		})
	}
	if s := a.engine(); s.State != service.StatePerformance || s.Lost+b.engine().Lost > 0 {
		t.Errorf("the status is %+v", s)
	}
	proxy.Forward()
	await(t, "b has its share again", func() bool { return b.value("noncegate_logs_served") > 0 })
}

func TestLongShardsGoToThePerformanceEngineAndBack(t *testing.T) {
	t.Parallel()
	for name, url := range map[string]func(t *testing.T) string{
		"one Redis": func(t *testing.T) string { return startRedis(t).URL() },
		"a cluster of three": func(t *testing.T) string {
			c, err := redistest.StartCluster(3)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { do(t, "close", c.Close) })
			return c.URL()
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := startLogs(t, "a b", url(t))
			a, conns := f.nodes["a"], f.connectEach()
			if s := a.engine(); !s.Available || s.State != service.StateReliable || s.Redis != "ok" {
				t.Errorf("at the start the status is %+v", s)
			}
			if out := a.mustRun("engine", "switch", "performance", "--wait"); !strings.HasPrefix(lastLine(out), "the state is PERFORMANCE, generation 1") {
				t.Errorf("the command said %s", out)
			}
			signers := named("account", 8)
			for i := range int64(20) {
				for _, s := range signers {
					if n := conns["b"].allocate(s, ""); n.Nonce != i || n.Attempt != 1 {
						t.Fatalf("%s: allocated %+v, want nonce %d", s, n, i)
					}
					if i%2 == 0 {
						conns["a"].want("ok", wire.MethodMarkUsed, mark(s, i))
					}
				}
			}
			if out := a.mustRun("engine", "reconcile"); !strings.Contains(out, " 0 different") {
				t.Errorf("reconcile said %s", out)
			}
			if out := a.mustRun("engine", "replay"); !strings.Contains(out, " logs shipped, 0 left") {
				t.Errorf("replay said %s", out)
			}
			for _, c := range conns {
				c.saysEngine(wire.EnginePerformance, service.StatePerformance, signers[0])
			}
			f.nodes["b"].mustRun("engine", "switch", "reliable", "--wait")
			conns["a"].saysEngine(wire.EngineReliable, service.StateReliable, signers[0])
			for _, s := range signers {
				if st := statusOf(conns["a"], s); st.Next != 20 || st.Consumed != 10 {
					t.Errorf("%s: %+v", s, st)
				}
			}
			consistent(t, f.db)
		})
	}
}

func TestAnOwnerWithALogIsKilledAndNothingItSaidIsLost(t *testing.T) {
	t.Parallel()
	f := startLogs(t, "a b", startRedis(t).URL())
	f.nodes["b"].mustRun("engine", "switch", "performance", "--wait")
	conns := f.connectEach()
	signers := named("account", 16)
	given := make(map[string]int64)
	for range 10 {
		for _, s := range signers {
			given[s] = conns["a"].allocate(s, "").Nonce
		}
	}
	a := f.nodes["a"]
	a.signal(syscall.SIGKILL)
	for _, s := range signers {
		await(t, s+" is handed out of by b", func() bool {
			reply := conns["b"].call(wire.MethodAllocate, `{"signer":"`+s+`"}`)
			if reply.Error != nil {
				return false
			}
			if n := decode[wire.AllocateResult](t, reply); n.Nonce != given[s]+1 && n.Attempt == 1 {
				t.Fatalf("%s: got %+v, and %d was given", s, n, given[s])
			}
			return true
		})
	}
}

func TestALostRedisLeavesWhatWasHandedOut(t *testing.T) {
	t.Parallel()
	redis := startRedis(t)
	f := startLogs(t, "a", redis.URL())
	a := f.nodes["a"]
	a.mustRun("engine", "switch", "performance", "--wait")
	c := f.connectEach()["a"]
	signers := named("account", 8)
	for range 5 {
		for _, s := range signers {
			c.allocate(s, "")
		}
	}
	do(t, "kill", redis.Kill)
	for _, s := range signers {
		await(t, s+" is handed out of", func() bool {
			reply := c.call(wire.MethodAllocate, `{"signer":"`+s+`"}`)
			if reply.Error != nil {
				return false
			}
			if n := decode[wire.AllocateResult](t, reply); n.Attempt == 1 && n.Nonce < 5 {
				t.Fatalf("%s: got %+v again", s, n)
			}
			return true
		})
	}
	a.awaitEngine(service.StateDegraded)
	if s := a.engine(); s.Lost != 0 || s.Logs != 0 {
		t.Errorf("the status is %+v", s)
	}
	do(t, "restart", redis.Restart)
	await(t, "Redis answers", func() bool { return a.engine().Redis == "ok" })
	a.mustRun("engine", "switch", "performance", "--wait")
}

func TestARedisWithTheLogsOfAnotherDatabaseStopsTheStart(t *testing.T) {
	t.Parallel()
	redis := startRedis(t)
	startLogs(t, "a", redis.URL())
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c := redis.Client(t)
	if err := c.Set(ctx, "noncegate:logs-of", "another", 0).Err(); err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	code := run(ctx, []string{"serve", "--listen=127.0.0.1:0", "--admin-listen=127.0.0.1:0", "--store=" + pg.NewDatabase(t), "--redis=" + redis.URL()}, &out, &errs)
	if code == exitOK || !strings.Contains(errs.String(), "--redis cannot be used: it keeps the logs of another database") {
		t.Errorf("got %d, %s", code, errs.String())
	}
}
