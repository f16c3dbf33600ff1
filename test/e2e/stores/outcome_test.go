//go:build unix

package stores

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"noncegate/test/e2e"
	"noncegate/test/lab/pgtest"
	"noncegate/wire"
)

// cutCommit cuts the connection that executes the next commit off its reply.
func cutCommit(p *pgtest.Proxy) (answered <-chan struct{}) {
	return p.CutStatement("mine.beliefs")
}

func TestACommitWhoseReplyIsLostIsSettledAndAnswered(t *testing.T) {
	t.Parallel()
	db, through, proxy := e2e.BehindProxy(t)
	c := e2e.Launch(t, "--store="+through).Connect()
	first := c.Allocate(e2e.Account, "")
	lost := func(reason, method, params string) *e2e.Reply {
		t.Helper()
		answered := cutCommit(proxy)
		r := c.Want(reason, method, params)
		<-answered
		return r
	}
	got := e2e.Decode[wire.AllocateResult](t, lost("ok", wire.MethodAllocate, e2e.Allocation(e2e.Account, "r1")))
	if got.Nonce != 1 || got.Attempt != 1 || got.FencingToken != first.FencingToken {
		t.Errorf("with a request id: %+v after %+v", got, first)
	}
	// A repeat names the token that the shard has by now, and it was acquired again.
	token := got.FencingToken + 1
	if again := c.Allocate(e2e.Account, "r1"); again.Nonce != 1 || again.FencingToken != token {
		t.Errorf("repeated: %+v, want %+v with token %d", again, got, token)
	}
	if got := e2e.Decode[wire.AllocateResult](t, lost("ok", wire.MethodAllocate, e2e.Allocation(e2e.Account, ""))); got.Nonce != 2 || got.HoldMs <= 0 {
		t.Errorf("without a request id: %+v, want nonce 2", got)
	}
	lost("ok", wire.MethodMarkUsed, fmt.Sprintf(`{"signer":%q,"nonce":0,"txHash":%q}`, e2e.Account, e2e.Hash))
	lost("ok", wire.MethodMarkRecyclable, fmt.Sprintf(`{"signer":%q,"nonce":1}`, e2e.Account))
	if got := e2e.Decode[wire.AllocateResult](t, lost("ok", wire.MethodAllocate, e2e.Allocation(e2e.Account, ""))); got.Nonce != 1 || got.Attempt != 2 {
		t.Errorf("the released one: %+v, want nonce 1, attempt 2", got)
	}
	r := lost("conflict", wire.MethodAllocate, e2e.Allocation(e2e.Account, "r1")) // only compared: the hold has ended
	if s := r.Error.Data.Nonces; len(s) != 1 || s[0].Attempt != 2 {
		t.Errorf("the ended request: %+v", r.Error.Data)
	}
	floor := e2e.Decode[wire.FloorResult](t, lost("ok", wire.MethodSetFloor, fmt.Sprintf(`{"signer":%q,"floor":3}`, e2e.Account)))
	if floor.Floor != 3 || floor.Next != 3 {
		t.Errorf("got %+v", floor)
	}
	if got := c.Allocate(e2e.Account, ""); got.Nonce != 3 {
		t.Errorf("then %+v, want nonce 3", got)
	}
	want := "(0,CONSUMED,1)\n(1,HELD,2)\n(2,HELD,1)\n(3,HELD,1)"
	if got := e2e.Query(t, db, `SELECT nonce, status, attempt FROM nonces ORDER BY nonce`); got != want {
		t.Errorf("the store has\n%s\nwant\n%s", got, want)
	}
	e2e.Consistent(t, db)
}

