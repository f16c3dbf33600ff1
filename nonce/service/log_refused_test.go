package service_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"noncegate/nonce"
	"noncegate/nonce/memstore"
)

var refusedRow = &nonce.StoreError{Outcome: nonce.Aborted, Err: nonce.ErrInvariant}

// shipsOf reports whether a call ships a signer.
func shipsOf(c memstore.Call, name string) bool {
	return c.Op == memstore.OpShip && slices.ContainsFunc(c.Writes, func(w nonce.Write) bool { return w.Name == name })
}

// TestASafeFloorIsToldOnlyWhenTheRowsHaveIt: a shipment from before the signer was stopped brings the
// row to the version that the floor would have.
func TestASafeFloorIsToldOnlyWhenTheRowsHaveIt(t *testing.T) {
	inLogs(t, func(l *logged) {
		a, _, name := l.startOn("a")
		a.want("allocate signer=" + name + " -> 0#1")
		a.Ship()
		began, open := l.disk.hold(memstore.OpShip, name)
		a.want("allocate signer=" + name + " -> 1#1")
		<-began
		a.want("allocate signer=" + name + " -> 2#1")
		l.disk.onBefore(func(c memstore.Call) error {
			if shipsOf(c, name) {
				return refusedRow
			}
			return nil
		})
		a.Ship() // by hand, while the one before it is under way
		if a.StoppedSigners() != 1 {
			t.Fatal("the signer is not stopped")
		}
		l.disk.onBefore(nil)
		open()
		time.Sleep(time.Second)
		a.want("floor 3 signer=" + name + " -> floor 3 next 3")
		if row := l.disk.load(l.T, name).Signer; row.Floor != 3 || row.Next != 3 {
			t.Errorf("told floor 3, and the row has floor %d and next %d", row.Floor, row.Next)
		}
		a.want("allocate signer=" + name + " -> 3#1")
	})
}

// TestWhatTheStoreRefusedIsNotFoldedOnceItWasPassed: the records are in the log still when another
// node takes it over, and the signer has gone on from a safe floor.
func TestWhatTheStoreRefusedIsNotFoldedOnceItWasPassed(t *testing.T) {
	inLogs(t, func(l *logged) {
		a, way := l.start("a")
		l.on(a)
		way.keeps.Store(true)
		name := l.disk.nameIn(0)
		a.want("allocate signer=" + name + " -> 0#1")
		a.Ship()
		l.disk.onBefore(func(c memstore.Call) error {
			if c.Op == memstore.OpShip && len(c.Writes) > 0 {
				if shipsOf(c, name) && c.Writes[0].Rise > 1 {
					return refusedRow
				}
				return away
			}
			return nil
		})
		for _, want := range []string{"1#1", "2#1", "3#1"} {
			a.want("allocate signer=" + name + " -> " + want)
		}
		a.Ship()
		if a.StoppedSigners() != 1 {
			t.Fatal("the signer is not stopped")
		}
		l.disk.onBefore(nil)
		time.Sleep(time.Second)
		a.want("floor 10 signer=" + name + " -> floor 10 next 10")
		l.parts("a")
		b, _ := l.start("b")
		l.await(time.Minute, "b hands out", func() bool { return b.do(allocate(name)) == "10#1" })
		if n := l.owners(lost); n > 0 {
			t.Errorf("%d losses were declared", n)
		}
		l.disk.mute("a", false)
		l.disk.onBefore(nil)
	})
}

// TestWhatWasPlannedOnWhatTheStoreRefusesIsUnknown: its append was not answered when the signer was stopped.
func TestWhatWasPlannedOnWhatTheStoreRefusesIsUnknown(t *testing.T) {
	inLogs(t, func(l *logged) {
		a, way, name := l.startOn("a")
		a.want("allocate signer=" + name + " -> 0#1")
		a.Ship()
		l.disk.onBefore(func(c memstore.Call) error {
			if shipsOf(c, name) {
				return away
			}
			return nil
		})
		a.want("allocate signer=" + name + " -> 1#1")
		way.losesRecord.Store(true)
		way.losesRaise.Store(true)
		p := a.send(allocate(name))[0]
		time.Sleep(10 * time.Millisecond)
		l.disk.onBefore(func(c memstore.Call) error {
			if shipsOf(c, name) {
				return refusedRow
			}
			return nil
		})
		a.Ship()
		if p.answered() {
			t.Fatalf("told %s before the log said what became of it", p.wait())
		}
		if got := p.wait(); got != "unknown" {
			t.Errorf("told %s", got)
		}
		l.disk.onBefore(nil)
		a.want("allocate signer="+name+" -> none", "floor 3 signer="+name+" -> floor 3 next 3", "allocate signer="+name+" -> 3#1")
		a.Ship()
		if row := l.disk.load(l.T, name).Signer; row.Floor != 3 || row.Next != 4 {
			t.Errorf("the row has floor %d and next %d", row.Floor, row.Next)
		}
	})
}

