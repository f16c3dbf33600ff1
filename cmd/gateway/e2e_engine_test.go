//go:build unix

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"noncegate/nonce/service"
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

// TestLongWhilePostgresIsAwayNoncesAreHandedOut: nothing is late because of it, and marks wait.
func TestLongWhilePostgresIsAwayNoncesAreHandedOut(t *testing.T) {
	t.Parallel()
	r := startRedis(t)
	direct, through, proxy := behindProxy(t)
	f := &fleet{TB: t, db: direct, args: []string{"--redis=" + r.URL()}, nodes: map[string]*process{}}
	a := f.launch("a", "--store="+through, "--lease-ttl=30s")
	a.mustRun("engine", "switch", "performance", "--wait")
	signers := named("account", 4)
	c := f.connectEach()["a"]
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
	toMark, answered := a.connect(), make(chan *reply, 1)
	go func() { answered <- toMark.call(wire.MethodMarkUsed, mark(signers[0], next[signers[0]]-1)) }()
	a.await("the mark to be among what the rows do not have", func() bool { return a.value("noncegate_log_unshipped_changes") >= 41 })
	select {
	case r := <-answered:
		t.Errorf("a mark was answered %+v before the rows had it", r)
	default:
	}
	proxy.Forward()
	if r := <-answered; r.Error != nil {
		t.Errorf("the mark was answered %s", r.reason())
	}
	a.await("the rows to have everything", func() bool { return a.value("noncegate_log_unshipped_changes") == 0 })
	if s := a.engine(); s.State != service.StatePerformance {
		t.Errorf("the engine is %s because PostgreSQL was away: %s", s.State, s.Reason)
	}
	a.mustRun("engine", "switch", "reliable", "--wait")
	consistent(t, f.db)
}

func TestASwitchThatIsNotPossibleSaysStateAndReason(t *testing.T) {
	t.Parallel()
	lite := launch(t, "--store=sqlite:"+t.TempDir()+"/n.db")
	plain := launch(t, "--store="+database(t))
	r := startRedis(t)
	basic := launch(t, "--store="+database(t), "--mode=basic", "--redis="+r.URL())
	for why, p := range map[string]*process{"a SQLite store has no performance engine": lite, "start the gateway with --redis": plain, "mode basic has no performance engine": basic} {
		if s := p.engine(); s.Available || s.State != service.StateReliable || !strings.Contains(s.Why, why) {
			t.Errorf("%s: the status is %+v", why, s)
		}
		for _, c := range []string{"switch performance", "switch reliable", "reconcile", "replay"} {
			if code, _, errs := p.command(append([]string{"engine"}, strings.Fields(c)...)...); code != exitFailure || !strings.Contains(errs, "refused in state RELIABLE: ") || !strings.Contains(errs, why) {
				t.Errorf("%s ended with %d: %s, want %q", c, code, errs, why)
			}
		}
	}
	whole := launch(t, "--store="+database(t), "--redis="+r.URL())
	if code, _, errs := whole.command("engine", "switch", "sideways"); code == exitOK || !strings.Contains(errs, `"sideways" is neither performance nor reliable`) {
		t.Errorf("to switch sideways ended with %d: %s", code, errs)
	}
}
