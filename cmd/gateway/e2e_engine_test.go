//go:build unix

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"noncegate/internal/redistest"
	"noncegate/nonce"
	"noncegate/wire"
)

// command runs a command beside a gateway and returns what it said and how it
// ended.
func (p *process) command(args ...string) (code int, out, errs string) {
	p.Helper()
	var stdout, stderr bytes.Buffer
	ctx, cancel := context.WithTimeout(p.Context(), patience)
	defer cancel()
	code = run(ctx, append(args, "--admin="+p.admin), &stdout, &stderr)
	return code, stdout.String(), stderr.String()
}

// mustRun is a command that succeeds.
func (p *process) mustRun(args ...string) string {
	p.Helper()
	code, out, errs := p.command(args...)
	if code != exitOK {
		p.Fatalf("%v ended with %d: %s%s", args, code, out, errs)
	}
	return out
}

// engine is what gateway engine status says.
func (p *process) engine() (s engineStatus) {
	p.Helper()
	if err := json.Unmarshal([]byte(p.mustRun("engine", "status", "--json")), &s); err != nil {
		p.Fatal(err)
	}
	return s
}

// up brings the cluster to PERFORMANCE, with these signers in it.
func (f *fleet) up(signers []string) map[string]*peer {
	f.Helper()
	f.nodes[f.names[0]].mustRun("engine", "switch", "performance", "--wait")
	conns := f.connectEach()
	f.enter(conns[f.names[0]], signers)
	return conns
}

// enter uses the signers until Redis serves all of them.
func (f *fleet) enter(c *peer, signers []string) {
	f.Helper()
	await(f.TB, "the signers have entered", func() bool {
		for _, s := range signers {
			n := c.allocate(s, "").Nonce
			c.want("ok", wire.MethodMarkUsed, mark(s, n))
		}
		return f.nodes[f.names[0]].engine().Signers >= len(signers)
	})
}

// returned waits until no signer is in the performance engine any more, and looks
// whether the database is whole.
func (f *fleet) returned(state nonce.EngineState) {
	f.Helper()
	await(f.TB, "every signer has returned", func() bool {
		s := f.nodes[f.names[0]].engine()
		return s.State == state && s.Signers == 0
	})
	consistent(f.TB, f.db)
}

// engineHold is the longest hold of engineLimits.
const (
	engineHold   = 2 * time.Second
	engineLimits = "--engine-redis-limit=1s --engine-redis-lost-after=3s --engine-grant=2s --max-hold=2s --hold-ttl=2s --engine-observe=0s"
)

func TestThePerformanceEngineIsEnteredServesAndIsLeft(t *testing.T) {
	onOldHeart(t)
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
			t.Parallel()
			entersServesAndLeaves(t, url(t))
		})
	}
}

