package events

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"noncegate/nonce"
	"noncegate/postdb"
	"noncegate/wire"
)

// Ants starts a default pool when it is imported; what runs before the tests is
// not ours.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m, goleak.IgnoreCurrent()) }

const queues = 2

type fixture struct {
	*Hub
	pool    *postdb.Pool
	dropped atomic.Int64
}

func newHub(t *testing.T, places int) *fixture {
	t.Helper()
	pool, err := postdb.New(postdb.Config{Workers: 2, Queue: places, Queues: queues, QueueShare: places}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{pool: pool}
	f.Hub = New(pool, func(n int) { f.dropped.Add(int64(n)) })
	t.Cleanup(f.stop(t))
	return f
}

// stop waits for everything published.
func (f *fixture) stop(t *testing.T) func() {
	return func() {
		if err := f.pool.Stop(context.Background()); err != nil {
			t.Error(err)
		}
		if f.pool.Reserved() != 0 {
			t.Errorf("%d places are still taken", f.pool.Reserved())
		}
	}
}

// subscribe makes a client's subscription that delivers.
func (f *fixture) subscribe(t *testing.T, to Subscriber, signers ...string) *Subscription {
	t.Helper()
	return f.subscribeTo(t, Everywhere, to, signers...)
}

func (f *fixture) subscribeTo(t *testing.T, scope Scope, to Subscriber, signers ...string) *Subscription {
	t.Helper()
	s := f.Subscribe(to, scope, signers)
	s.Start()
	return s
}

// recorder is a subscriber that remembers what it is offered.
type recorder struct {
	mu     sync.Mutex
	refuse func(version int64) bool // called with mu held; nil: takes all
	events []wire.Event
	missed []int64
	body   []byte // of the last one
}

func (r *recorder) Offer(event []byte, missed int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	var e wire.Event
	if err := json.Unmarshal(event, &e); err != nil {
		panic(err)
	}
	if r.refuse != nil && r.refuse(e.Version) {
		return false
	}
	r.events, r.missed, r.body = append(r.events, e), append(r.missed, missed), event
	return true
}

func event(signer string, version int64) []nonce.Event {
	return []nonce.Event{{Type: nonce.EventAllocated, Signer: signer, Nonce: version, Attempt: 1, Version: version, At: time.Now()}}
}

func TestEventsOfAQueueComeInOrderToThoseWhoWantThem(t *testing.T) {
	const n = 2000
	h := newHub(t, n)
	all, one, other := new(recorder), new(recorder), new(recorder)
	h.subscribe(t, all)
	h.subscribe(t, one, "a", "a", "x")
	h.subscribe(t, other, "nobody")
	for v := int64(1); v <= n; v++ {
		h.Publish(0, false, event([]string{"a", "b"}[v%2], v))
	}
	h.stop(t)()
	if len(all.events) != n || len(one.events) != n/2 || len(other.events) != 0 {
		t.Fatalf("got %d, %d and %d events", len(all.events), len(one.events), len(other.events))
	}
	for i, e := range all.events {
		if e.Version != int64(i+1) || e.Type != wire.EventAllocated {
			t.Fatalf("event %d is %+v", i, e)
		}
	}
}

func TestAnEventIsEncodedOnceForAll(t *testing.T) {
	h := newHub(t, 1)
	first, second := new(recorder), new(recorder)
	h.subscribe(t, first)
	h.subscribe(t, second, "a")
	h.Publish(1, false, event("a", 1))
	h.stop(t)()
	if &first.body[0] != &second.body[0] {
		t.Error("two encodings of one event")
	}
}

// eventTypes are all types, with the words of the protocol.
var eventTypes = map[nonce.EventType]string{
	nonce.EventAllocated: wire.EventAllocated, nonce.EventUsed: wire.EventUsed, nonce.EventReleased: wire.EventReleased,
	nonce.EventExpired: wire.EventExpired, nonce.EventFloor: wire.EventFloor, nonce.EventReplaced: wire.EventReplaced,
	nonce.EventSigned: wire.EventSigned, nonce.EventExtended: wire.EventExtended, nonce.EventUnknown: wire.EventUnknown,
	nonce.EventSent: wire.EventSent, nonce.EventMined: wire.EventMined, nonce.EventFinal: wire.EventFinal,
	nonce.EventDropped: wire.EventDropped, nonce.EventGap: wire.EventGap, nonce.EventGapClosed: wire.EventGapClosed,
	nonce.EventExternal: wire.EventExternal, nonce.EventReorg: wire.EventReorg,
}

func TestEveryTypeOfEventHasItsWordAndAGapItsMembers(t *testing.T) {
	const places = 100
	h := newHub(t, places)
	r, far := new(recorder), &relay{wants: "a"}
	h.RelayTo(far)
	h.subscribe(t, r)
	since := time.Date(2026, 11, 20, 18, 33, 56, 123e6, time.UTC)
	for typ := nonce.EventAllocated; typ <= nonce.EventReorg; typ++ {
		e := event("a", int64(typ))
		e[0].Type = typ
		if typ == nonce.EventGap {
			e[0].Gap = &nonce.Gap{Nonce: 4, Since: since, Status: nonce.Held, Unknown: true, Attempt: 2, TxHash: nonce.TxHash{31: 1}, Blocked: 3}
		}
		h.Publish(0, false, e)
	}
	h.stop(t)()
	if len(r.events) != len(eventTypes) || len(far.events) != len(eventTypes) {
		t.Fatalf("%d events came and %d were relayed, of %d", len(r.events), len(far.events), len(eventTypes))
	}
	for i, e := range r.events {
		typ := nonce.EventType(i + 1)
		if e.Type != eventTypes[typ] || e.Type == "" {
			t.Errorf("type %d is called %q, want %q", typ, e.Type, eventTypes[typ])
		}
		if (e.Gap != nil) != (typ == nonce.EventGap) {
			t.Errorf("%s has the gap %+v", e.Type, e.Gap)
		}
	}
	const gap = `"gap":{"nonce":4,"since":"2026-11-20T18:33:56.123Z","status":"UNKNOWN","attempt":2,` +
		`"txHash":"0x0000000000000000000000000000000000000000000000000000000000000001","blocked":3}`
	if !strings.Contains(far.events[nonce.EventGap-1], gap) {
		t.Errorf("relayed %s", far.events[nonce.EventGap-1])
	}
	if got := Gap(&nonce.Gap{Status: nonce.Consumed}).Status + Gap(&nonce.Gap{}).Status; got != "CONSUMED" || Gap(nil) != nil {
		t.Errorf("statuses of gaps: %q", got)
	}
}

func TestTheNextEventSaysHowManyWereMissed(t *testing.T) {
	h := newHub(t, 100)
	r := &recorder{refuse: func(v int64) bool { return v >= 3 && v <= 7 }}
	h.subscribe(t, r)
	for v := int64(1); v <= 9; v++ {
		h.Publish(0, false, event("a", v))
	}
	h.stop(t)()
	if got := fmt.Sprint(r.missed); got != "[0 0 5 0]" {
		t.Errorf("missed %s, want 5 before the third", got)
	}
}

func TestEventsWithoutAPlaceAreDroppedCountedAndMissed(t *testing.T) {
	h := newHub(t, 1)
	entered, let := make(chan struct{}, 1), make(chan struct{})
	r := &recorder{refuse: func(v int64) bool {
		if v == 1 {
			entered <- struct{}{}
			<-let
		}
		return false
	}}
	h.subscribe(t, r)
	h.Publish(0, false, event("a", 1))
	<-entered
	h.Publish(0, false, append(event("a", 2), event("a", 2)...)) // must not wait for the hanging Offer
	if h.dropped.Load() != 2 {
		t.Errorf("%d dropped, want 2", h.dropped.Load())
	}
	if h.Reserve(0) {
		t.Error("a place was granted")
	}
	close(let)
	for !h.Reserve(0) { // free once the first task has returned
	}
	h.Publish(0, true, event("a", 3))
	h.stop(t)()
	if got := fmt.Sprint(r.missed); got != "[0 2]" {
		t.Errorf("missed %s, want 2 before the second", got)
	}
}

func TestAPlaceForWhatNobodyWatchesComesBack(t *testing.T) {
	h := newHub(t, 1)
	h.subscribe(t, new(recorder), "other")
	for range 3 {
		if !h.Reserve(0) {
			t.Fatal("no place")
		}
		h.Publish(0, true, event("a", 1))
	}
	if !h.Reserve(0) {
		t.Fatal("no place")
	}
	h.Unreserve(0)
}

func TestWatchedFollowsSubscriptions(t *testing.T) {
	h := newHub(t, 1)
	if h.Watched("a") {
		t.Error("watched by nobody")
	}
	some := h.subscribe(t, new(recorder), "a", "b")
	if !h.Watched("a") || h.Watched("c") {
		t.Error("watched must be a and b only")
	}
	all := h.subscribe(t, new(recorder))
	some.Close()
	some.Close()
	if !h.Watched("a") || !h.Watched("c") {
		t.Error("one still wants all")
	}
	all.Close()
	if h.Watched("a") || h.open.Load() != 0 || len(h.wants[Everywhere].bySigner) != 0 {
		t.Error("something is left of closed subscriptions")
	}
}

func TestNothingIsOfferedAfterClose(t *testing.T) {
	h := newHub(t, 1000)
	var closed atomic.Bool
	for range 50 {
		closed.Store(false)
		s := h.subscribe(t, &recorder{refuse: func(int64) bool {
			if closed.Load() {
				t.Error("offered after Close had returned")
			}
			return false
		}})
		for v := int64(1); v <= 10; v++ {
			h.Publish(0, false, event("a", v))
		}
		s.Close()
		closed.Store(true)
	}
}

func BenchmarkPublishWhenNobodyWatches(b *testing.B) {
	pool, err := postdb.New(postdb.Config{Workers: 1, Queue: 1, Queues: 1, QueueShare: 1}, slog.New(slog.DiscardHandler))
	if err != nil {
		b.Fatal(err)
	}
	h := New(pool, func(int) {})
	e := event("a", 1)
	b.ReportAllocs()
	for b.Loop() {
		if h.Watched("a") {
			b.Fatal("watched")
		}
		h.Publish(0, false, e)
	}
}

// selective is a recorder that may have events of one signer only.
type selective struct {
	recorder
	may atomic.Pointer[string]
}

func (s *selective) May(signer string) bool { return signer == *s.may.Load() }

func TestEventsThatASubscriberMayNotHaveAreNeitherOfferedNorMissed(t *testing.T) {
	a, b := "a", "b"
	for name, publish := range map[string]func(*fixture, string, int64){
		"of this node": func(f *fixture, signer string, version int64) { f.Publish(0, false, event(signer, version)) },
		"of another": func(f *fixture, signer string, version int64) {
			body, err := encode(&event(signer, version)[0])
			if err != nil {
				t.Fatal(err)
			}
			f.Remote(signer, body, 0)
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newHub(t, 100)
			r := new(selective)
			r.may.Store(&a)
			f.subscribe(t, r)
			version := int64(0)
			told := func(want ...string) {
				t.Helper()
				for _, signer := range []string{a, b} {
					version++
					publish(f, signer, version)
				}
				for f.pool.Reserved() != 0 { // its tasks have run
				}
				r.mu.Lock()
				defer r.mu.Unlock()
				got := make([]string, 0, len(want))
				for _, e := range r.events {
					got = append(got, e.Signer)
				}
				for _, n := range r.missed {
					if n != 0 {
						t.Errorf("%d events count as missed", n)
					}
				}
				if fmt.Sprint(got) != fmt.Sprint(want) {
					t.Errorf("told of %q, want %q", got, want)
				}
			}
			told(a)
			r.may.Store(&b)
			told(a, b)
		})
	}
}
