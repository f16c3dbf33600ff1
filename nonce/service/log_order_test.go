package service_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"noncegate/lease"
	"noncegate/nonce"
	"noncegate/nonce/memstore"
	"noncegate/nonce/noncetest"
	"noncegate/nonce/service"
)

// saysKnown tells a write of another version that a request id of it is known, as a store may
// that looks for ids after its commit.
type saysKnown struct{ *disk }

func (d saysKnown) Ship(ctx context.Context, h lease.Holder, s nonce.Shipment) (nonce.Shipped, error) {
	out, err := d.disk.Ship(ctx, h, s)
	for i, r := range out.Results {
		if r == nonce.Moved && len(s.Writes[i].Requests) > 0 {
			out.Results[i] = nonce.IDKnown
		}
	}
	return out, err
}

// nothingShipped has no shipment reach the store.
func (l *logged) nothingShipped() {
	l.disk.onBefore(func(c memstore.Call) error {
		if c.Op == memstore.OpShip {
			return away
		}
		return nil
	})
}

// parts has a node and the store lose each other, beside what happens already.
func (l *logged) parts(name string) {
	before := l.disk.before
	l.disk.onBefore(func(c memstore.Call) error {
		if c.Holder.Node == name {
			return away
		}
		if before != nil {
			return before(c)
		}
		return nil
	})
	l.disk.mute(name, true)
}

// afterTheLoss is b, which has declared the log of a lost, with the shards.
func (l *logged) afterTheLoss() *node {
	b, way := l.start("b")
	way.refuses.Store(true)
	l.await(5*time.Minute, "b has the shards", func() bool { return l.owners(func(o owned) bool { return o.node == "b" && !o.log }) == shards })
	return b
}

func TestAShipmentThatWasOvertakenStopsNothing(t *testing.T) {
	inLogs(t, func(l *logged) {
		a, _ := l.start("a", func(c *service.Config) { c.Log.Store = saysKnown{l.disk} })
		l.on(a)
		name := l.disk.nameIn(0)
		a.want("allocate signer=" + name + " -> 0#1")
		a.Ship()
		began, open := make(chan struct{}), make(chan struct{})
		var held atomic.Bool
		l.disk.onBefore(func(c memstore.Call) error {
			if c.Op == memstore.OpShip && slices.ContainsFunc(c.Writes, func(w nonce.Write) bool { return w.Name == name }) && held.CompareAndSwap(false, true) {
				close(began)
				<-open
			}
			return nil
		})
		a.want("allocate id=r1 signer=" + name + " -> 1#1")
		<-began
		a.Ship() // by hand, before the one that began
		a.want("allocate signer=" + name + " -> 2#1")
		close(open)
		time.Sleep(3 * time.Second)
		if n := a.StoppedSigners(); n != 0 {
			t.Errorf("%d signers are stopped", n)
		}
		a.want("allocate signer=" + name + " -> 3#1")
	})
}

// TestAJumpOfTheCursorIsShippedBeforeItIsHandedOutBehind: else a loss would leave in doubt all
// nonces that were jumped over.
func TestAJumpOfTheCursorIsShippedBeforeItIsHandedOutBehind(t *testing.T) {
	inLogs(t, func(l *logged) {
		a, _, name := l.startOn("a")
		l.nothingShipped()
		hand := a.send(&nonce.Op{Kind: nonce.KindSetFloor, Signer: name, Floor: 300_000}, allocate(name))[1]
		time.Sleep(time.Second)
		if hand.answered() {
			l.Fatalf("told %s, of which the rows know nothing", hand.wait())
		}
		l.parts("a")
		l.server.flush()
		b := l.afterTheLoss()
		b.run("status signer=" + name)
		if n := len(l.disk.load(l.T, name).Signer.Live); n > 5*noncetest.MaxHolds {
			t.Errorf("%d nonces are in doubt", n)
		}
		l.disk.mute("a", false)
		l.disk.onBefore(nil)
		time.Sleep(15 * time.Minute)
		b.want("floor 300000 signer="+name+" -> floor 300000 next 300000", "allocate signer="+name+" -> 300000#1")
	})
}

