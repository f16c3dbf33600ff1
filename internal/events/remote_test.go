package events

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"noncegate/test/lab/wait"
)

func TestWhatAnotherNodeCommittedGoesToClientsOnly(t *testing.T) {
	h := newHub(t, 100)
	client, node := new(recorder), new(recorder)
	h.subscribe(client, "a")
	h.Watch(node, nil)
	h.commit("a", 1)
	h.remote("a", 2)
	h.remote("b", 3)
	h.stop()
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
	s := h.Subscribe(r, []string{"a"})
	h.commit("a", 1)
	h.stop()
	if missed := s.Close(); missed != 0 {
		t.Errorf("before the answer %d count as missed", missed)
	}

	h = newHub(t, 100)
	s = h.Subscribe(r, []string{"a"})
	s.Announce()
	h.commit("a", 1)
	h.stop()
	if missed := s.Close(); missed != 1 || len(r.events) != 0 {
		t.Errorf("%d count as missed, want 1; delivered %v", missed, r.events)
	}
}

func versions(r *recorder) (versions []int64) {
	for _, e := range r.events {
		versions = append(versions, e.Version)
	}
	return versions
}

func TestEventsOfAnotherNodeTravelOnTheQueueOfTheirSigner(t *testing.T) {
	const n = 1000
	h := newHub(t, 2*n)
	stuck, entered := make(chan struct{}), make(chan struct{})
	h.subscribe(&recorder{refuse: func(int64) bool { close(entered); <-stuck; return false }}, "b")
	r := new(recorder)
	h.subscribe(r, "a")
	h.Remote(1, event("b", 1)[0], 0)
	<-entered // queue 1 hangs, and a's goes on
	for v := int64(1); v <= n; v++ {
		if v%2 == 0 {
			h.commit("a", v)
		} else {
			h.remote("a", v)
		}
	}
	for began := time.Now(); h.pool.Reserved() > 1; runtime.Gosched() { // all but the one that hangs run
		if time.Since(began) > wait.Patience {
			close(stuck)
			t.Fatal("they are held up by another queue")
		}
	}
	close(stuck)
	h.stop()
	if got := versions(r); len(got) != n || !slices.IsSorted(got) {
		t.Errorf("got %d events, want %d in the order in which they came", len(got), n)
	}
}

func TestWhatAnotherNodeCouldNotTellIsMissedByEveryClientOnce(t *testing.T) {
	h := newHub(t, 100)
	all, two, node := new(recorder), new(recorder), new(recorder)
	h.subscribe(all)
	h.subscribe(two, "b", "c")
	h.Watch(node, nil)
	h.Remote(0, event("a", 1)[0], 7) // of whichever signers
	h.Lost()
	for _, signer := range []string{"b", "c"} {
		h.commit(signer, 2)
	}
	h.stop()
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
	s := h.Subscribe(r, []string{"a"})
	if !h.Watched("a") {
		t.Error("not watched, although somebody is about to listen")
	}
	h.commit("a", 1)
	h.remote("a", 2)
	h.Lost()
	h.settle()
	s.Start()
	h.commit("a", 3)
	h.stop()
	if got := versions(r); fmt.Sprint(got, r.missed) != "[3] [1]" {
		t.Errorf("got versions %v, missed %v; want only the third, which says that one got lost", got, r.missed)
	}
	s.Close()
	s.Start()
	h.subscribe(new(recorder), "a")
	if len(r.events) != 1 {
		t.Error("a closed subscription was started again")
	}
}

func TestTheInterestIsWhatClientsWantTogetherAndNodesWatchToo(t *testing.T) {
	h := newHub(t, 1)
	var calls atomic.Int64
	h.OnInterest(func() { calls.Add(1); h.Interest() }) // no lock of the hub is held
	want := func(said int64, want, watched string) {
		t.Helper()
		if got := fmt.Sprint(h.Interest()); got != want || calls.Load() != said {
			t.Errorf("interest %s, told %d times; want %s and %d", got, calls.Load(), want, said)
		}
		got := ""
		for _, signer := range []string{"a", "b", "x"} {
			if h.Watched(signer) {
				got += signer
			}
		}
		if got != watched {
			t.Errorf("%q are watched, want %q", got, watched)
		}
	}
	want(0, "{false []}", "")
	first := h.subscribe(new(recorder), "b", "a", "b")
	want(1, "{false [a b]}", "ab")
	second := h.subscribe(new(recorder), "a")
	want(1, "{false [a b]}", "ab") // as before
	first.Close()
	first.Close()
	want(2, "{false [a]}", "a")
	node := h.Watch(new(recorder), []string{"x"})
	want(2, "{false [a]}", "ax")
	node.Close()
	all := h.subscribe(new(recorder))
	want(3, "{true []}", "abx")
	more := h.subscribe(new(recorder), "more")
	more.Close()
	want(3, "{true []}", "abx")
	all.Close()
	want(4, "{false [a]}", "a")
	second.Close()
	want(5, "{false []}", "")
	if h.open.Load() != 0 || len(h.wants[ofClients].bySigner) != 0 {
		t.Error("something is left of closed subscriptions")
	}
}

func TestMoreSignersThanOneSubscriptionMayNameAreAll(t *testing.T) {
	h := newHub(t, 1)
	signers := make([]string, MaxSigners)
	for i := range signers {
		signers[i] = fmt.Sprintf("s%04d", i)
	}
	h.subscribe(new(recorder), signers...)
	if got := h.Interest(); got.All || !slices.Equal(got.Signers, signers) {
		t.Errorf("got all %v and %d signers, want just those %d", got.All, len(got.Signers), len(signers))
	}
	more := h.subscribe(new(recorder), "one more")
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
				s := h.Subscribe(new(recorder), []string{fmt.Sprint(i, n%3)})
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
