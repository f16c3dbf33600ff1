package service_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"noncegate/nonce"
	"noncegate/nonce/memstore"
	"noncegate/nonce/service"
)

func of(name string) func(owned) bool { return func(o owned) bool { return o.node == name } }

func logOf(name string) func(owned) bool {
	return func(o owned) bool { return o.log && o.node == name }
}

func lost(o owned) bool { return o.epoch > 0 }

func TestANodeThatDoesNotReachTheLogTakesNoShardThatHasOne(t *testing.T) {
	inLogs(t, func(l *logged) {
		a, _ := l.start("a")
		l.on(a)
		_, way := l.start("b")
		way.refuses.Store(true)
		l.await(time.Minute, "b is seen not to reach it", func() bool { return !l.reaches("b") })
		time.Sleep(time.Minute)
		if n := l.owners(logOf("a")); n != shards {
			t.Errorf("a has %d shards", n)
		}
		l.allocateAll(a)
		way.refuses.Store(false)
		l.await(time.Minute, "b has its share", func() bool { return l.owners(logOf("b")) > 0 })
		l.allocateAny()
	})
}

func TestAShardWithALogGoesToANodeThatReachesIt(t *testing.T) {
	for name, cut := range map[string]func(w *logWay){
		"refused": func(w *logWay) { w.refuses.Store(true) }, "without an answer": func(w *logWay) { w.hangs.Store(true) },
	} {
		t.Run(name, func(t *testing.T) {
			inLogs(t, func(l *logged) {
				a, way := l.start("a")
				b, _ := l.start("b")
				l.on(a)
				l.allocateAny()
				cut(way)
				off := 0
				after := l.await(2*logLostAfter, "b has all", func() bool {
					off = max(off, l.owners(func(o owned) bool { return !o.log }))
					return l.owners(logOf("b")) == shards
				})
				if off > 0 {
					t.Errorf("%d shards had the reliable engine on the way, and b reaches their logs", off)
				}
				if after < logLostAfter/2 {
					t.Errorf("what is whole was given up after %v", after)
				}
				l.allocateAny()
				if got := b.do(allocate("new")); got != "0#1" {
					t.Errorf("b hands out: %s", got)
				}
				time.Sleep(time.Minute)
				if n := l.owners(lost); n > 0 || l.owners(logOf("b")) != shards || a.Engine().Lost+b.Engine().Lost > 0 {
					t.Errorf("%d shards lost their log, b has %d", n, l.owners(logOf("b")))
				}
			})
		})
	}
}

// TestAnOwnerThatDiedIsFollowedByANodeThatReachesTheLog: the other one would declare a loss.
func TestAnOwnerThatDiedIsFollowedByANodeThatReachesTheLog(t *testing.T) {
	inLogs(t, func(l *logged) {
		a, _ := l.start("a")
		b, way := l.start("b")
		c, _ := l.start("c")
		way.hangs.Store(true)
		l.await(time.Minute, "b is seen not to reach it", func() bool { return !l.reaches("b") })
		l.on(a)
		l.allocateAny()
		l.disk.mute("a", true) // its lease ends
		l.await(time.Minute, "c has all that is not a's any more", func() bool { return l.owners(of("a")) == 0 && l.owners(logOf("c")) == shards })
		time.Sleep(time.Minute)
		if l.owners(lost) > 0 || b.Engine().Lost+c.Engine().Lost > 0 {
			t.Error("a loss was declared")
		}
		l.disk.mute("a", false)
	})
}

// TestWhereNobodyReachesTheLogItsOwnersLeaveIt: also those whose signers nobody uses.
func TestWhereNobodyReachesTheLogItsOwnersLeaveIt(t *testing.T) {
	inLogs(t, func(l *logged) {
		a, way := l.start("a")
		b, other := l.start("b")
		l.on(a)
		l.allocateAny()
		way.refuses.Store(true)
		other.refuses.Store(true)
		l.await(time.Minute, "the engine is reliable", func() bool { return l.owners(func(o owned) bool { return o.log }) == 0 })
		if l.owners(lost) > 0 || a.Engine().Lost+b.Engine().Lost > 0 {
			t.Error("a loss was declared, and the owners live")
		}
		l.allocateAny()
	})
}