// TestAnUnknownOutcomeStaysUnknownUntilTheStoreIsBack: no new connection can be
// made when the only one is lost, so nothing can be settled.
func TestAnUnknownOutcomeStaysUnknownUntilTheStoreIsBack(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"worker-queue", "basic"} {
		t.Run(mode, func(t *testing.T) {
			db, through, proxy := e2e.BehindProxy(t)
			c := e2e.Launch(t, "--mode="+mode, "--store="+through+"&pool_max_conns=1").Connect()
			c.Allocate(e2e.Account, "")
			name := e2e.Rows(t, db, `SELECT current_database()`)
			name = strings.Trim(name, "()")

			e2e.Execute(t, e2e.PG.URL("postgres"), "ALTER DATABASE "+name+" ALLOW_CONNECTIONS false")
			var answered <-chan struct{}
			if mode == "basic" {
				answered = proxy.CutReplies("COMMIT")
			} else {
				answered = cutCommit(proxy)
			}
			c.Want("unavailable unknown", wire.MethodAllocate, e2e.Allocation(e2e.Account, "r"))
			<-answered
			c.Want("unavailable none", wire.MethodAllocate, e2e.Allocation(e2e.Account, ""))
			c.Want("unavailable none", wire.MethodAllocate, e2e.Allocation(e2e.Account, "r")) // this try; it settles nothing
			e2e.Execute(t, e2e.PG.URL("postgres"), "ALTER DATABASE "+name+" ALLOW_CONNECTIONS true")

			var got wire.AllocateResult
			e2e.Await(t, "the store to be reached", func() bool {
				r := c.Call(wire.MethodAllocate, e2e.Allocation(e2e.Account, "r"))
				if r.Error == nil {
					got = e2e.Decode[wire.AllocateResult](t, r)
				} else if r.Reason() != "unavailable none" {
					t.Fatalf("%v", r.Error)
				}
				return r.Error == nil
			})
			if got.Nonce != 1 || got.Attempt != 1 {
				t.Errorf("got %+v, want the nonce 1 that was committed", got)
			}
			if next := c.Allocate(e2e.Account, ""); next.Nonce != 2 {
				t.Errorf("then %+v, want nonce 2", next)
			}
			e2e.Consistent(t, db)
		})
	}
}

func TestLongBackendsThatAreEndedUnderLoadLeaveThreeOutcomesAndNoDoubt(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"worker-queue", "basic"} {
		t.Run(mode, func(t *testing.T) { endBackends(t, mode) })
	}
}

func endBackends(t *testing.T, mode string) {
	db := e2e.Database(t)
	p := e2e.Launch(t, "--store="+db, "--mode="+mode, "--max-holds=4096")
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	c := p.Crowd(ctx, 8)
	admin := e2e.Dial(t, db)
	for range 15 {
		c.Reach(40)
		_, err := admin.Exec(ctx, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`)
		if err != nil {
			t.Fatal(err)
		}
	}
	c.Reach(40)
	stop()
	c.All.Wait()
	c.Only("ok", "unavailable none", "unavailable unknown")
	// A worker may settle every commit that was cut, and then all clients are told ok.
	if len(c.Said) == 1 && p.Metric("noncegate_unknown_commits_total 0") {
		t.Error("no commit was cut, so nothing was tested")
	}
	c.Stored(db)
}

func TestLongAPostgresThatCrashesIsAwayAtOnceAndFoundAgain(t *testing.T) {
	db := e2e.Database(t)
	p := e2e.Launch(t, "--store="+db, "--max-holds=4096")
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	c := p.Crowd(ctx, 8)
	c.Reach(200)
	if err := e2e.PG.Kill(); err != nil {
		t.Fatal(err)
	}
	probe := p.Connect()
	for range 20 {
		asked := time.Now()
		probe.Want("unavailable none", wire.MethodAllocate, e2e.Allocation("probe", ""))
		if took := time.Since(asked); took > 2*time.Second {
			t.Errorf("it took %v to say that the store is away", took)
		}
	}
	if code, body := p.Get("/readyz"); code != 503 {
		t.Errorf("/readyz without a store: %d %s", code, body)
	}
	if err := e2e.PG.Restart(); err != nil {
		t.Fatal(err)
	}
	c.Reach(200)
	e2e.Await(t, "/readyz", func() bool { code, _ := p.Get("/readyz"); return code == 200 })
	stop()
	c.All.Wait()
	c.Only("ok", "unavailable none", "unavailable unknown")
	c.Stored(db)
}
