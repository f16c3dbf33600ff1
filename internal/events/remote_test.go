package events

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"noncegate/wire"
)

// remote is an event as another node encoded it.
func remote(t *testing.T, signer string, version int64) []byte {
	t.Helper()
	body, err := wire.AppendEvent(nil, &wire.Event{Type: wire.EventAllocated, Signer: signer, Version: version})
	if err != nil {
		t.Fatal(err)
	}
	return body
}

func TestWhatAnotherNodeCommittedGoesToClientsOnly(t *testing.T) {
	h := newHub(t, 100)
	client, node := new(recorder), new(recorder)
	h.subscribe(t, client, "a")
	h.subscribeTo(t, Here, node)
	h.Publish(0, false, event("a", 1))
	h.Remote("a", remote(t, "a", 2), 0)
	h.Remote("b", remote(t, "b", 3), 0)
	h.stop(t)()
	if got := versions(client); fmt.Sprint(got) != "[1 2]" {
		t.Errorf("the client got versions %v, want 1 of this node and 2 of another", got)
	}
	if got := versions(node); fmt.Sprint(got) != "[1]" {
		t.Errorf("the other node got versions %v, want 1, which was committed here", got)
	}
}

func TestWhatComesBetweenTheAnswerAndTheStartCountsAsMissed(t *testing.T) {
	h := newHub(t, 100)
	r := new(recorder)
	s := h.Subscribe(r, Everywhere, []string{"a"})
	h.Publish(0, false, event("a", 1))
	h.stop(t)()
	if missed := s.Close(); missed != 0 {
		t.Errorf("before the answer %d count as missed", missed)
	}

	h = newHub(t, 100)
	s = h.Subscribe(r, Everywhere, []string{"a"})
	s.Announce()
	h.Publish(0, false, event("a", 1))
	h.stop(t)()
	s.Miss(2)
	if missed := s.Close(); missed != 3 || len(r.events) != 0 {
		t.Errorf("%d count as missed, want 1 and the 2 that were added; delivered %v", missed, r.events)
	}
}

func versions(r *recorder) (versions []int64) {
	for _, e := range r.events {
		versions = append(versions, e.Version)
	}
	return versions
}

func TestAnEventOfAnotherNodeIsNotEncodedAgain(t *testing.T) {
	h := newHub(t, 1)
	first, second := new(recorder), new(recorder)
	h.subscribe(t, first)
	h.subscribe(t, second, "a")
	body := remote(t, "a", 1)
	h.Remote("a", body, 0)
	h.stop(t)()
	if &first.body[0] != &body[0] || &second.body[0] != &body[0] {
		t.Error("the bytes are not those that came")
	}
}

func TestAnEventOfANewerNodeIsPassedOnAsItCame(t *testing.T) {
	h := newHub(t, 1)
	r := new(recorder)
	h.subscribe(t, r, "a")
	body := []byte(`{"type":"fromLater","signer":"a","nonce":1,"attempt":1,"version":2,"at":"2026-11-20T18:33:56.123Z","more":{"x":[1]}}`)
	h.Remote("a", body, 0)
	h.stop(t)()
	if string(r.body) != string(body) {
		t.Errorf("delivered %s", r.body)
	}
}

func TestEventsOfAnotherNodeTravelOnTheQueueOfTheirSigner(t *testing.T) {
	const n = 1000
	h := newHub(t, 2*n)
	h.QueueBy(func(signer string) int { return int(signer[0] - 'a') })
	stuck, entered := make(chan struct{}), make(chan struct{})
	h.subscribe(t, &recorder{refuse: func(int64) bool { close(entered); <-stuck; return false }}, "b")
	r := new(recorder)
	h.subscribe(t, r, "a")
	h.Remote("b", remote(t, "b", 1), 0)
	<-entered // queue 1 hangs, and a's goes on
	for v := int64(1); v <= n; v++ {
		if v%2 == 0 {
			h.Publish(0, false, event("a", v))
		} else {
			h.Remote("a", remote(t, "a", v), 0)
		}
	}
	for began := time.Now(); h.pool.Reserved() > 1; runtime.Gosched() { // all but the one that hangs run
		if time.Since(began) > 10*time.Second {
			close(stuck)
			t.Fatal("they are held up by another queue")
		}
	}
	close(stuck)
	h.stop(t)()
	if got := versions(r); len(got) != n || !slices.IsSorted(got) {
		t.Errorf("got %d events, want %d in the order in which they came", len(got), n)
	}
}

func TestEventsOfAnotherNodeWithoutAPlaceAreDroppedCountedAndMissed(t *testing.T) {
	h := newHub(t, 1)
	entered, let := make(chan struct{}, 1), make(chan struct{})
	r := &recorder{refuse: func(v int64) bool {
		if v == 1 {
			entered <- struct{}{}
			<-let
		}
		return false
	}}
	h.subscribe(t, r, "a")
	h.Remote("a", remote(t, "a", 1), 0)
	<-entered
	h.Remote("a", remote(t, "a", 2), 0) // must not wait for the hanging Offer
	if h.dropped.Load() != 1 {
		t.Errorf("%d dropped, want 1", h.dropped.Load())
	}
	close(let)
	for !h.Reserve(0) { // free once the first task has returned
	}
	h.Unreserve(0)
	h.Remote("a", remote(t, "a", 3), 0)
	h.stop(t)()
	if got := fmt.Sprint(r.missed); got != "[0 1]" {
		t.Errorf("missed %s, want 1 before the second", got)
	}
}

