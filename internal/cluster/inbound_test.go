package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorilla/websocket"

	"noncegate/internal/events"
	"noncegate/internal/wsconn"
	"noncegate/nonce"
	"noncegate/nonce/noncetest"
	"noncegate/test/lab/expect"
	"noncegate/wire"
)

// Also the place in flight of the request comes back, which serving looks at.
func TestARequestWhoseSubmissionPanicsEndsTheLinkAndKeepsNothing(t *testing.T) {
	serving(t, Config{}, Local{}, func(t *testing.T, o *owner) {
		c := o.link("a", 1)
		c.ask(7, allocate("panics"))
		for c.end == nil { // it may be told before
			c.next()
		}
		synctest.Wait()
		if !strings.Contains(o.log.String(), "a mistake of this program: a mistake") {
			t.Errorf("the log says %s", o.log.String())
		}
	})
}

func TestRequestsAreGivenToTheServiceInTheirOrderAndAnsweredInOneMessage(t *testing.T) {
	serving(t, Config{}, Local{}, func(t *testing.T, o *owner) {
		c := o.link("a", 1)
		c.ask(7, allocate("s"))
		c.ask(7, nonce.Request{Kind: nonce.KindMarkUsed, Signer: "s", Nonce: 4, Attempt: 1, Principal: 9, MarkAny: true})
		c.ask(0, nonce.Request{Kind: nonce.KindStatus, Signer: "s"})
		c.ask(8, allocate("full"))
		first, second, third := <-o.runs, <-o.runs, <-o.runs
		mark := second.q
		if first.q.Kind != nonce.KindAllocate || mark.Nonce != 4 || mark.Principal != 9 || !mark.MarkAny || third.q.Kind != nonce.KindStatus {
			t.Errorf("got %+v, %+v, %+v", first.q, second.q, third.q)
		}
		if first.path == nil || first.path != second.path || third.path != nil {
			t.Error("two writes of one number are on two paths, or a read is on one")
		}
		c.want("#4 the signer's worker queue is full")
		second.finish(nonce.Result{Err: nonce.ErrFenced})
		first.finish(held(3))
		third.end(nonce.Result{})
		c.want("#2 ownership", "#1 [3]", "#3")
		if len(c.in) != 0 {
			t.Error("the answers came in several messages")
		}
	})
}

func TestPathsAreOfOneLinkAndBegunAnewWhenAllIsAnswered(t *testing.T) {
	serving(t, Config{}, Local{}, func(t *testing.T, o *owner) {
		c, other := o.link("a", 1), o.link("c", 1)
		c.ask(7, allocate("s"))
		first := <-o.runs
		other.ask(7, allocate("s"))
		c.ask(8, allocate("s"))
		if second, third := <-o.runs, <-o.runs; first.path == second.path || first.path == third.path {
			t.Error("two links, or two numbers, are on one path")
		}
		first.path.Break(nonce.ErrFenced)
		first.end(nonce.Result{Err: nonce.ErrFenced})
		c.ask(7, allocate("s")) // sent before the refusal was read
		if again := <-o.runs; again.path != first.path {
			t.Error("a broken path was begun anew")
		}
	})
}

func TestBrokenPathsAreForgottenAfterAWhileAndBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ps := newPaths()
		leave := func(n int) {
			for i := range uint64(n) {
				w := ps.enter(i + 1)
				w.Break(nonce.ErrFenced)
				ps.leave(w)
			}
		}
		leave(3)
		time.Sleep(BrokenPathTTL)
		if ps.forget(time.Now()); len(ps.byNumber) != 0 || len(ps.broken) != 0 {
			t.Errorf("%d paths and %d broken ones are left", len(ps.byNumber), len(ps.broken))
		}
		leave(maxBroken + 10)
		if ps.forget(time.Now()); len(ps.byNumber) != maxBroken || len(ps.broken) != maxBroken {
			t.Errorf("%d paths and %d broken ones, want %d", len(ps.byNumber), len(ps.broken), maxBroken)
		}
		used := ps.enter(11) // the oldest now
		leave(maxBroken + 10)
		if ps.forget(time.Now()); ps.byNumber[11] != used {
			t.Error("a path was forgotten on which a request is under way")
		}
		ps.leave(used)
		again := ps.enter(12) // which was forgotten, and stands in the list once more
		again.Break(nonce.ErrFenced)
		ps.leave(again)
		leave(4)
		if ps.forget(time.Now()); ps.byNumber[12] != again {
			t.Error("a path was forgotten with one of the same number before it")
		}
	})
}

