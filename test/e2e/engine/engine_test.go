//go:build unix

// Package engine tests the performance engine, on a real Redis.
package engine

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"noncegate/nonce/service"
	"noncegate/test/e2e"
	"noncegate/wire"
)

func TestMain(m *testing.M) { e2e.Main(m) }

// command runs a command beside a gateway.
func command(p *e2e.Process, args ...string) e2e.Outcome {
	p.Helper()
	return e2e.Run(p, append(args, "--admin="+p.Admin)...)
}

// mustRun is what a command says that succeeds.
func mustRun(p *e2e.Process, args ...string) string {
	p.Helper()
	o := command(p, args...)
	if o.Code != e2e.ExitOK {
		p.Fatalf("%v ended with %d: %s%s", args, o.Code, o.Stdout, o.Stderr)
	}
	return o.Stdout
}

// engineStatus is what the tests look at of the engine's state.
type engineStatus struct {
	Available          bool
	State              service.EngineState
	Why, Reason, Redis string
	Logs               int64  `json:"shardsLogged"`
	Lost               int64  `json:"logsLost"`
	Rehearse           string `json:"rehearsal"`
	Rehearsing         []any  `json:"rehearsingHere"`
}

// engine is what gateway engine status says.
func engine(p *e2e.Process) (s engineStatus) {
	p.Helper()
	if err := json.Unmarshal([]byte(mustRun(p, "engine", "status", "--json")), &s); err != nil {
		p.Fatal(err)
	}
	return s
}

// TestLongWhilePostgresIsAwayNoncesAreHandedOut: nothing is late because of it, and marks wait.
func TestLongWhilePostgresIsAwayNoncesAreHandedOut(t *testing.T) {
	t.Parallel()
	r := e2e.StartRedis(t)
	direct, through, proxy := e2e.BehindProxy(t)
	f := &e2e.Fleet{TB: t, DB: direct, Args: []string{"--redis=" + r.URL()}, Nodes: map[string]*e2e.Process{}}
	a := f.Launch("a", "--store="+through, "--lease-ttl=30s")
	mustRun(a, "engine", "switch", "performance", "--wait")
	signers := e2e.Signers("account", 4)
	c := f.ConnectEach()["a"]
	next := map[string]int64{}
	for _, s := range signers {
		next[s] = c.Allocate(s, "").Nonce + 1
	}
	proxy.Refuse()
	for range 10 {
		for _, s := range signers {
			asked := time.Now()
			if n := c.Allocate(s, "").Nonce; n != next[s] {
				t.Fatalf("%s: nonce %d, want %d", s, n, next[s])
			}
			if took := time.Since(asked); took > time.Second {
				t.Errorf("%s: it took %v", s, took)
			}
			next[s]++
		}
	}
	toMark, answered := a.Connect(), make(chan *e2e.Reply, 1)
	go func() { answered <- toMark.Call(wire.MethodMarkUsed, e2e.Mark(signers[0], next[signers[0]]-1)) }()
	a.Await("the mark to be among what the rows do not have", func() bool { return a.Value("noncegate_log_unshipped_changes") >= 41 })
	select {
	case r := <-answered:
		t.Errorf("a mark was answered %+v before the rows had it", r)
	default:
	}
	proxy.Forward()
	if r := <-answered; r.Error != nil {
		t.Errorf("the mark was answered %s", r.Reason())
	}
	a.Await("the rows to have everything", func() bool { return a.Value("noncegate_log_unshipped_changes") == 0 })
	if s := engine(a); s.State != service.StatePerformance {
		t.Errorf("the engine is %s because PostgreSQL was away: %s", s.State, s.Reason)
	}
	mustRun(a, "engine", "switch", "reliable", "--wait")
	e2e.Consistent(t, f.DB)
}

func TestASwitchThatIsNotPossibleSaysStateAndReason(t *testing.T) {
	t.Parallel()
	lite := e2e.Launch(t, "--store=sqlite:"+t.TempDir()+"/n.db")
	plain := e2e.Launch(t, "--store="+e2e.Database(t))
	r := e2e.StartRedis(t)
	basic := e2e.Launch(t, "--store="+e2e.Database(t), "--mode=basic", "--redis="+r.URL())
	for why, p := range map[string]*e2e.Process{"a SQLite store has no performance engine": lite, "start the gateway with --redis": plain, "mode basic has no performance engine": basic} {
		if s := engine(p); s.Available || s.State != service.StateReliable || !strings.Contains(s.Why, why) {
			t.Errorf("%s: the status is %+v", why, s)
		}
		for _, c := range []string{"switch performance", "switch reliable", "reconcile", "replay"} {
			if o := command(p, append([]string{"engine"}, strings.Fields(c)...)...); o.Code != e2e.ExitFailure || !strings.Contains(o.Stderr, "refused in state RELIABLE: ") || !strings.Contains(o.Stderr, why) {
				t.Errorf("%s ended with %d: %s, want %q", c, o.Code, o.Stderr, why)
			}
		}
	}
	whole := e2e.Launch(t, "--store="+e2e.Database(t), "--redis="+r.URL())
	if o := command(whole, "engine", "switch", "sideways"); o.Code == e2e.ExitOK || !strings.Contains(o.Stderr, `"sideways" is neither performance nor reliable`) {
		t.Errorf("to switch sideways ended with %d: %s", o.Code, o.Stderr)
	}
}
