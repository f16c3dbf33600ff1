package nonce_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"noncegate/nonce"
	"noncegate/nonce/fasttest"
	"noncegate/nonce/memstore"
)

// losses are the ways in which Redis loses a signer, and whether it is the owner or
// another node that takes over who notices.
var losses = map[string]func(n *fastNode, before *fasttest.Backup){
	"emptied":              func(n *fastNode, _ *fasttest.Backup) { n.pair.server.Flush() },
	"the keys of one":      func(n *fastNode, _ *fasttest.Backup) { n.pair.server.Forget(signer) },
	"restarted with all":   func(n *fastNode, _ *fasttest.Backup) { n.pair.server.Restart(2) },
	"restarted with less":  func(n *fastNode, b *fasttest.Backup) { n.pair.server.Restart(2); n.pair.server.Restore(b) },
	"a version before":     func(n *fastNode, b *fasttest.Backup) { n.pair.server.Restore(b) },
	"another server":       func(n *fastNode, _ *fasttest.Backup) { n.client.Point(n.pair.server.Replica(2)) },
	"unreachable for long": func(n *fastNode, _ *fasttest.Backup) { n.cut(); n.gone.Store(true) },
}

// cut makes Redis out of reach.
func (n *fastNode) cut() {
	n.client.SetHooks(fasttest.Hooks{Before: func(fasttest.Call) fasttest.Fault { return fasttest.NothingSent }})
}

// beforeLoss is a signer with nonces of each kind, of which the store knows: 0 HELD,
// 1 RELEASED, 2 CONSUMED, 3 and 4 HELD. Redis has handed out 1 again, as attempt 2,
// released 3, and handed out new ones up to 7.
func beforeLoss(t *testing.T) (n *fastNode, older *fasttest.Backup) {
	p := newPair(t)
	n = p.entered("a", "allocate hold=3s count=5 -> "+span(0, 5), "release 1#1 -> RELEASED", "used 2#1 hash=2 -> CONSUMED")
	older = p.server.Backup()
	n.want("allocate hold=3s -> 1#2", "allocate hold=3s count=3 -> 5#1 6#1 7#1", "release 3#1 -> unknown")
	return n, older
}

func TestALossOfRedisIsNoticedWhateverItsCauseAndNothingIsHandedOutTwice(t *testing.T) {
	for name, lose := range losses {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n, older := beforeLoss(t)
				p := n.pair
				p.ceiling()
				row := p.summary(t, signer)
				lose(n, older)
				n.want(fmt.Sprintf("allocate hold=3s -> %d#%d", row.Ceiling, 1<<20))
				after := p.summary(t, signer)
				if after.Engine != nonce.Reliable || nonce.EpochOf(after.Version) != 1 || n.fast.lost.Load() != 1 {
					t.Errorf("engine %v, version %d, lost %d", after.Engine, after.Version, n.fast.lost.Load())
				}
				if want := row.GrantUntil.Add(testHold + testMargin); after.DoubtUntil.Before(want) || after.DoubtBelow != row.Ceiling {
					t.Errorf("in doubt below %d until %v, want %v", after.DoubtBelow, after.DoubtUntil, want)
				}
				if got := n.trouble(nonce.TroubleLoss) + n.trouble(nonce.TroubleRedis); got == 0 && name != "unreachable for long" {
					t.Error("the manager was not told")
				}
			})
		})
	}
}

// What was set back below what its owner, or the store, has seen is not shown to anybody.
func TestReadsNoticeThatRedisWasSetBack(t *testing.T) {
	for _, read := range []string{"status", "list"} {
		synctest.Test(t, func(t *testing.T) {
			owner, older := beforeLoss(t)
			owner.pair.server.Restore(older)
			owner.want(read + " -> none")
			if owner.trouble(nonce.TroubleLoss) == 0 {
				t.Error("the owner's manager was not told")
			}
		})
		synctest.Test(t, func(t *testing.T) {
			owner, older := beforeLoss(t)
			other := owner.pair.start("b")
			owner.pair.flush()
			other.want(read + " -> " + owner.do(parse(t, read)))
			owner.pair.server.Restore(older)
			other.want(read + " -> none")
			if other.trouble(nonce.TroubleLoss) == 0 {
				t.Error("the other's manager was not told")
			}
		})
	}
}

// What a node remembers of a signer that it owned before PostgreSQL went back was never
// in Redis: a loss that is none would end the engine for all.
func TestAStoreThatWentBackIsNoLossOfRedis(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t)
		b := p.start("b")
		b.want("allocate hold=3s -> 0#1")
		then := p.Backup()
		b.want("allocate hold=3s count=5 -> "+span(1, 5), "used 1#1 -> CONSUMED", "used 2#1 -> CONSUMED")
		p.Restore(then)
		time.Sleep(2 * time.Minute) // b's lease has ended
		a := p.start("a")
		a.want("floor 10 -> floor 10 next 10")
		a.enter()
		for _, read := range []string{"status", "list"} {
			b.want(read + " -> " + a.do(parse(t, read)))
		}
		if n := b.trouble(nonce.TroubleLoss); n != 0 || p.serves() != nonce.Performance {
			t.Errorf("%d losses were told of, and %v serves", n, p.serves())
		}
	})
}