func TestANodeMayHaveItsShareOfRequestsInFlight(t *testing.T) {
	serving(t, Config{Queue: 2, MaxTotal: 3}, Local{}, func(t *testing.T, o *owner) {
		c, other := o.link("a", 1), o.link("c", 1)
		c.ask(1, allocate("s"))
		c.ask(2, allocate("s"))
		c.ask(3, allocate("s"))
		c.want("#3 too many requests wait for the node")
		other.ask(1, allocate("s"))
		other.ask(2, allocate("s"))
		other.want("#2 too many")
		(<-o.runs).end(held(1))
		c.want("#1 [1]")
		synctest.Wait() // only what was written makes room
		if other.ask(3, allocate("s")); len(o.runs) != 3 {
			t.Errorf("%d run", len(o.runs))
		}
	})
}

// TestANodeThatDoesNotReadBlocksNobody: results wait in their places, events are left out and
// counted, and a link with too many answers ends.
func TestANodeThatDoesNotReadBlocksNobody(t *testing.T) {
	serving(t, Config{Queue: 10}, Local{}, func(t *testing.T, o *owner) {
		c := o.link("a", 1)
		c.say((&interest{seq: 1, Interest: events.Interest{All: true}}).append(nil))
		synctest.Wait()
		c.want("have 1")
		for n := range 3*maxEvents + 1 {
			o.hub.Publish(0, false, []nonce.Event{{Type: nonce.EventUsed, Signer: "s", Nonce: int64(n)}})
		}
		synctest.Wait()
		next := 0
		for missed, n := 0, 0; ; {
			said := c.next()
			if _, err := fmt.Sscanf(said, "event s/%d missed %d", &n, &missed); err != nil {
				t.Fatal(said)
			}
			if n != next+missed {
				t.Fatalf("%s, after %d", said, next-1)
			}
			if next = n + 1; missed > 0 || next > 2*maxEvents {
				break
			}
			if len(c.in) == 0 && next >= maxEvents {
				o.hub.Publish(0, false, []nonce.Event{{Type: nonce.EventUsed, Signer: "s", Nonce: 3*maxEvents + 1}})
				synctest.Wait()
			}
		}
		q := allocate("full")
		// And it does not read. The writer may have up to 41 answers in the message that it cannot get rid of.
		c.say(bytes.Repeat(nonce.AppendRequest([]byte{itRequest, 1, 1}, &q), 100))
		time.Sleep(time.Second)
		if synctest.Wait(); !strings.Contains(o.log.String(), errBehind.Error()) {
			t.Errorf("the link has not ended: %s", o.log)
		}
	})
}

// TestWhatComesOverALinkThatWasGivenUpIsNotDone: a node that lost a link sends again over the next
// one, and the network may bring late what it had sent over the first.
func TestWhatComesOverALinkThatWasGivenUpIsNotDone(t *testing.T) {
	serving(t, Config{}, Local{}, func(t *testing.T, o *owner) {
		first, other := o.link("a", 1), o.link("c", 1)
		first.ask(1, allocate("s"))
		waiting := <-o.runs
		second := o.link("a", 2)
		first.want("the end")
		if !waiting.done.Gone() {
			t.Error("what waits of the first would still be done")
		}
		late := o.link("a", 1) // a lower number ends nothing
		second.ask(1, allocate("s"))
		other.ask(1, allocate("s"))
		late.ask(1, allocate("s"))
		if len(o.runs) != 3 {
			t.Errorf("%d run", len(o.runs))
		}
		in := o.newInbound(late.ws, greeted{node: "a", number: 1})
		if err := o.door.add(in, time.Time{}); err != errGivenUp { // its upgrade began first, and ends last
			t.Error("a link was taken whose node has opened a later one since")
		}
	})
}

