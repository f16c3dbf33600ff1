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

func TestASignerEntersWhenItsCopyIsEqualAndNotBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t)
		n := p.start("a")
		n.goal.Store(int32(nonce.GoalMirror))
		n.want("allocate id=x -> 0#1", "allocate -> 1#1")
		synctest.Wait()
		open := make(chan struct{})
		n.onRedis(fasttest.OpMirror, func(fasttest.Call) fasttest.Fault { <-open; return fasttest.Fault{} })
		n.want("release 0#1 -> RELEASED")
		n.goal.Store(int32(nonce.GoalPerformance))
		n.want("used 1#1 -> CONSUMED", "allocate -> 0#2")
		for range 20 {
			n.Settle(signer)
			time.Sleep(20 * time.Millisecond)
		}
		if got := p.serves(); got != nonce.Reliable {
			t.Fatalf("%v serves a signer whose copy is behind", got)
		}
		close(open)
		n.enter()
		if _, version, ok := p.server.Has(signer); !ok || version != p.summary(t, signer).Version {
			t.Errorf("Redis has version %d, %v", version, ok)
		}
		n.want("allocate id=x -> conflict 0#2=HELD", "allocate -> 2#1")
		if got := p.summary(t, signer).Next; got != 2 {
			t.Errorf("the store knows of nonces below %d before a flush, want 2", got)
		}
	})
}

func TestAFullMirrorQueueMakesTheCopyBeBegunAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t)
		n := p.start("a")
		n.goal.Store(int32(nonce.GoalMirror))
		n.want("allocate -> 0#1")
		synctest.Wait()
		open := make(chan struct{})
		n.onRedis(fasttest.OpMirror, func(fasttest.Call) fasttest.Fault { <-open; return fasttest.Fault{} })
		for i := range n.cfg.Fast.MirrorQueue + 5 {
			n.want(fmt.Sprintf("allocate -> %d#1", i+1)) // none of them waits for Redis
		}
		close(open)
		synctest.Wait()
		_, behind, _ := p.server.Has(signer)
		if version := p.summary(t, signer).Version; behind >= version {
			t.Fatalf("the copy has version %d of %d though the queue was full", behind, version)
		}
		time.Sleep(1100 * time.Millisecond)
		n.want("allocate -> 22#1")
		synctest.Wait()
		if _, got, _ := p.server.Has(signer); got != p.summary(t, signer).Version {
			t.Errorf("the copy has version %d, want %d", got, p.summary(t, signer).Version)
		}
	})
}

func TestChangesOfOneMomentAreMirroredInTheirOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t)
		n := p.start("a")
		n.goal.Store(int32(nonce.GoalMirror))
		n.want("allocate -> 0#1")
		synctest.Wait()
		n.want("release 0#1 -> RELEASED", "allocate -> 0#2", "release 0#2 -> RELEASED", "allocate -> 0#3")
		synctest.Wait()
		if _, got, _ := p.server.Has(signer); got != p.summary(t, signer).Version || n.fast.mirrored.Load() < 4 { // the first may have come with the copy
			t.Errorf("the copy has version %d, want %d; mirrored %d", got, p.summary(t, signer).Version, n.fast.mirrored.Load())
		}
	})
}

func TestACopyIsMadeOfPagesAndHasTheRequestIds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t)
		n := p.start("a", func(c *nonce.Config) { c.DefaultHold = testHold })
		for i := range 9 {
			n.want(fmt.Sprintf("allocate count=250 id=r%d -> %s", i, span(250*i, 250)))
		}
		n.want("allocate id=single -> 2250#1")
		pages := p.calls(memstore.OpCopy)
		n.enter()
		if got := pages(); got < 3 {
			t.Errorf("2250 holds were copied in %d pages", got)
		}
		back := p.storeAway()
		n.want("allocate id=single -> 2250#1", "allocate id=new -> 2251#1", "release 7#1 -> unknown", "allocate -> 7#2")
		back()
		n.want("allocate count=250 id=r4 -> " + span(1000, 250))
	})
}

// span are count first hand-outs from nonce from on.
func span(from, count int) string {
	var words []string
	for n := from; n < from+count; n++ {
		words = append(words, fmt.Sprintf("%d#1", n))
	}
	return strings.Join(words, " ")
}

func TestASignerDoesNotEnterAServerThatWasNotAccepted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t)
		p.Accept()
		n := p.start("a")
		n.goal.Store(int32(nonce.GoalPerformance))
		for i := range 10 {
			n.want(fmt.Sprintf("allocate -> %d#1", i))
			time.Sleep(200 * time.Millisecond)
		}
		if got := p.serves(); got != nonce.Reliable {
			t.Errorf("%v serves it", got)
		}
		p.Accept(p.server.Identity())
		n.enter()
	})
}

