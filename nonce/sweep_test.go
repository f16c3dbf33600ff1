package nonce_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"noncegate/lease"
	"noncegate/nonce"
	"noncegate/nonce/memstore"
)

func TestOverdueHoldsAreReleasedThoughNobodyAsks(t *testing.T) {
	inBothModes(t, func(t *testing.T, n *node) {
		n.want("allocate hold=5s -> 0#1", "allocate hold=50s -> 1#1")
		time.Sleep(7 * time.Second)
		synctest.Wait()
		if got, want := n.disk.rows(t, signer), "0#1=RELEASED/expired 1#1=HELD"; got != want {
			t.Errorf("got rows %s, want %s", got, want)
		}
		if got := n.fig.get(&n.fig.swept); got != 1 {
			t.Errorf("counted %d swept, want 1", got)
		}
		n.want("allocate -> 0#2")
	}, sweepEvery(time.Second))
}

func TestTheHoldsOfASignerNobodyOwnsAreSweptByWhoeverFindsThem(t *testing.T) {
	inBothModes(t, func(t *testing.T, n *node) {
		gone := start(t, n.disk, "gone")
		gone.want("allocate hold=5s -> 0#1")
		gone.Stop()
		time.Sleep(6 * time.Second)
		synctest.Wait()
		if got, want := n.disk.rows(t, signer), "0#1=RELEASED/expired"; got != want {
			t.Errorf("got rows %s, want %s", got, want)
		}
		if got, want := n.disk.summary(t, signer).Lease.Holder.Node == "a", n.cfg.Mode == nonce.WorkerQueue; got != want {
			t.Errorf("acquired: %v, want %v", got, want)
		}
	}, sweepEvery(time.Second))
}

func TestTheHoldsOfALiveOwnerAreLeftToIt(t *testing.T) {
	inBothModes(t, func(t *testing.T, n *node) {
		owner := start(t, n.disk, "owner")
		owner.want("allocate hold=5s -> 0#1")
		time.Sleep(6 * time.Second)
		synctest.Wait()
		if got, want := n.disk.rows(t, signer), "0#1=HELD"; got != want {
			t.Errorf("while its lease runs: got rows %s, want %s", got, want)
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if got, want := n.disk.rows(t, signer), "0#1=RELEASED/expired"; got != want {
			t.Errorf("after its lease: got rows %s, want %s", got, want)
		}
	}, sweepEvery(time.Second))
}

func TestASweepTakesAPlaceAndWaitsForOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, newDisk(), "a", sweepEvery(time.Second), places(1))
		n.want("allocate hold=5s -> 0#1")
		place, _ := n.Reserve(signer, 0)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if got, want := n.disk.rows(t, signer), "0#1=HELD"; got != want {
			t.Errorf("while the queue is full: got rows %s, want %s", got, want)
		}
		place.Cancel()
		time.Sleep(time.Second)
		synctest.Wait()
		if got, want := n.disk.rows(t, signer), "0#1=RELEASED/expired"; got != want {
			t.Errorf("got rows %s, want %s", got, want)
		}
	})
}

func TestAStopDuringASweepLosesNoPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, newDisk(), "a", sweepEvery(time.Second))
		n.want("allocate hold=1s -> 0#1")
		looking, goOn := make(chan struct{}), make(chan struct{})
		n.disk.onAfter(func(c memstore.Call) error {
			if c.Op == memstore.OpDue {
				close(looking)
				<-goOn
				n.disk.onAfter(nil)
			}
			return nil
		})
		<-looking
		stopped := make(chan struct{})
		go func() { n.Stop(); close(stopped) }()
		synctest.Wait()
		close(goOn)
		<-stopped // and start looks for places that are lost
	})
}