func TestGarbageEndsTheLinkAndNothingElse(t *testing.T) {
	bad := nonce.AppendRequest([]byte{itRequest, 1, 1}, &nonce.Request{Kind: nonce.KindAllocate, Signer: "s", Count: 1})
	for name, message := range map[string][]byte{
		"an item of the other side": {itResult, 1}, "half a request": bad[:len(bad)-3], "an unknown kind": {itRequest, 1, 1, 99},
		"an interest of no form": {itInterest, 1, 7}, "an interest in no signer": {itInterest, 1, 0, 1, 1, ' '},
		"too many signers": bytes.Repeat([]byte{itInterest, 1, 0, 0xff, 0xff, 0x7f}, 3),
	} {
		serving(t, Config{}, Local{}, func(t *testing.T, o *owner) {
			c, other := o.link("a", 1), o.link("c", 1)
			c.ask(1, allocate("s"))
			c.say(message)
			c.want("the end")
			if synctest.Wait(); !strings.Contains(c.end.Error(), "1002") || strings.Count(o.log.String(), errNonsense.Error()) != 1 {
				t.Errorf("%s: %v; %s", name, c.end, o.log)
			}
			other.ask(1, allocate("s"))
			(<-o.runs).end(held(1))
			(<-o.runs).end(held(2))
			other.want("#1 [2]")
		})
	}
}

// TestWhatWaitsForALinkIsBoundedWithinAMessageToo: the reader ends the link before it queues more.
func TestWhatWaitsForALinkIsBoundedWithinAMessageToo(t *testing.T) {
	full := allocate("full")
	for name, item := range map[string][]byte{
		"refused": nonce.AppendRequest([]byte{itRequest, 1, 1}, &full), "an interest": (&interest{seq: 1, Interest: events.Interest{All: true}}).append(nil),
	} {
		serving(t, Config{Queue: 10}, Local{}, func(t *testing.T, o *owner) {
			in := o.newInbound(o.link("a", 1).ws, greeted{node: "a"})
			if err := in.take(bytes.Repeat(item, 1000)); !errors.Is(err, errBehind) || len(in.out) > maxBehind*10+1 {
				t.Errorf("%s: %d answers wait, %v", name, len(in.out), err)
			}
			in.finish()
		})
	}
}

// With --worker-reject-policy caller-runs the reader of a link may run what it read.
func TestANodeIsNotSilentWhileThisOneTakesLongForARequest(t *testing.T) {
	serving(t, Config{}, Local{}, func(t *testing.T, o *owner) {
		c := o.link("a", 1)
		c.ws.SetPingHandler(func(string) error { return nil }) // a pipe of this test would not take the answer
		c.say(nonce.AppendRequest([]byte{itRequest, 1, 1}, &nonce.Request{Kind: nonce.KindAllocate, Signer: "slow", Count: 1}))
		go func() { (<-o.runs).end(held(1)) }()
		c.want("#1 [1]")
		c.ask(1, allocate("s"))
		(<-o.runs).end(held(2))
		c.want("#1 [2]")
	})
}

func TestEventsFollowWhatANodeWantsWithoutDoublesOrGaps(t *testing.T) {
	serving(t, Config{}, Local{}, func(t *testing.T, o *owner) {
		c := o.link("a", 1)
		commit := func(signer string, n int64) {
			o.hub.Publish(0, false, []nonce.Event{{Type: nonce.EventUsed, Signer: signer, Nonce: n}})
			synctest.Wait()
		}
		commit("s", 0)
		c.say((&interest{seq: 1, Interest: events.Interest{Signers: []string{"s"}}}).append(nil))
		synctest.Wait()
		commit("s", 1)
		commit("t", 2)
		c.say((&interest{seq: 2, Interest: events.Interest{Signers: []string{"s", "t"}}}).append(nil))
		synctest.Wait()
		commit("s", 3)
		commit("t", 4)
		o.hub.Remote(0, nonce.Event{Type: nonce.EventUsed, Signer: "s", Nonce: 5}, 0) // of a third node
		c.say((&interest{seq: 3}).append(nil))
		synctest.Wait()
		commit("s", 6)
		c.want("have 1", "event s/1", "have 2", "event s/3", "event t/4", "have 3")
		if o.hub.Watched("s") {
			t.Error("it is still subscribed")
		}
	})
}