// TestATroubleOfBeforeDoesNotLeaveTheEngineThatIsWantedAgain: b meets it when a has said so, and
// somebody switches before b looks.
func TestATroubleOfBeforeDoesNotLeaveTheEngineThatIsWantedAgain(t *testing.T) {
	for later := 100 * time.Millisecond; later < 500*time.Millisecond; later += 100 * time.Millisecond {
		inLogs(t, func(l *logged) {
			a, way := l.start("a")
			b, other := l.start("b")
			l.on(a)
			l.allocateAny()
			way.refuses.Store(true)
			time.Sleep(later)
			other.refuses.Store(true)
			logs := func(o owned) bool { return o.log }
			l.await(time.Minute, "the engine is left", func() bool { return l.owners(logs) == 0 && a.Engine().State == service.StateDegraded })
			way.refuses.Store(false)
			other.refuses.Store(false)
			l.on(a)
			time.Sleep(time.Minute)
			if n := l.owners(logs); n != shards || a.Engine().State == service.StateDegraded || b.Engine().State == service.StateDegraded {
				t.Errorf("%v later: %d shards have a log; degraded: %v, %v", later, n, a.Engine().State == service.StateDegraded, b.Engine().State == service.StateDegraded)
			}
		})
	}
}

// TestALogThatNobodyUsesIsSeenToBeGone: while its owner lives nothing is lost by that.
func TestALogThatNobodyUsesIsSeenToBeGone(t *testing.T) {
	inLogs(t, func(l *logged) {
		a, _ := l.start("a")
		l.on(a)
		l.allocateAll(a)
		time.Sleep(2 * time.Second) // all is shipped
		l.server.flush()
		l.await(logLostAfter, "the engine is left", func() bool { return l.owners(func(o owned) bool { return o.log }) == 0 })
		if l.owners(lost) > 0 || a.Engine().Lost > 0 {
			t.Error("a loss was declared, and the owner lives")
		}
		l.allocateAll(a)
	})
}

// TestAShardWhoseWayDownWasNotAnsweredIsSeenToBeThere: its last shipment had nothing to write.
func TestAShardWhoseWayDownWasNotAnsweredIsSeenToBeThere(t *testing.T) {
	inLogs(t, func(l *logged) {
		a, _ := l.start("a")
		l.on(a)
		l.allocateAll(a)
		time.Sleep(2 * time.Second) // all is shipped
		l.losesShipped(func() {})
		l.switchTo(a, false)
		time.Sleep(3 * time.Second)
		l.disk.onAfter(nil)
		l.await(20*time.Second, "no shard has a log here", func() bool { return len(a.Engine().Here) == 0 })
		l.allocateAll(a)
	})
}

// TestAnOutageIsWaitedOutOnce: the owner died and no server answers, so each try takes its time.
func TestAnOutageIsWaitedOutOnce(t *testing.T) {
	inLogs(t, func(l *logged) {
		a, _ := l.start("a")
		l.on(a)
		l.allocateAll(a)
		l.disk.mute("a", true)
		b, way := l.start("b")
		way.hangs.Store(true)
		l.await(time.Minute, "b has all", func() bool { return l.owners(of("b")) == shards })
		after := l.await(time.Minute, "all losses are declared", func() bool { return l.owners(lost) == shards })
		if most := logLostAfter + 7*time.Second; after > most {
			t.Errorf("it took %v, and one outage is waited for %v", after, logLostAfter)
		}
		l.await(time.Second, "all losses are counted", func() bool { return b.Engine().Lost == shards })
		l.disk.mute("a", false)
	})
}