func TestASweepWhoseOutcomeIsUnknownIsRunAgain(t *testing.T) {
	for name, lose := range map[string]func(*disk, func(memstore.Call) error){"reply": (*disk).onAfter, "commit": (*disk).onBefore} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := start(t, newDisk(), "a")
				n.want("allocate hold=5s -> 0#1", "allocate -> 1#1")
				time.Sleep(6 * time.Second)
				lose(n.disk, once(memstore.OpCommit, signer, cut))
				n.want("allocate -> 0#2", "allocate -> 2#1", "list -> 0#2=HELD 1#1=HELD 2#1=HELD")
			})
		})
	}
}

func TestInModeBasicABrokenSweepIsNotTheOpsOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, newDisk(), "a", basicMode)
		n.want("allocate hold=5s -> 0#1")
		time.Sleep(6 * time.Second)
		n.disk.onAfter(once(memstore.OpLocked, signer, cut))
		n.want("allocate -> none", "list -> 0#1=RELEASED/expired", "allocate -> 0#2")
	})
}

func TestInModeBasicAnAbortIsTriedAgainUnlessARowIsWrong(t *testing.T) {
	n := start(t, newDisk(), "a", basicMode, func(c *nonce.Config) { c.LockWait = time.Hour })
	n.disk.onBefore(once(memstore.OpLocked, signer, func(memstore.Call) error {
		return &nonce.StoreError{Outcome: nonce.Aborted, Err: errors.New("lock timeout")}
	}))
	n.want("allocate -> 0#1")
	n.disk.onBefore(once(memstore.OpLocked, signer, func(memstore.Call) error {
		return &nonce.StoreError{Outcome: nonce.Aborted, Err: nonce.ErrInvariant}
	}))
	n.want("allocate -> internal", "allocate -> 1#1")
	if got := n.fig.get(&n.fig.invariant); got != 1 {
		t.Errorf("counted %d alarms, want 1", got)
	}
}

func TestMoreOverdueHoldsThanOneCommitTakesAreAllEndedBeforeTheNextNewNonce(t *testing.T) {
	inBothModes(t, func(t *testing.T, n *node) {
		for range 4 {
			n.run("allocate count=256 hold=5s")
		}
		time.Sleep(6 * time.Second)
		n.want("allocate count=2 -> 0#2 1#2", "status -> next 1024 floor 0 held 2 released 1022 consumed 0")
		if page, err := n.disk.List(t.Context(), nonce.ListQuery{Signer: signer, Status: nonce.Held, Limit: 1000}); err != nil || len(page.Rows) != 2 {
			t.Errorf("got %d rows HELD, %v, want 2", len(page.Rows), err)
		}
	})
}

func TestAJumpOfTheStoresClockPausesSweepsForTheLongestHold(t *testing.T) {
	for _, by := range []time.Duration{2 * time.Minute, -2 * time.Minute} {
		inBothModes(t, func(t *testing.T, n *node) {
			n.want("allocate -> 0#1")
			time.Sleep(3 * time.Second)
			n.disk.ahead.Store(int64(by))
			n.want("allocate -> 1#1")
			time.Sleep(n.cfg.MaxHold - time.Second)
			synctest.Wait()
			if got, want := n.disk.rows(t, signer), "0#1=HELD 1#1=HELD"; got != want {
				t.Errorf("by %v: got rows %s, want %s", by, got, want)
			}
			if !n.fig.sweepsPaused() {
				t.Error("the pause is not shown")
			}
			n.want("allocate -> 2#1")
			time.Sleep(3 * time.Second)
			synctest.Wait()
			if got, want := n.disk.rows(t, signer), "0#1=RELEASED/expired 1#1=RELEASED/expired 2#1=HELD"; got != want {
				t.Errorf("by %v: got rows %s, want %s", by, got, want)
			}
			if n.fig.sweepsPaused() {
				t.Error("the end of the pause is not shown")
			}
		}, sweepEvery(time.Second))
	}
}