// TestARequestWaitsForTheFirstWordOfItsChainAndThoseBehindItDoToo.
func TestARequestWaitsForTheFirstWordOfItsChainAndThoseBehindItDoToo(t *testing.T) {
	var heard []func()
	local := Local{Chain: &fakeChain{await: func(signer string, done func()) bool {
		if signer != "new" {
			return false
		}
		heard = append(heard, done)
		return true
	}}}
	serving(t, Config{}, local, func(t *testing.T, o *owner) {
		c := o.link("a", 1)
		c.ask(1, allocate("new"))
		c.ask(1, nonce.Request{Kind: nonce.KindMarkUsed, Signer: "new", Attempt: 1})
		c.ask(2, allocate("other"))
		if len(o.runs) != 1 || (<-o.runs).q.Signer != "other" {
			t.Fatal("it did not wait, or others waited for it")
		}
		heard[0]()
		synctest.Wait()
		if len(o.runs) != 2 || (<-o.runs).q.Kind != nonce.KindAllocate || (<-o.runs).q.Kind != nonce.KindMarkUsed {
			t.Error("they did not go on in their order")
		}
		c.ask(1, allocate("new"))
		c.ws.Close() // who waits is gone
		synctest.Wait()
	})
}

func TestWhatTheOwnerKnowsOfTheChainGoesBack(t *testing.T) {
	local := Local{Chain: &fakeChain{tell: func(q *nonce.Request, r *nonce.Result) {
		if q.Kind == nonce.KindRepair {
			r.Offer = &nonce.Offer{GasPrice: "0x1"}
			return
		}
		r.Said = &nonce.ChainSaid{State: &nonce.ChainState{Mined: 7}}
	}}}
	serving(t, Config{}, local, func(t *testing.T, o *owner) {
		c := o.link("a", 1)
		got := func(q nonce.Request, a nonce.Result) (back nonce.Result) {
			c.ask(1, q)
			(<-o.runs).end(a)
			_, message, err := c.ws.ReadMessage()
			expect.Must(t, err)
			f := &frame{b: message}
			f.tag()
			f.number()
			f.sum()
			read(f, nonce.ReadResult, &back)
			return back
		}
		status := got(nonce.Request{Kind: nonce.KindStatus, Signer: "s", ChainOnly: true}, nonce.Result{Summary: nonce.Summary{Next: 9}})
		if status.Said == nil || status.Said.State.Mined != 7 || status.Summary.Next != 0 {
			t.Errorf("a status came as %+v", status)
		}
		if repair := got(nonce.Request{Kind: nonce.KindRepair, Signer: "s"}, held(3)); repair.Offer == nil || repair.Offer.GasPrice != "0x1" {
			t.Errorf("a repair came as %+v", repair)
		}
	})
}

// TestAReadThatEndsAfterItsLinkIsNotTakenToTheChain: Stop may have waited for such reads already.
func TestAReadThatEndsAfterItsLinkIsNotTakenToTheChain(t *testing.T) {
	said := 0
	serving(t, Config{}, Local{Chain: &fakeChain{tell: func(*nonce.Request, *nonce.Result) { said++ }}}, func(t *testing.T, o *owner) {
		c := o.link("a", 1)
		c.ask(1, nonce.Request{Kind: nonce.KindStatus, Signer: "s"})
		c.ws.Close()
		synctest.Wait()
		(<-o.runs).end(nonce.Result{})
		if synctest.Wait(); said != 0 {
			t.Error("the chain was asked for a node that is gone")
		}
		expect.Must(t, o.Stop(t.Context()))
		if o.door.begin(func() { t.Error("it runs after Stop") }) {
			t.Error("something was begun after Stop")
		}
	})
}

