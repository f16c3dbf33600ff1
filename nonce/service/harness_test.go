package service_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"noncegate/lease"
	"noncegate/nonce"
	"noncegate/nonce/memstore"
	"noncegate/nonce/noncetest"
	"noncegate/nonce/performance"
	"noncegate/nonce/rules"
	"noncegate/nonce/service"
)

// signer is the signer of tests that need only one.
const signer = noncetest.Signer

// How calls of the store fail.
var (
	errCut     = &nonce.StoreError{Outcome: nonce.Unknown, Err: errors.New("the connection broke")}
	errLocked  = &nonce.StoreError{Outcome: nonce.Aborted, Err: errors.New("lock timeout")}
	away       = &nonce.StoreError{Outcome: nonce.NotSent, Err: errCut}
	refusedRow = &nonce.StoreError{Outcome: nonce.Aborted, Err: nonce.ErrInvariant}
)

// disk is the database of a test, with the hooks in use on it. Hooks that are
// set here see the calls of every node.
type disk struct {
	*memstore.Store
	ahead         atomic.Int64 // nanoseconds that its clock is ahead of time.Now
	mu            sync.Mutex   // guards all below
	before, after func(memstore.Call) error
	locked        func(signer string) bool
	muted         map[string]bool // nodes whose heartbeats do not arrive
}

// shards is how many a disk has.
const shards = 4

func newDisk() *disk {
	d := &disk{muted: make(map[string]bool)}
	d.Store = memstore.New(shards, func() time.Time { return time.Now().Add(time.Duration(d.ahead.Load())) })
	d.SetHooks(memstore.Hooks{
		Before: func(c memstore.Call) error {
			if c.Op == memstore.OpRenew && d.mutes(c.Holder.Node) {
				return &nonce.StoreError{Outcome: nonce.NotSent, Err: errCut}
			}
			return d.hook(&d.before, c)
		},
		After: func(c memstore.Call) error { return d.hook(&d.after, c) },
		RowLocked: func(signer string) bool {
			d.mu.Lock()
			defer d.mu.Unlock()
			return d.locked != nil && d.locked(signer)
		},
	})
	return d
}

func (d *disk) hook(hook *func(memstore.Call) error, c memstore.Call) error {
	d.mu.Lock()
	h := *hook
	d.mu.Unlock()
	if h == nil {
		return nil
	}
	return h(c)
}

func (d *disk) onBefore(h func(memstore.Call) error) { d.set(func() { d.before = h }) }
func (d *disk) onAfter(h func(memstore.Call) error)  { d.set(func() { d.after = h }) }
func (d *disk) onLock(h func(string) bool)           { d.set(func() { d.locked = h }) }

func (d *disk) set(change func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	change()
}

// mute has the heartbeats of a node be lost, so that its lease ends, until it is unmuted.
func (d *disk) mute(node string, yes bool) { d.set(func() { d.muted[node] = yes }) }

func (d *disk) mutes(node string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.muted[node]
}

// touches reports whether the call is an op about name.
func touches(c memstore.Call, op memstore.Op, name string) bool {
	if c.Op != op {
		return false
	}
	for _, ch := range c.Writes {
		if ch.Name == name {
			return true
		}
	}
	for _, n := range c.Needs {
		if n.Signer == name {
			return true
		}
	}
	shard := nonce.ShardOf(name, shards)
	return slices.Contains(c.Shards, shard) || slices.ContainsFunc(c.Terms, func(t lease.ShardTerm) bool { return t.Shard == shard })
}

// once makes a hook that acts on the first op about name only.
func once(op memstore.Op, name string, act func(memstore.Call) error) func(memstore.Call) error {
	var done atomic.Bool
	return func(c memstore.Call) error {
		if !touches(c, op, name) || !done.CompareAndSwap(false, true) {
			return nil
		}
		return act(c)
	}
}

func cut(memstore.Call) error { return errCut }

// holdCommit makes the next commit about name wait. began is closed when it
// does, and open lets it go on.
func (d *disk) holdCommit(name string) (began <-chan struct{}, open func()) {
	return d.hold(memstore.OpCommit, name)
}

// hold is holdCommit for any op.
func (d *disk) hold(op memstore.Op, name string) (began <-chan struct{}, open func()) {
	b, o := make(chan struct{}), make(chan struct{})
	old := d.before
	d.onBefore(func() func(memstore.Call) error {
		hold := once(op, name, func(memstore.Call) error { close(b); <-o; return nil })
		return func(c memstore.Call) error {
			if err := hold(c); err != nil || old == nil {
				return err
			}
			return old(c)
		}
	}())
	return b, sync.OnceFunc(func() { close(o) })
}