func TestWhatAnotherNodeCouldNotTellIsMissedByEveryClientOnce(t *testing.T) {
	h := newHub(t, 100)
	all, two, node := new(recorder), new(recorder), new(recorder)
	h.subscribe(t, all)
	h.subscribe(t, two, "b", "c")
	h.subscribeTo(t, Here, node)
	h.Remote("a", remote(t, "a", 1), 7) // of whichever signers
	h.Lost()
	for _, signer := range []string{"b", "c"} {
		h.Publish(0, false, event(signer, 2))
	}
	h.stop(t)()
	if sum(all.missed) != 8 || sum(two.missed) != 8 || len(two.missed) != 2 || two.missed[0] != 8 {
		t.Errorf("missed %v and %v, want 8 each, said once", all.missed, two.missed)
	}
	if sum(node.missed) != 0 {
		t.Errorf("another node was told that it missed %v of a third one's", node.missed)
	}
}

func sum(numbers []int64) (sum int64) {
	for _, n := range numbers {
		sum += n
	}
	return sum
}

func TestNothingIsDeliveredBeforeTheStartAndWhatIsLostUntilThenIsSaid(t *testing.T) {
	h := newHub(t, 100)
	r := new(recorder)
	s := h.Subscribe(r, Everywhere, []string{"a"})
	if !h.Watched("a") {
		t.Error("not watched, although somebody is about to listen")
	}
	h.Publish(0, false, event("a", 1))
	h.Remote("a", remote(t, "a", 2), 0)
	h.Lost()
	for h.pool.Reserved() > 0 {
	}
	s.Start()
	h.Publish(0, false, event("a", 3))
	h.stop(t)()
	if got := versions(r); fmt.Sprint(got, r.missed) != "[3] [1]" {
		t.Errorf("got versions %v, missed %v; want only the third, which says that one got lost", got, r.missed)
	}
	s.Close()
	s.Start()
	h.subscribe(t, new(recorder), "a")
	if len(r.events) != 1 {
		t.Error("a closed subscription was started again")
	}
}

func TestTheInterestIsWhatClientsWantTogether(t *testing.T) {
	h := newHub(t, 1)
	var calls atomic.Int64
	h.OnInterest(func() { calls.Add(1); h.Interest() }) // no lock of the hub is held
	want := func(said int64, want string) {
		t.Helper()
		if got := fmt.Sprint(h.Interest()); got != want || calls.Load() != said {
			t.Errorf("interest %s, told %d times; want %s and %d", got, calls.Load(), want, said)
		}
	}
	want(0, "{false []}")
	first := h.subscribe(t, new(recorder), "b", "a", "b")
	want(1, "{false [a b]}")
	second := h.subscribe(t, new(recorder), "a")
	want(1, "{false [a b]}") // as before
	first.Close()
	first.Close()
	want(2, "{false [a]}")
	node := h.subscribeTo(t, Here, new(recorder), "x")
	want(2, "{false [a]}")
	node.Close()
	all := h.subscribe(t, new(recorder))
	want(3, "{true []}")
	more := h.subscribe(t, new(recorder), "more")
	more.Close()
	want(3, "{true []}")
	all.Close()
	want(4, "{false [a]}")
	second.Close()
	want(5, "{false []}")
}

func TestMoreSignersThanOneSubscriptionMayNameAreAll(t *testing.T) {
	h := newHub(t, 1)
	signers := make([]string, MaxSigners)
	for i := range signers {
		signers[i] = fmt.Sprintf("s%04d", i)
	}
	h.subscribe(t, new(recorder), signers...)
	if got := h.Interest(); got.All || !slices.Equal(got.Signers, signers) {
		t.Errorf("got all %v and %d signers, want just those %d", got.All, len(got.Signers), len(signers))
	}
	more := h.subscribe(t, new(recorder), "one more")
	if got := h.Interest(); !got.All || got.Signers != nil {
		t.Errorf("got %d signers, want all", len(got.Signers))
	}
	more.Close()
	if h.Interest().All {
		t.Error("still all")
	}
}

func TestTheLastWordOnTheInterestIsTrueUnderConcurrency(t *testing.T) {
	h := newHub(t, 1)
	var mu sync.Mutex
	var heard Interest
	h.OnInterest(func() {
		mu.Lock()
		defer mu.Unlock()
		heard = h.Interest()
	})
	var changing sync.WaitGroup
	for i := range 8 {
		changing.Go(func() {
			for n := range 200 {
				s := h.Subscribe(new(recorder), Everywhere, []string{fmt.Sprint(i, n%3)})
				if n < 199 {
					s.Close()
				}
			}
		})
	}
	changing.Wait()
	if got, want := fmt.Sprint(heard), fmt.Sprint(h.Interest()); got != want || len(heard.Signers) != 8 {
		t.Errorf("heard %s, it is %s", got, want)
	}
}