// TestWhatTheLogHadOfARowThatCouldNotBeReadIsNotHandedOutAgain when the row was mended by hand.
func TestWhatTheLogHadOfARowThatCouldNotBeReadIsNotHandedOutAgain(t *testing.T) {
	inLogs(t, func(l *logged) {
		a, _, name := l.startOn("a")
		a.want("allocate signer=" + name + " -> 0#1")
		a.Ship()
		l.nothingShipped()
		a.want("allocate signer="+name+" -> 1#1", "allocate signer="+name+" -> 2#1")
		l.parts("a")
		mend := l.disk.Damage(name)
		l.disk.onBefore(func(c memstore.Call) error {
			if c.Holder.Node == "a" {
				return away
			}
			return nil
		})
		b, _ := l.start("b")
		l.await(time.Minute, "b has the log", func() bool { return b.LogFigures().Serving == shards })
		b.want("allocate signer="+name+" -> none", "floor 3 signer="+name+" -> none")
		time.Sleep(time.Second)
		mend()
		b.want("allocate signer="+name+" -> none", "floor 1 signer="+name+" -> none", "floor 3 signer="+name+" -> floor 3 next 3", "allocate signer="+name+" -> 3#1")
		if n := b.StoppedSigners(); n != 0 {
			t.Errorf("%d signers are stopped", n)
		}
		l.disk.mute("a", false)
		l.disk.onBefore(nil)
	})
}

// TestARowThatIsDamagedBehindALostAnswerStopsItsSignerOnly: the shipment brought it to another version
// than is known of it.
func TestARowThatIsDamagedBehindALostAnswerStopsItsSignerOnly(t *testing.T) {
	inLogs(t, func(l *logged) {
		a, _, name := l.startOn("a")
		a.want("allocate signer=" + name + " -> 0#1")
		a.Ship()
		var mend func()
		l.disk.onAfter(func(c memstore.Call) error { // the first shipment that has the mark
			marks := func(w nonce.Write) bool { return w.Name == name && len(w.History) > 0 }
			if mend != nil || c.Op != memstore.OpShip || !slices.ContainsFunc(c.Writes, marks) {
				return nil
			}
			mend = l.disk.Damage(name)
			return errCut
		})
		a.want("allocate signer=" + name + " -> 1#1")
		mark := a.send(&nonce.Op{Kind: nonce.KindMarkUsed, Signer: name, Nonce: 0, Attempt: 1})[0]
		l.await(time.Minute, "the mark is told", mark.answered)
		if got := mark.wait(); got != "unknown" {
			t.Errorf("the mark: %s", got)
		}
		l.switchTo(a, false)
		l.await(time.Minute, "the engine is reliable", func() bool { return l.owners(func(o owned) bool { return o.log }) == 0 })
		mend()
		a.want("allocate signer="+name+" -> none", "floor 2 signer="+name+" -> floor 2 next 2", "allocate signer="+name+" -> 2#1")
	})
}