// figures counts what a service measures.
type figures struct {
	mu                                  sync.Mutex // guards all below
	commits                             []int      // ops of each
	acquired, takeovers, notHad, failed int
	inTime, late                        int
	fenced, wentBack, invariant, swept  int
	paused                              bool
}

func (f *figures) count(fn func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	fn()
}

func (f *figures) WorkerQueue(time.Duration) {}
func (f *figures) Commit(_ time.Duration, ops int) {
	f.count(func() { f.commits = append(f.commits, ops) })
}
func (f *figures) LeaseAcquire(r lease.AcquireResult) {
	f.count(func() {
		*map[lease.AcquireResult]*int{
			lease.AcquireNew: &f.acquired, lease.AcquireTakeover: &f.takeovers,
			lease.AcquireHeld: &f.notHad, lease.AcquireError: &f.failed,
		}[r]++
	})
}
func (f *figures) LeaseRenew(r nonce.RenewResult) {
	f.count(func() {
		*map[nonce.RenewResult]*int{nonce.RenewInTime: &f.inTime, nonce.RenewLate: &f.late}[r]++
	})
}
func (f *figures) FenceReject(nonce.Kind) { f.count(func() { f.fenced++ }) }
func (f *figures) WentBack()              { f.count(func() { f.wentBack++ }) }
func (f *figures) Invariant()             { f.count(func() { f.invariant++ }) }
func (f *figures) Swept(n int)            { f.count(func() { f.swept += n }) }
func (f *figures) SweepsPaused(p bool)    { f.count(func() { f.paused = p }) }
func (f *figures) get(n *int) (out int)   { f.count(func() { out = *n }); return out }
func (f *figures) numCommits() (n int)    { f.count(func() { n = len(f.commits) }); return n }
func (f *figures) sweepsPaused() (p bool) { f.count(func() { p = f.paused }); return p }

// events is a sink that keeps what was published.
type events struct {
	mu     sync.Mutex // guards all
	all    []nonce.Event
	worker []int
}

func (e *events) Watched(string) bool { return true }
func (e *events) Unreserve(int)       {}
func (e *events) Publish(worker int, _ bool, events []nonce.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for range events {
		e.worker = append(e.worker, worker)
	}
	e.all = append(e.all, events...)
}

func (e *events) String() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	var b strings.Builder
	for _, ev := range e.all {
		fmt.Fprintf(&b, "%v %d#%d, ", ev.Type, ev.Nonce, ev.Attempt)
	}
	return strings.TrimSuffix(b.String(), ", ")
}

// node is one service under test.
type node struct {
	*service.Service
	t      *testing.T
	disk   *disk
	cfg    service.Config
	fig    *figures
	events *events
	engine *performance.Engine // nil: it has none
	fatal  chan error
}

// Stop stops it, however long that takes.
func (n *node) Stop() { _ = n.Service.Stop(context.Background()) }

// settings of a service with one worker, that looks only once who owns which shard, and
// for overdue holds when a test waits an hour for it.
func settings() service.Config {
	return service.Config{
		Mode: nonce.WorkerQueue, Workers: 1, QueueCapacity: 64, Reject: nonce.FailFast,
		LeaseTTL: 10 * time.Second, WatchEvery: time.Hour, LockWait: time.Second, LockRetry: time.Millisecond,
		Rules: rules.Rules{DefaultHold: time.Minute, MaxLive: 256}, MaxHold: 10 * time.Minute, SweepInterval: time.Hour,
	}
}

// modes are the two that a service runs in.
var modes = map[string]func(*service.Config){"worker": func(*service.Config) {}, "basic": basicMode}

func basicMode(c *service.Config)          { c.Mode = nonce.Basic }
func callerRuns(c *service.Config)         { c.Reject = nonce.CallerRuns }
func slots(n int) func(*service.Config)    { return func(c *service.Config) { c.QueueCapacity = n } }
func workers(n int) func(*service.Config)  { return func(c *service.Config) { c.Workers = n } }
func maxBatch(n int) func(*service.Config) { return func(c *service.Config) { c.MaxBatch = n } }
func maxHolds(n int) func(*service.Config) { return func(c *service.Config) { c.Rules.MaxLive = n } }
func sweepEvery(d time.Duration) func(*service.Config) {
	return func(c *service.Config) { c.SweepInterval = d }
}