func entersServesAndLeaves(t *testing.T, redis string) {
	f := serveEach(t, "a b", "--redis="+redis, "--perf-interval=200ms")
	a := f.nodes["a"]
	if s := a.engine(); !s.Available || s.State != nonce.StateReliable || s.Signers != 0 || s.Redis != "ok" {
		t.Errorf("at the start the status is %+v", s)
	}
	if out := a.mustRun("engine", "switch", "performance", "--dry-run"); !strings.Contains(out, "would switch from RELIABLE to DUAL_WRITE, on the way to PERFORMANCE") || !strings.Contains(out, "appendfsync") && !strings.Contains(out, "fsync everysec") {
		t.Errorf("the dry run said %s", out)
	}
	if s := a.engine(); s.State != nonce.StateReliable || s.Number != 0 {
		t.Errorf("after a dry run the status is %+v", s)
	}
	if out := a.mustRun("engine", "switch", "performance", "--wait"); !strings.HasPrefix(lastLine(out), "the state is PERFORMANCE, generation ") {
		t.Errorf("at the end of its way to PERFORMANCE the command said %s", out)
	}
	signers := named("account", 8)
	conns := f.connectEach()
	f.enter(conns["a"], signers)
	before := map[string]int64{}
	for _, s := range signers {
		before[s] = statusOf(conns["a"], s).Next
	}
	for range 20 {
		for _, s := range signers {
			c := conns["b"]
			n := c.allocate(s, "")
			if n.Nonce != before[s] || n.Attempt != 1 {
				t.Fatalf("%s: allocated %+v, want nonce %d", s, n, before[s])
			}
			before[s]++
			c.want("ok", wire.MethodMarkUsed, mark(s, n.Nonce))
		}
	}
	await(t, "everything is flushed", func() bool { return a.engine().Waiting == 0 })
	out := a.mustRun("engine", "reconcile")
	if !strings.Contains(out, "8 equal, 0 different") {
		t.Errorf("reconcile said %s", out)
	}
	if code, _, errs := a.command("engine", "switch", "performance"); code != exitFailure || !strings.Contains(errs, "refused in state PERFORMANCE: that is the state already") {
		t.Errorf("to switch up twice ended with %d: %s", code, errs)
	}
	if info := decode[wire.InfoResult](t, conns["a"].want("ok", wire.MethodInfo, "{}")); info.EngineState != "PERFORMANCE" || info.Generation == 0 {
		t.Errorf("gateway_info says %q, %d, of the engine", info.EngineState, info.Generation)
	}
	await(t, "gateway_stats tells of the engine", func() bool {
		e := decode[wire.StatsResult](t, conns["b"].want("ok", wire.MethodStats, "{}")).Engine
		return e != nil && *e == wire.EngineStats{State: "PERFORMANCE", Generation: a.engine().Number}
	})
	f.nodes["b"].mustRun("engine", "switch", "drain")
	f.returned(nonce.StateReliable)
	for _, s := range signers {
		if n := conns["a"].allocate(s, "").Nonce; n != before[s] {
			t.Errorf("%s: after the drain nonce %d, want %d", s, n, before[s])
		}
	}
	a.mustRun("engine", "switch", "performance", "--wait")
	f.enter(conns["a"], signers)
	if out := a.mustRun("engine", "switch", "reliable", "--wait"); !strings.HasPrefix(lastLine(out), "the state is RELIABLE, generation ") {
		t.Errorf("at the end of its way back the command said %s", out)
	}
	f.returned(nonce.StateReliable)
}

func TestANodeThatDiesLeavesNothingUnflushed(t *testing.T) {
	onOldHeart(t)
	t.Parallel()
	r := startRedis(t)
	f := serveEach(t, "a b", "--redis="+r.URL())
	signers := named("account", 8)
	conns := f.up(signers)
	held := f.nodes["b"].engine().Held
	if held == 0 || held == f.nodes["b"].engine().Shards {
		t.Errorf("b flushes %d shards, want its part", held)
	}
	next := map[string]int64{}
	for _, s := range signers {
		next[s] = conns["a"].allocate(s, "").Nonce + 1
	}
	f.nodes["b"].signal(syscall.SIGKILL)
	f.nodes["b"].exit()
	f.drop("b")
	f.names = f.names[:1]
	await(t, "every shard is flushed by a", func() bool { s := f.nodes["a"].engine(); return s.Held == s.Shards && s.Waiting == 0 })
	for _, s := range signers {
		await(t, "the signer is served", func() bool {
			reply := conns["a"].call(wire.MethodAllocate, allocation(s, ""))
			if reply.Error != nil {
				return false
			}
			if n := decode[wire.AllocateResult](t, reply).Nonce; n != next[s] {
				t.Errorf("%s: nonce %d, want %d", s, n, next[s])
			}
			return true
		})
	}
	f.nodes["a"].mustRun("engine", "switch", "drain")
	f.returned(nonce.StateReliable)
}