// TestWhatPanicsAsARequestComesKeepsNothing: the place in flight, which serving looks at, the slot of the
// worker and the place for events come back.
func TestWhatPanicsAsARequestComesKeepsNothing(t *testing.T) {
	for name, chain := range map[string]nonce.Chain{
		"Refuses": nil, // a call of it panics
		"Await":   &fakeChain{await: func(string, func()) bool { panic("a mistake") }},
	} {
		serving(t, Config{}, Local{Chain: struct{ nonce.Chain }{chain}}, func(t *testing.T, o *owner) {
			o.hub.Watch(new(deafNode), []string{"s"})
			c := o.link("a", 1)
			c.ask(1, allocate("s"))
			c.want("the end")
			synctest.Wait()
			told := strings.Contains(o.log.String(), "a mistake of this program")
			if o.left.Load() != o.reserved.Load() || o.pool.Reserved() != 0 || !told {
				t.Errorf("%s: %d slots of %d came back, %d places for events are taken; %s",
					name, o.left.Load(), o.reserved.Load(), o.pool.Reserved(), o.log)
			}
		})
	}
}

// fakeChain refuses one signer, and otherwise does what a test says.
type fakeChain struct {
	noncetest.Chain
	await func(signer string, heard func()) bool
	tell  func(q *nonce.Request, r *nonce.Result)
}

func (*fakeChain) Refuses(signer string) string {
	if signer == "elsewhere:0x1" {
		return "is refused"
	}
	return ""
}

func (f *fakeChain) Await(q *nonce.Request, heard func()) bool {
	return f.await != nil && f.await(q.Signer, heard)
}

func (f *fakeChain) Tell(q *nonce.Request, r *nonce.Result) { f.tell(q, r) }

func TestAnEventHasAPlaceBeforeItsRequestBegins(t *testing.T) {
	serving(t, Config{}, Local{Chain: &fakeChain{}, MaxHold: time.Minute}, func(t *testing.T, o *owner) {
		c := o.link("a", 1)
		c.ask(1, allocate("s"))
		o.hub.Watch(new(deafNode), []string{"s"})
		c.ask(1, allocate("s"))
		c.ask(1, nonce.Request{Kind: nonce.KindAllocate, Signer: "s", Count: 1, Hold: time.Hour})
		if first, second := <-o.runs, <-o.runs; first.slot.Events || !second.slot.Events {
			t.Error("a place was taken where nobody listens, or none where somebody does")
		} else {
			o.hub.Unreserve(0)
		}
		c.want("#3 holdMs: must be 0 to 60000")
		c.ask(1, allocate("elsewhere:0x1"))
		c.want("#4 signer: is refused")
	})
}

type deafNode struct{}

func (*deafNode) Take(*events.Event, int64) bool { return false }

// TestARestartIsToldBehindAllThatIsReady: the node counts no gap then. Here the writer finds the farewell first.
func TestARestartIsToldBehindAllThatIsReady(t *testing.T) {
	serving(t, Config{}, Local{}, func(t *testing.T, o *owner) {
		c := o.link("a", 1)
		for in := range o.door.links {
			in.push(reply{have: 7}) // without a wake
			in.close(wire.CloseServiceRestart, wire.CloseTextRestart)
		}
		c.want("have 7", "the end: websocket: close 1012")
	})
}

// TestADrainAnswersWhatItHasThenClosesEachLinkAsForARestart.
func TestADrainAnswersWhatItHasThenClosesEachLinkAsForARestart(t *testing.T) {
	serving(t, Config{}, Local{}, func(t *testing.T, o *owner) {
		busy, idle := o.link("a", 1), o.link("c", 1)
		busy.ask(1, allocate("s"))
		drained := make(chan error, 1)
		go func() { drained <- o.Drain(context.Background()) }()
		idle.want("the end: websocket: close 1012")
		if ce, _ := errors.AsType[*websocket.CloseError](idle.end); !isRestart(ce) {
			t.Errorf("it closes with %v", idle.end)
		}
		busy.ask(1, allocate("s"))
		busy.want("#2 the gateway is going away")
		(<-o.runs).end(held(1))
		busy.want("#1 [1]", "the end: websocket: close 1012")
		if err := <-drained; err != nil {
			t.Error(err)
		}
		_, resp, err := wsconn.Dial(t.Context(), websocket.Dialer{NetDialContext: o.net.Dial}, "ws://b/node", nil)
		if err == nil || resp.StatusCode != http.StatusServiceUnavailable || o.refused[0] != RefusedLeaving {
			t.Errorf("one more link: %v", err)
		}
	})
}
