package service_test

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"noncegate/nonce"
	"noncegate/nonce/memstore"
)

// askedOf is an allocate of principal 7, who may have so many open holds.
func askedOf(most int, signer string) *nonce.Op {
	op := asked(7, signer)
	op.MaxOpen = most
	return op
}

func TestAPrincipalHasNoMoreOpenHoldsThanItMay(t *testing.T) {
	inBothModes(t, func(t *testing.T, n *node) {
		n.want("allocate count=2 by=7 most=3 id=a -> 0#1 1#1", "allocate count=2 by=7 most=3 -> hold_limit 3 of principal",
			"allocate signer=other by=7 most=3 -> 0#1", "allocate by=7 most=3 -> hold_limit 3 of principal",
			"allocate count=2 by=7 most=3 id=a -> 0#1 1#1", "allocate count=3 by=8 most=3 -> 2#1 3#1 4#1", "allocate count=4 -> 5#1 6#1 7#1 8#1")
		n.want("used 0#1 hash=7 by=7 -> CONSUMED", "used 0#1 hash=7 by=7 -> CONSUMED", "allocate signer=other by=7 most=3 -> 1#1",
			"allocate by=7 most=3 -> hold_limit 3 of principal", "release 1#1 by=9 any -> RELEASED", "allocate by=7 most=3 -> 1#2",
			"allocate by=7 most=3 -> hold_limit 3 of principal")
	})
}

// TestAHoldThatIsRepairedCountsForWhoRepairsIt: 5 has none any more.
func TestAHoldThatIsRepairedCountsForWhoRepairsIt(t *testing.T) {
	inBothModes(t, func(t *testing.T, n *node) {
		n.want("allocate by=5 most=1 -> 0#1", "allocate by=5 most=1 -> hold_limit 1 of principal")
		if got := n.run("repair 0 by=6"); !strings.HasPrefix(got, "0#2") {
			t.Fatal(got)
		}
		n.want("allocate by=6 most=1 -> hold_limit 1 of principal", "allocate by=5 most=1 -> 1#1",
			"used 0#2 by=6 -> CONSUMED", "allocate by=6 most=1 -> 2#1")
	})
}

func TestWhatIsTakenInPassingAndExtendedCountsForItsPrincipal(t *testing.T) {
	inBothModes(t, func(t *testing.T, n *node) {
		n.want("send 0 hash=1 take by=7 most=2 hold=5s -> HELD #1 1", "allocate hold=5s by=7 most=2 -> 1#1",
			"send 2 hash=1 take by=7 most=2 -> hold_limit 2 of principal", "send 0 hash=2 over=1 by=7 most=2 hold=5s -> HELD #1 2 1",
			"extend 1#1 by=7 hold=1m -> HELD", "allocate by=7 most=2 -> hold_limit 2 of principal")
		time.Sleep(7 * time.Second) // the extended one is not due
		n.want("allocate by=7 most=2 -> 2#1", "allocate by=7 most=2 -> hold_limit 2 of principal")
	})
}

func TestAHoldThatIsDueCountsNoMore(t *testing.T) {
	inBothModes(t, func(t *testing.T, n *node) {
		n.want("allocate count=2 hold=5s by=7 most=3 -> 0#1 1#1", "allocate hold=20s signer=other by=7 most=3 -> 0#1", "allocate by=7 most=3 -> hold_limit 3 of principal")
		time.Sleep(7 * time.Second)
		n.want("allocate count=3 by=7 most=3 -> hold_limit 3 of principal", "allocate count=2 by=7 most=3 -> 0#2 1#2", "allocate by=7 most=3 -> hold_limit 3 of principal")
		n.want("used 0#1 hash=7 by=7 -> conflict 0#2=HELD", "allocate by=7 most=3 -> hold_limit 3 of principal")
	})
}

// TestWhatWasNotCommittedIsNotCounted: a commit that was refused, cut off or aborted
// leaves the room of its hand-outs as it was; one that turned out to have happened
// takes it.
func TestWhatWasNotCommittedIsNotCounted(t *testing.T) {
	for _, outcome := range []nonce.Outcome{nonce.NotSent, nonce.Aborted, nonce.Unknown} {
		inBothModes(t, func(t *testing.T, n *node) {
			n.want("allocate signer=other -> 0#1")
			n.disk.onBefore(func(c memstore.Call) error {
				if c.Op != memstore.OpCommit && c.Op != memstore.OpLocked {
					return nil
				}
				return &nonce.StoreError{Outcome: outcome, Err: errCut}
			})
			for range 3 {
				if got := n.run("allocate by=7 most=1"); got != "none" && got != "unknown" && got != "busy" {
					t.Errorf("%v: got %q", outcome, got)
				}
			}
			n.disk.onBefore(nil)
			n.want("allocate by=7 most=1 -> 0#1", "allocate by=7 most=1 -> hold_limit 1 of principal")
		})
	}
	synctest.Test(t, func(t *testing.T) {
		n := start(t, newDisk(), "a")
		for i, line := range []string{"allocate by=7 most=2 -> 0#1", "allocate id=x by=7 most=2 -> 1#1"} {
			var once sync.Once
			n.disk.onAfter(func(c memstore.Call) (err error) {
				if c.Op == memstore.OpCommit {
					once.Do(func() { err = &nonce.StoreError{Outcome: nonce.Unknown, Err: errCut} })
				}
				return err
			})
			n.want(line)
			n.disk.onAfter(nil)
			if i == 0 {
				n.want("allocate count=2 by=7 most=2 -> hold_limit 2 of principal")
			}
		}
		n.want("allocate by=7 most=2 -> hold_limit 2 of principal")
	})
}

func TestInModeBasicWhatIsUnknownIsNotCounted(t *testing.T) {
	n := start(t, newDisk(), "a", basicMode)
	n.disk.onAfter(once(memstore.OpLocked, signer, func(memstore.Call) error {
		return &nonce.StoreError{Outcome: nonce.Unknown, Err: errCut}
	}))
	n.want("allocate by=7 most=1 -> unknown", "allocate by=7 most=1 -> 1#1", "allocate by=7 most=1 -> hold_limit 1 of principal")
}

func TestWhatIsBeingCommittedCountsAtOtherWorkers(t *testing.T) {
	n := start(t, newDisk(), "a", workers(2))
	one, another := n.signerOf(0, true), n.signerOf(0, false)
	began, open := n.disk.holdCommit(one)
	defer open()
	first := n.send(askedOf(1, one))
	<-began
	if got := n.do(askedOf(1, another)); got != "hold_limit 1 of principal" {
		t.Errorf("while the first is being committed: got %q", got)
	}
	open()
	if got := results(first); got[0] != "0#1" {
		t.Errorf("got %q", got)
	}
}

func TestHandOutsOfSeveralWorkersAtOnceDoNotPassThePrincipalsLimit(t *testing.T) {
	n := start(t, newDisk(), "a", workers(4), slots(1000))
	var got atomic.Int64
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			if n.do(askedOf(5, fmt.Sprint("s", i))) == "0#1" {
				got.Add(1)
			}
		})
	}
	if wg.Wait(); got.Load() != 5 {
		t.Errorf("%d were handed out, want 5", got.Load())
	}
}
