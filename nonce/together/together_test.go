// Package together_test runs the parts of the performance engine with one another:
// services, a real Redis, a real Postgres and flush workers, without a gateway around.
package together_test

import (
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"noncegate/flush"
	"noncegate/internal/pgtest"
	"noncegate/internal/redistest"
	"noncegate/lease"
	"noncegate/nonce"
	"noncegate/nonce/postgres"
	"noncegate/nonce/redisstore"
)

var (
	database *pgtest.Server
	cache    *redistest.Server
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	var err error
	if cache, err = redistest.Start(); err != nil {
		os.Stderr.WriteString(err.Error() + "\n")
		return 1
	}
	defer func() { _ = cache.Close() }()
	return pgtest.Main(m, &database, goleak.IgnoreCurrent())
}

// control is a cluster's state that a test sets by hand.
type control struct {
	goal     atomic.Int32
	gone     atomic.Bool
	late     atomic.Bool
	mu       sync.Mutex
	troubles []nonce.Trouble
}

func (c *control) Goal() nonce.Goal      { return nonce.Goal(c.goal.Load()) }
func (c *control) RedisGone() bool       { return c.gone.Load() }
func (c *control) FlushLate(string) bool { return c.late.Load() }
func (c *control) Set(g nonce.Goal)      { c.goal.Store(int32(g)) }
func (c *control) Trouble(t nonce.Trouble, _ error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.troubles = append(c.troubles, t)
}

// figures counts moves.
type figures struct {
	nonce.Figures
	entered, left, lost atomic.Int64
}

func (f *figures) WorkerQueue(time.Duration)        {}
func (f *figures) Commit(time.Duration, int)        {}
func (f *figures) LeaseAcquire(nonce.AcquireResult) {}
func (f *figures) LeaseRenew(nonce.RenewResult)     {}
func (f *figures) FenceReject(nonce.Kind)           {}
func (f *figures) WentBack()                        {}
func (f *figures) Invariant()                       {}
func (f *figures) Swept(int)                        {}
func (f *figures) SweepsPaused(bool)                {}
func (f *figures) Scripts(time.Duration, int)       {}
func (f *figures) Mirrored(time.Duration)           {}
func (f *figures) GrantLeft(int64, time.Duration)   {}
func (f *figures) Waiting(int)                      {}
func (f *figures) Lost(n int)                       { f.lost.Add(int64(n)) }
func (f *figures) Moved(to nonce.Engine, n int) {
	if to == nonce.Performance {
		f.entered.Add(int64(n))
	} else {
		f.left.Add(int64(n))
	}
}

// world is a database and a Redis with nodes over them.
type world struct {
	t      *testing.T
	url    string
	redis  *redis.Client
	ctl    *control
	shards int
}

type node struct {
	*nonce.Service
	store *postgres.Store
	fast  *redisstore.Store
	fig   *figures
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, url: database.NewDatabase(t), redis: cache.Client(t), ctl: &control{}, shards: 4}
	s := w.open()
	if _, err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *world) open() *postgres.Store {
	s, err := postgres.Open(w.t.Context(), w.url, postgres.Config{MaxConns: 8})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = s.Close() })
	return s
}