// TestWhatIsToldOfWhatTheStoreRefusesIsNotToldBehindAnUnknownAppend: a repeat of a mark writes nothing, and
// rests on the mark, which the store refused while it was not known whether the log had the batch.
func TestWhatIsToldOfWhatTheStoreRefusesIsNotToldBehindAnUnknownAppend(t *testing.T) {
	inLogs(t, func(l *logged) {
		a, way := l.start("a")
		l.on(a)
		var names []string // of one shard
		for i := 0; len(names) < 3; i++ {
			if name := fmt.Sprint("in-", i); nonce.ShardOf(name, shards) == 0 {
				names = append(names, name)
			}
		}
		name, other, fresh := names[0], names[1], names[2]
		a.want("allocate signer="+name+" -> 0#1", "allocate signer="+other+" -> 0#1")
		a.Ship()
		began, open := l.disk.hold(memstore.OpLoad, fresh)
		before := l.disk.before
		l.disk.onBefore(func(c memstore.Call) error {
			if shipsOf(c, name) {
				return away
			}
			return before(c)
		})
		mark := func() *pending {
			return a.send(&nonce.Op{Kind: nonce.KindMarkUsed, Signer: name, Nonce: 0, Attempt: 1})[0]
		}
		first := mark()
		time.Sleep(1100 * time.Millisecond) // a store that is away is asked again
		a.send(&nonce.Op{Kind: nonce.KindStatus, Signer: fresh})
		<-began // the next two are one batch
		again := mark()
		a.send(allocate(other))
		way.losesRecord.Store(true)
		way.losesRaise.Store(true)
		open()
		time.Sleep(10 * time.Millisecond)
		l.disk.onBefore(func(c memstore.Call) error {
			if shipsOf(c, name) {
				return refusedRow
			}
			return nil
		})
		a.Ship()
		if got := first.wait(); got != "unknown" {
			l.Errorf("the mark: told %s", got)
		}
		if got := again.wait(); got != "none" {
			l.Errorf("its repeat: told %s, and the row has %s", got, l.disk.rows(t, name))
		}
		l.disk.onBefore(nil)
	})
}

// TestWhatAnotherOwnerGaveASafeFloorIsNotStoppedAgain: the store refused it what the log had, so that
// the rows never get the versions that the owner before saw in the log.
func TestWhatAnotherOwnerGaveASafeFloorIsNotStoppedAgain(t *testing.T) {
	inLogs(t, func(l *logged) {
		a, _, name := l.startOn("a")
		a.want("allocate signer=" + name + " -> 0#1")
		a.Ship()
		l.nothingShipped()
		for _, want := range []string{"1#1", "2#1", "3#1"} {
			a.want("allocate signer=" + name + " -> " + want)
		}
		l.parts("a")
		l.disk.onBefore(func(c memstore.Call) error {
			switch {
			case c.Holder.Node == "a":
				return away
			case shipsOf(c, name):
				return refusedRow
			}
			return nil
		})
		b, _ := l.start("b")
		l.await(time.Minute, "b has stopped the signer", func() bool { return b.StoppedSigners() == 1 })
		l.disk.onBefore(nil)
		l.disk.mute("a", false)
		time.Sleep(time.Second)
		b.want("floor 4 signer="+name+" -> floor 4 next 4", "allocate signer="+name+" -> 4#1")
		l.switchTo(b, false)
		l.await(time.Minute, "the engine is reliable", func() bool { return l.owners(func(o owned) bool { return o.log }) == 0 })
		b.StepDown()
		b.Stop()
		a.want("allocate signer=" + name + " -> 5#1")
		if n := a.fig.get(&a.fig.wentBack); n != 0 {
			t.Errorf("%d alarms", n)
		}
	})
}

// TestAFloorThatIsSafeAlreadyLetsTheSignerServe: what the store refused handed nothing out, so the floor
// that is safe is the one that the row has.
func TestAFloorThatIsSafeAlreadyLetsTheSignerServe(t *testing.T) {
	inLogs(t, func(l *logged) {
		a, _, name := l.startOn("a")
		a.want("allocate signer="+name+" -> 0#1", "floor 10 signer="+name+" -> floor 10 next 10")
		l.disk.onBefore(func(c memstore.Call) error {
			if shipsOf(c, name) {
				return refusedRow
			}
			return nil
		})
		a.want("used 0#1 signer=" + name + " -> unknown")
		l.disk.onBefore(nil)
		time.Sleep(time.Second)
		a.want("floor 10 signer="+name+" -> floor 10 next 10", "allocate signer="+name+" -> 10#1")
		if n := a.StoppedSigners(); n != 0 {
			t.Errorf("%d signers are stopped", n)
		}
	})
}