// start starts a service of node name, which ends with the test: quiet, and with
// every slot given back.
func start(t *testing.T, d *disk, name string, change ...func(*service.Config)) *node {
	t.Helper()
	return startAs(t, d, d, d.register(t, name, change...), change...)
}

func (d *disk) register(t *testing.T, name string, change ...func(*service.Config)) lease.Holder {
	t.Helper()
	cfg := settings()
	for _, c := range change {
		c(&cfg)
	}
	h, err := d.Register(t.Context(), lease.Presence{Node: name, URL: "ws://" + name, Mode: string(cfg.Mode)})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func startAs(t *testing.T, d *disk, store nonce.Store, h lease.Holder, change ...func(*service.Config)) *node {
	t.Helper()
	n := &node{t: t, disk: d, cfg: settings(), fig: &figures{}, events: &events{}, fatal: make(chan error, 1)}
	for _, c := range change {
		c(&n.cfg)
	}
	var err error
	if e, is := n.cfg.Engine.(*testEngine); is {
		if e.Engine, err = performance.New(e.cfg); err != nil {
			t.Fatal(err)
		}
		n.engine = e.Engine
	}
	n.Service, err = service.New(t.Context(), store, h, n.cfg, n.fig, n.events, func(err error) { n.fatal <- err }, quiet(t))
	if err != nil {
		t.Fatal(err)
	}
	if n.cfg.Mode == nonce.WorkerQueue {
		n.settle(h.Node)
	}
	t.Cleanup(func() {
		n.Stop()
		if used, _ := n.Queued(); used != 0 {
			t.Errorf("%s: %d slots are lost", h.Node, used)
		}
	})
	return n
}

// settle waits until the node has the shards that it should have and nobody had when it
// came.
func (n *node) settle(name string) {
	wanting := func(o lease.View) bool {
		return o.Preferred == name && !o.Mine && (o.Owner == "" || o.Owner == name)
	}
	for slices.ContainsFunc(n.Shards(), wanting) {
		runtime.Gosched()
	}
}

// quiet logs what is worth a look to the test, which shows it when it fails.
func quiet(t *testing.T) *slog.Logger {
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelError}))
}

// pending is an op under way. A second Done panics.
type pending struct {
	op   *noncetest.Op
	path *nonce.Path // of an op of another node
	done chan struct{}
	gone atomic.Bool
	then func()
}

func (p *pending) Gone() bool { return p.gone.Load() }
func (p *pending) Done(*nonce.Result) nonce.Waker {
	if p.then != nil {
		p.then()
	}
	close(p.done)
	return nil
}

// wait returns the result of the op in words.
func (p *pending) wait() string {
	<-p.done
	return result(p.op)
}

func (p *pending) answered() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

func newPending(op *noncetest.Op) *pending {
	return &pending{op: op, done: make(chan struct{})}
}

// submit hands it to a node, in a slot.
func (n *node) submit(slot nonce.Slot, p *pending) *pending {
	n.SubmitOf(p.path, &slot, &p.op.Request, &p.op.Result, p)
	return p
}

// doOf runs one op of another node and returns its result.
func (n *node) doOf(path *nonce.Path, op *noncetest.Op) string {
	slot, _ := n.Reserve(op.Signer, op.Principal)
	return n.submit(slot, &pending{op: op, path: path, done: make(chan struct{})}).wait()
}

// send submits ops in order.
func (n *node) send(ops ...*noncetest.Op) []*pending {
	n.t.Helper()
	ps := make([]*pending, len(ops))
	for i, op := range ops {
		slot, ok := n.Reserve(op.Signer, op.Principal)
		if !ok {
			n.t.Fatalf("no slot for op %d", i)
		}
		ps[i] = n.submit(slot, newPending(op))
	}
	return ps
}

// batch queues ops while a commit of another signer of the one worker is held,
// so that they are taken as one batch, and returns their results.
func (n *node) batch(ops ...*noncetest.Op) []string {
	n.t.Helper()
	began, open := n.disk.holdCommit("plug")
	return n.behind("plug", began, open, ops)
}

// behind queues ops while an allocation of plug is held, and returns their results.
func (n *node) behind(plug string, began <-chan struct{}, open func(), ops []*noncetest.Op) []string {
	n.t.Helper()
	first := n.send(allocate(plug))
	<-began
	ps := n.send(ops...)
	open()
	<-first[0].done
	return results(ps)
}

func results(ps []*pending) []string {
	out := make([]string, len(ps))
	for i, p := range ps {
		out[i] = p.wait()
	}
	return out
}