// TestTheReadThatNoticesAJumpEndsNoHold: no tick of the sweeper came before it.
func TestTheReadThatNoticesAJumpEndsNoHold(t *testing.T) {
	inBothModes(t, func(t *testing.T, n *node) {
		n.want("allocate -> 0#1")
		n.disk.SetEpoch(1) // the next op acquires anew, and reads what is overdue
		n.disk.ahead.Store(int64(time.Hour))
		n.want("allocate -> 1#1", "list -> 0#1=HELD 1#1=HELD")
	})
}

func TestASlowAnswerIsNotAJump(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, newDisk(), "a", sweepEvery(time.Second))
		n.disk.onAfter(once(memstore.OpCommit, signer, func(memstore.Call) error { time.Sleep(4 * time.Second); return nil }))
		n.want("allocate hold=10s -> 0#1", "allocate -> 1#1")
		time.Sleep(8 * time.Second)
		synctest.Wait()
		if got, want := n.disk.rows(t, signer), "0#1=RELEASED/expired 1#1=HELD"; got != want {
			t.Errorf("got rows %s, want %s", got, want)
		}
	})
}

func TestAnIdleSignerIsForgottenAndItsLeaseGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, newDisk(), "a", sweepEvery(time.Second), func(c *nonce.Config) { c.IdleAfter = 3 * time.Second })
		n.want("allocate -> 0#1", "allocate signer=busy -> 0#1")
		for range 6 {
			time.Sleep(time.Second)
			n.run("allocate signer=busy")
		}
		synctest.Wait()
		if got := n.disk.summary(t, signer).Lease; got.Holder.Node != "" || got.Token != 2 {
			t.Errorf("idle: got owner %q under token %d, want none under 2", got.Holder.Node, got.Token)
		}
		if got := n.disk.summary(t, "busy").Lease; got.Holder.Node != "a" || got.Token != 1 {
			t.Errorf("busy: got owner %q under token %d, want a under 1", got.Holder.Node, got.Token)
		}
		n.want("allocate -> 1#1")
	})
}

func TestALeaseThatEndedByItselfCostsNoRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, newDisk(), "a", sweepEvery(time.Second), func(c *nonce.Config) { c.IdleAfter = time.Minute })
		n.want("allocate hold=10m -> 0#1")
		n.disk.onBefore(func(c memstore.Call) error {
			if c.Op == memstore.OpRelease {
				t.Errorf("released %v", c.Terms)
			}
			return nil
		})
		time.Sleep(2 * time.Minute)
	})
}

func TestRequestIdsAreForgottenAfterTheRetention(t *testing.T) {
	inBothModes(t, func(t *testing.T, n *node) {
		n.want("allocate hold=10m id=x -> 0#1")
		time.Sleep(59 * time.Second)
		n.want("allocate hold=10m id=x -> 0#1")
		time.Sleep(3 * time.Second)
		n.want("allocate hold=10m id=x -> 1#1")
	}, sweepEvery(time.Second), func(c *nonce.Config) { c.RequestRetention = time.Minute })
}

func TestAHaltedServiceSweepsNothing(t *testing.T) {
	inBothModes(t, func(t *testing.T, n *node) {
		n.want("allocate hold=5s -> 0#1")
		n.Halt(lease.ErrWentBack)
		time.Sleep(20 * time.Second)
		synctest.Wait()
		if got, want := n.disk.rows(t, signer), "0#1=HELD"; got != want {
			t.Errorf("got rows %s, want %s", got, want)
		}
	}, sweepEvery(time.Second))
}

func TestManySignersAreSwept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk()
		n := start(t, d, "a", sweepEvery(time.Second), workers(3))
		for i := range 20 {
			n.run(fmt.Sprintf("allocate hold=5s signer=s%d", i))
		}
		time.Sleep(7 * time.Second)
		synctest.Wait()
		if got := n.fig.get(&n.fig.swept); got != 20 {
			t.Errorf("counted %d swept, want 20", got)
		}
	})
}
