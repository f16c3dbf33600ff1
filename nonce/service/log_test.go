package service_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"noncegate/nonce"
	"noncegate/nonce/memstore"
	"noncegate/nonce/service"
)

// storeAway is a store that is out of reach.
func storeAway(memstore.Call) error { return away }

func TestNothingIsToldByTheLogAlonePastTheGrant(t *testing.T) {
	inLogs(t, func(l *logged) {
		n, _ := l.start("a")
		l.on(n)
		l.allocateAll(n)
		l.disk.onBefore(storeAway)
		time.Sleep(5 * time.Second)
		for i := range shards {
			if p := n.send(allocate(l.disk.nameIn(i)))[0]; p.wait() != "1#1" {
				t.Errorf("while the grant runs: %s", result(p.op))
			}
		}
		time.Sleep(logGrant)
		late := n.send(allocate(l.disk.nameIn(0)), allocate(l.disk.nameIn(1)))
		status := n.send(&nonce.Op{Kind: nonce.KindStatus, Signer: l.disk.nameIn(2)})[0]
		time.Sleep(time.Second)
		if late[0].answered() || late[1].answered() || status.answered() {
			t.Error("it is told by the log alone after the end of the grant")
		}
		l.disk.onBefore(nil)
		for _, p := range late {
			if p.wait() != "2#1" {
				t.Errorf("when the store is back: %s", result(p.op))
			}
		}
		status.wait()
	})
}

// TestWhatTheStoreRefusesOfOneSignerStopsThatSignerOnly: a shipment has signers of all shards.
func TestWhatTheStoreRefusesOfOneSignerStopsThatSignerOnly(t *testing.T) {
	inLogs(t, func(l *logged) {
		n, _ := l.start("a")
		l.on(n)
		bad := l.disk.nameIn(1)
		l.allocateAll(n)
		time.Sleep(time.Second)
		l.disk.onBefore(func(c memstore.Call) error {
			if c.Op == memstore.OpShip && slices.ContainsFunc(c.Writes, func(w nonce.Write) bool { return w.Name == bad }) {
				return &nonce.StoreError{Outcome: nonce.Aborted, Err: nonce.ErrInvariant}
			}
			return nil
		})
		mark := n.send(&nonce.Op{Kind: nonce.KindMarkUsed, Signer: bad, Nonce: 0, Attempt: 1})[0]
		others := n.send(
			&nonce.Op{Kind: nonce.KindMarkUsed, Signer: l.disk.nameIn(0), Nonce: 0, Attempt: 1},
			&nonce.Op{Kind: nonce.KindMarkUsed, Signer: l.disk.nameIn(2), Nonce: 0, Attempt: 1},
			&nonce.Op{Kind: nonce.KindMarkUsed, Signer: l.disk.nameIn(3), Nonce: 0, Attempt: 1})
		l.await(time.Minute, "all are told", func() bool {
			return mark.answered() && !slices.ContainsFunc(others, func(p *pending) bool { return !p.answered() })
		})
		for i, got := range results(others) {
			if got != "CONSUMED" {
				t.Errorf("another signer %d: %s", i, got)
			}
		}
		if got := mark.wait(); got != "unknown" {
			t.Errorf("the mark of the signer at fault: %s", got)
		}
		if got := n.do(allocate(bad)); got != "none" {
			t.Errorf("an allocation of the signer at fault: %s", got)
		}
		if n.StoppedSigners() != 1 || n.fig.get(&n.fig.invariant) != 1 {
			t.Errorf("%d signers are stopped, and there were %d alarms", n.StoppedSigners(), n.fig.get(&n.fig.invariant))
		}
		time.Sleep(time.Second)
		for i := range shards {
			if got := l.server.records(i); got > 0 {
				t.Errorf("the log of shard %d has %d records that were shipped", i, got)
			}
		}
		l.disk.onBefore(nil)
		if got := n.do(&nonce.Op{Kind: nonce.KindSetFloor, Signer: bad, Floor: 1}); got != "floor 1 next 1" {
			t.Errorf("a safe floor: %s", got)
		}
		if got := n.do(allocate(bad)); got != "1#1" {
			t.Errorf("after a safe floor: %s", got)
		}
		l.switchTo(n, false)
		l.await(time.Minute, "the engine is reliable", func() bool { return l.owners(func(o owned) bool { return o.log }) == 0 })
	})
}

// TestALogIsTakenOverBesideARowThatCannotBeRead: it stops its signer, and not its shard.
func TestALogIsTakenOverBesideARowThatCannotBeRead(t *testing.T) {
	inLogs(t, func(l *logged) {
		a, _ := l.start("a")
		l.on(a)
		bad, good := l.disk.nameIn(1), l.disk.nameIn(1)+"*"
		for i := 0; nonce.ShardOf(good, shards) != 1; i++ {
			good = fmt.Sprint("good-", i)
		}
		both := func(want string) {
			for _, name := range []string{bad, good} {
				if got := a.do(allocate(name)); got != want {
					t.Errorf("%s: %s, want %s", name, got, want)
				}
			}
		}
		both("0#1")
		a.Ship()
		l.disk.mute("a", true)
		l.disk.onBefore(func(c memstore.Call) error {
			if c.Op == memstore.OpShip && c.Holder.Node == "a" {
				return away
			}
			return nil
		})
		both("1#1")
		l.disk.Damage(bad)
		b, _ := l.start("b")
		l.await(time.Minute, "b hands out", func() bool { return b.do(allocate(good)) == "2#1" })
		if l.owners(lost) > 0 {
			t.Error("a loss was declared")
		}
		if got := b.do(allocate(bad)); got != "none" {
			t.Errorf("of the row that cannot be read: %s", got)
		}
		l.disk.mute("a", false)
		l.disk.onBefore(nil)
	})
}

