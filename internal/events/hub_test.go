package events

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"noncegate/nonce"
	"noncegate/postdb"
	"noncegate/test/lab/expect"
	"noncegate/wire"
)

// Ants starts a default pool when it is imported; what runs before the tests is
// not ours.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m, goleak.IgnoreCurrent()) }

const queues = 2

type fixture struct {
	testing.TB
	*Hub
	pool    *postdb.Pool
	dropped atomic.Int64
}

func newHub(t testing.TB, slots int) *fixture {
	t.Helper()
	pool, err := postdb.New(postdb.Config{Workers: 2, Queue: slots, Queues: queues, QueueShare: slots}, slog.New(slog.DiscardHandler))
	expect.Must(t, err)
	f := &fixture{TB: t, pool: pool}
	f.Hub = New(pool, func(n int) { f.dropped.Add(int64(n)) })
	t.Cleanup(f.stop)
	return f
}

// stop waits for everything published.
func (f *fixture) stop() {
	expect.Check(f, f.pool.Stop(context.Background()))
	if f.pool.Reserved() != 0 {
		f.Errorf("%d slots are still taken", f.pool.Reserved())
	}
}

// settle waits until what was published was delivered.
func (f *fixture) settle() {
	for f.pool.Reserved() > 0 {
		runtime.Gosched()
	}
}

// subscribe makes a client's subscription that delivers.
func (f *fixture) subscribe(to Subscriber, signers ...string) *Subscription {
	s := f.Subscribe(to, signers)
	s.Start()
	return s
}

// commit publishes an event of this node.
func (f *fixture) commit(signer string, version int64) {
	f.Publish(0, false, event(signer, version))
}

// remote hands over an event of another node.
func (f *fixture) remote(signer string, version int64) {
	f.Remote(0, event(signer, version)[0], 0)
}

// recorder is a subscriber that remembers what it is offered.
type recorder struct {
	mu     sync.Mutex
	refuse func(version int64) bool // called with mu held; nil: takes all
	events []wire.Event
	missed []int64
	body   []byte // of the last one
}

func (r *recorder) Take(of *Event, missed int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	var e wire.Event
	event := of.JSON()
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
	h.subscribe(all)
	h.subscribe(one, "a", "a", "x")
	h.subscribe(other, "nobody")
	for v := int64(1); v <= n; v++ {
		h.Publish(0, false, event([]string{"a", "b"}[v%2], v))
	}
	h.stop()
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
	h.subscribe(first)
	h.subscribe(second, "a")
	for of, tell := range map[string]func(){
		"here":         func() { h.Publish(1, false, event("a", 1)) },
		"another node": func() { h.remote("a", 2) },
	} {
		tell()
		h.settle()
		if &first.body[0] != &second.body[0] {
			t.Errorf("two encodings of one event of %s", of)
		}
	}
}

// eventTypes are all types, with the words of the protocol.
var eventTypes = map[nonce.EventType]string{
	nonce.EventAllocated: wire.EventAllocated, nonce.EventUsed: wire.EventUsed, nonce.EventReleased: wire.EventReleased,
	nonce.EventExpired: wire.EventExpired, nonce.EventFloor: wire.EventFloor, nonce.EventReplaced: wire.EventReplaced,
	nonce.EventSigned: wire.EventSigned, nonce.EventExtended: wire.EventExtended, nonce.EventUnknown: wire.EventUnknown,
	nonce.EventSent: wire.EventSent, nonce.EventMined: wire.EventMined, nonce.EventFinal: wire.EventFinal,
	nonce.EventDropped: wire.EventDropped, nonce.EventGap: wire.EventGap, nonce.EventGapClosed: wire.EventGapClosed,
	nonce.EventExternal: wire.EventExternal, nonce.EventReorg: wire.EventReorg, nonce.EventStuck: wire.EventStuck,
}

