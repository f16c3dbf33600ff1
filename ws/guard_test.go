package ws

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"noncegate/internal/guard"
	"noncegate/internal/metrics"
	"noncegate/internal/testenv/wait"
	"noncegate/nonce"
	"noncegate/nonce/memstore"
)

// guardMetrics is what the gateway counts of locks.
type guardMetrics struct{ set *metrics.Set }

func (f guardMetrics) Acquired()   { f.set.GuardAcquired.Inc() }
func (f guardMetrics) Refused()    { f.set.GuardRefused.Inc() }
func (f guardMetrics) Unanswered() { f.set.GuardUnanswered.Inc() }
func (f guardMetrics) Released(d time.Duration) {
	f.set.GuardReleased.Inc()
	f.set.GuardHold.Observe(d)
}
func (f guardMetrics) Kept(time.Duration) { f.set.GuardKept.Inc() }
func (f guardMetrics) ReleaseFailed(why guard.Failure, _ time.Duration) {
	f.set.GuardReleaseFailed(metrics.GuardFailure(why))
}

// locksmith is Locks in memory, of which a test knows each step, and which it can
// keep waiting, and take away.
type locksmith struct {
	*guard.Memory
	mu    sync.Mutex // guards what follows
	taken []string   // the values of locks that were taken
	steps int
	gate  chan struct{} // nil: open
	away  error
}

func newLocksmith() *locksmith { return &locksmith{Memory: guard.NewMemory(1000)} }

