//go:build unix

package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"noncegate/internal/testenv/pgtest"
	"noncegate/wire"
)

// cutCommit cuts the connection that executes the next commit off its reply.
func cutCommit(p *pgtest.Proxy) (answered <-chan struct{}) {
	return p.CutStatement("mine.beliefs")
}

// behindProxy makes a database and a proxy to it.
func behindProxy(t *testing.T) (direct, through string, p *pgtest.Proxy) {
	t.Helper()
	p, err := pgtest.NewProxy(pg.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	direct = database(t)
	if through, err = p.URL(direct); err != nil {
		t.Fatal(err)
	}
	return direct, through, p
}

const hash = `0x00000000000000000000000000000000000000000000000000000000000000aa`

func TestACommitWhoseReplyIsLostIsSettledAndAnswered(t *testing.T) {
	t.Parallel()
	db, through, proxy := behindProxy(t)
	c := launch(t, "--store="+through).connect()
	first := c.allocate(account, "")
	lost := func(reason, method, params string) *reply {
		t.Helper()
		answered := cutCommit(proxy)
		r := c.want(reason, method, params)
		<-answered
		return r
	}
	got := decode[wire.AllocateResult](t, lost("ok", wire.MethodAllocate, allocation(account, "r1")))
	if got.Nonce != 1 || got.Attempt != 1 || got.FencingToken != first.FencingToken {
		t.Errorf("with a request id: %+v after %+v", got, first)
	}
	// A repeat names the token that the shard has by now, and it was acquired again.
	token := got.FencingToken + 1
	if again := c.allocate(account, "r1"); again.Nonce != 1 || again.FencingToken != token {
		t.Errorf("repeated: %+v, want %+v with token %d", again, got, token)
	}
	if got := decode[wire.AllocateResult](t, lost("ok", wire.MethodAllocate, allocation(account, ""))); got.Nonce != 2 || got.HoldMs <= 0 {
		t.Errorf("without a request id: %+v, want nonce 2", got)
	}
	lost("ok", wire.MethodMarkUsed, fmt.Sprintf(`{"signer":%q,"nonce":0,"txHash":%q}`, account, hash))
	lost("ok", wire.MethodMarkRecyclable, fmt.Sprintf(`{"signer":%q,"nonce":1}`, account))
	if got := decode[wire.AllocateResult](t, lost("ok", wire.MethodAllocate, allocation(account, ""))); got.Nonce != 1 || got.Attempt != 2 {
		t.Errorf("the released one: %+v, want nonce 1, attempt 2", got)
	}
	r := lost("conflict", wire.MethodAllocate, allocation(account, "r1")) // only compared: the hold has ended
	if s := r.Error.Data.Nonces; len(s) != 1 || s[0].Attempt != 2 {
		t.Errorf("the ended request: %+v", r.Error.Data)
	}
	floor := decode[wire.FloorResult](t, lost("ok", wire.MethodSetFloor, fmt.Sprintf(`{"signer":%q,"floor":3}`, account)))
	if floor.Floor != 3 || floor.Next != 3 {
		t.Errorf("got %+v", floor)
	}
	if got := c.allocate(account, ""); got.Nonce != 3 {
		t.Errorf("then %+v, want nonce 3", got)
	}
	want := "(0,CONSUMED,1)\n(1,HELD,2)\n(2,HELD,1)\n(3,HELD,1)"
	if got := query(t, db, `SELECT nonce, status, attempt FROM nonces ORDER BY nonce`); got != want {
		t.Errorf("the store has\n%s\nwant\n%s", got, want)
	}
	consistent(t, db)
}

// TestAnUnknownOutcomeStaysUnknownUntilTheStoreIsBack: no new connection can be
// made when the only one is lost, so nothing can be settled.
func TestAnUnknownOutcomeStaysUnknownUntilTheStoreIsBack(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"worker-queue", "basic"} {
		t.Run(mode, func(t *testing.T) {
			db, through, proxy := behindProxy(t)
			c := launch(t, "--mode="+mode, "--store="+through+"&pool_max_conns=1").connect()
			c.allocate(account, "")
			name := rows(t, db, `SELECT current_database()`)
			name = strings.Trim(name, "()")

			execute(t, pg.URL("postgres"), "ALTER DATABASE "+name+" ALLOW_CONNECTIONS false")
			var answered <-chan struct{}
			if mode == "basic" {
				answered = proxy.CutReplies("COMMIT")
			} else {
				answered = cutCommit(proxy)
			}
			c.want("unavailable unknown", wire.MethodAllocate, allocation(account, "r"))
			<-answered
			c.want("unavailable none", wire.MethodAllocate, allocation(account, ""))
			c.want("unavailable none", wire.MethodAllocate, allocation(account, "r")) // this try; it settles nothing
			execute(t, pg.URL("postgres"), "ALTER DATABASE "+name+" ALLOW_CONNECTIONS true")

			var got wire.AllocateResult
			await(t, "the store to be reached", func() bool {
				r := c.call(wire.MethodAllocate, allocation(account, "r"))
				if r.Error == nil {
					got = decode[wire.AllocateResult](t, r)
				} else if r.reason() != "unavailable none" {
					t.Fatalf("%v", r.Error)
				}
				return r.Error == nil
			})
			if got.Nonce != 1 || got.Attempt != 1 {
				t.Errorf("got %+v, want the nonce 1 that was committed", got)
			}
			if next := c.allocate(account, ""); next.Nonce != 2 {
				t.Errorf("then %+v, want nonce 2", next)
			}
			consistent(t, db)
		})
	}
}