// TestAShardThatComesBackIsNotTakenForLost: its log failed in the stay before, and is well.
func TestAShardThatComesBackIsNotTakenForLost(t *testing.T) {
	inLogs(t, func(l *logged) {
		a, way := l.start("a")
		b, _ := l.start("b")
		l.on(a)
		l.allocateAny()
		l.disk.mute("a", true)
		way.refuses.Store(true)
		for i := range shards {
			_ = a.Do(l.Context(), allocate(l.disk.nameIn(i))) // its log fails, of those that are a's
		}
		l.await(time.Minute, "b has all", func() bool { return l.owners(of("b")) == shards })
		time.Sleep(2 * logLostAfter)
		way.refuses.Store(false)
		l.disk.mute("a", false)
		l.await(time.Minute, "a has its part again", func() bool { return l.owners(logOf("a")) > 0 })
		l.allocateAny()
		time.Sleep(logLostAfter)
		if n := a.Engine().Lost + b.Engine().Lost; n > 0 || l.owners(lost) > 0 {
			t.Errorf("%d losses were declared", n)
		}
	})
}

// TestATryWhoseRaiseIsNotAnsweredIsNotBelieved: what is appended under the one before would be
// taken for a loss.
func TestATryWhoseRaiseIsNotAnsweredIsNotBelieved(t *testing.T) {
	inLogs(t, func(l *logged) {
		a, way := l.start("a")
		l.on(a)
		l.allocateAll(a)
		way.refuses.Store(true)
		var all sync.WaitGroup
		for i := range shards {
			all.Go(func() { _ = a.Do(l.Context(), allocate(l.disk.nameIn(i))) })
		}
		all.Wait() // they are refused, and what is tried next is the log alone
		way.losesRaise.Store(true)
		way.refuses.Store(false)
		l.await(time.Minute, "the raise is lost", func() bool { return !way.losesRaise.Load() })
		way.refuses.Store(true) // which says nothing of the raise before
		time.Sleep(300 * time.Millisecond)
		way.refuses.Store(false)
		for range 20 {
			l.allocateAny()
			time.Sleep(50 * time.Millisecond)
		}
		if state, _ := a.EngineState(); state != service.StatePerformance {
			t.Errorf("the engine is %s", state)
		}
	})
}

// TestNothingIsToldByTheLogWhileTheWayDownIsNotAnswered: the statement that gives the shards the
// reliable engine happened, nobody was told, and the store is out of reach. What the log would
// hand out then, nobody would find.
func TestNothingIsToldByTheLogWhileTheWayDownIsNotAnswered(t *testing.T) {
	inLogs(t, func(l *logged) {
		a, _ := l.start("a")
		l.on(a)
		l.allocateAll(a)
		time.Sleep(2 * time.Second) // all is shipped
		l.losesShipped(func() { l.disk.onBefore(storeAway) })
		l.switchTo(a, false)
		time.Sleep(2 * time.Second)
		var meanwhile []*pending
		for i := range shards {
			meanwhile = append(meanwhile, a.send(allocate(l.disk.nameIn(i)))...)
		}
		time.Sleep(time.Second)
		l.disk.onAfter(nil)
		l.disk.onBefore(nil)
		l.await(20*time.Second, "no shard has a log here", func() bool { return len(a.Engine().Here) == 0 })
		for i, p := range meanwhile {
			told := p.wait()
			if next := a.do(allocate(l.disk.nameIn(i))); told == next || next != "1#1" && next != "2#1" {
				t.Errorf("shard %d: %s was told on the way down, and %s afterwards", i, told, next)
			}
		}
	})
}

