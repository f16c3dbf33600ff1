package redislog_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"noncegate/internal/redisdb"
	"noncegate/lease"
	"noncegate/nonce"
	"noncegate/nonce/memstore"
	"noncegate/nonce/noncetest"
	"noncegate/nonce/redislog"
	"noncegate/nonce/rules"
	"noncegate/nonce/service"
	"noncegate/test/lab/redistest"
	"noncegate/test/lab/wait"
)

// world is a database and a Redis that several nodes use.
type world struct {
	*testing.T
	store  *memstore.Store
	server *redistest.Server // nil: it is a cluster
	url    string
	shards int
	nodes  []*node
	logs   slog.Level
}

func newWorld(t *testing.T) *world {
	t.Helper()
	server, err := redistest.Start("appendfsync always")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	return &world{T: t, store: memstore.New(2, time.Now), server: server, url: server.URL() + "?", shards: 2, logs: slog.LevelError}
}

// newClusterWorld has a cluster instead of the one server.
func newClusterWorld(t *testing.T) (*world, *redistest.Cluster) {
	t.Helper()
	cluster, err := redistest.StartCluster(3)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cluster.Close() })
	return &world{T: t, store: memstore.New(8, time.Now), url: cluster.URL() + "?", shards: 8, logs: slog.LevelError}, cluster
}

// node is a service, with what stands between it and the others.
type node struct {
	*service.Service
	w      *world
	holder lease.Holder
	muted  atomic.Bool // its heartbeats do not arrive
	faults *faults
}

// faults break calls of one node.
type faults struct {
	store, log atomic.Bool  // out of reach
	odds       atomic.Int64 // in a thousand calls, how many break
	mu         sync.Mutex
	rnd        *rand.Rand
	late       sync.WaitGroup
}

func (f *faults) roll() (n int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.rnd.Int64N(1000)
}

var errBroken = errors.New("broken by the test")

func broken(o nonce.Outcome) error { return &nonce.StoreError{Outcome: o, Err: errBroken} }

// call runs a call that may break: it does not happen, it happens and nobody is told, or it
// happens later.
func (f *faults) call(away *atomic.Bool, do func(ctx context.Context) error, ctx context.Context) error {
	odds := f.odds.Load()
	switch n := f.roll(); {
	case away.Load():
		return broken([]nonce.Outcome{nonce.NotSent, nonce.Unknown}[n%2])
	case n >= odds:
		return do(ctx)
	case n%4 == 0:
		return broken(nonce.NotSent)
	case n%4 == 1:
		return broken(nonce.Unknown)
	case n%4 == 2:
		_ = do(ctx)
		return broken(nonce.Unknown)
	default:
		f.late.Go(func() {
			time.Sleep(time.Duration(f.roll()/4) * time.Millisecond)
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			_ = do(ctx)
		})
		return broken(nonce.Unknown)
	}
}

// reach is the store as a node reaches it.
type reach struct {
	*memstore.Store
	n *node
}

func (r *reach) write(ctx context.Context, do func(ctx context.Context) error) error {
	return r.n.faults.call(&r.n.faults.store, do, ctx)
}

// through makes a call that may be lost or late, and returns what it brought. What comes late
// is nobody's.
func through[T any](ctx context.Context, call func(context.Context, func(context.Context) error) error, do func(context.Context) (T, error)) (T, error) {
	var out, none T
	err := call(ctx, func(ctx context.Context) (err error) {
		out, err = do(ctx)
		return err
	})
	if err != nil {
		return none, err
	}
	return out, nil
}

func (r *reach) Renew(ctx context.Context, h lease.Holder, ttl time.Duration) (lease.Renewal, error) {
	if r.n.muted.Load() || r.n.faults.store.Load() {
		return lease.Renewal{}, broken(nonce.NotSent)
	}
	return r.Store.Renew(ctx, h, ttl)
}

func (r *reach) Acquire(ctx context.Context, h lease.Holder, shards []int) ([]lease.Shard, error) {
	return through(ctx, r.write, func(ctx context.Context) ([]lease.Shard, error) { return r.Store.Acquire(ctx, h, shards) })
}

func (r *reach) Load(ctx context.Context, needs []nonce.SignerNeed) (nonce.Loaded, error) {
	if r.n.faults.store.Load() {
		return nonce.Loaded{}, broken(nonce.NotSent)
	}
	return r.Store.Load(ctx, needs)
}

