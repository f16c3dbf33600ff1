package events

import (
	"fmt"
	"strings"
	"testing"
)

// relay keeps what it is handed of signers that begin with its letter.
type relay struct {
	wants  string
	events []string
	missed int
}

func (r *relay) Wanted(signer string) bool { return strings.HasPrefix(signer, r.wants) }

func (r *relay) Relay(signer string, event []byte) { r.events = append(r.events, signer+string(event)) }

func (r *relay) Missed(signer string, n int) { r.missed += n }

func TestWhatIsCommittedHereIsRelayedInOrderAndEncodedOnce(t *testing.T) {
	h := newHub(t, 100)
	r, here := &relay{wants: "a"}, new(recorder)
	h.RelayTo(r)
	if !h.Watched("a") || h.Watched("b") {
		t.Error("what a relay wants counts as interest, and nothing else does")
	}
	h.subscribe(here, "a")
	h.commit("a", 1)
	h.commit("b", 2)
	h.remote("a", 3) // of another node, which relays it itself
	h.commit("a", 4)
	h.stop()
	if len(r.events) != 2 || !strings.Contains(r.events[0], `"version":1`) || !strings.Contains(r.events[1], `"version":4`) {
		t.Errorf("relayed %v", r.events)
	}
	if got := fmt.Sprint(versions(here)); got != "[1 3 4]" {
		t.Errorf("delivered here %s", got)
	}
}

func TestWhatFindsNoPlaceIsMissedByTheRelayToo(t *testing.T) {
	h := newHub(t, 1)
	r := &relay{wants: "a"}
	h.RelayTo(r)
	if !h.Reserve(0) {
		t.Fatal("no slot")
	}
	h.commit("a", 1)
	h.commit("b", 1)
	h.Unreserve(0)
	h.commit("a", 2)
	h.stop()
	if r.missed != 1 || len(r.events) != 1 {
		t.Errorf("missed %d, relayed %v", r.missed, r.events)
	}
}

func TestALossOfSomeSignersIsTheirSubscribersOnly(t *testing.T) {
	h := newHub(t, 100)
	all, two, other, node := new(recorder), new(recorder), new(recorder), new(recorder)
	h.subscribe(all)
	h.subscribe(two, "x", "a")
	h.subscribe(other, "b")
	h.subscribeTo(Here, node, "a")
	h.MissedOf(5, func(signer string) bool { return signer == "a" })
	for _, s := range []string{"a", "b", "x"} {
		h.commit(s, 1)
	}
	h.stop()
	if sum(all.missed) != 5 || sum(two.missed) != 5 || sum(other.missed) != 0 || sum(node.missed) != 0 {
		t.Errorf("missed %v, %v, %v and %v", all.missed, two.missed, other.missed, node.missed)
	}
}
