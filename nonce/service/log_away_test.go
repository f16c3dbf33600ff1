package service_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"noncegate/lease"
	"noncegate/nonce"
	"noncegate/nonce/memstore"
	"noncegate/nonce/noncetest"
	"noncegate/nonce/performance"
	"noncegate/nonce/service"
)

// silent is a store that takes calls and answers none.
func silent(c memstore.Call) error {
	<-c.Done
	return &nonce.StoreError{Outcome: nonce.Unknown, Err: context.DeadlineExceeded}
}

// TestAStoreThatDoesNotAnswerHoldsUpNoHandOut for longer than it takes to find that out, also
// where others ask for what must be read, or for signers of other nodes.
func TestAStoreThatDoesNotAnswerHoldsUpNoHandOut(t *testing.T) {
	for name, others := range map[string]func(i int, name, elsewhere string) *noncetest.Op{
		"alone":         func(int, string, string) *noncetest.Op { return nil },
		"beside others": func(i int, _, _ string) *noncetest.Op { return allocate(fmt.Sprint("unknown-", i)) },
		"beside a status": func(i int, _, _ string) *noncetest.Op {
			return &noncetest.Op{Request: nonce.Request{Kind: nonce.KindStatus, Signer: fmt.Sprint("unknown-", i)}}
		},
		"beside a list": func(i int, _, _ string) *noncetest.Op {
			return &noncetest.Op{Request: nonce.Request{Kind: nonce.KindList, Signer: fmt.Sprint("unknown-", i), List: nonce.ListQuery{Limit: 1}}}
		},
		"beside a shard of another node": func(_ int, _, elsewhere string) *noncetest.Op { return allocate(elsewhere) },
		"beside a request id": func(i int, name, _ string) *noncetest.Op {
			op := allocate(name)
			op.RequestID = fmt.Sprint("r", i)
			return op
		},
	} {
		t.Run(name, func(t *testing.T) {
			inLogs(t, func(l *logged) { l.handOutWithoutStore(others) })
		})
	}
}

func (l *logged) handOutWithoutStore(others func(i int, name, elsewhere string) *noncetest.Op) {
	times := func(c *service.Config) { c.Workers, c.LeaseTTL, logs(c).ShipSLA = 1, 3*time.Second, time.Second }
	n, _ := l.start("a", times)
	l.on(n)
	l.start("b", times)
	l.await(time.Minute, "b has its part", func() bool { return l.owners(of("b")) == shards/2 })
	var name, elsewhere string
	for i := range shards {
		if l.disk.summary(l.T, l.disk.nameIn(i)).Lease.Holder.Node == "a" {
			name = l.disk.nameIn(i)
		} else {
			elsewhere = l.disk.nameIn(i)
		}
	}
	for range 20 { // so many are reserved ahead that they last
		n.do(allocate(name))
		time.Sleep(100 * time.Millisecond)
	}
	l.disk.onBefore(silent)
	defer l.disk.onBefore(nil)
	gone, settled := time.Now(), n.cfg.LeaseTTL/2+2*time.Second
	mark := n.send(&noncetest.Op{Request: nonce.Request{Kind: nonce.KindMarkUsed, Signer: name, Nonce: 0, Attempt: 1}})[0]
	var slowest time.Duration
	slow := 0 // hand-outs, once the store is known to be away
	for i := 0; time.Since(gone) < 20*time.Second; i++ {
		sent := time.Now()
		if op := others(i, name, elsewhere); op != nil {
			n.send(op)
		}
		if got, want := n.do(allocate(name)), fmt.Sprintf("%d#1", 20+i); got != want {
			l.Fatalf("after %v: %s, want %s", time.Since(gone), got, want)
		}
		took := time.Since(sent)
		slowest = max(slowest, took)
		if time.Since(gone) > settled && took > 50*time.Millisecond {
			slow++
		}
		time.Sleep(200 * time.Millisecond)
	}
	if slowest > settled || slow > 20 {
		l.Errorf("a hand-out took %v, want %v at most; %d were slow", slowest, settled, slow)
	}
	if mark.answered() {
		l.Errorf("a mark was answered that no row has: %s", result(mark.op))
	}
	l.disk.onBefore(func(c memstore.Call) error { // both leases are over, and b shall not take the shard
		if c.Op == memstore.OpAcquire && c.Holder.Node == "b" {
			return silent(c)
		}
		return nil
	})
	if got := mark.wait(); got != "CONSUMED" {
		l.Errorf("the mark: %s", got)
	}
}