func TestAMarkThatMayHaveHappenedBeforeALossIsNotSaidToBeLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t)
		n := p.entered("a", "allocate hold=3s -> 0#1")
		n.onReply(fasttest.OpCommit, func() { p.server.Restart(2) })
		op := parse(t, "release 0#1")
		if got := n.do(op); got != "unknown" || !strings.Contains(op.Err.Error(), "did not confirm") {
			t.Errorf("got %s: %v", got, op.Err)
		}
	})
}

func TestACopyThatComesWhenWhatServedIsLostIsNotTakenOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t)
		a := p.start("a")
		var late func()
		a.onRedis(fasttest.OpSeed, func(c fasttest.Call) (f fasttest.Fault) {
			if late == nil {
				late, f = func() { c.Run(0) }, fasttest.Dropped
			}
			return f
		})
		a.want("allocate hold=3s -> 0#1")
		a.enter()
		a.want("allocate hold=3s -> 1#1") // nobody has it but Redis
		ceiling := p.ceiling()
		p.server.Flush()
		late()
		if _, _, ok := p.server.Has(signer); !ok {
			t.Fatal("the copy did not come")
		}
		p.leaseEnds()
		b := p.start("b")
		b.want(fmt.Sprintf("allocate -> %d#%d", ceiling, 1<<20))
	})
}

func TestADifferentServerIsNoticedByWhoTakesOver(t *testing.T) {
	for name, lose := range losses {
		if name == "a version before" {
			continue // only its owner can tell, and a real server that was set back was restarted
		}
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, older := beforeLoss(t)
				ceiling := a.pair.ceiling()
				b := a.pair.start("b")
				a.pair.leaseEnds()
				lose(b, older)
				b.want(fmt.Sprintf("allocate -> %d#%d", ceiling, 1<<20))
				want := "not_owner b ws://b"
				if _, _, ok := a.pair.server.Has(signer); ok && a.pair.server.Identity() == fasttest.NewServer(1).Identity() {
					want = "3#2" // it has the server that it knows, and its grant
				}
				if a.want("allocate -> " + want); b.fast.lost.Load() != 1 || a.fast.lost.Load() != 0 {
					t.Errorf("lost %d and %d", b.fast.lost.Load(), a.fast.lost.Load())
				}
			})
		})
	}
}

// afterLoss is what beforeLoss leaves when Redis was emptied and the owner noticed.
func afterLoss(t *testing.T) (n *fastNode, ceiling int64) {
	n, _ = beforeLoss(t)
	ceiling = n.pair.ceiling()
	n.pair.server.Flush()
	n.goal.Store(int32(nonce.GoalDrain))
	n.want(fmt.Sprintf("allocate hold=3s -> %d#%d", ceiling, 1<<20))
	return n, ceiling
}

func TestInDoubtNothingIsHandedOutOrSweptAndThenTheLowestComeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, ceiling := afterLoss(t)
		time.Sleep(time.Until(n.pair.summary(t, signer).DoubtUntil) - 200*time.Millisecond)
		n.want(fmt.Sprintf("allocate hold=3s -> %d#%d", ceiling, 1<<20+1))
		if got := n.pair.rows(t, signer); got[:len("0#1=HELD 1#1=RELEASED 2#1=CONSUMED/2 3#1=HELD")] != "0#1=HELD 1#1=RELEASED 2#1=CONSUMED/2 3#1=HELD" {
			t.Errorf("in doubt: got rows %s", got)
		}
		time.Sleep(400 * time.Millisecond)
		for _, nr := range []int{0, 1, 3, 4, 5, 6, 7, 8} {
			n.want(fmt.Sprintf("allocate hold=3s -> %d#%d", nr, 1<<20))
		}
	})
}