func TestAJumpIsHandedOutBehindOnceItIsShipped(t *testing.T) {
	inLogs(t, func(l *logged) {
		a, _, name := l.startOn("a")
		ps := a.send(&nonce.Op{Kind: nonce.KindSetFloor, Signer: name, Floor: 300_000}, allocate(name))
		if got := ps[1].wait(); got != "300000#1" {
			t.Errorf("told %s", got)
		}
		a.want("allocate signer=" + name + " -> 300001#1")
	})
}

// TestWhatTheRowsCallConsumedIsNotHandedOutByTheLogAlone: a repair handed it out, and its hold
// ended; after a loss nobody would know.
func TestWhatTheRowsCallConsumedIsNotHandedOutByTheLogAlone(t *testing.T) {
	for _, shipped := range []bool{true, false} { // before the repair
		inLogs(t, func(l *logged) {
			a, _ := l.start("a")
			l.on(a)
			name := l.disk.nameIn(0)
			a.want("allocate signer="+name+" -> 0#1", "allocate signer="+name+" -> 1#1")
			a.Ship()
			if !shipped {
				l.nothingShipped()
			}
			mark := a.send(&nonce.Op{Kind: nonce.KindMarkUsed, Signer: name, Nonce: 0, Attempt: 1})[0]
			if shipped {
				mark.wait()
			}
			l.nothingShipped()
			a.send(&nonce.Op{Kind: nonce.KindRepair, Signer: name, Nonce: 0, Hold: time.Second, Principal: 7})
			time.Sleep(300 * time.Millisecond)
			l.parts("a")
			time.Sleep(3 * time.Second)
			p := a.send(allocate(name))[0]
			time.Sleep(time.Second)
			if p.answered() {
				t.Errorf("told %s", p.wait())
			}
			l.disk.mute("a", false)
			l.disk.onBefore(nil)
			a.Ship()
		})
	}
}

// TestARepairAfterALossIsAboveWhatTheLogGave: the holder of an attempt that is over marked the
// nonce while it was in doubt.
func TestARepairAfterALossIsAboveWhatTheLogGave(t *testing.T) {
	inLogs(t, func(l *logged) {
		a, _, name := l.startOn("a")
		a.want("allocate hold=1s signer=" + name + " -> 0#1")
		a.Ship()
		l.parts("a")
		time.Sleep(3 * time.Second)
		a.want("allocate hold=10m signer=" + name + " -> 0#2")
		b := l.afterTheLoss()
		b.want("used 0#1 signer=" + name + " -> CONSUMED")
		repair := &nonce.Op{Kind: nonce.KindRepair, Signer: name, Nonce: 0, Hold: time.Minute}
		if b.do(repair); repair.Err != nil || repair.Attempts[0] <= 1<<20 {
			t.Errorf("repaired with %v, %v; the lost log may have given up to %d", repair.Attempts, repair.Err, 1<<20)
		}
	})
}

func TestWhatIsUnknownStaysSoForAsLongAsNobodyAnswers(t *testing.T) {
	inLogs(t, func(l *logged) {
		a, way := l.start("a", func(c *service.Config) { c.Log.ShipEvery, c.Log.ShipSoon = 10*time.Second, 10*time.Second })
		l.on(a)
		name := l.disk.nameIn(0)
		a.want("allocate signer=" + name + " -> 0#1")
		a.Ship()
		way.losesRecord.Store(true)
		way.losesRaise.Store(true)
		l.disk.onBefore(storeAway)
		p := a.send(allocate(name))[0]
		time.Sleep(50 * time.Millisecond)
		way.refuses.Store(true)
		time.Sleep(61 * time.Minute)
		if p.answered() {
			t.Errorf("told %s, which nobody knows", p.wait())
		}
		way.refuses.Store(false)
		l.disk.onBefore(nil)
		time.Sleep(time.Minute)
		if !p.answered() {
			t.Error("not told what became of it")
		}
		a.run("allocate signer=" + name)
	})
}

