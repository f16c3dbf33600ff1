package service_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"noncegate/lease"
	"noncegate/nonce"
	"noncegate/nonce/memstore"
	"noncegate/nonce/service"
)

func TestAnotherNodeIsToldWhoOwnsASigner(t *testing.T) {
	d := newDisk()
	a, b := start(t, d, "a"), start(t, d, "b")
	a.want("allocate -> 0#1")
	b.want("allocate -> not_owner a ws://a", "floor 3 -> not_owner a ws://a", "used 0#1 -> not_owner a ws://a",
		"status -> next 1 floor 0 held 1 released 0 consumed 0", "list -> 0#1=HELD")
	if got := b.fig.get(&b.fig.notHad); got != 3 {
		t.Errorf("counted %d shards held by another, want 3", got)
	}
	mine, _ := d.others()
	d.give(mine, b)
	d.give("plug", b)
	if got := b.batch(allocate(signer), parse(t, "status"), allocate(mine)); !slices.Equal(got,
		[]string{"not_owner a ws://a", "next 1 floor 0 held 1 released 0 consumed 0", "0#1"}) {
		t.Errorf("got %q", got)
	}
	a.want("allocate signer="+mine+" -> fenced", "allocate signer="+mine+" -> not_owner b ws://b")
}

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

func TestAllOpsOfABatchAreFencedAndItsReadsAnswered(t *testing.T) {
	afterExpiry(t, func(t *testing.T, d *disk, old, next *node) {
		next.want("allocate -> 0#2")
		got := old.batch(allocate(signer), parse(t, "status"), parse(t, "used 1#1"), allocate("mine"))
		want := []string{"fenced", "next 2 floor 0 held 2 released 0 consumed 0", "fenced", "0#1"}
		if !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

func TestAnOwnerWhoseLeaseIsOverServesAsLongAsNobodyTookItsShard(t *testing.T) {
	afterExpiry(t, func(t *testing.T, d *disk, old, next *node) {
		old.want("allocate -> 0#2")
		d.mute("old", false)
		time.Sleep(old.cfg.LeaseTTL / 2)
		if got := old.fig.get(&old.fig.late); got != 1 {
			t.Errorf("counted %d late renewals, want 1", got)
		}
		next.want("allocate -> not_owner old ws://old")
		old.want("allocate -> 2#1")
		if got := d.summary(t, signer).Lease.Token; got != 1 {
			t.Errorf("got token %d: a renewal leaves it", got)
		}
	})
}

// TestWithoutALeaseNothingIsTakenUp: what was lost stays lost until the heartbeat comes
// through.
func TestWithoutALeaseNothingIsTakenUp(t *testing.T) {
	afterExpiry(t, func(t *testing.T, d *disk, old, next *node) {
		next.want("allocate -> 0#2")
		next.Stop()
		old.want("allocate -> fenced", "allocate -> none")
		d.mute("old", false)
		time.Sleep(old.cfg.LeaseTTL / 2)
		old.want("allocate -> 2#1")
	})
}

func TestWhoTakesOverEndsTheOverdueHoldsBeforeItsFirstAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk()
		start(t, d, "gone", maxHolds(3)).want("allocate count=3 hold=5s -> 0#1 1#1 2#1")
		d.mute("gone", true)
		time.Sleep(time.Minute)
		start(t, d, "a", maxHolds(3)).want("allocate count=2 -> 0#2 1#2")
	})
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

func TestATakeOverThatReturnsAtOnceFencesToo(t *testing.T) {
	d := newDisk()
	n := start(t, d, "a")
	n.want("allocate -> 0#1")
	d.takeAway(signer)
	n.want("allocate -> fenced", "allocate -> 1#1")
}

func TestALaterStartOfTheSameNodeEndsTheEarlierOne(t *testing.T) {
	for _, meets := range []string{"byOwning", "byItsHeartbeat"} {
		t.Run(meets, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newDisk()
				old := start(t, d, "a")
				old.want("allocate -> 0#1")
				later := start(t, d, "a")
				later.want("allocate -> 1#1")
				if meets == "byOwning" {
					old.want("allocate -> fenced")
				} else {
					time.Sleep(old.cfg.LeaseTTL / 2)
				}
				old.want("allocate -> none", "used 0#1 -> none")
				if err := <-old.fatal; !errors.Is(err, lease.ErrSuperseded) {
					t.Errorf("got %v", err)
				}
				if err := old.Ready(t.Context()); !errors.Is(err, lease.ErrSuperseded) {
					t.Errorf("got %v", err)
				}
				old.want("status -> next 2 floor 0 held 2 released 0 consumed 0")
				later.want("allocate -> 2#1")
			})
		})
	}
}

