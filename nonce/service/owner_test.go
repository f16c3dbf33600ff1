package service_test

import (
	"testing"
	"testing/synctest"
	"time"

	"noncegate/nonce/memstore"
)

func TestAfterStopAnotherNodeServesAtOnceAndKnowsTheRequestIds(t *testing.T) {
	d := newDisk()
	a, b := start(t, d, "a"), start(t, d, "b")
	a.want("allocate id=x -> 0#1", "allocate -> 1#1", "release 1#1 -> RELEASED")
	a.Stop()
	b.want("allocate id=x -> 0#1", "allocate id=x count=2 -> conflict 0#1=HELD", "allocate -> 1#2")
	if got := b.fig.get(&b.fig.takeovers); got != 0 {
		t.Errorf("counted %d take-overs of a lease that was given back", got)
	}
}

func TestARestartedNodeServesItsSignersAtOnceAndKnowsTheRequestIds(t *testing.T) {
	d := newDisk()
	start(t, d, "a").want("allocate id=x -> 0#1", "allocate -> 1#1") // killed: its lease still runs
	start(t, d, "a").want("allocate id=x -> 0#1", "used 1#1 -> CONSUMED", "allocate -> 2#1")
}

// afterExpiry runs test in fake time with two nodes, the first of which owns signer, and
// whose lease then ended.
func afterExpiry(t *testing.T, test func(t *testing.T, d *disk, old, next *node)) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk()
		old, next := start(t, d, "old"), start(t, d, "next")
		old.want("allocate -> 0#1", "allocate -> 1#1", "release 0#1 -> RELEASED")
		next.want("allocate -> not_owner old ws://old")
		d.mute("old", true)
		time.Sleep(old.cfg.LeaseTTL + time.Millisecond)
		test(t, d, old, next)
	})
}

func TestAnOwnerWhoseLeaseWasTakenOverIsFencedWhateverItTries(t *testing.T) {
	for _, op := range []string{"allocate", "allocate id=x", "used 1#1", "release 1#1", "floor 9",
		"used 1#7", "used 0#1", "used 5#1", "floor 0"} { // these would write nothing
		t.Run(op, func(t *testing.T) {
			afterExpiry(t, func(t *testing.T, d *disk, old, next *node) {
				next.want("allocate -> 0#2")
				rows := d.rows(t, signer)
				old.want(op+" -> fenced", op+" -> not_owner next ws://next")
				if got := d.rows(t, signer); got != rows {
					t.Errorf("got rows %s, want %s", got, rows)
				}
				if old.fig.get(&old.fig.fenced) != 1 || next.fig.get(&next.fig.takeovers) != 1 {
					t.Errorf("counted %d fenced and %d take-overs, want 1 and 1", old.fig.fenced, next.fig.takeovers)
				}
			})
		})
	}
}

func TestAPausedOwnerWhoseCommitComesAfterTheTakeOverChangesNothing(t *testing.T) {
	afterExpiry(t, func(t *testing.T, d *disk, old, next *node) {
		d.onBefore(once(memstore.OpCommit, signer, func(memstore.Call) error {
			next.want("allocate -> 0#2", "allocate -> 2#1")
			return nil
		}))
		old.want("allocate count=2 -> fenced")
		if got, want := d.rows(t, signer), "0#2=HELD 1#1=HELD 2#1=HELD"; got != want {
			t.Errorf("got rows %s, want %s", got, want)
		}
	})
}

func TestTheSameRequestIdOnTwoNodesAtOnceIsAnsweredOnce(t *testing.T) {
	d := newDisk()
	n, basic := start(t, d, "a"), start(t, d, "b", basicMode)
	n.want("allocate -> 0#1")
	d.onBefore(once(memstore.OpCommit, signer, func(memstore.Call) error {
		basic.want("allocate id=x -> 1#1")
		return nil
	}))
	n.want("allocate id=x -> 1#1")
	if got, want := d.rows(t, signer), "0#1=HELD 1#1=HELD"; got != want {
		t.Errorf("got rows %s, want %s", got, want)
	}
}