// crowd is clients that allocate one after the other, each with a request id of
// its own, and repeat what they were not told.
type crowd struct {
	*process
	told atomic.Int64 // allocations answered

	mu    sync.Mutex // guards what follows
	given map[string]string
	said  map[string]int // answers by reason
	ended []error        // how connections ended
	all   sync.WaitGroup
}

const crowdSigners = 12

// crowd starts n clients that stop when ctx ends, or at the first connection
// that ends.
func (p *process) crowd(ctx context.Context, n int) *crowd {
	c := &crowd{process: p, given: make(map[string]string), said: make(map[string]int)}
	for i := range n {
		conn := p.connect()
		c.all.Go(func() {
			for j := 0; ctx.Err() == nil; j++ {
				if !c.one(conn, fmt.Sprintf("signer-%d", (i+j)%crowdSigners), fmt.Sprintf("r-%d-%d", i, j)) {
					return
				}
			}
		})
	}
	return c
}

// one allocates until it is told a nonce. false: the connection has ended.
func (c *crowd) one(conn *peer, signer, id string) bool {
	for {
		conn.last++
		// A connection that was closed says why to whoever reads it.
		_ = conn.trySend(conn.last, wire.MethodAllocate, allocation(signer, id))
		r, err := conn.read()
		c.mu.Lock()
		if err != nil {
			c.ended = append(c.ended, err)
			c.mu.Unlock()
			return false
		}
		c.said[r.reason()]++
		var a wire.AllocateResult
		if r.Error == nil && wire.Unmarshal(r.Result, &a) == nil {
			c.give(fmt.Sprintf("%s %d %d", signer, a.Nonce, a.Attempt), id)
		}
		c.mu.Unlock()
		if r.Error == nil {
			c.told.Add(1)
			return true
		}
	}
}

func (c *crowd) give(what, id string) {
	if was, twice := c.given[what]; twice {
		c.Errorf("%s was given to %s and to %s", what, was, id)
	}
	c.given[what] = id
}

// reach waits until so many allocations more were answered.
func (c *crowd) reach(more int64) {
	c.Helper()
	want := c.told.Load() + more
	c.await("answers", func() bool { return c.told.Load() >= want })
}

// only fails the test when something was said that may not be.
func (c *crowd) only(reasons ...string) {
	c.Helper()
	for reason, times := range c.said {
		if !strings.Contains(" "+strings.Join(reasons, "; ")+";", " "+reason+";") {
			c.Errorf("%s was said %d times", reason, times)
		}
	}
}

// stored fails the test unless exactly what was answered is in the database.
func (c *crowd) stored(db string) {
	c.Helper()
	text := query(c, db, `
		SELECT format('%s %s %s', s.signer, g.nonce, g.attempt) AS what, g.request_id FROM given g JOIN signers s USING (signer_id)`)
	stored := make(map[string]bool)
	for line := range strings.Lines(text) {
		stored[strings.TrimSpace(line)] = true
	}
	for what, id := range c.given {
		if line := fmt.Sprintf("(%q,%s)", what, id); !stored[line] {
			c.Errorf("%s was answered and is not in the store", line)
		}
	}
	if len(stored) != len(c.given) {
		c.Errorf("%d are in the store, %d were answered", len(stored), len(c.given))
	}
	consistent(c, db)
}

func TestLongBackendsThatAreEndedUnderLoadLeaveThreeOutcomesAndNoDoubt(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"worker-queue", "basic"} {
		t.Run(mode, func(t *testing.T) { endBackends(t, mode) })
	}
}

func endBackends(t *testing.T, mode string) {
	db := database(t)
	p := launch(t, "--store="+db, "--mode="+mode, "--max-holds=4096")
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	c := p.crowd(ctx, 8)
	admin := dial(t, db)
	for range 15 {
		c.reach(40)
		_, err := admin.Exec(ctx, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`)
		if err != nil {
			t.Fatal(err)
		}
	}
	c.reach(40)
	stop()
	c.all.Wait()
	c.only("ok", "unavailable none", "unavailable unknown")
	// A worker may settle every commit that was cut, and then all clients are told ok.
	if len(c.said) == 1 && p.metric("noncegate_unknown_commits_total 0") {
		t.Error("no commit was cut, so nothing was tested")
	}
	c.stored(db)
}

func TestLongAPostgresThatCrashesIsAwayAtOnceAndFoundAgain(t *testing.T) {
	db := database(t)
	p := launch(t, "--store="+db, "--max-holds=4096")
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	c := p.crowd(ctx, 8)
	c.reach(200)
	if err := pg.Kill(); err != nil {
		t.Fatal(err)
	}
	probe := p.connect()
	for range 20 {
		asked := time.Now()
		probe.want("unavailable none", wire.MethodAllocate, allocation("probe", ""))
		if took := time.Since(asked); took > 2*time.Second {
			t.Errorf("it took %v to say that the store is away", took)
		}
	}
	if code, body := p.get("/readyz"); code != 503 {
		t.Errorf("/readyz without a store: %d %s", code, body)
	}
	if err := pg.Restart(); err != nil {
		t.Fatal(err)
	}
	c.reach(200)
	await(t, "/readyz", func() bool { code, _ := p.get("/readyz"); return code == 200 })
	stop()
	c.all.Wait()
	c.only("ok", "unavailable none", "unavailable unknown")
	c.stored(db)
}