// TestAShardThatIsGivenUpKeepsItsEngineInWhatANodeSees, before it looks again.
func TestAShardThatIsGivenUpKeepsItsEngineInWhatANodeSees(t *testing.T) {
	inLogs(t, func(l *logged) {
		a, _ := l.start("a")
		l.on(a)
		l.start("b") // which gets its share
		for range 500 {
			if got := a.Engine().State; got != service.StatePerformance {
				t.Fatalf("the state is %s", got)
			}
			time.Sleep(10 * time.Millisecond)
		}
		if l.owners(of("b")) == 0 {
			t.Error("no shard has moved")
		}
	})
}

// unshippedBy has shards with records that the rows do not have, of a node that is gone.
func (l *logged) unshippedBy(a *node) {
	l.Helper()
	l.allocateAll(a)
	a.Ship()
	l.disk.onBefore(func(c memstore.Call) error {
		if c.Op == memstore.OpShip && c.Holder.Node == "a" {
			return away
		}
		return nil
	})
	l.allocateAll(a)
	l.disk.mute("a", true)
}

// TestALogIsNotDeclaredLostWithoutATry: its new owner stands still for longer than a log may be out
// of reach, which it is only at first.
func TestALogIsNotDeclaredLostWithoutATry(t *testing.T) {
	inLogs(t, func(l *logged) {
		a, _ := l.start("a")
		l.on(a)
		l.unshippedBy(a)
		b, way := l.start("b", func(c *service.Config) { c.Workers = 1 })
		way.refuses.Store(true)
		l.await(time.Minute, "b tries", func() bool { return l.owners(of("b")) == shards && way.calls.Load() > 20 })
		stands := make(chan struct{})
		var stood atomic.Bool
		l.disk.onBefore(func(c memstore.Call) error {
			if c.Op == memstore.OpShip && c.Holder.Node == "a" {
				return away
			}
			if c.Op == memstore.OpAcquire && c.Holder.Node == "b" && stood.CompareAndSwap(false, true) {
				close(stands)
				time.Sleep(2 * logLostAfter)
			}
			return nil
		})
		<-stands
		way.refuses.Store(false)
		time.Sleep(4 * logLostAfter) // its worker can be asked again
		if n := l.owners(lost); n > 0 {
			t.Fatalf("%d logs were declared lost that were well", n)
		}
		l.await(time.Minute, "b hands out", func() bool { return b.do(allocate(l.disk.nameIn(0))) == "2#1" })
		l.disk.mute("a", false)
		l.disk.onBefore(nil)
	})
}

// TestAServerThatDoesNotAnswerCostsNoLogOfAnother, as in a cluster.
func TestAServerThatDoesNotAnswerCostsNoLogOfAnother(t *testing.T) {
	inLogs(t, func(l *logged) {
		l.server.two = true
		a, _ := l.start("a")
		l.on(a)
		l.unshippedBy(a)
		b, way := l.start("b", func(c *service.Config) { c.Workers = 1 })
		way.firstHangs.Store(true)
		l.await(time.Minute, "b has all", func() bool { return l.owners(of("b")) == shards })
		l.await(time.Minute, "what was at the first server is lost", func() bool { return l.owners(lost) >= shards/2 })
		time.Sleep(2 * logLostAfter)
		if n := l.owners(lost); n != shards/2 {
			t.Errorf("%d logs were declared lost, and %d were", n, shards/2)
		}
		if got := b.do(allocate(l.disk.nameIn(1))); got != "2#1" {
			t.Errorf("of the second server b hands out %s", got)
		}
		l.disk.mute("a", false)
		l.disk.onBefore(nil)
	})
}

