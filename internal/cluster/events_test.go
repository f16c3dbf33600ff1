package cluster

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"noncegate/lease"
	"noncegate/wire"
)

// want makes clients want the events of signers, or all when none is named.
func (w *world) want(signers ...string) {
	w.InterestChanged(func() (bool, []string) { return len(signers) == 0, signers })
}

func (w *world) wantNothing() { w.InterestChanged(func() (bool, []string) { return false, nil }) }

// awaiting calls Await; the channel is closed when it returns.
func (w *world) awaiting(ctx context.Context) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		w.Await(ctx)
		close(done)
	}()
	synctest.Wait()
	return done
}

func ended(done <-chan struct{}) bool {
	synctest.Wait()
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// wantLosses asserts how often the sink was told that events may have been missed.
func (w *world) wantLosses(want int) {
	w.t.Helper()
	if got := w.sink.losses(); got != want {
		w.t.Errorf("%d losses, want %d", got, want)
	}
}

func tellOf(f *far, subscription, signer string, n int64, more string) {
	f.T.Helper()
	f.Send(`{"jsonrpc":"2.0","method":"nonce_subscription","params":{"subscription":%q,"result":`+
		`{"type":"allocated","signer":%q,"nonce":%d,"attempt":1,"version":%d,"at":"2026-11-20T18:00:00.000Z"%s}}}`,
		subscription, signer, n, n, more)
}

// subscribed is a story whose link to node "a" has the subscription "one" to all.
func subscribedStory(t *testing.T, story func(t *testing.T, w *world, f *far)) {
	t.Helper()
	linked(t, Config{}, func(t *testing.T, w *world, f *far) {
		w.want()
		f.Answer(f.Next(wire.MethodSubscribe), "one")
		synctest.Wait()
		story(t, w, f)
	})
}

func TestEventsOfAnotherNodeReachTheSinkAsTheyAre(t *testing.T) {
	subscribedStory(t, func(t *testing.T, w *world, f *far) {
		tellOf(f, "one", "s", 1, "")
		tellOf(f, "stray", "s", 2, "")
		tellOf(f, "one", "t", 3, `,"new":[1]`)
		tellOf(f, "one", "t", 4, `,"missed":7`)
		synctest.Wait()
		if got := w.sink.got(); got != "s/1 t/3 t/4" {
			t.Fatalf("got %s", got)
		}
		if got := fmt.Sprint(w.sink.missed); got != "[0 0 7]" {
			t.Errorf("missed %s", got)
		}
		if !strings.Contains(w.sink.bodies[1], `"new":[1]`) || strings.Contains(w.sink.bodies[2], "missed") {
			t.Errorf("bodies %q", w.sink.bodies)
		}
		w.wantLosses(0)
	})
}

func TestALinkAsksForWhatIsWantedAndNoMore(t *testing.T) {
	linked(t, Config{}, func(t *testing.T, w *world, f *far) {
		w.want("b", "a", "b")
		r := f.Next(wire.MethodSubscribe)
		if string(r.Params) != `{"signers":["a","b"]}` {
			t.Errorf("params %s", r.Params)
		}
		w.want("a", "b") // no change
		w.want("a", "c") // while the request is under way
		w.want("a", "d")
		synctest.Wait()
		f.Answer(r, "one")
		r = f.Next(wire.MethodSubscribe)
		if string(r.Params) != `{"signers":["a","d"]}` {
			t.Errorf("params %s", r.Params)
		}
		f.Answer(r, "two")
		if r = f.Next(wire.MethodUnsubscribe); string(r.Params) != `["one"]` {
			t.Errorf("ends %s", r.Params)
		}
		w.want("e")
		synctest.Wait()
		if len(f.Requests) != 0 {
			t.Error("it asks for a third subscription while the first has not ended")
		}
		f.Answer(r, true)
		f.Answer(f.Next(wire.MethodSubscribe), "three")
		f.Answer(f.Next(wire.MethodUnsubscribe), true)
		w.wantNothing()
		if r = f.Next(wire.MethodUnsubscribe); string(r.Params) != `["three"]` {
			t.Errorf("ends %s", r.Params)
		}
		f.Answer(r, true)
		synctest.Wait()
		if len(f.Requests) != 0 {
			t.Errorf("%d more requests", len(f.Requests))
		}
	})
}

func TestWhoWantsVeryManySignersSubscribesToAll(t *testing.T) {
	for name, c := range map[string]struct{ signers, bytes int }{"many": {1025, 8}, "long": {1000, 60}} {
		linked(t, Config{}, func(t *testing.T, w *world, f *far) {
			var signers []string
			for i := range c.signers {
				signers = append(signers, fmt.Sprintf("%0*d", c.bytes, i))
			}
			w.want(signers...)
			if r := f.Next(wire.MethodSubscribe); string(r.Params) != `{}` {
				t.Errorf("%s: %d bytes of params", name, len(r.Params))
			}
		})
	}
}

// Around the moment when the new subscription takes the place of the old one, an
// event may come by the old one only, by both in either order, or by the new one
// only.
func TestNothingIsDoubledOrLostWhileSubscriptionsChange(t *testing.T) {
	subscribedStory(t, func(t *testing.T, w *world, f *far) {
		tellOf(f, "one", "s", 1, "")
		w.want("s")
		r := f.Next(wire.MethodSubscribe)
		tellOf(f, "one", "s", 2, "")
		f.Answer(r, "two")
		tellOf(f, "two", "s", 2, "") // offered before the answer, and again behind it
		tellOf(f, "one", "s", 3, "")
		tellOf(f, "one", "s", 4, "")
		tellOf(f, "two", "s", 4, "")
		tellOf(f, "two", "s", 5, "")
		tellOf(f, "one", "s", 5, "")
		tellOf(f, "two", "s", 6, "")
		f.Answer(f.Next(wire.MethodUnsubscribe), true)
		tellOf(f, "one", "s", 7, "") // cannot be, and is not wanted
		tellOf(f, "two", "s", 8, "")
		synctest.Wait()
		if got := w.sink.got(); got != "s/1 s/2 s/3 s/4 s/5 s/6 s/8" {
			t.Errorf("got %s", got)
		}
		w.wantLosses(0)
		p := w.table.Load().peers["a"]
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.subs.seen != nil {
			t.Error("what was seen is still remembered")
		}
	})
}

// A chain can say the same of a nonce again, without a commit between.
func TestWhatAChainSaysTwiceIsTwoEventsAndNewTypesArePassedOn(t *testing.T) {
	subscribedStory(t, func(t *testing.T, w *world, f *far) {
		w.want("s")
		f.Answer(f.Next(wire.MethodSubscribe), "two")
		say := func(subscription, typ, at, more string) {
			f.Send(`{"jsonrpc":"2.0","method":"nonce_subscription","params":{"subscription":%q,"result":`+
				`{"type":%q,"signer":"s","nonce":4,"attempt":1,"version":9,"at":"2026-11-20T18:00:%s.000Z"%s}}}`, subscription, typ, at, more)
		}
		const gap = `,"gap":{"nonce":4,"since":"2026-11-20T18:00:00.000Z","blocked":2}`
		for _, subscription := range []string{"one", "two"} {
			say(subscription, "gap", "01", gap)
			say(subscription, "gapClosed", "02", "")
			say(subscription, "gap", "03", gap)
			say(subscription, "fromLater", "04", `,"more":[1]`)
		}
		f.Answer(f.Next(wire.MethodUnsubscribe), true)
		say("two", "gap", "05", gap+`,"missed":3`)
		synctest.Wait()
		w.sink.mu.Lock()
		defer w.sink.mu.Unlock()
		if len(w.sink.bodies) != 5 || w.sink.lost != 0 {
			t.Fatalf("%d losses, and %q", w.sink.lost, w.sink.bodies)
		}
		for i, want := range []string{gap, `"gapClosed"`, gap, `"more":[1]`, gap} {
			if !strings.Contains(w.sink.bodies[i], want) {
				t.Errorf("event %d is %s, want it to have %s", i, w.sink.bodies[i], want)
			}
		}
	})
}

func TestMoreThanCanBeToldApartIsALossAndNoLeak(t *testing.T) {
	subscribedStory(t, func(t *testing.T, w *world, f *far) {
		w.want("s")
		f.Answer(f.Next(wire.MethodSubscribe), "two")
		for n := range int64(maxSeen + 10) {
			tellOf(f, "one", "s", n, "")
		}
		tellOf(f, "two", "s", maxSeen+20, "")
		synctest.Wait()
		w.sink.mu.Lock()
		defer w.sink.mu.Unlock()
		if len(w.sink.events) != maxSeen+1 || w.sink.lost != 1 {
			t.Errorf("%d events and %d losses", len(w.sink.events), w.sink.lost)
		}
	})
}

func TestALostLinkLosesEventsUntilItIsSubscribedAgain(t *testing.T) {
	subscribedStory(t, func(t *testing.T, w *world, f *far) {
		f.Cut()
		synctest.Wait()
		w.wantLosses(1)
		f = <-w.net.Host("a").Peers
		r := f.Next(wire.MethodSubscribe)
		w.wantLosses(1)
		f.Answer(r, "two")
		synctest.Wait()
		w.wantLosses(2) // what came meanwhile
		tellOf(f, "two", "s", 1, "")
		synctest.Wait()
		if got := w.sink.got(); got != "s/1" {
			t.Errorf("got %s", got)
		}
	})
}

func TestALinkThatNobodyListensToLosesNothing(t *testing.T) {
	subscribedStory(t, func(t *testing.T, w *world, f *far) {
		w.wantNothing()
		f.Answer(f.Next(wire.MethodUnsubscribe), true)
		synctest.Wait()
		f.Cut()
		<-w.net.Host("a").Peers
		synctest.Wait()
		w.wantLosses(0)
	})
}

func TestANodeThatDrainedHasSentEverything(t *testing.T) {
	subscribedStory(t, func(t *testing.T, w *world, f *far) {
		tellOf(f, "one", "s", 1, "")
		closeWith(f, wire.CloseServiceRestart)
		w.wantState("a", Leaving)
		if w.sink.losses() != 0 || w.sink.got() != "s/1" {
			t.Errorf("%d losses after %s", w.sink.losses(), w.sink.got())
		}
	})
}

func TestANodeThatJoinsMayHaveSentBefore(t *testing.T) {
	subscribedStory(t, func(t *testing.T, w *world, _ *far) {
		w.net.Add("b", w.net.Host("a"))
		basic := node("b", 1)
		basic.Mode = "basic" // is linked for events only
		w.Nodes([]lease.Node{node("self", 1), node("a", 1), basic})
		f := <-w.net.Host("b").Peers
		f.Answer(f.Next(wire.MethodSubscribe), "new")
		synctest.Wait()
		w.wantLosses(1)
	})
}

func TestAwaitWaitsForEveryNodeThatCanBeReached(t *testing.T) {
	tell(t, Config{}, []string{"a", "b", "c"}, func(t *testing.T, w *world) {
		a, b, c := <-w.net.Host("a").Peers, <-w.net.Host("b").Peers, <-w.net.Host("c").Peers
		w.refuseUpgrades("c", 503)
		c.Cut()
		w.wantState("c", Suspect)
		w.want("s")
		done := w.awaiting(t.Context())
		a.Answer(a.Next(wire.MethodSubscribe), "one")
		if ended(done) {
			t.Fatal("it did not wait for b")
		}
		b.Answer(b.Next(wire.MethodSubscribe), "one")
		if !ended(done) {
			t.Fatal("it waits for a node that cannot be reached")
		}
		w.wantLosses(0)
		w.refuseUpgrades("c", 0)
		c = <-w.net.Host("c").Peers
		c.Answer(c.Next(wire.MethodSubscribe), "one")
		synctest.Wait()
		if w.sink.losses() == 0 {
			t.Error("what c sent before it could be reached is not said to be lost")
		}
		if !ended(w.awaiting(t.Context())) {
			t.Error("it waits although all know")
		}
	})
}

func TestAwaitEndsWithItsContextAndSaysWhatIsLostLater(t *testing.T) {
	linked(t, Config{}, func(t *testing.T, w *world, f *far) {
		w.want("s")
		r := f.Next(wire.MethodSubscribe)
		ctx, cancel := context.WithCancel(t.Context())
		done := w.awaiting(ctx)
		cancel()
		if !ended(done) {
			t.Fatal("it still waits")
		}
		f.Answer(r, "one")
		synctest.Wait()
		w.wantLosses(1)
	})
}

func TestTheFirstSubscriberWaitsForLinksThatAreOpenedForIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Config{}, "a")
		w.Router.cfg.Forward = false // so that nothing was linked before
		w.Nodes(w.nodes())
		w.wantState("a", Unlinked)
		w.want("s")
		done := w.awaiting(t.Context())
		f := <-w.net.Host("a").Peers
		r := f.Next(wire.MethodSubscribe)
		if ended(done) {
			t.Fatal("it did not wait")
		}
		f.Answer(r, "one")
		if !ended(done) || w.sink.losses() != 0 {
			t.Errorf("%d losses", w.sink.losses())
		}
	})
}

func TestARefusedSubscriptionIsAskedForAgain(t *testing.T) {
	linked(t, Config{}, func(t *testing.T, w *world, f *far) {
		w.want("s")
		f.Reject(f.Next(wire.MethodSubscribe), wire.CodeServerBusy, "server_busy", wire.ErrorData{Stage: "inflight"})
		began := time.Now()
		r := f.Next(wire.MethodSubscribe)
		if took := time.Since(began); took < subscribeAgain || took > 2*subscribeAgain {
			t.Errorf("asked again after %v", took)
		}
		f.Answer(r, "one")
		synctest.Wait()
		w.wantLosses(1)
	})
}