func TestASignerOfWhichTheStoreShowsLessThanWasSeenStopsUntilItsFloorIsSafe(t *testing.T) {
	for _, how := range []string{"known", "acquiredAnew", "whileACommitWasUnknown"} {
		t.Run(how, func(t *testing.T) {
			d := newDisk()
			n := start(t, d, "a")
			n.want("allocate -> 0#1", "release 0#1 -> RELEASED")
			restore := d.Backup()
			n.want("allocate -> 0#2", "allocate count=4 -> 1#1 2#1 3#1 4#1")
			want := "none"
			switch how {
			case "known":
				restore()
			case "acquiredAnew":
				restore()
				d.RaiseGeneration()
			case "whileACommitWasUnknown":
				d.onAfter(once(memstore.OpCommit, signer, func(memstore.Call) error { restore(); return errCut }))
				want = "unknown"
			}
			n.want("allocate -> "+want, "allocate -> none", "used 0#1 -> none", "floor 4 -> none",
				"status -> next 1 floor 0 held 0 released 1 consumed 0")
			if n.fig.get(&n.fig.wentBack) != 1 {
				t.Errorf("counted %d alarms, want 1", n.fig.wentBack)
			}
			if got := n.StoppedSigners(); got != 1 {
				t.Errorf("%d signers are stopped, want 1", got)
			}
			n.do(allocate("another signer")) // goes on
			n.want("floor 5 -> floor 5 next 5", "allocate -> 5#1", "used 0#1 -> CONSUMED")
			if got := n.StoppedSigners(); got != 0 {
				t.Errorf("%d signers are stopped behind a safe floor, want none", got)
			}
			if got, _, _, _ := n.Remembered(); got != 2 {
				t.Errorf("%d signers are remembered, want 2", got)
			}
			if got := n.UnknownCommits(); (got == 1) != (want == "unknown") {
				t.Errorf("%d commits were unknown", got)
			}
		})
	}
}

func TestAStoppedSignerStaysStoppedWhenItsNewFloorIsNotCommitted(t *testing.T) {
	for name, outcome := range map[string]nonce.Outcome{"none": nonce.NotSent, "unknown": nonce.Unknown} {
		t.Run(name, func(t *testing.T) {
			d := newDisk()
			n := start(t, d, "a")
			n.want("allocate -> 0#1")
			restore := d.Backup()
			n.want("allocate count=4 -> 1#1 2#1 3#1 4#1")
			restore()
			n.want("allocate -> none")
			d.onBefore(once(memstore.OpCommit, signer, func(memstore.Call) error {
				d.onBefore(once(memstore.OpAcquire, signer, func(memstore.Call) error {
					return &nonce.StoreError{Outcome: nonce.NotSent, Err: errCut}
				}))
				return &nonce.StoreError{Outcome: outcome, Err: errCut}
			}))
			n.want("floor 5 -> " + name)
			d.onBefore(nil)
			n.want("allocate -> none", "floor 4 -> none", "floor 5 -> floor 5 next 5", "allocate -> 5#1")
		})
	}
}

func TestAStoppedSignerIsNotForgotten(t *testing.T) {
	d := newDisk()
	n := start(t, d, "a", func(c *service.Config) { c.MaxSigners = 2 })
	n.want("allocate -> 0#1")
	restore := d.Backup()
	n.want("allocate -> 1#1")
	restore()
	n.want("allocate -> none")
	for i := range 9 {
		n.do(allocate(fmt.Sprintf("s%d", i)))
	}
	n.want("allocate -> none")
}

