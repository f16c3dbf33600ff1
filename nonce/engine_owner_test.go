package nonce_test

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"noncegate/nonce"
	"noncegate/nonce/fasttest"
	"noncegate/nonce/memstore"
)

func TestHandOutsGoOnWhileTheStoreIsAwayAsLongAsTheBlockLasts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t)
		n := p.entered("a", "allocate -> 0#1")
		n.want("allocate -> 1#1")
		ceiling := p.summary(t, signer).Ceiling
		back := p.storeAway()
		next := int64(2)
		for ; next < ceiling; next++ {
			n.want(fmt.Sprintf("allocate -> %d#1", next))
		}
		if next < 4 {
			t.Fatalf("a block of %d nonces shows nothing", next)
		}
		n.want("allocate -> none")
		back()
		time.Sleep(200 * time.Millisecond)
		n.want(fmt.Sprintf("allocate -> %d#1", next))
		if got := p.summary(t, signer).Ceiling; got <= next {
			t.Errorf("%d was handed out below the ceiling %d", next, got)
		}
	})
}

func TestHandOutsGoOnWhileTheStoreIsAwayAsLongAsTheGrantLasts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t)
		n := p.entered("a", "allocate hold=3s -> 0#1")
		synctest.Wait()
		until := p.summary(t, signer).GrantUntil
		back := p.storeAway()
		time.Sleep(time.Until(until) - 300*time.Millisecond) // the lease has long ended
		n.want("allocate -> 1#1")
		time.Sleep(150 * time.Millisecond) // the margin of the grant begins
		n.want("allocate -> none", "used 1#1 -> unknown")
		back()
		time.Sleep(200 * time.Millisecond)
		n.want("allocate -> 2#1")
	})
}

func TestAHandOutThatRedisAnswersAfterTheGrantIsUnknown(t *testing.T) {
	for _, line := range []string{"allocate", "allocate hold=3s id=x"} { // the second is a repeat
		t.Run(line, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPair(t)
				n := p.entered("a", "allocate -> 0#1")
				n.want("allocate hold=3s id=x -> 1#1")
				n.client.SetHooks(fasttest.Hooks{After: func(c fasttest.Call) bool {
					if c.Op == fasttest.OpCommit && c.Changes[0].Check == (line != "allocate") {
						time.Sleep(testGrant)
					}
					return false
				}})
				n.want(line + " -> unknown")
			})
		})
	}
}

func TestABlockIsAskedForAheadAndAtItsEndBeforeTheHandOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t)
		n := p.entered("a", "allocate -> 0#1")
		synctest.Wait()
		ceiling := p.summary(t, signer).Ceiling
		n.want(fmt.Sprintf("allocate count=%d -> %s", ceiling-1, span(1, int(ceiling-1))))
		synctest.Wait()
		ahead := p.summary(t, signer).Ceiling
		if ahead <= ceiling {
			t.Errorf("the ceiling is still %d, with nothing left below", ceiling)
		}
		var ceilings []int64
		n.onRedis(fasttest.OpCommit, func(fasttest.Call) fasttest.Fault {
			ceilings = append(ceilings, p.summary(t, signer).Ceiling)
			return fasttest.Fault{}
		})
		n.want(fmt.Sprintf("allocate count=200 -> %s", span(int(ceiling), 200)))
		if len(ceilings) != 1 || ceilings[0] < ceiling+200 {
			t.Errorf("nonces below %d were handed out under the ceilings %d", ceiling+200, ceilings)
		}
	})
}

func TestAFewHandOutsAtOnceAreNoRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t)
		n := p.entered("a", "allocate -> 0#1")
		n.want("allocate -> 1#1")
		time.Sleep(time.Millisecond)
		n.want("allocate -> 2#1", "allocate -> 3#1")
		if got := p.ceiling(); got > 4+2*4 { // two blocks of the least size
			t.Errorf("4 nonces were handed out, and %d are reserved", got)
		}
		for at := 4; at < 104; at += 4 {
			time.Sleep(50 * time.Millisecond)
			n.want(fmt.Sprintf("allocate count=4 -> %s", span(at, 4)))
		}
		if got := p.ceiling(); got < 104+16 { // 80 a second, and a block has at most 32
			t.Errorf("at 80 a second %d are reserved, of which 104 are handed out", got)
		}
	})
}