func TestATimeWithoutTheStoreDoesNotCountAgainstTheLog(t *testing.T) {
	for what, op := range map[string]memstore.Op{"reads": memstore.OpLoad, "acquires": memstore.OpAcquire} {
		t.Run(what, func(t *testing.T) {
			inLogs(t, func(l *logged) {
				a, _ := l.start("a")
				l.on(a)
				name := l.disk.nameIn(0)
				l.nothingShipped()
				a.want("allocate signer=" + name + " -> 0#1")
				l.parts("a")
				b, way := l.start("b")
				way.refuses.Store(true)
				l.await(time.Minute, "b has the shards", func() bool { return l.owners(func(o owned) bool { return o.node == "b" }) == shards })
				time.Sleep(2 * time.Second)
				before := l.disk.before
				l.disk.onBefore(func(c memstore.Call) error {
					if c.Op == op {
						return away
					}
					return before(c)
				})
				way.refuses.Store(false)
				time.Sleep(2 * logLostAfter)
				if n := l.owners(func(o owned) bool { return o.epoch > 0 }); n != 0 || b.Engine().Lost != 0 {
					t.Errorf("%d shards have lost their log, which is well", n)
				}
				l.disk.mute("a", false)
				l.disk.onBefore(nil)
				time.Sleep(10 * time.Second)
				b.want("allocate signer=" + name + " -> 1#1")
			})
		})
	}
}

// TestWhatAShipmentUnderWayConsumesIsNotHandedOutByTheLogAlone: the nonce is new since the last
// shipment that was confirmed.
func TestWhatAShipmentUnderWayConsumesIsNotHandedOutByTheLogAlone(t *testing.T) {
	inLogs(t, func(l *logged) {
		a, _, name := l.startOn("a")
		began, open := make(chan struct{}), make(chan struct{})
		var held atomic.Bool
		l.disk.onBefore(func(c memstore.Call) error {
			if c.Op != memstore.OpShip || len(c.Writes) == 0 {
				return nil
			}
			if slices.ContainsFunc(c.Writes, func(w nonce.Write) bool { return w.Name == name && len(w.History) > 0 }) && held.CompareAndSwap(false, true) {
				close(began)
				<-open
				return nil
			}
			return away // nothing else arrives
		})
		a.want("allocate signer=" + name + " -> 0#1")
		a.send(&nonce.Op{Kind: nonce.KindMarkUsed, Signer: name, Nonce: 0, Attempt: 1})
		<-began
		a.send(&nonce.Op{Kind: nonce.KindRepair, Signer: name, Nonce: 0, Hold: time.Minute, Principal: 7},
			&nonce.Op{Kind: nonce.KindMarkRecyclable, Signer: name, Nonce: 0, Attempt: 2, Principal: 7})
		p := a.send(allocate(name))[0]
		time.Sleep(200 * time.Millisecond)
		if p.answered() {
			t.Errorf("told %s", p.wait())
		}
		close(open)
		l.disk.onBefore(nil)
		a.Ship()
		if got := p.wait(); got != "0#3 reissued #1 repair" {
			t.Errorf("once it was shipped: told %s", got)
		}
	})
}

