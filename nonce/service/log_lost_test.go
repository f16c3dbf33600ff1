package service_test

import (
	"context"
	"testing"
	"time"
)

func hasLog(o owned) bool { return o.log }

// TestADrainGoesByNoHintThatMayBeOld: b is out of reach of the log, too, and a has not heard of it.
func TestADrainGoesByNoHintThatMayBeOld(t *testing.T) {
	inLogs(t, func(l *logged) {
		a, way := l.start("a")
		b, other := l.start("b")
		l.on(a)
		l.allocateAny()
		way.refuses.Store(true)
		time.Sleep(a.cfg.WatchEvery + time.Millisecond) // a has missed it, and its shards are idle
		other.refuses.Store(true)
		a.Stop()
		time.Sleep(3 * logLostAfter)
		if l.owners(lost) > 0 || b.Engine().Lost > 0 {
			t.Error("a loss was declared of a log that its owner gave up whole")
		}
		for i := range shards {
			l.await(time.Minute, "b hands out", func() bool { return b.do(allocate(l.disk.nameIn(i))) == "1#1" })
		}
	})
}

// TestALogThatIsBackWhileTheStoreIsAwayHandsOut: both were away for longer than a log may fail. The
// reliable engine cannot be had then, and to ask for it would take the time of the log.
func TestALogThatIsBackWhileTheStoreIsAwayHandsOut(t *testing.T) {
	inLogs(t, func(l *logged) {
		n, way := l.startBusy()
		l.silence(n)
		way.refuses.Store(true)
		var refused []*pending
		for i := range shards {
			refused = append(refused, n.send(allocate(l.disk.nameIn(i)))...)
		}
		time.Sleep(logLostAfter + 5*time.Second)
		for _, p := range refused {
			if got := p.wait(); got != "none" {
				t.Errorf("while both are away: %s", got)
			}
		}
		way.refuses.Store(false)
		time.Sleep(200 * time.Millisecond)
		for i := range shards {
			began := time.Now()
			if got := n.do(allocate(l.disk.nameIn(i))); got != "31#1" {
				t.Errorf("shard %d, when its log is back: %s", i, got)
			}
			if took := time.Since(began); took > 50*time.Millisecond {
				t.Errorf("shard %d: it took %v", i, took)
			}
		}
		l.disk.onBefore(nil)
	})
}

// TestAWayDownThatIsNotAnsweredHoldsUpNoOtherShard: each try could take as long as the store may.
func TestAWayDownThatIsNotAnsweredHoldsUpNoOtherShard(t *testing.T) {
	inLogs(t, func(l *logged) {
		n, _ := l.startBusy()
		l.losesShipped(func() { l.disk.onBefore(silent) })
		l.switchTo(n, false)
		if after := l.await(time.Minute, "the store is seen to be away", n.StoreAway); after > time.Second {
			t.Errorf("the worker was busy for %v", after)
		}
		time.Sleep(time.Second)
		l.wantPrompt(n, 1) // the first one waits for the answer
		l.disk.onAfter(nil)
		l.disk.onBefore(nil)
		l.await(time.Minute, "the engine is reliable", func() bool { return l.owners(hasLog) == 0 })
	})
}

// TestAFullLogIsNotLeftForWhatTheStoreKeptFromIt: while the store is away nothing can be shipped,
// which is what makes room.
func TestAFullLogIsNotLeftForWhatTheStoreKeptFromIt(t *testing.T) {
	inLogs(t, func(l *logged) {
		n, way := l.startBusy()
		l.disk.onBefore(storeAway)
		l.allocateAll(n) // what is to be shipped shows that the store is away
		way.full.Store(true)
		for began := time.Now(); time.Since(began) < 2*logLostAfter; time.Sleep(150 * time.Millisecond) {
			for i := range shards {
				ctx, cancel := context.WithTimeout(l.Context(), 10*time.Millisecond)
				_ = n.Do(ctx, allocate(l.disk.nameIn(i)))
				cancel()
			}
		}
		l.disk.onBefore(nil)
		time.Sleep(2 * time.Second)
		way.full.Store(false)
		time.Sleep(2 * logLostAfter)
		if got := l.owners(hasLog); got != shards {
			t.Errorf("%d shards have a log", got)
		}
		l.allocateAll(n)
	})
}

// TestAFullLogThatIsLeftIsTrimmed: what it keeps would keep it full.
func TestAFullLogThatIsLeftIsTrimmed(t *testing.T) {
	inLogs(t, func(l *logged) {
		n, way := l.start("a")
		l.on(n)
		way.keeps.Store(true)
		l.allocateAll(n)
		time.Sleep(time.Second)
		way.keeps.Store(false)
		way.full.Store(true)
		l.await(3*logLostAfter, "the logs are left", func() bool {
			for i := range shards {
				ctx, cancel := context.WithTimeout(l.Context(), 10*time.Millisecond)
				_ = n.Do(ctx, allocate(l.disk.nameIn(i)))
				cancel()
			}
			return l.owners(hasLog) == 0
		})
		time.Sleep(time.Second)
		for i := range shards {
			if got := l.server.records(i); got > 0 {
				t.Errorf("the log of shard %d has %d records that the rows have", i, got)
			}
		}
	})
}
