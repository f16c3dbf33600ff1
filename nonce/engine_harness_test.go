package nonce_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"noncegate/nonce"
	"noncegate/nonce/fasttest"
	"noncegate/nonce/memstore"
)

// pair is a store and a Redis server without faults but those that a test arms.
type pair struct {
	*disk
	t      *testing.T
	server *fasttest.Server
	goal   nonce.Goal // of nodes that are started
}

// fastNode is a node of a pair.
type fastNode struct {
	*node
	*engine
	pair  *pair
	plugs int // signers that batch has used
}

func newPair(t *testing.T) *pair {
	p := &pair{disk: newDisk(), t: t, server: fasttest.NewServer(1)}
	p.Accept(p.server.Identity())
	return p
}

// start starts a node that has Redis.
func (p *pair) start(name string, change ...func(*nonce.Config)) *fastNode {
	p.t.Helper()
	e := newEngine(p.server)
	e.goal.Store(int32(p.goal))
	n := start(p.t, p.disk, name, append([]func(*nonce.Config){e.with(p.disk)}, change...)...)
	return &fastNode{node: n, engine: e, pair: p}
}

// entered starts a node, lets it serve the signer of the test, and makes it enter.
func (p *pair) entered(name string, lines ...string) *fastNode {
	p.t.Helper()
	n := p.start(name)
	n.want(lines...)
	n.enter()
	return n
}

// enter brings the signer of the test into the performance engine.
func (n *fastNode) enter() {
	n.t.Helper()
	n.pair.goal = nonce.GoalPerformance
	n.goal.Store(int32(nonce.GoalPerformance))
	for range 40 {
		n.Settle(signer)
		time.Sleep(50 * time.Millisecond)
		if n.pair.serves() == nonce.Performance {
			return
		}
	}
	n.t.Fatal("the signer does not enter")
}

// batch is node.batch. It holds an acquire, which is the store's in any case: a copy
// that is made at once lets a signer enter before its first commit.
func (n *fastNode) batch(ops ...*nonce.Op) []string {
	n.t.Helper()
	n.plugs++
	plug := fmt.Sprintf("plug-%d", n.plugs)
	began, open := n.disk.hold(memstore.OpAcquire, plug)
	return n.behind(plug, began, open, ops)
}

// serves is the engine of the signer of the test.
func (p *pair) serves() nonce.Engine { return p.summary(p.t, signer).Engine }

// ceiling is that of the signer of the test, when nobody is asking for more.
func (p *pair) ceiling() int64 {
	synctest.Wait()
	return p.summary(p.t, signer).Ceiling
}

// flush lets the store follow, and nobody is told.
func (p *pair) flush() {
	p.t.Helper()
	p.flushAs(nil)
}

// flushAs lets the store follow, and tells the node.
func (p *pair) flushAs(n *fastNode) {
	p.t.Helper()
	f := fasttest.Flusher{Ledger: p.disk, TTL: time.Second}
	if n != nil {
		f.Flushed = n.Flushed
	}
	for p.server.Pending() > 0 {
		if done, err := f.Flush(context.Background(), p.server, 100); err != nil || done == 0 {
			p.t.Fatalf("flush: %d events, %v", done, err)
		}
	}
}

// storeAway makes the store out of reach, until back is called.
func (p *pair) storeAway() (back func()) {
	p.onBefore(func(memstore.Call) error { return &nonce.StoreError{Outcome: nonce.NotSent, Err: errCut} })
	return func() { p.onBefore(nil) }
}

// onRedis sets what becomes of calls of an op.
func (n *fastNode) onRedis(op fasttest.Op, before func(fasttest.Call) fasttest.Fault) {
	n.client.SetHooks(fasttest.Hooks{Before: func(c fasttest.Call) fasttest.Fault {
		if c.Op != op || before == nil {
			return fasttest.Fault{}
		}
		return before(c)
	}})
}

// onReply runs fn before the replies of an op are had, once.
func (n *fastNode) onReply(op fasttest.Op, fn func()) {
	var once sync.Once
	n.client.SetHooks(fasttest.Hooks{After: func(c fasttest.Call) bool {
		if c.Op == op {
			once.Do(fn)
		}
		return false
	}})
}

// breaks makes the next call of an op end with the fault.
func (n *fastNode) breaks(op fasttest.Op, f fasttest.Fault) {
	var once sync.Once
	n.onRedis(op, func(fasttest.Call) (fault fasttest.Fault) {
		once.Do(func() { fault = f })
		return fault
	})
}

// answered reports whether an op has been answered by now.
func (p *pending) answered() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// lineOf submits the op of a line.
func (n *fastNode) lineOf(line string) *pending {
	n.t.Helper()
	return n.send(parse(n.t, line))[0]
}

// calls counts the calls of ops, from now on.
func (d *disk) calls(ops ...memstore.Op) func() int {
	var mu sync.Mutex
	count := 0
	d.onAfter(func(c memstore.Call) error {
		mu.Lock()
		defer mu.Unlock()
		if slices.Contains(ops, c.Op) {
			count++
		}
		return nil
	})
	return func() int {
		mu.Lock()
		defer mu.Unlock()
		return count
	}
}

// leaseEnds waits until another node may take the signer over.
func (p *pair) leaseEnds() {
	synctest.Wait() // blocks that are asked for ahead renew it
	until := p.summary(p.t, signer).Lease.ExpiresAt
	time.Sleep(time.Until(until) + time.Millisecond)
}