// TestAStoreThatGoesAwayHasNothingToldThatTheRowsCallConsumed: what waits for the rows is told
// then, in part.
func TestAStoreThatGoesAwayHasNothingToldThatTheRowsCallConsumed(t *testing.T) {
	inLogs(t, func(l *logged) {
		a, _, name := l.startOn("a")
		a.want("allocate signer="+name+" -> 0#1", "allocate signer="+name+" -> 1#1", "used 0#1 hash=0 signer="+name+" -> CONSUMED")
		open := make(chan struct{})
		l.disk.onBefore(func(c memstore.Call) error {
			if c.Op == memstore.OpShip && len(c.Writes) > 0 {
				<-open
				return away
			}
			return nil
		})
		for _, op := range []*nonce.Op{
			{Kind: nonce.KindRepair, Signer: name, Nonce: 0, Hold: time.Minute, Principal: 7},
			{Kind: nonce.KindMarkRecyclable, Signer: name, Nonce: 0, Attempt: 2, Principal: 7},
		} {
			a.send(op)
			time.Sleep(100 * time.Millisecond)
		}
		p := a.send(allocate(name))[0]
		time.Sleep(300 * time.Millisecond)
		close(open)
		time.Sleep(300 * time.Millisecond)
		if p.answered() {
			t.Errorf("told %s", p.wait())
		}
		l.disk.onBefore(nil)
		a.Ship()
	})
}

// TestASafeFloorIsAboveWhatTheLogHandedOutToo: the store lost a shipment, and with it the ceiling.
func TestASafeFloorIsAboveWhatTheLogHandedOutToo(t *testing.T) {
	inLogs(t, func(l *logged) {
		a, _, name := l.startOn("a")
		toReplica := l.disk.Backup()
		a.want("allocate signer=" + name + " -> 0#1")
		time.Sleep(time.Second) // it is shipped, and the log trimmed
		l.nothingShipped()
		a.want("allocate signer="+name+" -> 1#1", "allocate signer="+name+" -> 2#1")
		toReplica()
		l.disk.RaiseGeneration()
		l.disk.onBefore(nil)
		a.run("status signer=" + name)
		l.await(time.Minute, "the shard serves", func() bool { return l.owners(func(o owned) bool { return o.log }) == 0 })
		time.Sleep(time.Second)
		a.want("floor 1 signer="+name+" -> none", "floor 2 signer="+name+" -> none", "floor 3 signer="+name+" -> floor 3 next 3", "allocate signer="+name+" -> 3#1")
	})
}

// TestAStoreThatForgetsTheLogStopsWhatTheLogHandedOut: a failover loses that the shard got the
// performance engine, and nothing was shipped since, so that the rows are as they were confirmed.
func TestAStoreThatForgetsTheLogStopsWhatTheLogHandedOut(t *testing.T) {
	inLogs(t, func(l *logged) {
		a, _ := l.start("a")
		name, other := l.disk.nameIn(0), l.disk.nameIn(1)
		a.want("allocate signer="+name+" -> 0#1", "allocate signer="+other+" -> 0#1")
		toReplica := l.disk.Backup()
		l.on(a)
		l.nothingShipped()
		a.want("allocate signer=" + name + " -> 1#1")
		toReplica()
		l.disk.RaiseGeneration()
		l.disk.onBefore(nil)
		a.want("allocate signer="+name+" -> none", "floor 1 signer="+name+" -> none", "allocate signer="+other+" -> 1#1", "floor 2 signer="+name+" -> floor 2 next 2", "allocate signer="+name+" -> 2#1")
		if a.fig.get(&a.fig.wentBack) != 1 {
			t.Errorf("%d alarms", a.fig.get(&a.fig.wentBack))
		}
	})
}

// TestARequestIDIsNotProvedNewByAnotherStore: the read that looks for it opens the first connection
// to a new primary, which lacks it.
func TestARequestIDIsNotProvedNewByAnotherStore(t *testing.T) {
	inLogs(t, func(l *logged) {
		a, _, name := l.startOn("a")
		a.want("allocate signer=" + name + " -> 0#1")
		time.Sleep(time.Second)
		toReplica := l.disk.Backup()
		a.want("allocate id=r1 signer=" + name + " -> 1#1")
		time.Sleep(time.Second) // it is shipped
		l.disk.onBefore(once(memstore.OpLoad, name, func(memstore.Call) error { toReplica(); l.disk.RaiseGeneration(); return nil }))
		a.want("allocate id=r1 signer=" + name + " -> none")
	})
}