func TestInDoubtAMarkOfUseIsRecordedAtOnceAndAnsweredAfterTheGrant(t *testing.T) {
	for line, row := range map[string]int{
		"used 0#1 hash=7": 0, // as the store knows it
		"used 1#2 hash=7": 1, // the store knows of attempt 1 only
		"used 5#1 hash=7": 5, // the store knows nothing of it
		"used 3#1 hash=7": 3, // and this Redis had released
	} {
		for _, mode := range []nonce.Mode{nonce.WorkerQueue, nonce.Basic} {
			t.Run(fmt.Sprint(line, mode), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					n, _ := afterLoss(t)
					p, node := n.pair, n.node
					until := p.summary(t, signer).GrantUntil
					if mode == nonce.Basic {
						node = start(t, p.disk, "basic", basicMode)
					}
					mark := newPending(parse(t, line))
					place, _ := node.Reserve(signer, 0)
					node.Submit(place, mark.op)
					time.Sleep(time.Until(until) - 10*time.Millisecond)
					if mark.answered() {
						t.Fatalf("answered %q within the old grant", mark.wait())
					}
					list, err := p.List(t.Context(), nonce.ListQuery{Signer: signer, From: int64(row), Limit: 1})
					if r := list.Rows[0]; err != nil || r.Status != nonce.Consumed || r.TxHash[31] != 7 {
						t.Errorf("it is not recorded: %+v, %v", r, err)
					}
					if got := mark.wait(); got != "CONSUMED" || time.Until(until) > 0 {
						t.Errorf("got %q, %v before the end of the grant", got, time.Until(until))
					}
					began := time.Now()
					if got := node.do(parse(t, line)); got != "CONSUMED" || time.Since(began) != 0 {
						t.Errorf("repeated after the grant: got %q after %v", got, time.Since(began))
					}
				})
			})
		}
	}
}

func TestInDoubtAReleaseIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, _ := afterLoss(t)
		rows := n.pair.rows(t, signer)
		n.want("release 0#1 -> conflict 0#1=HELD", "release 1#1 -> conflict 1#1=RELEASED", "release 2#1 -> conflict 2#1=CONSUMED/2")
		start(t, n.pair.disk, "basic", basicMode).want("release 0#1 -> conflict 0#1=HELD")
		if got := n.pair.rows(t, signer); got != rows {
			t.Errorf("got rows %s, want %s", got, rows)
		}
	})
}

// Redis may have ended the hold, and handed the nonce out again, before it was lost.
func TestInDoubtNobodyIsToldThatHisHoldGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, _ := afterLoss(t)
		lines := []string{
			"extend 3#1 -> conflict 3#1=HELD", "signed 3#1 hash=3 -> conflict 3#1=HELD", "send 3 hash=3 take -> conflict 3#1=HELD",
			"signed 2#1 hash=9 -> CONSUMED #1 9 2", // that is final
		}
		n.want(lines...)
		start(t, n.pair.disk, "basic", basicMode).want(lines...)
	})
}

func TestAHoldThatMayGoOnSinceBeforeALossIsNotSaidTo(t *testing.T) {
	for _, line := range []string{"extend 0#1", "signed 0#1 hash=4", "send 1 hash=4 take"} {
		synctest.Test(t, func(t *testing.T) {
			p := newPair(t)
			n := p.entered("a", "allocate hold=3s -> 0#1")
			n.onReply(fasttest.OpCommit, func() { p.server.Restart(2) })
			if got := n.run(line); got != "unknown" {
				t.Errorf("%s: got %s", line, got)
			}
		})
	}
}

func TestAfterTheDoubtAMarkOfALostHoldIsTakenUntilTheNonceIsHandedOutAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, _ := afterLoss(t)
		time.Sleep(time.Until(n.pair.summary(t, signer).DoubtUntil) + 100*time.Millisecond)
		n.want("used 5#1 hash=3 -> CONSUMED", fmt.Sprintf("allocate -> 0#%d", 1<<20), "used 0#1 -> "+fmt.Sprintf("conflict 0#%d=HELD", 1<<20))
		n.enter()
		mark := n.lineOf("used 6#1 hash=4")
		synctest.Wait()
		n.pair.flush()
		if got := mark.wait(); got != "CONSUMED" {
			t.Errorf("after it entered again: got %q", got)
		}
	})
}

func TestASignerInDoubtDoesNotEnter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, _ := afterLoss(t)
		until := n.pair.summary(t, signer).DoubtUntil
		n.goal.Store(int32(nonce.GoalPerformance))
		for time.Until(until) > 0 {
			n.Settle(signer)
			if n.pair.serves() == nonce.Performance {
				t.Fatal("it entered")
			}
			time.Sleep(100 * time.Millisecond)
		}
		n.enter()
	})
}

func TestARequestThatWasLostGetsANewNonceAndOneThatWasFlushedIsToldOfItsHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t)
		n := p.entered("a", "allocate -> 0#1")
		n.want("allocate hold=3s id=x -> 1#1")
		p.flush()
		n.want("allocate hold=3s id=y -> 2#1")
		ceiling := p.ceiling()
		p.server.Flush()
		n.want("allocate hold=3s id=x -> conflict 1#1=HELD", fmt.Sprintf("allocate hold=3s id=y -> %d#%d", ceiling, 1<<20))
	})
}