func TestAFloorLiftsNoHandOutOfItsBatchOverTheCeiling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t)
		n := p.entered("a", "allocate -> 0#1")
		floor := p.ceiling() + 2
		n.onRedis(fasttest.OpCommit, func(c fasttest.Call) fasttest.Fault {
			for _, ch := range c.Changes {
				for _, r := range ch.Rows {
					if ceiling := p.summary(t, signer).Ceiling; ch.Signer == signer && r.Nonce >= ceiling {
						t.Errorf("%d is handed out at the ceiling %d", r.Nonce, ceiling)
					}
				}
			}
			return fasttest.Fault{}
		})
		got := n.batch(parse(t, fmt.Sprintf("floor %d", floor)), parse(t, "allocate hold=3s"), parse(t, "allocate hold=3s"))
		if want := fmt.Sprintf("%d#1 %d#1", floor, floor+1); got[1]+" "+got[2] != want {
			t.Errorf("got %q, want %s", got[1:], want)
		}
	})
}

func TestABlockFarAboveIsAskedForWhenTheStoreKnowsOfTheFloor(t *testing.T) {
	for name, lost := range map[string]bool{"flushed": false, "lost": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPair(t)
				n := p.entered("a", "allocate -> 0#1")
				ceiling := p.ceiling()
				floor := ceiling + 1_000_000
				first, next := n.lineOf(fmt.Sprintf("floor %d", floor)), n.lineOf("allocate")
				time.Sleep(100 * time.Millisecond)
				if got := p.ceiling(); got != ceiling || next.answered() {
					t.Fatalf("the ceiling is %d, was %d; answered: %v", got, ceiling, next.answered())
				}
				if lost {
					p.server.Flush()
					got, want := first.wait()+", "+next.wait(), fmt.Sprintf("unknown, %d#%d", ceiling, 1<<20)
					if sum := p.summary(t, signer); got != want || sum.DoubtBelow != ceiling {
						t.Errorf("got %q, want %q, in doubt below %d", got, want, sum.DoubtBelow)
					}
					return
				}
				p.flushAs(n)
				if got, want := first.wait()+", "+next.wait(), fmt.Sprintf("floor %d next %d, %d#1", floor, floor, floor); got != want {
					t.Errorf("got %q, want %q", got, want)
				}
			})
		})
	}
}

func TestATakeOverPutsItsTokenIntoRedisBeforeItServes(t *testing.T) {
	for _, line := range []string{"allocate", "allocate id=z", "used 0#1", "release 1#1", "floor 9"} {
		t.Run(line, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPair(t)
				old := p.entered("old", "allocate -> 0#1")
				old.want("allocate id=x -> 1#1", "allocate -> 2#1")
				next := p.start("next")
				p.leaseEnds()
				next.want("allocate id=x -> 1#1", "allocate -> 3#1") // none of it is flushed
				token, version, _ := p.server.Has(signer)
				if row := p.summary(t, signer); token != row.Lease.Token {
					t.Errorf("Redis has token %d, the row %d", token, row.Lease.Token)
				}
				old.want(line+" -> fenced", line+" -> not_owner next ws://next")
				if _, got, _ := p.server.Has(signer); got != version {
					t.Errorf("the version went from %d to %d", version, got)
				}
			})
		})
	}
}

func TestAWriteToRedisThatIsUnderWayDuringATakeOverIsFencedOrSeen(t *testing.T) {
	for _, seen := range []bool{false, true} {
		t.Run(fmt.Sprint(seen), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPair(t)
				old := p.entered("old", "allocate -> 0#1")
				next := p.start("next")
				held, open := make(chan struct{}), make(chan struct{})
				hold := sync.OnceFunc(func() { close(held); <-open })
				if seen {
					old.onReply(fasttest.OpCommit, hold)
				} else {
					old.onRedis(fasttest.OpCommit, func(c fasttest.Call) fasttest.Fault {
						hold()
						c.Run(0)
						return fasttest.Dropped
					})
				}
				one := old.lineOf("allocate hold=3s")
				<-held
				p.leaseEnds()
				first := map[bool]int{false: 1, true: 2}[seen]
				next.want(fmt.Sprintf("allocate -> %d#1", first))
				close(open)
				if got, want := one.wait(), map[bool]string{false: "unknown", true: "1#1"}[seen]; got != want {
					t.Errorf("got %q, want %q", got, want)
				}
				next.want(fmt.Sprintf("allocate -> %d#1", first+1))
			})
		})
	}
}

// fates are what may have become of an unknown write to Redis.
var fates = map[string]fasttest.Fault{"happened": fasttest.LostReply, "did not happen": fasttest.Dropped}

