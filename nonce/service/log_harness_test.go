package service_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"noncegate/nonce"
	"noncegate/nonce/memstore"
	"noncegate/nonce/performance"
	"noncegate/nonce/service"
)

// logServer keeps logs in memory, as the scripts of redislog do.
type logServer struct {
	mu     sync.Mutex // guards all below
	name   string     // its identity
	shards map[int]*loggedShard
}

type loggedShard struct {
	fence   nonce.LogFence
	records []nonce.LogRecord
}

func newLogServer() *logServer {
	return &logServer{name: "server", shards: make(map[int]*loggedShard)}
}

// logWay is a server as one node reaches it.
type logWay struct {
	*logServer
	hangs, refuses atomic.Bool  // a call ends with its context, or at once
	calls          atomic.Int64 // that were made while it was out of reach
	losesRaise     atomic.Bool  // the answer to the next Raise is lost
	delaysRaise    atomic.Bool  // the next Raise comes long after nobody waits for it any more
	losesRecord    atomic.Bool  // the answer to the next Append of a record is lost
	keeps          atomic.Bool  // nothing is trimmed
	full           atomic.Bool  // no record is taken, and all else goes on
	hangsAtFirst   atomic.Bool  // calls for shard 0 are not answered
}

func (l *logWay) call(ctx context.Context, shard int) error {
	switch {
	case l.hangs.Load(), l.hangsAtFirst.Load() && shard == 0:
		l.calls.Add(1)
		<-ctx.Done()
		return &nonce.StoreError{Outcome: nonce.Unknown, Err: ctx.Err()}
	case l.refuses.Load():
		l.calls.Add(1)
		return &nonce.StoreError{Outcome: nonce.NotSent, Err: errors.New("connection refused")}
	}
	return nil
}