func TestAnOldOwnerOnTheOldServerIsNotAnsweredAfterTheLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _ := beforeLoss(t)
		p := a.pair
		b := p.start("b")
		b.client.Point(p.server.Replica(2)) // a failover, and the old server lives on
		a.want("allocate hold=3s -> 3#2")   // its grant runs
		late := a.lineOf("used 0#1")
		a.onReply(fasttest.OpCommit, func() { time.Sleep(testGrant) })
		over := a.lineOf("allocate hold=3s")
		p.leaseEnds()
		b.want(fmt.Sprintf("allocate -> %d#%d", p.ceiling(), 1<<20))
		if got := late.wait() + " " + over.wait(); got != "unknown unknown" {
			t.Errorf("got %q", got)
		}
	})
}

func TestAMarkWhoseFlushCannotComeAnyMoreIsUnknownAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, _ := beforeLoss(t)
		mark := n.lineOf("used 0#1")
		synctest.Wait()
		n.pair.server.Flush()
		ceiling := n.pair.ceiling()
		began := time.Now()
		n.want(fmt.Sprintf("allocate -> %d#%d", ceiling, 1<<20))
		if got := mark.wait(); got != "unknown" || time.Since(began) > 50*time.Millisecond {
			t.Errorf("got %q after %v", got, time.Since(began))
		}
	})
}

func TestALossThatCannotBeDeclaredYetAnswersNothingWrong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, _ := beforeLoss(t)
		ceiling := n.pair.ceiling()
		n.pair.server.Restart(2) // with all it had: only the identity tells
		back := n.pair.storeAway()
		n.want("allocate -> unknown", "allocate -> none", "used 0#1 -> none")
		back()
		n.want(fmt.Sprintf("allocate -> %d#%d", ceiling, 1<<20))
	})
}

func TestAWriteOfALostBatchThatTheStoreHasAllTheSameIsAnswered(t *testing.T) {
	for line, want := range map[string]string{"allocate hold=3s": "3#2", "allocate hold=3s id=x": "3#2", "used 0#1": "CONSUMED"} {
		t.Run(line, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n, _ := beforeLoss(t)
				n.onReply(fasttest.OpCommit, func() { // the flush was faster than the reply, and then the server another one
					n.pair.flush()
					n.pair.server.Restart(2)
				})
				n.want(line + " -> " + want)
				if got := n.fast.lost.Load(); got != 1 {
					t.Errorf("lost %d", got)
				}
			})
		})
	}
}

func TestAFloorThatOnlyRedisHadDoesNotStopTheSignerAfterALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, _ := beforeLoss(t)
		n.want("floor 100000 -> unknown")
		ceiling := n.pair.ceiling()
		n.pair.server.Flush()
		n.want(fmt.Sprintf("allocate -> %d#%d", ceiling, 1<<20))
		if got := n.StoppedSigners(); got != 0 {
			t.Errorf("%d signers are stopped", got)
		}
	})
}

func TestStopDoesNotWaitForTheEndOfADoubt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, _ := afterLoss(t)
		mark := n.lineOf("used 0#1")
		synctest.Wait()
		began := time.Now()
		n.Stop()
		if got := mark.wait(); got != "unknown" || time.Since(began) > 100*time.Millisecond {
			t.Errorf("got %q after %v", got, time.Since(began))
		}
		n = n.pair.start("b")
		n.want("used 0#1 -> CONSUMED")
	})
}

func TestAnUnknownLossIsSettledByTheRow(t *testing.T) {
	for _, happened := range []bool{false, true} {
		t.Run(fmt.Sprint(happened), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n, _ := beforeLoss(t)
				p := n.pair
				ceiling := p.ceiling()
				hook := p.onBefore
				if happened {
					hook = p.onAfter
				}
				first := true
				hook(func(c memstore.Call) error {
					if c.Op != memstore.OpLose || !first {
						return nil
					}
					first = false
					return errCut
				})
				p.server.Flush()
				n.want("allocate id=x -> unknown", fmt.Sprintf("allocate id=x -> %d#%d", ceiling, 1<<20))
				if got := nonce.EpochOf(p.summary(t, signer).Version); got != 1 {
					t.Errorf("epoch %d, want 1", got)
				}
			})
		})
	}
}

// TestInDoubtARequestIdIsNotAnsweredWithAHoldThatRedisMayHaveEnded: Redis may have had
// it released, and handed out again, before the store knew.
func TestInDoubtARequestIdIsNotAnsweredWithAHoldThatRedisMayHaveEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t)
		n := p.entered("a", "allocate hold=3s id=x -> 0#1")
		n.want("release 0#1 -> unknown", "allocate hold=3s -> 0#2")
		n.pair.server.Flush()
		n.goal.Store(int32(nonce.GoalDrain))
		n.want("allocate hold=3s id=x -> conflict 0#1=HELD")
		start(t, p.disk, "basic", basicMode).want("allocate hold=3s id=x -> conflict 0#1=HELD")
	})
}