func (w *world) accept(s *postgres.Store, fast *redisstore.Store) func() []nonce.Identity {
	servers, err := fast.Identities(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	var ids []nonce.Identity
	for _, server := range servers {
		ids = append(ids, server.Identity)
	}
	state, err := s.EngineState(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	if state.State == nonce.StateReliable {
		for _, to := range []nonce.EngineState{nonce.StateDualWrite, nonce.StatePerformance} {
			if state, err = s.SwitchEngine(w.t.Context(), nonce.SwitchTerm{FromGeneration: state.Generation, To: to, By: "test", Reason: "test"}); err != nil {
				w.t.Fatal(err)
			}
			if err := s.AcceptIdentities(w.t.Context(), state.Generation, ids); err != nil {
				w.t.Fatal(err)
			}
		}
	}
	return func() []nonce.Identity { return ids }
}

func (w *world) node(name string, flushes bool) *node {
	w.t.Helper()
	n := &node{store: w.open(), fig: &figures{}}
	var err error
	if n.fast, err = redisstore.Open(w.redis, redisstore.Config{Cluster: w.t.Name(), Shards: w.shards, Retention: time.Hour}); err != nil {
		w.t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(w.t.Output(), nil))
	n.Service, err = nonce.New(n.store, lease.Holder{Node: name, Incarnation: 1}, n.fig, nil, log, nil, nonce.Config{
		Mode: nonce.WorkerQueue, Workers: 2, QueueCapacity: 1024, Reject: nonce.FailFast, LeaseTTL: time.Second,
		Rules: nonce.Rules{DefaultHold: time.Second}, MaxHold: 2 * time.Second, SweepInterval: 100 * time.Millisecond, RequestRetention: time.Hour,
		Fast: &nonce.FastConfig{
			Redis: n.fast, Ledger: n.store, Control: w.ctl, Figures: n.fig,
			Grant: 2 * time.Second, BlockMin: 16, BlockMax: 4096, Timeout: time.Second, LossMargin: 200 * time.Millisecond, MirrorQueue: 1024,
		},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(n.Stop)
	if !flushes {
		return n
	}
	worker, err := flush.Start(w.t.Context(), n.fast, n.store, flush.Hooks{
		OpenLock: n.store.FlushLock,
		Accepted: w.accept(n.store, n.fast), Nodes: func() int { return 1 }, Hurry: func() bool { return true }, Flushed: n.Flushed,
		Conflict: func(signer string, err error) { w.t.Errorf("conflict of %s: %v", signer, err) }, Figures: quiet{},
	}, log, flush.Config{Shards: w.shards, LeaseTTL: time.Second})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(worker.Stop)
	return n
}

// done is the Completion of one call.
type done chan struct{}

func (d done) Done(*nonce.Op) nonce.Waker { close(d); return nil }
func (d done) Gone() bool                 { return false }

func (n *node) do(op nonce.Op) *nonce.Op {
	p, ok := n.Reserve(op.Signer, op.Principal)
	if !ok {
		op.Err = nonce.ErrBusy
		return &op
	}
	ended := make(done)
	op.Completion = ended
	n.Submit(p, &op)
	<-ended
	return &op
}

func (n *node) allocate(signer string) *nonce.Op {
	return n.do(nonce.Op{Kind: nonce.KindAllocate, Signer: signer, Count: 1})
}

func (n *node) used(signer string, nonceNo, attempt int64) *nonce.Op {
	return n.do(nonce.Op{Kind: nonce.KindMarkUsed, Signer: signer, Nonce: nonceNo, Attempt: attempt, TxHash: nonce.TxHash{byte(nonceNo), 1}})
}

func must(t *testing.T, op *nonce.Op) *nonce.Op {
	t.Helper()
	if op.Err != nil {
		t.Fatalf("%v of %s: %v", op.Kind, op.Signer, op.Err)
	}
	return op
}

// enter uses the signer until Redis serves it, and returns the next nonce.
func (n *node) enter(t *testing.T, signer string) int64 {
	t.Helper()
	for next := int64(0); ; next++ {
		if n.fig.entered.Load() > 0 {
			return next
		}
		a := must(t, n.allocate(signer))
		if a.Nonces[0] != next {
			t.Fatalf("got nonce %d, want %d", a.Nonces[0], next)
		}
		must(t, n.used(signer, next, 1))
		if next > 10000 {
			t.Fatal("the signer does not enter")
		}
	}
}

func TestASignerEntersServesAndLeaves(t *testing.T) {
	w := newWorld(t)
	n := w.node("a", true)
	w.ctl.Set(nonce.GoalPerformance)
	began := time.Now()
	first := n.enter(t, "s")
	t.Logf("entered after %v and %d nonces", time.Since(began), first)
	for i := first; i < first+100; i++ {
		a := must(t, n.allocate("s"))
		if a.Nonces[0] != i {
			t.Fatalf("got nonce %d, want %d", a.Nonces[0], i)
		}
		must(t, n.used("s", i, 1))
	}
	sum := must(t, n.do(nonce.Op{Kind: nonce.KindStatus, Signer: "s"})).Summary
	if sum.Next != first+100 || sum.Consumed != first+100 || sum.Held != 0 {
		t.Errorf("got %+v, want next and consumed %d", sum, first+100)
	}
	w.ctl.Set(nonce.GoalDrain)
	a := must(t, n.allocate("s"))
	if a.Nonces[0] != first+100 || n.fig.left.Load() != 1 {
		t.Errorf("got nonce %d and %d left, want %d and 1", a.Nonces[0], n.fig.left.Load(), first+100)
	}
	snaps, err := n.store.Load(t.Context(), []nonce.Need{{Signer: "s"}})
	if err != nil || snaps[0].Engine != nonce.Reliable || snaps[0].Next != first+101 {
		t.Errorf("got %+v, %v", snaps[0], err)
	}
}

func TestAnotherNodeTakesOverWhatRedisHas(t *testing.T) {
	w := newWorld(t)
	a, b := w.node("a", true), w.node("b", false)
	w.ctl.Set(nonce.GoalPerformance)
	next := a.enter(t, "s")
	must(t, a.allocate("s"))
	a.Stop()
	got := must(t, b.allocate("s"))
	if got.Nonces[0] != next+1 {
		t.Errorf("got nonce %d, want %d", got.Nonces[0], next+1)
	}
	if op := must(t, b.used("s", next, 1)); op.Status != nonce.Consumed {
		t.Errorf("got %v", op.Status)
	}
}

func TestALostRedisCostsDoubtAndNoNonceTwice(t *testing.T) {
	w := newWorld(t)
	n := w.node("a", true)
	w.ctl.Set(nonce.GoalPerformance)
	next := n.enter(t, "s")
	held := must(t, n.allocate("s"))
	if err := w.redis.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	a := must(t, n.allocate("s"))
	if a.Nonces[0] <= held.Nonces[0] || n.fig.lost.Load() != 1 {
		t.Fatalf("got nonce %d after %d, lost %d", a.Nonces[0], held.Nonces[0], n.fig.lost.Load())
	}
	began := time.Now()
	if op := must(t, n.used("s", held.Nonces[0], held.Attempts[0])); op.Status != nonce.Consumed {
		t.Errorf("got %v", op.Status)
	}
	t.Logf("a mark in doubt was answered after %v", time.Since(began))
	for {
		b := must(t, n.allocate("s"))
		if b.Nonces[0] < a.Nonces[0] {
			if b.Nonces[0] <= next || b.Attempts[0] < 1<<20 {
				t.Errorf("got nonce %d attempt %d", b.Nonces[0], b.Attempts[0])
			}
			t.Logf("the doubtful came back after %v: nonce %d attempt %d", time.Since(began), b.Nonces[0], b.Attempts[0])
			return
		}
		must(t, n.do(nonce.Op{Kind: nonce.KindMarkRecyclable, Signer: "s", Nonce: b.Nonces[0], Attempt: b.Attempts[0]}))
		if time.Since(began) > 20*time.Second {
			t.Fatal("the doubtful never come back")
		}
	}
}

// quiet are the figures of a flush worker that nobody reads.
type quiet struct{}

func (quiet) Applied(time.Duration, int, int) {}
func (quiet) Settled(nonce.FlushVerdict, int) {}
func (quiet) Retry(flush.RetryReason)         {}
func (quiet) Buried(int)                      {}
