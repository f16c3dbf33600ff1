package nonce_test

import (
	"testing"
	"testing/synctest"
	"time"

	"noncegate/nonce"
)

// flushing lets the store follow all the time, until the test ends.
func (n *fastNode) flushing() {
	stop, done := make(chan struct{}), make(chan struct{})
	n.t.Cleanup(func() { close(stop); <-done })
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
				n.pair.flushAs(n)
			}
		}
	}()
}

func TestAHoldIsItsHoldersOnItsWayThroughBothEngines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t)
		n := p.entered("a", "allocate count=4 by=7 -> "+span(0, 4), "release 1#1 by=7 -> RELEASED", "release 2#1 by=7 -> RELEASED")
		n.flushing()
		n.want("used 0#1 by=8 -> not_holder", "used 2#1 by=8 -> not_holder") // as Redis has them from the copy
		n.want("allocate by=8 -> 1#2", "allocate count=2 by=8 -> 2#2 4#1")
		n.want("used 1#2 by=7 -> not_holder", "release 4#1 by=7 -> not_holder", "release 4#1 by=8 -> RELEASED")
		n.want("used 4#1 hash=4 by=7 -> not_holder", "used 4#1 hash=4 by=8 -> CONSUMED", "used 4#1 hash=4 by=7 -> not_holder")
		p.leaseEnds()
		b := p.start("b") // knows nothing but what it reads in Redis
		b.want("used 1#2 hash=1 by=7 -> not_holder", "used 1#2 hash=1 by=8 -> CONSUMED", "release 3#1 by=8 -> not_holder")
		b.goal.Store(int32(nonce.GoalDrain))
		b.want("allocate -> 5#1")
		if got := p.serves(); got != nonce.Reliable {
			t.Fatalf("%v serves the signer", got)
		}
		c := start(t, p.disk, "c", basicMode) // reads the store each time
		c.want("used 2#2 by=7 -> not_holder", "used 3#1 by=8 -> not_holder", "used 1#2 hash=1 by=7 -> not_holder", "used 4#1 hash=4 by=7 -> not_holder")
		c.want("used 2#2 hash=2 by=8 -> CONSUMED", "used 3#1 hash=3 by=7 -> CONSUMED", "used 1#2 hash=1 by=8 -> CONSUMED")
	})
}

// TestALossLeavesAHoldItsHoldersAndOneThatWasLostEverybodys: of the hold that Redis
// handed out and lost nobody knows whose it was. Who says that it is used is believed,
// and the repeat of that is answered to the same.
func TestALossLeavesAHoldItsHoldersAndOneThatWasLostEverybodys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t)
		n := p.entered("a", "allocate hold=3s count=2 by=7 -> 0#1 1#1", "release 1#1 by=7 -> RELEASED")
		n.want("allocate hold=3s by=8 -> 1#2", "allocate hold=3s by=8 -> 2#1")
		p.ceiling()
		p.server.Flush()
		n.goal.Store(int32(nonce.GoalDrain))
		n.want("used 0#1 by=8 -> not_holder", "used 0#1 hash=1 by=7 -> CONSUMED", "used 0#1 hash=1 by=8 -> not_holder")
		n.want("used 1#2 hash=2 by=8 -> CONSUMED", "used 1#2 hash=2 by=7 -> not_holder", "used 1#2 hash=2 by=8 -> CONSUMED")
		n.want("used 2#1 hash=3 by=8 -> CONSUMED", "used 2#1 hash=3 by=8 -> CONSUMED")
	})
}