// fenced runs what a script does with the fence of a shard.
func (l *logWay) fenced(ctx context.Context, of nonce.LogFence, do func(sh *loggedShard) error) (nonce.LogFence, error) {
	if err := l.call(ctx, of.Shard); err != nil {
		return of, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	sh, name := l.shards[of.Shard], l.name
	if sh == nil {
		return of, fmt.Errorf("%w: its keys are gone", nonce.ErrLogLost)
	}
	if sh.fence.Token > of.Token {
		return of, nonce.ErrLogFenced
	}
	if err := do(sh); err != nil {
		return of, err
	}
	if of.Identity != name {
		return of, fmt.Errorf("%w: another server", nonce.ErrLogLost)
	}
	of = sh.fence
	of.Identity = name
	return of, nil
}

func (l *logWay) Begin(ctx context.Context, shard int, token int64) (nonce.LogFence, error) {
	f := nonce.LogFence{Shard: shard, Token: token}
	if err := l.call(ctx, shard); err != nil {
		return f, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if sh := l.shards[shard]; sh != nil && sh.fence.Token >= token {
		return f, nonce.ErrLogFenced
	}
	l.shards[shard] = &loggedShard{fence: f}
	f.Identity = l.name
	return f, nil
}

func (l *logWay) Enter(ctx context.Context, of nonce.LogFence) (f nonce.LogFence, records []nonce.LogRecord, err error) {
	f, err = l.fenced(ctx, of, func(sh *loggedShard) error {
		if sh.fence.Token >= of.Token {
			return nonce.ErrLogFenced
		}
		if next := sh.fence.Head + 1 - int64(len(sh.records)); sh.fence.Head < of.Head || next > of.Head+1 {
			return nonce.ErrLogLost
		}
		sh.fence.Token, sh.fence.Try = of.Token, sh.fence.Try+1
		records = append(records, sh.records...)
		return nil
	})
	return f, records, err
}

func (l *logWay) Raise(ctx context.Context, of nonce.LogFence) (nonce.LogFence, error) {
	raise := func(ctx context.Context) (nonce.LogFence, error) {
		return l.fenced(ctx, of, func(sh *loggedShard) error {
			sh.fence.Try = max(sh.fence.Try, of.Try+1)
			return nil
		})
	}
	if l.delaysRaise.CompareAndSwap(true, false) {
		time.AfterFunc(5*logTimeout, func() { _, _ = raise(context.Background()) })
		return of, &nonce.StoreError{Outcome: nonce.Unknown, Err: errors.New("it is on its way")}
	}
	after, err := raise(ctx)
	if err == nil && l.losesRaise.CompareAndSwap(true, false) {
		return of, &nonce.StoreError{Outcome: nonce.Unknown, Err: errors.New("the answer is lost")}
	}
	return after, err
}

func (l *logWay) Append(ctx context.Context, items []nonce.LogAppend) []error {
	out := make([]error, len(items))
	for i, item := range items {
		_, out[i] = l.fenced(ctx, item.Fence, func(sh *loggedShard) error {
			if of := item.Fence; sh.fence.Token != of.Token || sh.fence.Try != of.Try || sh.fence.Head != of.Head {
				return nonce.ErrLogLost
			}
			if item.Record != nil && l.full.Load() {
				return &nonce.StoreError{Outcome: nonce.NotSent, Err: nonce.ErrLogFull}
			}
			if item.Record != nil {
				sh.fence.Head++
				sh.records = append(sh.records, *item.Record)
			}
			return nil
		})
		if out[i] == nil && item.Record != nil && l.losesRecord.CompareAndSwap(true, false) {
			out[i] = &nonce.StoreError{Outcome: nonce.Unknown, Err: errors.New("the answer is lost")}
		}
	}
	return out
}

func (l *logWay) Read(ctx context.Context, shard int) (f nonce.LogFence, records []nonce.LogRecord, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if sh := l.shards[shard]; sh != nil {
		f, records = sh.fence, append(records, sh.records...)
		f.Identity = l.name
		return f, records, l.call(ctx, shard)
	}
	return f, nil, nonce.ErrLogLost
}

func (l *logWay) Trim(ctx context.Context, logs []nonce.LogFence) error {
	if l.keeps.Load() {
		return nil
	}
	for _, f := range logs {
		if err := l.call(ctx, f.Shard); err != nil {
			return err
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, f := range logs {
		sh := l.shards[f.Shard]
		for sh != nil && sh.fence.Token == f.Token && len(sh.records) > 0 && sh.records[0].Seq <= f.Head {
			sh.records = sh.records[1:]
		}
	}
	return nil
}

func (l *logWay) Identity(ctx context.Context) (string, error) {
	if err := l.call(ctx, -1); err != nil {
		return "", err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.name, nil
}

// flush deletes all keys.
func (l *logServer) flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.shards)
}

// records is how many records a shard's log has; of no log -1.
func (l *logServer) records(shard int) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if sh := l.shards[shard]; sh != nil {
		return len(sh.records)
	}
	return -1
}

// logged is a database, a server of logs, and the times of a test of the two.
type logged struct {
	*testing.T
	disk   *disk
	server *logServer
	nodes  []*node
}

const (
	logGrant     = 30 * time.Second
	logLostAfter = 10 * time.Second
	logTimeout   = time.Second
)

// inLogs runs a test in a bubble, where time passes when all wait.
func inLogs(t *testing.T, test func(l *logged)) {
	synctest.Test(t, func(t *testing.T) {
		test(&logged{t, newDisk(), newLogServer(), nil})
	})
}

// testEngine is made when all settings are known.
type testEngine struct {
	*performance.Engine
	cfg performance.Config
}

// logs are the settings of a node's engine.
func logs(c *service.Config) *performance.Config { return &c.Engine.(*testEngine).cfg }

// start starts a node, and returns its way to the server of logs.
func (l *logged) start(name string, change ...func(*service.Config)) (*node, *logWay) {
	l.Helper()
	way := &logWay{logServer: l.server}
	n := start(l.T, l.disk, name, append([]func(*service.Config){func(c *service.Config) {
		c.WatchEvery = 500 * time.Millisecond
		c.Engine = &testEngine{cfg: performance.Config{Log: way, Store: l.disk, Grant: logGrant, LostAfter: logLostAfter, Timeout: logTimeout}}
	}}, change...)...)
	l.nodes = append(l.nodes, n)
	return n, way
}

// on switches to the performance engine, and waits until all shards have it.
func (l *logged) on(n *node) {
	l.Helper()
	l.switchTo(n, true, 0)
	l.await(time.Minute, "all shards have a log", func() bool { return l.owners(func(o owned) bool { return o.log }) == shards })
	time.Sleep(time.Second) // the nodes look, and what was reserved for the switch is over
}

func (l *logged) switchTo(n *node, performance bool, rehearse time.Duration) {
	l.Helper()
	was, err := n.engine.Wanted(l.Context())
	if err == nil {
		_, err = n.engine.Switch(l.Context(), was, performance, rehearse, "test")
	}
	if err != nil {
		l.Fatal(err)
	}
}

// owned is a shard as the store has it.
type owned struct {
	node  string
	log   bool
	epoch int64
}

// owners counts shards.
func (l *logged) owners(which func(owned) bool) (n int) {
	l.Helper()
	all, err := l.disk.Owners(l.Context())
	if err != nil {
		l.Fatal(err)
	}
	for _, s := range all.Shards {
		if which(owned{s.Owner.Node, s.Performance, s.Epoch}) {
			n++
		}
	}
	return n
}

// await waits, in the time of the bubble, until something is so.
func (l *logged) await(most time.Duration, what string, is func() bool) (after time.Duration) {
	l.Helper()
	began := time.Now()
	for !is() {
		if time.Since(began) > most {
			l.Fatalf("after %v it is not so: %s", most, what)
		}
		time.Sleep(10 * time.Millisecond)
	}
	return time.Since(began)
}

// allocateAll hands out of a signer of each shard.
func (l *logged) allocateAll(n *node) {
	l.Helper()
	for i := range shards {
		if op := allocate(l.disk.nameIn(i)); n.Do(l.Context(), op) != nil || op.Err != nil {
			l.Errorf("shard %d: %v", i, op.Err)
		}
	}
}

// startBusy starts a node of one worker that has handed out so much that it does so for a while
// without the store.
func (l *logged) startBusy(change ...func(*service.Config)) (*node, *logWay) {
	l.Helper()
	n, way := l.start("a", append(change, workers(1))...)
	l.on(n)
	for range 30 {
		l.allocateAll(n)
		time.Sleep(100 * time.Millisecond)
	}
	return n, way
}

// fails has the way fail as a word says, or no longer.
func (l *logWay) fails(t *testing.T, how string, yes bool) {
	t.Helper()
	which := map[string]*atomic.Bool{
		"refuses": &l.refuses, "hangs": &l.hangs, "loses-raise": &l.losesRaise, "loses-record": &l.losesRecord, "delays-raise": &l.delaysRaise,
		"keeps": &l.keeps, "full": &l.full, "hangs-at-first": &l.hangsAtFirst,
	}[how]
	if which == nil {
		t.Fatalf("how does a log fail that %q?", how)
	}
	which.Store(yes)
}

func of(name string) func(owned) bool { return func(o owned) bool { return o.node == name } }

func lost(o owned) bool { return o.epoch > 0 }

// storeAway is a store that is out of reach.
func storeAway(memstore.Call) error { return away }
