package cluster

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"noncegate/lease"
	"noncegate/nonce"
	"noncegate/wire"
)

// What the old subscription missed is not known to the new one.
func TestWhatAnOldSubscriptionMissedIsToldThoughItsEventCameByTheNew(t *testing.T) {
	subscribedStory(t, func(t *testing.T, w *world, f *far) {
		w.want("s")
		f.Answer(f.Next(wire.MethodSubscribe), "two")
		tellOf(f, "two", "s", 4, "")
		tellOf(f, "one", "s", 4, `,"missed":3`) // before "two" was live three were dropped
		f.Answer(f.Next(wire.MethodUnsubscribe), true)
		synctest.Wait()
		if got := fmt.Sprint(w.sink.missed); got == "[0]" && w.sink.losses() == 0 {
			t.Errorf("three missed events are never told: missed %s, %d losses", got, w.sink.losses())
		}
	})
}

// A node drains, starts again and commits before the link is back.
func TestANodeThatLeftAndCommittedBeforeItWasHeardAgainCountsAsMissed(t *testing.T) {
	subscribedStory(t, func(t *testing.T, w *world, f *far) {
		closeWith(f, wire.CloseServiceRestart)
		w.wantState("a", Leaving)
		time.Sleep(10 * time.Second)
		// It has started again and serves clients of its own.
		w.Nodes([]lease.Node{node("self", 1), node("a", 2)})
		g := <-w.net.Host("a").Peers
		r := g.Next(wire.MethodSubscribe)
		// Until here its commits were heard by nobody.
		g.Answer(r, "two")
		tellOf(g, "two", "s", 9, "")
		synctest.Wait()
		if w.sink.losses() == 0 {
			t.Errorf("events %s, missed %v, %d losses", w.sink.got(), w.sink.missed, w.sink.losses())
		}
	})
}

// A node closes with 1012 only when nothing is in flight and all answers are out:
// what it did not answer it did not do, and it need not be unknown.
func TestWhatANodeThatClosedInOrderDidNotAnswerWasNotDone(t *testing.T) {
	linked(t, Config{}, func(t *testing.T, w *world, f *far) {
		w.forward("a", allocation("s"))
		w.forward("a", allocation("s"))
		f.Next(wire.MethodAllocate)
		f.Next(wire.MethodAllocate)
		closeWith(f, wire.CloseServiceRestart)
		for range 2 {
			if b := <-w.svc.back; b.verdict != nonce.Bounced {
				t.Errorf("verdict %d (%v), want Bounced", b.verdict, b.op.Err)
			}
		}
	})
}

func TestAnotherWhoClosesAsIfForARestartLeavesDoubt(t *testing.T) {
	linked(t, Config{}, func(t *testing.T, w *world, f *far) {
		w.forward("a", allocation("s"))
		f.Next(wire.MethodAllocate)
		f.Close(wire.CloseServiceRestart, "a proxy restarts")
		if b := <-w.svc.back; b.verdict != nonce.Doubtful {
			t.Errorf("verdict %d (%v), want Doubtful", b.verdict, b.op.Err)
		}
	})
}