// TestRedisIsLost: emptied, started again, or gone together with a node. The cluster
// becomes DEGRADED, and what was handed out is not handed out again while it may be
// held.
func TestRedisIsLost(t *testing.T) {
	onOldHeart(t)
	for name, lose := range map[string]func(t *testing.T, f *fleet, r *redistest.Server){
		"emptied": func(t *testing.T, _ *fleet, r *redistest.Server) {
			options, err := redis.ParseURL(r.URL())
			if err != nil {
				t.Fatal(err)
			}
			c := redis.NewClient(options)
			defer c.Close()
			do(t, "flush", c.FlushAll(t.Context()).Err)
		},
		"started again": func(t *testing.T, _ *fleet, r *redistest.Server) { do(t, "restart", r.Restart) },
		"gone with a node": func(t *testing.T, f *fleet, r *redistest.Server) {
			do(t, "kill", r.Kill)
			f.nodes["b"].signal(syscall.SIGKILL)
			f.nodes["b"].exit()
			f.drop("b")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := startRedis(t)
			f := serveEach(t, "a b", append(strings.Fields(engineLimits), "--redis="+r.URL())...)
			signers := named("account", 6)
			c := f.up(signers)["a"]
			handed := map[string]int64{}
			began := time.Now()
			for _, s := range signers {
				handed[s] = c.allocate(s, "").Nonce
			}
			lose(t, f, r)
			a := f.nodes["a"]
			await(t, "no signer is in the performance engine", func() bool {
				for _, s := range signers {
					c.call(wire.MethodAllocate, allocation(s, ""))
				}
				state := a.engine()
				return (state.State == nonce.StateDegraded || state.State == nonce.StateReliable) && state.Signers == 0
			})
			// One that Redis had flushed may have returned before it was missed.
			if name != "started again" && f.sum("noncegate_engine_signers_lost_total") == 0 {
				t.Error("no signer was lost")
			}
			for _, s := range signers {
				if n := c.allocate(s, ""); n.Nonce <= handed[s] && (time.Since(began) < engineHold || n.Attempt == 1) {
					t.Errorf("%s: %+v, while %d may be held", s, n, handed[s])
				}
			}
			await(t, "the doubt is over", func() bool { return a.engine().Doubtful == 0 })
			for _, s := range signers {
				await(t, "the nonces come back", func() bool { n := c.allocate(s, ""); return n.Nonce <= handed[s] && n.Attempt > 1 })
			}
			consistent(t, f.db)
		})
	}
}

// TestWhilePostgresIsAwayNoncesAreHandedOut: nothing is late because of it, and all
// of it is flushed afterwards.
func TestWhilePostgresIsAwayNoncesAreHandedOut(t *testing.T) {
	onOldHeart(t)
	t.Parallel()
	r := startRedis(t)
	direct, through, proxy := behindProxy(t)
	f := &fleet{TB: t, db: direct, args: []string{"--redis=" + r.URL()}, nodes: map[string]*process{}}
	a := f.launch("a", "--store="+through, "--lease-ttl=30s")
	signers := named("account", 4)
	c := f.up(signers)["a"]
	next := map[string]int64{}
	for _, s := range signers {
		next[s] = c.allocate(s, "").Nonce + 1
	}
	proxy.Refuse()
	for range 10 {
		for _, s := range signers {
			asked := time.Now()
			if n := c.allocate(s, "").Nonce; n != next[s] {
				t.Fatalf("%s: nonce %d, want %d", s, n, next[s])
			}
			if took := time.Since(asked); took > time.Second {
				t.Errorf("%s: it took %v", s, took)
			}
			next[s]++
		}
	}
	if reply := c.call(wire.MethodMarkUsed, mark(signers[0], next[signers[0]]-1)); reply.reason() != "unavailable unknown" {
		t.Errorf("a mark was answered %s before it was flushed", reply.reason())
	}
	proxy.Forward()
	await(t, "everything is flushed", func() bool {
		return rows(t, direct, `SELECT 1 FROM signer_nonce_state WHERE engine = 1 AND next_nonce < 12`) == "" && a.value("noncegate_flush_waiting_events") == 0
	})
	c.want("ok", wire.MethodMarkUsed, mark(signers[0], next[signers[0]]-1))
	if s := a.engine(); s.State != nonce.StatePerformance {
		t.Errorf("the engine is %s because PostgreSQL was away: %s", s.State, s.Reason)
	}
	a.mustRun("engine", "switch", "drain")
	f.returned(nonce.StateReliable)
}