// TestReconcileNamesWhatDiffers between a log and memory.
func TestReconcileNamesWhatDiffers(t *testing.T) {
	inLogs(t, func(l *logged) {
		n, _ := l.start("a")
		l.on(n)
		l.allocateAll(n)
		time.Sleep(time.Second)
		l.disk.onBefore(storeAway) // nothing is shipped any more
		defer l.disk.onBefore(nil)
		l.allocateAll(n)
		l.disk.onBefore(func(c memstore.Call) error {
			if c.Op == memstore.OpShip {
				return away
			}
			return nil
		})
		if got, err := n.engine.Reconcile(l.Context()); err != nil || got.Equal != shards || len(got.Differences) > 0 {
			t.Errorf("got %+v, %v", got, err)
		}
		name := l.disk.nameIn(1)
		l.server.mu.Lock()
		last := l.server.shards[1].records
		last[len(last)-1].Changes[0].Next = 9
		l.server.mu.Unlock()
		want := performance.Difference{Signer: name, What: "next", Log: "9", Memory: "2"}
		if got, err := n.engine.Reconcile(l.Context()); err != nil || got.Equal != shards-1 || len(got.Differences) != 1 || got.Differences[0] != want {
			t.Errorf("got %+v, %v, want %+v", got, err, want)
		}
	})
}

// TestNoLossIsDeclaredWhileTheStoreIsAway: it would not be heard, and each try would take StoreTimeout.
func TestNoLossIsDeclaredWhileTheStoreIsAway(t *testing.T) {
	inLogs(t, func(l *logged) {
		n, way := l.startBusy(func(c *service.Config) { c.LeaseTTL = 3 * time.Second })
		l.disk.onBefore(func(c memstore.Call) error {
			if c.Op == memstore.OpAcquire {
				way.hangsAtFirst.Store(true)
			}
			return nil
		})
		l.server.mu.Lock()
		l.server.shards[0].fence.Token++ // a token that nobody has refuses the next record, so the shard is acquired again
		l.server.mu.Unlock()
		waits := n.send(allocate(l.disk.nameIn(0)))[0]
		time.Sleep(9 * time.Second) // the second try is under way; a third will be the last before the loss
		var declared atomic.Int64
		silentFor := func(all bool) {
			l.disk.onBefore(func(c memstore.Call) error {
				if c.Op == memstore.OpDeclare {
					declared.Add(1)
				}
				if all || c.Op == memstore.OpShip {
					return silent(c)
				}
				return nil
			})
		}
		silentFor(false)
		n.send(&noncetest.Op{Request: nonce.Request{Kind: nonce.KindMarkUsed, Signer: l.disk.nameIn(1), Nonce: 0, Attempt: 1}})
		time.Sleep(2 * time.Second) // its shipment, and the third try
		silentFor(true)
		time.Sleep(10 * time.Second)
		if got := waits.wait(); got != "none" || declared.Load() > 0 {
			t.Errorf("the hand-out: %s; %d declarations", got, declared.Load())
		}
		l.disk.onBefore(nil)
		l.await(time.Minute, "the loss is declared", func() bool { return n.engine.Figures().Lost == 1 })
	})
}

// TestAskingForANodeThatCameHoldsUpNoHandOut while the store does not tell the nodes.
func TestAskingForANodeThatCameHoldsUpNoHandOut(t *testing.T) {
	inLogs(t, func(l *logged) {
		n, _ := l.startBusy(func(c *service.Config) { logs(c).ShipSLA = time.Second })
		name := l.disk.nameIn(0)
		came := l.disk.register(l.T, "came")
		if _, err := l.disk.Renew(l.Context(), came, time.Hour); err != nil {
			t.Fatal(err)
		}
		var row lease.Shard
		for !row.Taken { // a may be faster
			l.disk.takeAway(name)
			rows, err := l.disk.Acquire(l.Context(), came, []int{0})
			if err != nil {
				t.Fatal(err)
			}
			row = rows[0]
		}
		l.server.mu.Lock()
		l.server.shards[0].fence.Token = row.Token // it has entered the log
		l.server.mu.Unlock()
		l.disk.onBefore(func(c memstore.Call) error {
			if c.Op == memstore.OpOwners {
				return silent(c)
			}
			return nil
		})
		time.Sleep(n.cfg.WatchEvery) // the watch asks, too
		asks, began := n.send(allocate(name))[0], time.Now()
		if got := n.do(allocate(l.disk.nameIn(1))); got != "30#1" || time.Since(began) > logs(&n.cfg).ShipSLA+50*time.Millisecond {
			t.Errorf("%s after %v", got, time.Since(began))
		}
		l.disk.onBefore(nil)
		if got := asks.wait(); !strings.HasPrefix(got, "not_owner came") {
			t.Errorf("it was told %s", got)
		}
	})
}