// TestALossWhoseDeclarationWasNotAnsweredDegrades: it happened, and else the engine would be switched on again at once.
func TestALossWhoseDeclarationWasNotAnsweredDegrades(t *testing.T) {
	inLogs(t, func(l *logged) {
		a, _ := l.start("a")
		l.on(a)
		l.allocateAll(a)
		l.disk.onAfter(func(c memstore.Call) error {
			if c.Op == memstore.OpDeclare {
				return errCut
			}
			return nil
		})
		l.parts("a")
		a.Stop()
		l.server.flush()
		l.start("b")
		l.await(time.Minute, "the losses are declared", func() bool { return l.owners(lost) == shards })
		time.Sleep(5 * time.Second)
		if goal, err := l.disk.Engine(l.Context()); err != nil || goal.Performance || !goal.Degraded {
			t.Errorf("the goal is %+v, %v", goal, err)
		}
		l.disk.mute("a", false)
		l.disk.onBefore(nil)
	})
}

// TestAGrantSaysNothingToAnotherStore: the shipment that prolongs it opens the first connection to a
// new primary, which lacks what was shipped and trimmed. Whoever takes over the log is to find the gap.
func TestAGrantSaysNothingToAnotherStore(t *testing.T) {
	inLogs(t, func(l *logged) {
		a, _, name := l.startOn("a")
		toReplica := l.disk.Backup()
		a.want("allocate signer=" + name + " -> 0#1")
		time.Sleep(time.Second) // it is shipped, and the log trimmed
		l.disk.onBefore(once(memstore.OpShip, name, func(memstore.Call) error { toReplica(); l.disk.RaiseGeneration(); return nil }))
		time.Sleep(logGrant)
		if all, err := l.disk.Owners(l.Context()); err != nil || all.Shards[0].Shipped != 0 {
			t.Errorf("record %d counts as shipped, %v", all.Shards[0].Shipped, err)
		}
	})
}

// TestAMarkOfADoubtfulNonceThatIsRepeatedWaitsAsTheFirstDoes: until the lost log gives no more. While
// they wait, and batches come, the worker has one timer.
func TestAMarkOfADoubtfulNonceThatIsRepeatedWaitsAsTheFirstDoes(t *testing.T) {
	inLogs(t, func(l *logged) {
		const waiting, batches = 20, 2000
		a, _ := l.start("a", func(c *service.Config) { c.Log.Grant = 2 * time.Minute })
		l.on(a)
		name := l.disk.nameIn(0)
		for i := range waiting {
			a.want(fmt.Sprintf("allocate hold=8m signer=%s -> %d#1", name, i))
		}
		a.Ship()
		l.parts("a")
		began := time.Now()
		b := l.afterTheLoss()
		var marks []*pending
		for range 2 {
			for i := range waiting {
				marks = append(marks, b.send(&nonce.Op{Kind: nonce.KindMarkUsed, Signer: name, Nonce: int64(i), Attempt: 1})...)
			}
			time.Sleep(time.Second)
		}
		marks = append(marks, b.send(&nonce.Op{Kind: nonce.KindSetFloor, Signer: name, Floor: waiting})...) // nothing is in doubt any more
		before := heap()
		for range batches {
			b.run("status signer=" + name)
		}
		if grown := heap() - before; grown > 2<<20 {
			l.Errorf("%d batches beside %d answers that wait left %d bytes", batches, waiting, grown)
		}
		time.Sleep(90*time.Second - time.Since(began))
		for i, m := range marks {
			if m.answered() {
				l.Fatalf("answer %d came before the grant had ended: %s", i, m.wait())
			}
		}
		for _, m := range marks {
			if got := m.wait(); got != "CONSUMED" && !strings.HasPrefix(got, "floor ") {
				l.Errorf("told %s", got)
			}
		}
		if took := time.Since(began); took > 2*time.Minute+5*time.Second {
			l.Errorf("told after %v", took)
		}
	})
}

// heap is how many bytes are in use.
func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