func TestASwitchThatIsNotPossibleSaysStateAndReason(t *testing.T) {
	onOldHeart(t)
	t.Parallel()
	lite := launch(t, "--store=sqlite:"+t.TempDir()+"/n.db")
	plain := launch(t, "--store="+database(t))
	r := startRedis(t)
	basic := launch(t, "--store="+database(t), "--mode=basic", "--redis="+r.URL())
	for why, p := range map[string]*process{"a SQLite store has no performance engine": lite, "start the gateway with --redis": plain, "mode basic has no performance engine": basic} {
		if s := p.engine(); s.Available || s.State != nonce.StateReliable || !strings.Contains(s.Why, why) {
			t.Errorf("%s: the status is %+v", why, s)
		}
		for _, c := range []string{"switch performance", "switch drain", "reconcile", "replay", "rebuild"} {
			if code, _, errs := p.command(append([]string{"engine"}, strings.Fields(c)...)...); code != exitFailure || !strings.Contains(errs, "refused in state RELIABLE: ") || !strings.Contains(errs, why) {
				t.Errorf("%s ended with %d: %s, want %q", c, code, errs, why)
			}
		}
	}
	whole := launch(t, "--store="+database(t), "--redis="+r.URL())
	for _, c := range []struct{ args, want string }{
		{"switch drain", "refused in state RELIABLE: there is nothing to drain"},
		{"rebuild", "refused in state RELIABLE: copies are kept in DUAL_WRITE and PERFORMANCE only"},
		{"switch sideways", `"sideways" is none of dual-write, performance, drain and reliable`},
	} {
		if code, _, errs := whole.command(append([]string{"engine"}, strings.Fields(c.args)...)...); code == exitOK || !strings.Contains(errs, c.want) {
			t.Errorf("%s ended with %d: %s, want %q", c.args, code, errs, c.want)
		}
	}
}

// TestAChangeThatPostgresCanNeverTakeIsPutAside: somebody deleted a row by hand. The
// signer is declared lost, and nobody else is held up.
func TestAChangeThatPostgresCanNeverTakeIsPutAside(t *testing.T) {
	onOldHeart(t)
	t.Parallel()
	r := startRedis(t)
	f := serveEach(t, "a", append(strings.Fields(engineLimits), "--redis="+r.URL())...)
	a := f.nodes["a"]
	signers := named("account", 3)
	c := f.up(signers)["a"]
	bad := signers[0]
	held := c.allocate(bad, "").Nonce
	await(t, "it is flushed", func() bool { return a.engine().Waiting == 0 })
	execute(t, f.db, `DELETE FROM signer_nonce_allocation a USING signer_nonce_state s WHERE a.signer_id = s.signer_id AND s.signer = '`+bad+`' AND a.status = 1`)
	c.call(wire.MethodMarkUsed, mark(bad, held))
	await(t, "it is a dead letter, and the signer is lost", func() bool {
		c.call(wire.MethodAllocate, allocation(bad, ""))
		return a.engine().Dead > 0 && a.value("noncegate_engine_signers_lost_total") == 1
	})
	await(t, "the others have returned", func() bool { return a.engine().Signers == 0 })
	if code, _, errs := a.command("engine", "switch", "performance"); code != exitFailure || !strings.Contains(errs, "dead letters") && !strings.Contains(errs, "doubt") {
		t.Errorf("to go up with dead letters ended with %d: %s", code, errs)
	}
	if out := a.mustRun("engine", "replay"); !strings.Contains(out, "0 dead letters are left") {
		t.Errorf("the replay said %s", out)
	}
	if s := a.engine(); s.Dead != 0 || s.Waiting != 0 {
		t.Errorf("after the replay: %+v", s)
	}
}