func TestAnUnknownWriteToRedisIsSettledAfterATakeOver(t *testing.T) {
	for name, fault := range fates {
		for line, want := range map[string][]string{
			"allocate":           {"2#1", "allocate -> 3#1"},
			"allocate count=2":   {"2#1 3#1", "allocate -> 4#1"},
			"allocate id=new":    {"2#1", "allocate id=new -> 2#1", "allocate -> 3#1"},
			"used 0#1 hash=7":    {"CONSUMED", "release 0#1 -> conflict 0#1=CONSUMED/7"},
			"release 1#1":        {"RELEASED", "allocate -> 1#2"},
			"floor 9":            {"floor 9 next 9", "allocate -> 9#1"},
			"release 0#5":        {"conflict 0#1=HELD"},
			"allocate id=x":      {"1#1"},
			"used 77#1":          {"not_found"},
			"allocate count=200": {span(2, 200)},
		} {
			t.Run(line+" "+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					p := newPair(t)
					n := p.entered("a", "allocate -> 0#1")
					n.want("allocate id=x -> 1#1")
					token, _, _ := p.server.Has(signer)
					n.breaks(fasttest.OpCommit, fault)
					op := n.lineOf(line)
					time.Sleep(20 * time.Millisecond)
					if op.op.Kind != nonce.KindAllocate && op.answered() {
						t.Errorf("answered %q before its flush", op.wait())
					}
					p.flush()
					if got := op.wait(); got != want[0] {
						t.Errorf("got %q, want %q", got, want[0])
					}
					if got, _, _ := p.server.Has(signer); got <= token {
						t.Errorf("the token in Redis is still %d", got)
					}
					stop := p.flushing(n)
					n.want(want[1:]...)
					stop()
				})
			})
		}
	}
}

// flushing lets the store follow all the time, until stop is called.
func (p *pair) flushing(n *fastNode) (stop func()) {
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-done:
				return
			case <-time.After(5 * time.Millisecond):
				p.flushAs(n)
			}
		}
	}()
	return func() { close(done); <-ended }
}

func TestAnUnknownWriteToRedisThatLandsLateDoesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t)
		n := p.entered("a", "allocate -> 0#1")
		var late func(int)
		first := true
		n.onRedis(fasttest.OpCommit, func(c fasttest.Call) fasttest.Fault {
			if !first {
				return fasttest.Fault{}
			}
			first, late = false, c.Run
			return fasttest.Dropped
		})
		n.want("allocate -> 1#1")
		_, version, _ := p.server.Has(signer)
		late(0)
		if _, got, _ := p.server.Has(signer); got != version {
			t.Errorf("the version went from %d to %d", version, got)
		}
		n.want("allocate -> 2#1")
	})
}

func TestAnUnknownWriteIsUnknownWhenItCannotBeSettled(t *testing.T) {
	for name, fault := range fates {
		for _, line := range []string{"allocate id=x", "used 0#1", "release 1#1"} {
			t.Run(line+" "+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					p := newPair(t)
					n := p.entered("a", "allocate -> 0#1", "allocate -> 1#1")
					back := p.storeAway()
					n.breaks(fasttest.OpCommit, fault)
					n.want(line + " -> unknown")
					back()
					stop := p.flushing(n)
					n.want("used 0#1 -> CONSUMED", "used 1#1 -> CONSUMED", "allocate id=x -> 2#1")
					stop()
				})
			})
		}
	}
}

func TestAnUnknownWriteIsUnknownWhenAnotherNodeHasTheSigner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t)
		old := p.entered("old", "allocate -> 0#1")
		old.want("allocate -> 1#1")
		next := p.start("next")
		var once bool
		old.client.SetHooks(fasttest.Hooks{
			Before: func(c fasttest.Call) fasttest.Fault {
				if c.Op == fasttest.OpCommit && !once {
					once = true
					p.leaseEnds()
					next.want("allocate -> 2#1")
					return fasttest.Dropped
				}
				return fasttest.Fault{}
			},
		})
		old.want("allocate -> unknown", "allocate -> not_owner next ws://next")
		if got := old.fig.get(&old.fig.wentBack); got != 0 {
			t.Errorf("%d alarms, because the store is behind Redis", got)
		}
	})
}

func TestARefillOfANodeThatLostItsSignerChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t)
		old := p.entered("old", "allocate -> 0#1")
		synctest.Wait()
		next := p.start("next")
		held, open := make(chan struct{}), make(chan struct{})
		first := true
		p.onBefore(func(c memstore.Call) error {
			if c.Op == memstore.OpReserve && c.Holder.Node == "old" && first {
				first = false
				close(held)
				<-open
			}
			return nil
		})
		few := int(p.summary(t, signer).Ceiling) - 1
		old.want(fmt.Sprintf("allocate count=%d -> %s", few, span(1, few))) // it asks ahead
		<-held
		p.leaseEnds()
		next.want(fmt.Sprintf("allocate -> %d#1", few+1))
		row := p.summary(t, signer)
		close(open)
		synctest.Wait()
		if got := p.summary(t, signer); got.Ceiling != row.Ceiling || !got.GrantUntil.Equal(row.GrantUntil) {
			t.Errorf("an old owner reserved: %+v", got.Standing)
		}
		old.want("allocate -> not_owner next ws://next")
	})
}
