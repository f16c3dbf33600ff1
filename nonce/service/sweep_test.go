package service_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"noncegate/lease"
	"noncegate/nonce"
	"noncegate/nonce/memstore"
	"noncegate/nonce/service"
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

// looking is how nodes look that are to see one another come and go.
func looking(c *service.Config) { c.WatchEvery = 500 * time.Millisecond }

func TestTheHoldsOfAShardNobodyOwnsAreSweptByWhoeverTakesItUp(t *testing.T) {
	for name, end := range map[string]func(*node){
		"given back": func(n *node) { n.Stop() },
		"dead":       func(n *node) { n.disk.mute("gone", true) },
	} {
		t.Run(name, func(t *testing.T) {
			inBothModes(t, func(t *testing.T, n *node) {
				gone := start(t, n.disk, "gone")
				n.disk.give(signer, gone)
				gone.want("allocate hold=5s -> 0#1")
				pass(8 * time.Second)
				if got, want := n.disk.rows(t, signer), "0#1=HELD"; got != want {
					t.Errorf("while its owner lives: got rows %s, want %s", got, want)
				}
				end(gone)
				pass(13 * time.Second)
				if got, want := n.disk.rows(t, signer), "0#1=RELEASED/expired"; got != want {
					t.Errorf("got rows %s, want %s", got, want)
				}
				if got, want := n.disk.summary(t, signer).Lease.Holder.Node == "a", n.cfg.Mode == nonce.WorkerQueue; got != want {
					t.Errorf("acquired: %v, want %v", got, want)
				}
			}, sweepEvery(time.Second), looking)
		})
	}
}

func TestAStopDuringASweepLosesNoSlot(t *testing.T) {
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
		<-stopped // and start looks for slots that are lost
	})
}

func TestASweepWhoseOutcomeIsUnknownIsRunAgain(t *testing.T) {
	for name, lose := range map[string]func(*disk, func(memstore.Call) error){"reply": (*disk).onAfter, "commit": (*disk).onBefore} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := start(t, newDisk(), "a")
				n.want("allocate hold=5s -> 0#1", "allocate -> 1#1")
				time.Sleep(7 * time.Second)
				lose(n.disk, once(memstore.OpCommit, signer, cut))
				n.want("allocate -> 0#2", "allocate -> 2#1", "list -> 0#2=HELD 1#1=HELD 2#1=HELD")
			})
		})
	}
}

func TestInModeBasicAnAbortIsTriedAgainUnlessARowIsWrong(t *testing.T) {
	n := start(t, newDisk(), "a", basicMode, func(c *service.Config) { c.LockWait = time.Hour })
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

func TestAJumpOfTheStoresClockPausesSweepsForTheLongestHold(t *testing.T) {
	for _, by := range []time.Duration{30 * time.Second, -30 * time.Second} {
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

// TestWhoseOpsWereSentElsewhereIsForgottenAlsoWhileSweepsPause: the memory of it has no other bound.
func TestWhoseOpsWereSentElsewhereIsForgottenAlsoWhileSweepsPause(t *testing.T) {
	inCluster(t, two, func(t *testing.T, c *cluster) {
		b := c.nodes["b"]
		c.disk.ahead.Store(int64(time.Hour))
		pass(3 * time.Second)
		if !b.fig.sweepsPaused() {
			t.Fatal("sweeps do not pause")
		}
		for i := range 50 {
			b.run(fmt.Sprintf("allocate signer=s%d", i))
		}
		if b.Forwarding() == 0 {
			t.Fatal("nothing was sent to the other node")
		}
		pass(3 * time.Second)
		if n := b.Forwarding(); n > 0 {
			t.Errorf("%d signers of which nothing is under way are remembered", n)
		}
	}, sweepEvery(time.Second))
}

// TestTheReadThatNoticesAJumpEndsNoHold: no heartbeat and no tick of the sweeper came before it.
func TestTheReadThatNoticesAJumpEndsNoHold(t *testing.T) {
	inBothModes(t, func(t *testing.T, n *node) {
		n.want("allocate -> 0#1", "allocate signer=other -> 0#1") // of one worker, which remembers one
		n.disk.ahead.Store(int64(time.Hour))
		n.want("allocate -> 1#1", "list -> 0#1=HELD 1#1=HELD")
	}, func(c *service.Config) { c.MaxSigners = 1 })
}

func TestASlowAnswerIsNotAJump(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, newDisk(), "a", sweepEvery(time.Second))
		n.disk.onAfter(once(memstore.OpCommit, signer, func(memstore.Call) error { time.Sleep(4 * time.Second); return nil }))
		n.want("allocate hold=10s -> 0#1", "allocate -> 1#1")
		time.Sleep(9 * time.Second)
		synctest.Wait()
		if got, want := n.disk.rows(t, signer), "0#1=RELEASED/expired 1#1=HELD"; got != want {
			t.Errorf("got rows %s, want %s", got, want)
		}
	})
}

func TestRequestIdsAreForgottenAfterTheRetention(t *testing.T) {
	inBothModes(t, func(t *testing.T, n *node) {
		n.want("allocate hold=10m id=x -> 0#1")
		pass(90 * time.Second)
		n.want("allocate hold=10m id=x -> 0#1")
		pass(2 * time.Minute)
		n.want("allocate hold=10m id=x -> 1#1")
	}, func(c *service.Config) { c.RequestRetention = 2 * time.Minute })
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

func TestManySignersAreSweptAndTheWorkersComeToRest(t *testing.T) {
	for name, many := range map[string]func(*service.Config){
		"remembered": func(*service.Config) {}, "forgotten": func(c *service.Config) { c.MaxSigners = 3 },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newDisk()
				n := start(t, d, "a", sweepEvery(time.Second), workers(3), many)
				for i := range 1000 {
					n.run(fmt.Sprintf("allocate hold=5s signer=s%d", i))
				}
				pass(8 * time.Second)
				if got := n.fig.get(&n.fig.swept); got != 1000 {
					t.Errorf("counted %d swept, want 1000", got)
				}
				pass(time.Second)
				if due, err := d.Due(t.Context(), []int{0, 1, 2, 3}, 10); err != nil || len(due) > 0 {
					t.Errorf("%v are still listed, %v", due, err)
				}
			})
		})
	}
}

// TestAHoldIsEndedThoughANodeInModeBasicEndedAnotherOfItsSigner: b remembers that the signer
// is listed, and the basic node has taken it off the list.
func TestAHoldIsEndedThoughANodeInModeBasicEndedAnotherOfItsSigner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk()
		a := start(t, d, "a")
		a.want("allocate hold=30s -> 0#1", "used 0#1 -> CONSUMED") // listed for 30s
		a.Stop()
		b, basic := start(t, d, "b"), start(t, d, "basic", basicMode)
		b.want("allocate hold=2m -> 1#1")
		pass(31 * time.Second)
		basic.want("used 1#1 -> CONSUMED")
		b.want("allocate hold=5m -> 2#1")
		d.mute("b", true)
		b.Stop()
		start(t, d, "c", looking, sweepEvery(time.Second))
		pass(10 * time.Minute)
		if got := d.rows(t, signer); got != "0#1=CONSUMED/1 1#1=CONSUMED/1 2#1=RELEASED/expired" {
			t.Errorf("ten minutes later: %s", got)
		}
	})
}