// do runs one op and returns its result.
func (n *node) do(op *noncetest.Op) string {
	if err := n.Do(context.Background(), op); err != nil {
		return refusal(err)
	}
	return result(op)
}

// Do runs one op.
func (n *node) Do(ctx context.Context, op *noncetest.Op) (err error) {
	op.Result, err = n.Service.Do(ctx, &op.Request)
	return err
}

// run is do for a line of a script, see parse.
func (n *node) run(line string) string {
	n.t.Helper()
	return n.do(parse(n.t, line))
}

// want runs lines "op -> result", one after another.
func (n *node) want(lines ...string) {
	n.t.Helper()
	for _, line := range lines {
		op, want := split(n.t, line)
		if got := n.run(op); got != want {
			n.t.Errorf("%s: got %q, want %q", op, got, want)
		}
	}
}

func split(t *testing.T, line string) (op, want string) {
	t.Helper()
	op, want, ok := strings.Cut(line, " -> ")
	if !ok {
		t.Fatalf("no -> in %q", line)
	}
	return strings.TrimSpace(op), strings.TrimSpace(want)
}

// The language of the tests is that of the rules.
var (
	parse   = func(t *testing.T, line string) *noncetest.Op { t.Helper(); return noncetest.Parse(t, line) }
	result  = noncetest.Result
	row     = noncetest.Row
	refusal = noncetest.Refusal
	lines   = noncetest.Lines
)

// rows lists the allocations of a signer in the store.
func (d *disk) rows(t *testing.T, name string) string {
	t.Helper()
	page, err := d.List(t.Context(), nonce.ListQuery{Signer: name, Limit: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	return result(&noncetest.Op{Request: nonce.Request{Kind: nonce.KindList}, Result: nonce.Result{Page: page}})
}

func allocate(name string) *noncetest.Op {
	return &noncetest.Op{Request: nonce.Request{Kind: nonce.KindAllocate, Signer: name, Count: 1}}
}

// summary is a signer as the store has it.
func (d *disk) summary(t *testing.T, name string) nonce.Summary {
	t.Helper()
	loaded := d.load(t, name)
	r := rules.Rules{MaxLive: nonce.MaxLive}
	sum := r.Summary(&rules.Input{Signer: loaded.Signer, Now: nonce.Clock{Earliest: d.clock().UnixMilli(), Latest: d.clock().UnixMilli()}})
	sum.Lease = lease.Ownership{Holder: loaded.Shard.Owner, Token: loaded.Shard.Token}
	return sum
}

func (d *disk) load(t *testing.T, name string) nonce.LoadedSigner {
	t.Helper()
	loaded, err := d.Load(t.Context(), []nonce.SignerNeed{{Signer: name}})
	if err != nil {
		t.Fatal(err)
	}
	return loaded.Signers[0]
}

func (d *disk) clock() time.Time { return time.Now().Add(time.Duration(d.ahead.Load())) }

// takeAway ends the ownership of a signer's shard beneath its owner, unless somebody is
// faster. It does so in the owner's name: a later incarnation, if seen, would end the node.
func (d *disk) takeAway(name string) {
	ctx, shard := context.Background(), nonce.ShardOf(name, d.Shards())
	o, err := d.Owners(ctx)
	if err != nil || o.Shards[shard].Owner.Node == "" {
		return
	}
	h := o.Shards[shard].Owner
	if rows, err := d.Acquire(ctx, h, []int{shard}); err == nil && rows[0].Taken {
		_, _ = d.Release(ctx, h, []lease.ShardTerm{rows[0].Term()})
	}
}

// give moves the shard of a signer to a node, beneath its owner: by an op that seems to be
// another node's, which is not sent on.
func (d *disk) give(name string, to *node) {
	d.takeAway(name)
	to.doOf(new(nonce.Path), &noncetest.Op{Request: nonce.Request{Kind: nonce.KindMarkUsed, Signer: name, Nonce: 99, Attempt: 99}})
}

// nameIn is a signer of a shard.
func (d *disk) nameIn(shard int) string {
	for i := 0; ; i++ {
		if name := fmt.Sprint("in-", i); nonce.ShardOf(name, d.Shards()) == shard {
			return name
		}
	}
}

// others are two signers of other shards than signer's, and than plug's.
func (d *disk) others() (x, y string) { return d.nameIn(2), d.nameIn(3) }

// pass lets time go on, in a bubble of it, until all is quiet.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}