func (r *reach) Owners(ctx context.Context) (lease.Owners, error) {
	if r.n.faults.store.Load() {
		return lease.Owners{}, broken(nonce.NotSent)
	}
	return r.Store.Owners(ctx)
}

func (r *reach) Commit(ctx context.Context, h lease.Holder, writes []nonce.Write) (nonce.Committed, error) {
	return through(ctx, r.write, func(ctx context.Context) (nonce.Committed, error) { return r.Store.Commit(ctx, h, writes) })
}

func (r *reach) Ship(ctx context.Context, h lease.Holder, s nonce.Shipment) (nonce.Shipped, error) {
	return through(ctx, r.write, func(ctx context.Context) (nonce.Shipped, error) { return r.Store.Ship(ctx, h, s) })
}

func (r *reach) Reserve(ctx context.Context, h lease.Holder, up []nonce.Ceiling) ([]bool, error) {
	return through(ctx, r.write, func(ctx context.Context) ([]bool, error) { return r.Store.Reserve(ctx, h, up) })
}

func (r *reach) TurnOn(ctx context.Context, h lease.Holder, t lease.ShardTerm, identity string, g nonce.Grant) (bool, error) {
	return through(ctx, r.write, func(ctx context.Context) (bool, error) { return r.Store.TurnOn(ctx, h, t, identity, g) })
}

func (r *reach) Declare(ctx context.Context, h lease.Holder, t lease.ShardTerm, margin time.Duration) (bool, error) {
	return through(ctx, r.write, func(ctx context.Context) (bool, error) { return r.Store.Declare(ctx, h, t, margin) })
}

// logReach is Redis as a node reaches it.
type logReach struct {
	nonce.ShardLog
	n *node
}

func (l *logReach) call(ctx context.Context, do func(ctx context.Context) error) error {
	return l.n.faults.call(&l.n.faults.log, do, ctx)
}

func (l *logReach) Begin(ctx context.Context, shard int, token int64) (nonce.LogFence, error) {
	return through(ctx, l.call, func(ctx context.Context) (nonce.LogFence, error) { return l.ShardLog.Begin(ctx, shard, token) })
}

func (l *logReach) Enter(ctx context.Context, of nonce.LogFence) (nonce.LogFence, []nonce.LogRecord, error) {
	type entered struct {
		fence   nonce.LogFence
		records []nonce.LogRecord
	}
	got, err := through(ctx, l.call, func(ctx context.Context) (e entered, err error) {
		e.fence, e.records, err = l.ShardLog.Enter(ctx, of)
		return e, err
	})
	return got.fence, got.records, err
}

func (l *logReach) Raise(ctx context.Context, of nonce.LogFence) (nonce.LogFence, error) {
	return through(ctx, l.call, func(ctx context.Context) (nonce.LogFence, error) { return l.ShardLog.Raise(ctx, of) })
}

func (l *logReach) Append(ctx context.Context, items []nonce.LogAppend) []error {
	out := make([]error, len(items))
	var got []error
	err := l.call(ctx, func(ctx context.Context) error { got = l.ShardLog.Append(ctx, items); return nil })
	for i := range out {
		if out[i] = err; err == nil {
			out[i] = got[i]
		}
	}
	return out
}

func (l *logReach) Reach(ctx context.Context, shard int, identity string) error {
	return l.call(ctx, func(ctx context.Context) error { return l.ShardLog.Reach(ctx, shard, identity) })
}

func (l *logReach) Trim(ctx context.Context, logs []nonce.LogFence) error {
	return l.call(ctx, func(ctx context.Context) error { return l.ShardLog.Trim(ctx, logs) })
}

// The times of the tests.
const (
	holdFor   = time.Second
	grantFor  = time.Second
	lostAfter = 300 * time.Millisecond
)