func TestEveryTypeOfEventHasItsWordAndAGapItsMembers(t *testing.T) {
	const slots = 100
	h := newHub(t, slots)
	r := new(recorder)
	h.subscribe(r)
	since := time.Date(2026, 11, 20, 18, 33, 56, 123e6, time.UTC)
	for typ := nonce.EventAllocated; typ <= nonce.EventStuck; typ++ {
		e := event("a", int64(typ))
		e[0].Type = typ
		if typ == nonce.EventGap {
			e[0].Gap = &nonce.Gap{Nonce: 4, Since: since, Status: nonce.Held, Unknown: true, Attempt: 2, TxHash: nonce.TxHash{31: 1}, Blocked: 3}
		}
		h.Publish(0, false, e)
	}
	h.stop()
	if len(r.events) != len(eventTypes) {
		t.Fatalf("%d events came, of %d", len(r.events), len(eventTypes))
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
	want := wire.Gap{Nonce: 4, Since: wire.Time(since), Status: "UNKNOWN", Attempt: 2, TxHash: nonce.TxHash{31: 1}.String(), Blocked: 3}
	if got := r.events[nonce.EventGap-1].Gap; got == nil || *got != want {
		t.Errorf("the gap came as %+v", got)
	}
	if got := Gap(&nonce.Gap{Status: nonce.Consumed}).Status + Gap(&nonce.Gap{}).Status; got != "CONSUMED" || Gap(nil) != nil {
		t.Errorf("statuses of gaps: %q", got)
	}
}

func TestTheNextEventSaysHowManyWereMissed(t *testing.T) {
	h := newHub(t, 100)
	r := &recorder{refuse: func(v int64) bool { return v >= 3 && v <= 7 }}
	h.subscribe(r)
	for v := int64(1); v <= 9; v++ {
		h.commit("a", v)
	}
	h.stop()
	if got := fmt.Sprint(r.missed); got != "[0 0 5 0]" {
		t.Errorf("missed %s, want 5 before the third", got)
	}
}

func TestEventsWithoutAPlaceAreDroppedCountedAndMissed(t *testing.T) {
	for _, c := range []struct {
		name    string
		publish func(f *fixture, version int64)
		lose    func(f *fixture)
		lost    int64
	}{
		{"of this node", func(f *fixture, version int64) { f.commit("a", version) },
			func(f *fixture) { f.Publish(0, false, append(event("a", 2), event("a", 2)...)) }, 2},
		{"of another", func(f *fixture, version int64) { f.remote("a", version) }, func(f *fixture) { f.remote("a", 2) }, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHub(t, 1)
			entered, let := make(chan struct{}, 1), make(chan struct{})
			r := &recorder{refuse: func(v int64) bool {
				if v == 1 {
					entered <- struct{}{}
					<-let
				}
				return false
			}}
			h.subscribe(r, "a")
			c.publish(h, 1)
			<-entered
			c.lose(h) // must not wait for the hanging Take
			if h.dropped.Load() != c.lost {
				t.Errorf("%d dropped, want %d", h.dropped.Load(), c.lost)
			}
			if h.Reserve(0) {
				t.Error("a slot was granted")
			}
			close(let)
			h.settle()
			c.publish(h, 3)
			h.stop()
			if got, want := fmt.Sprint(r.missed), fmt.Sprint([]int64{0, c.lost}); got != want {
				t.Errorf("missed %s, want %s", got, want)
			}
		})
	}
}

func TestAPlaceForWhatNobodyWatchesComesBack(t *testing.T) {
	h := newHub(t, 1)
	h.subscribe(new(recorder), "other")
	for range 3 {
		if !h.Reserve(0) {
			t.Fatal("no slot")
		}
		h.Publish(0, true, event("a", 1))
	}
	if !h.Reserve(0) {
		t.Fatal("no slot")
	}
	h.Unreserve(0)
}

func TestNothingIsOfferedAfterClose(t *testing.T) {
	h := newHub(t, 1000)
	var closed atomic.Bool
	for range 50 {
		closed.Store(false)
		s := h.subscribe(&recorder{refuse: func(int64) bool {
			if closed.Load() {
				t.Error("offered after Close had returned")
			}
			return false
		}})
		for v := int64(1); v <= 10; v++ {
			h.commit("a", v)
		}
		s.Close()
		closed.Store(true)
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
		"of this node": (*fixture).commit,
		"of another":   (*fixture).remote,
	} {
		t.Run(name, func(t *testing.T) {
			f := newHub(t, 100)
			r := new(selective)
			r.may.Store(&a)
			f.subscribe(r)
			version := int64(0)
			told := func(want ...string) {
				t.Helper()
				for _, signer := range []string{a, b} {
					version++
					publish(f, signer, version)
				}
				f.settle()
				r.mu.Lock()
				defer r.mu.Unlock()
				got := make([]string, 0, len(want))
				for _, e := range r.events {
					got = append(got, e.Signer)
				}
				if fmt.Sprint(got) != fmt.Sprint(want) || sum(r.missed) != 0 {
					t.Errorf("told of %q, want %q; missed %v", got, want, r.missed)
				}
			}
			told(a)
			r.may.Store(&b)
			told(a, b)
		})
	}
}