func TestASignerWhoseCopyIsGoneIsCopiedAnewAndNotLost(t *testing.T) {
	for name, gone := range map[string]func(*pair){
		"removed":   func(p *pair) { p.server.Forget(signer) },
		"emptied":   func(p *pair) { p.server.Flush() },
		"restarted": func(p *pair) { p.server.Restart(2); p.server.Flush(); p.Accept(p.server.Identity()) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPair(t)
				n := p.start("a")
				n.goal.Store(int32(nonce.GoalMirror))
				n.want("allocate id=x -> 0#1")
				synctest.Wait()
				if _, _, ok := p.server.Has(signer); !ok {
					t.Fatal("there is no copy")
				}
				gone(p)
				n.goal.Store(int32(nonce.GoalPerformance))
				n.want("allocate -> 1#1")
				n.enter()
				n.want("allocate id=x -> 0#1", "allocate -> 2#1")
				if lost, told := n.fast.lost.Load(), n.trouble(nonce.TroubleLoss); lost+int64(told) != 0 {
					t.Errorf("%d signers were lost, and the manager was told %d times", lost, told)
				}
			})
		})
	}
}

func TestASignerLeavesWhenTheStoreHasFollowedAndNotBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t)
		n := p.entered("a", "allocate -> 0#1")
		n.want("allocate id=x -> 1#1")
		n.goal.Store(int32(nonce.GoalDrain))
		n.want("allocate -> none")
		waiting := n.lineOf("allocate")
		time.Sleep(50 * time.Millisecond)
		if waiting.answered() || p.serves() != nonce.Performance {
			t.Fatalf("answered %v, served by %v, with an event pending", waiting.answered(), p.serves())
		}
		p.flush()
		if got := waiting.wait(); got != "2#1" || p.serves() != nonce.Reliable {
			t.Errorf("got %q, served by %v", got, p.serves())
		}
		n.want("allocate id=x -> 1#1", "used 1#1 -> CONSUMED", "release 0#1 -> RELEASED", "allocate -> 0#2")
	})
}

func TestASignerThatNobodyUsesFollowsTheClusterWhenItIsLookedAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t)
		a := p.entered("a", "allocate -> 0#1")
		a.Stop()
		b := p.start("b")
		b.goal.Store(int32(nonce.GoalDrain))
		if !b.Settle(signer) {
			t.Fatal("no place")
		}
		synctest.Wait()
		if got := p.serves(); got != nonce.Reliable {
			t.Errorf("%v serves it", got)
		}
	})
}

func TestAnUnknownMoveIsSettledByTheRow(t *testing.T) {
	for op, want := range map[memstore.Op]nonce.Engine{memstore.OpEnter: nonce.Performance, memstore.OpReturn: nonce.Reliable} {
		for _, happened := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s happened=%v", op, happened), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					p := newPair(t)
					n := p.start("a")
					n.want("allocate -> 0#1")
					if op == memstore.OpReturn {
						n.enter()
					}
					hook := p.onBefore
					if happened {
						hook = p.onAfter
					}
					broke := false
					hook(func(c memstore.Call) error {
						if c.Op != op || broke {
							return nil
						}
						broke = true
						return errCut
					})
					if n.goal.Store(int32(nonce.GoalPerformance)); op == memstore.OpReturn {
						n.goal.Store(int32(nonce.GoalDrain))
					}
					for i := range 30 {
						n.want(fmt.Sprintf("allocate -> %d#1", i+1))
						time.Sleep(50 * time.Millisecond)
						p.flush()
					}
					if got := p.serves(); got != want || !broke {
						t.Errorf("%v serves it, want %v", got, want)
					}
				})
			})
		}
	}
}

func TestASignerThatIsWrittenToAllTheTimeEnters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t)
		n := p.start("a", func(c *nonce.Config) { c.MaxHolds = 0 })
		next := 0
		for range 10 { // more rows than one page has
			n.want(fmt.Sprintf("allocate count=256 -> %s", span(next, 256)))
			next += 256
		}
		pieces := 0
		n.onRedis(fasttest.OpSeed, func(fasttest.Call) fasttest.Fault {
			if pieces++; pieces <= 40 { // somebody writes between any two pieces
				n.want(fmt.Sprintf("allocate -> %d#1", next))
				next++
			}
			return fasttest.Fault{}
		})
		n.enter()
		n.want(fmt.Sprintf("allocate -> %d#1", next))
	})
}