func (w *world) start(name string, seed uint64, change ...func(*service.Config)) *node {
	w.Helper()
	n := &node{w: w, faults: &faults{rnd: rand.New(rand.NewPCG(seed, 77))}}
	ctx := context.Background()
	var err error
	if n.holder, err = w.store.Register(ctx, lease.Presence{Node: name, URL: "ws://" + name, Mode: string(nonce.WorkerQueue)}); err != nil {
		w.Fatal(err)
	}
	db, err := redisdb.Open(ctx, w.url+"read_timeout=300ms&dial_timeout=300ms&write_timeout=300ms", slog.New(slog.DiscardHandler))
	if err != nil {
		w.Fatal(err)
	}
	log, err := redislog.Open(ctx, db, "db")
	if err != nil {
		w.Fatal(err)
	}
	store := &reach{w.store, n}
	cfg := service.Config{
		Mode: nonce.WorkerQueue, Workers: 1, QueueCapacity: 256, Reject: nonce.FailFast,
		LeaseTTL: time.Second, WatchEvery: 50 * time.Millisecond, StoreTimeout: time.Second, LockWait: time.Second, LockRetry: time.Millisecond,
		Rules: rules.Rules{DefaultHold: holdFor, MaxLive: 64}, MaxHold: 2 * holdFor, SweepInterval: 50 * time.Millisecond,
		Log: &service.LogConfig{
			Log: &logReach{log, n}, Store: store, Grant: grantFor, ShipEvery: 30 * time.Millisecond, ShipSoon: 10 * time.Millisecond,
			ShipSLA: 500 * time.Millisecond, LostAfter: lostAfter, Timeout: 300 * time.Millisecond, Margin: 50 * time.Millisecond,
		},
	}
	for _, c := range change {
		c(&cfg)
	}
	n.Service, err = service.New(ctx, store, n.holder, cfg, noncetest.Unmeasured{}, nil, func(error) {}, slog.New(slog.NewTextHandler(w.Output(), &slog.HandlerOptions{Level: w.logs})))
	if err != nil {
		w.Fatal(err)
	}
	w.nodes = append(w.nodes, n)
	w.Cleanup(func() {
		n.calm()
		_ = n.Stop(context.Background())
		n.faults.late.Wait()
		_ = db.Close()
	})
	return n
}

// calm ends all faults of a node.
func (n *node) calm() {
	n.muted.Store(false)
	n.faults.store.Store(false)
	n.faults.log.Store(false)
	n.faults.odds.Store(0)
}

// eventually waits until something is so.
func (w *world) eventually(what string, is func() bool) {
	w.Helper()
	for end := time.Now().Add(wait.Patience); !is(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			w.Fatalf("it is still not so: %s; %s", what, w.state())
		}
	}
}

func (w *world) state() (s string) {
	o, _ := w.store.Owners(context.Background())
	s = fmt.Sprintf("shards %+v", o.Shards)
	for _, n := range w.nodes {
		s += fmt.Sprintf("; %s %+v", n.holder.Node, n.Engine())
	}
	return s
}

func (n *node) switchTo(performance bool) {
	n.w.Helper()
	if _, err := n.Switch(context.Background(), performance, 0, "test"); err != nil {
		n.w.Fatal(err)
	}
}

// on has all shards have the performance engine, and serve.
func (w *world) on() {
	w.Helper()
	w.nodes[0].switchTo(true)
	w.eventually("all shards have the performance engine", func() bool { return w.serving() == w.shards })
}

func (w *world) serving() (n int) {
	for _, node := range w.nodes {
		for _, sh := range node.Engine().Here {
			if sh.Serves && sh.Grant > 0 {
				n++
			}
		}
	}
	return n
}

func (w *world) off() {
	w.Helper()
	w.nodes[0].switchTo(false)
	w.allReliable()
}

func (w *world) allReliable() {
	w.Helper()
	w.eventually("all shards have the reliable engine", func() bool {
		o, err := w.store.Owners(context.Background())
		for _, sh := range o.Shards {
			if sh.Performance {
				return false
			}
		}
		return err == nil
	})
}

func (n *node) do(op *nonce.Op) *nonce.Op {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := n.Do(ctx, op); err != nil && op.Err == nil {
		op.Err = err
	}
	return op
}

func (n *node) ok(op *nonce.Op) *nonce.Op {
	n.w.Helper()
	if n.do(op); op.Err != nil {
		n.w.Fatalf("%v: %v; %s", op.Kind, op.Err, n.w.state())
	}
	return op
}

func allocate(signer string) *nonce.Op {
	return &nonce.Op{Kind: nonce.KindAllocate, Signer: signer, Count: 1}
}

func used(signer string, n, attempt int64) *nonce.Op {
	return &nonce.Op{Kind: nonce.KindMarkUsed, Signer: signer, Nonce: n, Attempt: attempt}
}

func (w *world) row(signer string) nonce.LoadedSigner {
	w.Helper()
	l, err := w.store.Load(context.Background(), []nonce.SignerNeed{{Signer: signer}})
	if err != nil {
		w.Fatal(err)
	}
	return l.Signers[0]
}