// TestAStopDoesNotRefuseWhatTheLogMayHave: the append of the first has an unknown outcome; what
// came behind it was not tried.
func TestAStopDoesNotRefuseWhatTheLogMayHave(t *testing.T) {
	inLogs(t, func(l *logged) {
		n, way, name := l.startOn("a")
		n.run("allocate signer=" + name)
		l.disk.onBefore(func(c memstore.Call) error { // the shard cannot be given the reliable engine
			if c.Op == memstore.OpShip {
				return away
			}
			return nil
		})
		way.hangs.Store(true)
		first := n.send(allocate(name))[0]
		time.Sleep(logTimeout + 100*time.Millisecond)
		behind := n.send(allocate(name))[0]
		n.Stop()
		if got := first.wait(); got != "unknown" {
			t.Errorf("what the log may have: %s", got)
		}
		if got := behind.wait(); got != "draining" {
			t.Errorf("what came behind it: %s", got)
		}
	})
}

// TestARequestIDThatComesWhileAnAppendIsNotAnsweredIsLookedUp: the batch before it also wants a
// row of the history.
func TestARequestIDThatComesWhileAnAppendIsNotAnsweredIsLookedUp(t *testing.T) {
	inLogs(t, func(l *logged) {
		n, way, name := l.startOn("a")
		asking := allocate(name)
		asking.RequestID = "r"
		first := n.do(asking)
		second := n.do(allocate(name))
		used := n.do(&nonce.Op{Kind: nonce.KindMarkUsed, Signer: name, Nonce: 1, Attempt: 1})
		if first != "0#1" || second != "1#1" || used != "CONSUMED" {
			t.Fatal(first, second, used)
		}
		n.Ship()
		plug := name + "*"
		for i := 0; nonce.ShardOf(plug, shards) != 0; i++ {
			plug = fmt.Sprint("plug-", i)
		}
		way.losesRecord.Store(true)
		way.losesRaise.Store(true)
		began, open := l.disk.hold(memstore.OpLoad, plug)
		n.send(&nonce.Op{Kind: nonce.KindStatus, Signer: plug})
		<-began
		batch := n.send(allocate(name), &nonce.Op{Kind: nonce.KindMarkUsed, Signer: name, Nonce: 1, Attempt: 1})
		open()
		time.Sleep(10 * time.Millisecond)
		asking = allocate(name)
		asking.RequestID = "r"
		again := n.send(asking)[0]
		if got := results(batch); got[0] != "2#1" || got[1] != "CONSUMED" {
			t.Error(got)
		}
		if got := again.wait(); got != first {
			t.Errorf("the same request id was given %s, and before %s", got, first)
		}
	})
}

// TestASignerIsRememberedWhileItsAppendIsNotAnswered, though there are more signers than are
// remembered as a rule.
func TestASignerIsRememberedWhileItsAppendIsNotAnswered(t *testing.T) {
	inLogs(t, func(l *logged) {
		n, way := l.start("a", func(c *service.Config) { c.Workers, c.MaxSigners = 1, 1 })
		l.on(n)
		l.allocateAll(n)
		n.Ship()
		way.losesRecord.Store(true)
		way.losesRaise.Store(true)
		first := n.send(allocate(l.disk.nameIn(0)))[0]
		time.Sleep(10 * time.Millisecond)
		if got := n.do(allocate(l.disk.nameIn(1))); got != "1#1" {
			t.Errorf("of another shard: %s", got)
		}
		behind := n.send(allocate(l.disk.nameIn(0)))[0]
		if a, b := first.wait(), behind.wait(); a != "1#1" || b != "2#1" {
			t.Errorf("got %s, and %s behind it", a, b)
		}
	})
}

// TestAShipmentByHandDoesNotProlongTheGrant, which it does not write either.
func TestAShipmentByHandDoesNotProlongTheGrant(t *testing.T) {
	inLogs(t, func(l *logged) {
		n, _ := l.start("a")
		l.on(n)
		left := func() time.Duration { return n.Engine().Here[0].Grant }
		l.await(time.Minute, "some of the grant is over", func() bool { return left() < logGrant*8/10 })
		before := left()
		n.Ship()
		if after := left(); after > before {
			t.Errorf("%v of the grant was left, and then %v", before, after)
		}
	})
}

// TestARaiseThatComesLateChangesNothing: another one was answered meanwhile, and the shard serves.
func TestARaiseThatComesLateChangesNothing(t *testing.T) {
	inLogs(t, func(l *logged) {
		n, way := l.start("a")
		l.on(n)
		l.allocateAll(n)
		way.losesRecord.Store(true)
		way.delaysRaise.Store(true)
		if got := n.do(allocate(l.disk.nameIn(0))); got != "1#1" {
			t.Errorf("the append that was not answered: %s", got)
		}
		time.Sleep(6 * logTimeout)
		if got := n.do(allocate(l.disk.nameIn(0))); got != "2#1" {
			t.Errorf("after the late raise: %s", got)
		}
		if got := n.Engine().State; got != service.StatePerformance {
			t.Errorf("the state is %s", got)
		}
	})
}
