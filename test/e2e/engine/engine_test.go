//go:build unix

// Package engine tests the performance engine, on a real Redis.
package engine

import (
	"encoding/json"
	"strings"
	"testing"

	"noncegate/nonce/performance"
	"noncegate/test/e2e"
	"noncegate/test/lab/expect"
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
	Available  bool
	State      performance.State
	Why, Redis string
	Lost       int64 `json:"logsLost"`
}

// engine is what gateway engine status says.
func engine(p *e2e.Process) (s engineStatus) {
	p.Helper()
	expect.Must(p, json.Unmarshal([]byte(mustRun(p, "engine", "status", "--json")), &s))
	return s
}

func TestASwitchThatIsNotPossibleSaysStateAndReason(t *testing.T) {
	t.Parallel()
	redis := "--redis=" + e2e.StartRedis(t).URL()
	for why, p := range map[string]*e2e.Process{
		"a SQLite store has no performance engine": e2e.Launch(t, "--store=sqlite:"+t.TempDir()+"/n.db", redis),
		"start the gateway with --redis":           e2e.Launch(t, "--store="+e2e.Database(t)),
		"mode basic has no performance engine":     e2e.Launch(t, "--store="+e2e.Database(t), "--mode=basic", redis),
	} {
		if s := engine(p); s.Available || s.State != performance.Reliable || !strings.Contains(s.Why, why) {
			t.Errorf("%s: the status is %+v", why, s)
		}
		for _, c := range []string{"switch performance", "switch reliable", "reconcile", "replay"} {
			if o := command(p, append([]string{"engine"}, strings.Fields(c)...)...); o.Code != e2e.ExitFailure || !strings.Contains(o.Stderr, "refused in state RELIABLE: ") || !strings.Contains(o.Stderr, why) {
				t.Errorf("%s ended with %d: %s, want %q", c, o.Code, o.Stderr, why)
			}
		}
	}
	whole := e2e.Launch(t, "--store="+e2e.Database(t), redis)
	if o := command(whole, "engine", "switch", "sideways"); o.Code == e2e.ExitOK || !strings.Contains(o.Stderr, `"sideways" is neither performance nor reliable`) {
		t.Errorf("to switch sideways ended with %d: %s", o.Code, o.Stderr)
	}
}