func TestWhenTheStoreMayBeAnotherEverySignerIsComparedBeforeItsNextUse(t *testing.T) {
	d := newDisk()
	n := start(t, d, "a")
	n.want("allocate -> 0#1", "allocate signer=other -> 0#1")
	d.RaiseGeneration()
	n.want("allocate -> 1#1", "allocate -> 2#1", "allocate signer=other -> 1#1")
	for _, name := range []string{signer, "other"} {
		if got := d.summary(t, name).Lease.Token; got != 2 {
			t.Errorf("%s: got token %d, want 2: acquired again once", name, got)
		}
	}
}

func TestAHaltedServiceRefusesAllButReads(t *testing.T) {
	for name, mode := range map[string]func(*service.Config){"worker": func(*service.Config) {}, "basic": basicMode} {
		t.Run(name, func(t *testing.T) {
			n := start(t, newDisk(), "a", mode)
			n.want("allocate -> 0#1")
			n.Halt(lease.ErrWentBack)
			n.want("allocate -> none", "used 0#1 -> none", "floor 4 -> none")
			if err := n.Ready(t.Context()); !errors.Is(err, lease.ErrWentBack) {
				t.Errorf("got %v", err)
			}
			select {
			case <-n.fatal:
				t.Error("went back is not fatal: the operator decides")
			default:
			}
		})
	}
}

// TestMemoryThatIsStaleIsReadAnewInFull: the mark of 0 is known from memory, and
// only the row of 1 is asked for, when a basic node's write proves memory stale.
func TestMemoryThatIsStaleIsReadAnewInFull(t *testing.T) {
	d := newDisk()
	n, basic := start(t, d, "a"), start(t, d, "b", basicMode)
	n.want("allocate count=3 -> 0#1 1#1 2#1", "used 1#1 hash=7 -> CONSUMED")
	basic.want("used 2#1 hash=8 -> CONSUMED")
	got := n.batch(parse(t, "used 0#1 hash=7"), parse(t, "used 1#1 hash=7"), parse(t, "release 2#1"))
	if want := []string{"CONSUMED", "CONSUMED", "conflict 2#1=CONSUMED/8"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestWhatABasicNodeDoesIsSeenByTheOwnersNextAnswer(t *testing.T) {
	d := newDisk()
	n, basic := start(t, d, "a"), start(t, d, "b", basicMode)
	n.want("allocate count=2 -> 0#1 1#1")
	basic.want("release 0#1 -> RELEASED", "allocate -> 0#2")
	n.want("used 0#1 -> conflict 0#2=HELD", "allocate -> 2#1")
	basic.want("allocate id=x -> 3#1")
	n.want("allocate id=x -> 3#1")
	basic.want("floor 9 -> floor 9 next 9")
	n.want("floor 3 -> floor 9 next 9", "allocate -> 9#1")
	basic.want("used 9#1 -> CONSUMED")
	n.want("used 10#1 -> not_found", "allocate -> 10#1")
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

// The commit itself may be what opens the first connection to a new primary that
// lacks a commit of ours, and on which mode basic has made as many since.
func TestAStoreThatBecomesAnotherOneUnderABatchRefusesIt(t *testing.T) {
	d := newDisk()
	n, b := start(t, d, "a"), start(t, d, "b", basicMode)
	n.want("allocate -> 0#1", "allocate -> 1#1")
	toReplica := d.Backup()
	n.want("allocate -> 2#1") // lost at the failover
	toPrimary := d.Backup()
	toReplica()
	b.want("floor 100 -> floor 100 next 100") // the same version again
	toFailedOver := d.Backup()
	toPrimary()
	d.onBefore(once(memstore.OpCommit, signer, func(memstore.Call) error {
		toFailedOver()
		d.RaiseGeneration()
		return nil
	}))
	n.want("allocate -> none", "allocate -> none", "floor 101 -> floor 101 next 101", "allocate -> 101#1")
	if got := n.fig.get(&n.fig.wentBack); got != 1 {
		t.Errorf("counted %d alarms, want 1", got)
	}
}