// TestADrainWhileTheLogIsAwayLeavesTheReliableEngine: the next owner does not get into the log.
func TestADrainWhileTheLogIsAwayLeavesTheReliableEngine(t *testing.T) {
	for name, loses := range map[string]bool{"refused": false, "an append is not answered": true} {
		t.Run(name, func(t *testing.T) {
			inLogs(t, func(l *logged) {
				a, way := l.start("a")
				l.on(a)
				l.allocateAll(a)
				if way.losesRecord.Store(loses); loses {
					way.losesRaise.Store(true)
					a.send(allocate(l.disk.nameIn(0)))
					time.Sleep(time.Millisecond)
				}
				way.refuses.Store(true)
				var all sync.WaitGroup
				for i := range shards {
					all.Go(func() { _ = a.Do(l.Context(), allocate(l.disk.nameIn(i))) })
				}
				time.Sleep(2 * logTimeout)
				a.Stop()
				l.server.flush()
				all.Wait()
				b, other := l.start("b")
				other.refuses.Store(true)
				l.await(time.Minute, "b has all", func() bool { return l.owners(of("b")) == shards })
				time.Sleep(2 * logLostAfter)
				if n := l.owners(lost); n > 0 {
					t.Errorf("%d logs were declared lost, whose owner gave them up whole", n)
				}
				for i := range shards {
					if got := b.do(allocate(l.disk.nameIn(i))); got != "1#1" {
						t.Errorf("shard %d: b hands out %s", i, got)
					}
				}
			})
		})
	}
}

// TestAFullLogIsLeft: it takes no record, and answers whatever else it is asked. One that has
// room again in time is kept.
func TestAFullLogIsLeft(t *testing.T) {
	logs := func(o owned) bool { return o.log }
	for name, asked := range map[string]bool{"it stays full": true, "it has room again": true, "it was full once, and nobody asks": false} {
		t.Run(name, func(t *testing.T) {
			lasts := name == "it stays full"
			inLogs(t, func(l *logged) {
				a, way := l.start("a")
				l.on(a)
				l.allocateAll(a)
				way.full.Store(true)
				busy := func(until func() bool) {
					for began := time.Now(); !until() && time.Since(began) < 2*logLostAfter; {
						for i := range shards {
							for _, op := range []*nonce.Op{allocate(l.disk.nameIn(i)), {Kind: nonce.KindStatus, Signer: l.disk.nameIn(i)}} {
								ctx, cancel := context.WithTimeout(l.Context(), 10*time.Millisecond)
								_ = a.Do(ctx, op)
								cancel()
							}
						}
						time.Sleep(150 * time.Millisecond)
					}
				}
				switch {
				case lasts:
					busy(func() bool { return l.owners(logs) == 0 })
				case !asked:
					began := time.Now()
					busy(func() bool { return time.Since(began) > time.Second })
					way.full.Store(false)
					time.Sleep(3 * logLostAfter)
				default:
					time.AfterFunc(logLostAfter/2, func() { way.full.Store(false) })
					busy(func() bool { return false })
				}
				if n := l.owners(logs); n > 0 == lasts || l.owners(lost) > 0 {
					t.Errorf("%d shards have a log; %d are lost", n, l.owners(lost))
				}
				l.allocateAll(a)
			})
		})
	}
}

// TestALogThatCannotBeReadCostsNoOther of the same server: it is too long, say.
func TestALogThatCannotBeReadCostsNoOther(t *testing.T) {
	inLogs(t, func(l *logged) {
		a, _ := l.start("a")
		l.on(a)
		l.unshippedBy(a)
		b, way := l.start("b", func(c *service.Config) { c.Workers = 1 })
		way.hangsAtFirst.Store(true)
		l.await(time.Minute, "b has all", func() bool { return l.owners(of("b")) == shards })
		l.await(time.Minute, "the first is lost", func() bool { return l.owners(lost) > 0 })
		time.Sleep(2 * logLostAfter)
		if n := l.owners(lost); n != 1 {
			t.Errorf("%d logs were declared lost, and one was", n)
		}
		for i := 1; i < shards; i++ {
			if got := b.do(allocate(l.disk.nameIn(i))); got != "2#1" {
				t.Errorf("shard %d: b hands out %s", i, got)
			}
		}
		l.disk.mute("a", false)
		l.disk.onBefore(nil)
	})
}