func (l *locksmith) Run(ctx context.Context, steps []guard.Step) {
	l.mu.Lock()
	gate := l.gate
	l.mu.Unlock()
	if gate != nil {
		<-gate
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.steps += len(steps)
	if l.away != nil {
		for i := range steps {
			steps[i].Err = l.away
		}
		return
	}
	l.Memory.Run(ctx, steps)
	for _, s := range steps {
		if s.OK && !s.Release {
			l.taken = append(l.taken, s.Value)
		}
	}
}

// close keeps all steps waiting until open is called.
func (l *locksmith) close() (open func()) {
	gate := make(chan struct{})
	l.set(func() { l.gate = gate })
	return sync.OnceFunc(func() { l.set(func() { l.gate = nil }); close(gate) })
}

func (l *locksmith) set(change func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change()
}

func withLocks(l guard.Locks) func(*setup) { return func(s *setup) { s.locks = l } }

// workModes are the ways in which requests are run.
var workModes = map[string]func(*setup){
	"worker-queue": func(*setup) {},
	"caller-runs": func(s *setup) {
		s.Service.Reject, s.Service.QueueCapacity = nonce.CallerRuns, 1
	},
	"basic": func(s *setup) { s.Service.Mode = nonce.Basic },
}

// holdWrites makes the store's writes wait, in either mode, and returns a channel
// with one entry for each that does, and what lets all of them go on.
func (g *gateway) holdWrites() (waiting chan struct{}, release func()) {
	waiting, let := make(chan struct{}, 1000), make(chan struct{})
	g.Store.SetHooks(memstore.Hooks{Before: func(c memstore.Call) error {
		if c.Op == memstore.OpCommit || c.Op == memstore.OpLocked {
			waiting <- struct{}{}
			<-let
		}
		return nil
	}})
	release = sync.OnceFunc(func() { g.Store.SetHooks(memstore.Hooks{}); close(let) })
	g.Cleanup(release)
	return waiting, release
}

// guarded is an allocate of one nonce with a guard.
func guarded(signer, guard string) string {
	return `[{"signer":"` + signer + `","guard":` + guard + `}]`
}

func (c *client) wantDuplicate(id string, least, most int64) {
	c.Helper()
	data := c.wantError(id, "duplicate_submit")
	number, _ := data["retryAfterMs"].(json.Number)
	if after, err := number.Int64(); err != nil || after < least || after > most {
		c.Errorf("retryAfterMs is %v, want %d to %d", data["retryAfterMs"], least, most)
	}
}

func TestTheSameSubmissionIsRefusedWhileTheFirstRunsAndPassesAfterIt(t *testing.T) {
	for name, mode := range workModes {
		t.Run(name, func(t *testing.T) {
			locks := newLocksmith()
			g := startGateway(t, mode, withLocks(locks))
			first, second := g.dial(), g.dial()
			waiting, release := g.holdWrites()
			first.request("1", "nonce_allocate", guarded("a", `{"key":"k","intervalMs":60000}`))
			wait.For(t, waiting, "a write")
			second.request("2", "nonce_allocate", guarded("b", `{"key":"k"}`))
			second.wantDuplicate("2", 50_000, 60_000)
			release()
			first.wantResult("1")
			second.request("3", "nonce_allocate", guarded("a", `{"key":"k"}`))
			if r := second.wantResult("3"); r["nonce"] != json.Number("1") {
				t.Errorf("the third is given %v", r)
			}
			if v := locks.taken; len(v) != 2 || v[0] == v[1] {
				t.Errorf("locks with the values %q, want two different ones", v)
			}
			g.WantMetrics(map[string]float64{"guard_acquired_total": 2, "guard_refused_total": 1, "guard_released_total": 2, "refused_total{duplicate_submit}": 1})
			if n := g.next("b"); n != 0 {
				t.Errorf("%d nonces were handed out to the refused", n)
			}
		})
	}
}

func TestTheLockIsFreeHoweverItsCallEnded(t *testing.T) {
	const mark = `[{"signer":"a","nonce":7,"txHash":"0x5c504ed432cb51138bcf09aa5e8a410dd4a1e204ef84bfed1be16dfba1b22060","guard":{"key":"k","keep":%v}}]`
	for name, mode := range workModes {
		t.Run(name, func(t *testing.T) {
			locks := newLocksmith()
			g := startGateway(t, mode, withLocks(locks))
			c := g.dial()
			c.request("not found", "nonce_markUsed", fmt.Sprintf(mark, false))
			c.wantError("not found", "not_found")

			away := errors.New("away")
			g.Store.SetHooks(memstore.Hooks{Before: func(c memstore.Call) error {
				return &nonce.StoreError{Outcome: nonce.NotSent, Err: away}
			}})
			c.request("away", "nonce_allocate", guarded("a", `{"key":"k","keep":true}`))
			if d := c.wantError("away", "unavailable"); d["outcome"] != "none" {
				t.Errorf("the outcome is %v", d["outcome"])
			}
			g.Store.SetHooks(memstore.Hooks{})

			c.send(`{"jsonrpc":"2.0","method":"nonce_allocate","params":` + guarded("a", `{"key":"k"}`) + `}`)

			dying := g.dial()
			dying.settle()
			waiting, release := g.holdWrites()
			dying.request("dies", "nonce_allocate", guarded("b", `{"key":"dying"}`))
			wait.For(t, waiting, "a write")
			must(t, dying.conn.Close())
			release()
			g.awaitInflight(0)
			c.request("after", "nonce_allocate", `[{"signer":"b","guard":{"key":"dying"}}]`)
			c.wantResult("after")

			// What ended as a submission is kept, if it was to be, and nothing else was.
			c.request("kept", "nonce_markUsed", fmt.Sprintf(mark, true))
			c.wantError("kept", "not_found")
			c.request("last", "nonce_markRecyclable", `[{"signer":"a","nonce":0,"guard":{"key":"k"}}]`)
			c.wantDuplicate("last", 1, 10_000)
			if n := locks.Len(); n != 1 {
				t.Errorf("%d locks are left, want the one that is kept", n)
			}
		})
	}
}

func TestACallWhoseClientIsGoneBeforeItBeginsIsNotMade(t *testing.T) {
	for name, mode := range workModes {
		t.Run(name, func(t *testing.T) {
			locks := newLocksmith()
			g := startGateway(t, mode, withLocks(locks))
			open := locks.close()
			defer open()
			c := g.dial()
			c.request("1", "nonce_allocate", guarded("a", `{"key":"k","keep":true}`))
			c.request("2", "nonce_allocate", `["a"]`)
			g.awaitInflight(2)
			conn := g.srv.conns.all()[0]
			must(t, c.conn.Close())
			wait.Until(t, "the end of the connection", conn.gone.Load)
			open()
			g.awaitInflight(0)
			if n, kept := g.next("a"), locks.Len(); n != 0 || kept != 0 {
				t.Errorf("%d nonces were handed out and %d locks kept to nobody", n, kept)
			}
		})
	}
}

func TestInOneArrayTheFirstOfTheSameSubmissionsPasses(t *testing.T) {
	locks := newLocksmith()
	g := startGateway(t, withLocks(locks))
	waiting, release := g.holdWrites()
	c := g.dial()
	call := `{"jsonrpc":"2.0","id":%d,"method":"nonce_allocate","params":` + guarded("a", `{"key":"k"}`) + `}`
	c.send(`[` + fmt.Sprintf(call, 1) + `,` + fmt.Sprintf(call, 2) + `,{"jsonrpc":"2.0","id":3,"method":"nonce_status","params":["a"]}]`)
	wait.For(t, waiting, "a write")
	wait.Until(g, "both submissions asked for the lock", func() (both bool) {
		locks.set(func() { both = locks.steps >= 2 })
		return both
	})
	release()
	answers := c.batch()
	first, second := answers[0].(map[string]any), answers[1].(map[string]any)
	third, _ := answers[2].(map[string]any)["result"].(map[string]any)
	if first["error"] != nil || second["error"] == nil || third["next"] != json.Number("1") {
		t.Errorf("got %v", answers)
	}
}

func TestAStopGivesTheLocksBack(t *testing.T) {
	locks := newLocksmith()
	t.Run("gateway", func(t *testing.T) {
		g := startGateway(t, withLocks(locks))
		waiting, release := g.holdWrites()
		c := g.dial()
		c.request("1", "nonce_allocate", guarded("a", `{"key":"k"}`))
		wait.For(t, waiting, "a write")
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		check(t, g.srv.Stop(ctx))
		release()
	})
	if n := locks.Len(); n != 0 {
		t.Errorf("%d locks are left", n)
	}
}

func TestWhatComesAfterAGuardedCallForItsSignerWaitsAndNothingElseDoes(t *testing.T) {
	for name, mode := range workModes {
		t.Run(name, func(t *testing.T) {
			locks := newLocksmith()
			g := startGateway(t, mode, withLocks(locks))
			open := locks.close()
			defer open()
			c := g.dial()
			c.request("guarded", "nonce_allocate", guarded("a", `{"key":"k"}`))
			c.request("plain", "nonce_allocate", `["a"]`)
			c.request("status", "nonce_status", `["a"]`)
			c.request("guarded again", "nonce_allocate", guarded("a", `{"key":"l"}`))
			c.request("batched", "nonce_allocate", `["a"]`)
			c.request("other", "nonce_allocate", `["b"]`)
			c.wantResult("other")
			open()
			want := map[string]string{"guarded": "0", "plain": "1", "guarded again": "2", "batched": "3"}
			for range 5 {
				r := c.reply()
				result, _ := r["result"].(map[string]any)
				if r["id"] == "status" {
					if result["next"] != json.Number("2") {
						t.Errorf("the status between shows next %v, want 2", result["next"])
					}
				} else if id := r["id"].(string); result["nonce"] != json.Number(want[id]) {
					t.Errorf("%s is given %v, want nonce %s", id, r, want[id])
				}
			}
			g.awaitNoLines()
		})
	}
}

// awaitNoLines returns when nothing is in line on the only connection.
func (g *gateway) awaitNoLines() {
	g.Helper()
	ls := g.srv.conns.all()[0].lines
	wait.Until(g, "the end of all lines", func() bool {
		ls.mu.Lock()
		defer ls.mu.Unlock()
		return len(ls.bySigner) == 0
	})
}

func TestAKnownRequestIDIsAnsweredThoughTheLockIsTakenOrNobodyCanBeAsked(t *testing.T) {
	for name, mode := range workModes {
		t.Run(name, func(t *testing.T) {
			locks := newLocksmith()
			g := startGateway(t, mode, withLocks(locks))
			c := g.dial()
			ask := func(id, request string) {
				c.request(id, "nonce_allocate", `[{"signer":"a","requestId":"`+request+`","guard":{"key":"k","keep":true}}]`)
			}
			ask("1", "r")
			first := c.wantResult("1")
			again := func(id string) {
				t.Helper()
				ask(id, "r")
				if r := c.wantResult(id); r["nonce"] != first["nonce"] || r["attempt"] != first["attempt"] || r["fencingToken"] != first["fencingToken"] {
					t.Errorf("%s: got %v, want %v", id, r, first)
				}
			}
			again("2")
			ask("3", "s")
			c.wantDuplicate("3", 1, 10_000)
			locks.set(func() { locks.away = errors.New("away") })
			again("4")
			ask("5", "s")
			c.wantError("5", "unavailable")
			c.request("6", "nonce_allocate", `[{"signer":"a","count":2,"requestId":"r","guard":{"key":"k"}}]`)
			c.wantError("6", "conflict")
			if n := g.next("a"); n != 1 {
				t.Errorf("%d nonces were handed out, want 1", n)
			}
		})
	}
}

func TestWithoutAnAnswerOfTheLocksAGuardedCallIsRefused(t *testing.T) {
	locks := newLocksmith()
	g := startGateway(t, withLocks(locks))
	c := g.dial()
	locks.set(func() { locks.away = errors.New("away") })
	c.request("1", "nonce_allocate", guarded("a", `{"key":"k"}`))
	if d := c.wantError("1", "unavailable"); d["outcome"] != "none" || d["retryAfterMs"] == nil {
		t.Errorf("got %v", d)
	}
	c.request("2", "nonce_allocate", `["a"]`)
	if r := c.wantResult("2"); r["nonce"] != json.Number("0") {
		t.Errorf("got %v", r)
	}
	g.WantMetrics(map[string]float64{"guard_unanswered_total": 1, "guard_acquired_total": 0})
}

func TestMoreGuardedCallsThanThereArePlacesAreBusy(t *testing.T) {
	locks := newLocksmith()
	g := startGateway(t, withLocks(locks), func(s *setup) { s.guard.Places = 1 })
	open := locks.close()
	defer open()
	c := g.dial()
	c.request("1", "nonce_allocate", guarded("a", `{"key":"k"}`))
	c.request("2", "nonce_allocate", guarded("b", `{"key":"l"}`))
	if d := c.wantError("2", "server_busy"); d["stage"] != "guard" {
		t.Errorf("the stage is %v", d["stage"])
	}
	c.send(`[{"jsonrpc":"2.0","id":3,"method":"nonce_allocate","params":["c"]},{"jsonrpc":"2.0","id":4,"method":"nonce_allocate","params":` + guarded("c", `{"key":"m"}`) + `}]`)
	for _, r := range c.batch() {
		if e, _ := r.(map[string]any)["error"].(map[string]any); e["data"].(map[string]any)["stage"] != "guard" {
			t.Errorf("in an array: %v", r)
		}
	}
	open()
	c.wantResult("1")
	g.WantMetrics(map[string]float64{"rejected_total{guard}": 3})
}

func TestCallsWithoutAGuardAreGuardedByWhatTheyAskForWhereTheGatewayIsToldTo(t *testing.T) {
	locks := newLocksmith()
	g := startGateway(t, withLocks(locks), func(s *setup) { s.ws.GuardCalls = time.Minute })
	waiting, release := g.holdWrites()
	c, other := g.dial(), g.dial()
	c.request("1", "nonce_allocate", `["a",1]`)
	wait.For(t, waiting, "a write")
	other.request("2", "nonce_allocate", `{"signer":"a"}`)
	other.wantDuplicate("2", 50_000, 60_000)
	other.request("3", "nonce_allocate", `["a",2]`)
	other.request("4", "nonce_allocate", guarded("a", `{"key":"mine"}`))
	other.request("5", "nonce_setFloor", `["a",0]`)
	other.request("6", "nonce_status", `["b"]`)
	other.request("7", "nonce_status", `["b"]`)
	release()
	c.wantResult("1")
	for range 5 {
		if r := other.reply(); r["error"] != nil {
			t.Errorf("got %v", r)
		}
	}
	g.awaitInflight(0)
	if n := locks.steps; n != 7 {
		t.Errorf("%d steps, want 4 takes and 3 releases: reads and floors are not guarded", n)
	}
}

func TestWhatAnotherNodeBringsIsNotGuardedAgain(t *testing.T) {
	locks := newLocksmith()
	g := startGateway(t, withLocks(locks), func(s *setup) { s.ws.GuardCalls = time.Minute })
	c := g.dialWith(asNode("n2"))
	c.request("1", "nonce_allocate", guarded("a", `{"key":"k"}`))
	c.wantResult("1")
	c.request("2", "nonce_allocate", `["a"]`)
	c.wantResult("2")
	if locks.steps != 0 {
		t.Errorf("%d steps", locks.steps)
	}
}

func TestAGuardThatSaysNothingSensibleIsRefused(t *testing.T) {
	for name, locks := range map[string]guard.Locks{"with": newLocksmith(), "without": nil} {
		g := startGateway(t, withLocks(locks))
		c := g.dial()
		for guard, field := range map[string]string{
			`{"key":"with space"}`: "guard.key", `{"key":""}`: "guard.key", `{}`: "guard.key",
			`{"key":"k","intervalMs":99}`: "guard.intervalMs", `{"key":"k","intervalMs":600001}`: "guard.intervalMs",
			`{"key":"k","kept":true}`: "guard.kept", `{"key":"k","keep":1}`: "guard.keep",
		} {
			c.request("1", "nonce_allocate", guarded("a", guard))
			d := c.wantError("1", "invalid_params")
			if got := d["field"]; got != field && (name == "with" || got != "guard") {
				t.Errorf("%s a guard, %s: the field is %v, want %s", name, guard, got, field)
			}
		}
		if n := g.next("a"); n != 0 {
			t.Errorf("%d nonces were handed out", n)
		}
	}
}
