package traffic

import (
	"encoding/json"
	"testing"
	"time"

	"noncegate/scripts/loadtest/result"
)

func TestOnlyWhatIsDueInTheMeasuredTimeCounts(t *testing.T) {
	m := newMeter()
	s := m.shard(0)
	all := func(due time.Duration) {
		s.acknowledge(Allocate, due, due+2*time.Millisecond, 1)
		s.refuse(MarkUsed, due, "conflict")
		s.fail(due, 1)
		s.leave(due, 1)
		s.arrive(due, due+5*time.Millisecond)
		s.unmatch(due)
		s.miss(due, 1)
	}
	all(time.Hour) // it has not begun
	m.begin.Store(int64(time.Second))
	all(time.Second - 1)
	all(time.Second)
	all(time.Minute)
	m.endSecond(0, time.Second)
	r := &result.Run{Seconds: 2}
	m.report(r)
	if r.Acknowledged != 2 || r.Refused["conflict"] != 2 || r.Failed != 2 || r.Unsent != 2 || r.PerSecond != 1 {
		t.Errorf("%+v; want two of each", r)
	}
	if e := m.events(); e.Received != 4 || e.LatencyMs.Count != 2 || e.Unmatched != 2 || e.Missed != 2 || e.LatencyMs.P50 < 4.9 || e.LatencyMs.P50 > 5.1 {
		t.Errorf("events %+v; want two of each, after 5 ms", e)
	}
	if l := r.Methods["allocate"].LatencyMs; l.P99 < 1.9 || l.P99 > 2.1 || r.Methods["markUsed"].Refused["conflict"] != 2 {
		t.Errorf("methods %+v; want 2 ms and two conflicts", r.Methods)
	}
}

func TestASecondHasWhatCameInIt(t *testing.T) {
	m := newMeter()
	m.begin.Store(0)
	m.shard(0).acknowledge(Allocate, 0, time.Millisecond, 3)
	m.shard(1).acknowledge(Status, 0, 9*time.Millisecond, 1)
	m.shard(1).acknowledge(MarkUsed, 0, time.Millisecond, 2)
	first := m.endSecond(0, time.Second)
	m.shard(1).refuse(Allocate, 0, "server_busy")
	m.shard(0).fail(0, 2)
	second := m.endSecond(time.Second, time.Second/2)
	if first.Acknowledged != 6 || first.Refused != 0 || first.P50 > 1.1 || first.P99 < 8.9 || first.At != 0 {
		t.Errorf("first second %+v", first)
	}
	if want := (result.Second{At: 1, Seconds: 0.5, Refused: 1, Failed: 2}); second != want {
		t.Errorf("second second %+v, want %+v", second, want)
	}
}

func TestAnEmptyRunHasNoFigureThatIsNoNumber(t *testing.T) {
	m := newMeter()
	m.endSecond(0, 0)
	r := new(result.Run)
	m.report(r)
	r.Events = m.events()
	if _, err := json.Marshal(r); err != nil || r.PerSecond != 0 || r.LatencyMs != (result.Latency{}) {
		t.Errorf("%v, %+v; want zeros", err, r)
	}
}

func TestALatencyBeyondTheLongestOrBelowZeroIsCountedAtTheEnd(t *testing.T) {
	m := newMeter()
	m.begin.Store(0)
	m.shard(0).acknowledge(Allocate, 0, 24*time.Hour, 1)
	m.shard(0).acknowledge(Allocate, time.Second, 0, 1)
	if s := m.endSecond(0, 1); s.Acknowledged != 2 || s.P99 < 0.99*float64(maxLatency.Milliseconds()) {
		t.Errorf("%+v; want both counted", s)
	}
}

func TestEventsAreMatchedInAnyOrderForEverySubscriber(t *testing.T) {
	m := newMeter()
	m.begin.Store(0)
	c := newCauses(2, Signers{Count: 10})
	e := event{account: 1, nonce: 2, attempt: 1, method: Allocate}
	c.arrived(e, m.shard(0), 30*time.Millisecond)
	if c.pending() {
		t.Error("an event whose request is not known is waited for")
	}
	c.caused(e, 10*time.Millisecond)
	if !c.pending() {
		t.Error("the second subscriber's event is not waited for")
	}
	c.arrived(event{account: 1, nonce: 2, attempt: 1, method: MarkUsed}, m.shard(0), 0)
	c.arrived(e, m.shard(1), 50*time.Millisecond)
	if c.pending() {
		t.Error("something is waited for though all has come")
	}
	c.end()
	got := m.events()
	if got.Received != 3 || got.Unmatched != 1 || got.LatencyMs.Count != 2 || got.LatencyMs.P50 < 19 || got.LatencyMs.P50 > 21 || got.LatencyMs.Max < 39 {
		t.Errorf("events %+v; want 20 and 40 ms, and one of no known request", got)
	}
}

func TestWhatIsRememberedOfEventsIsBounded(t *testing.T) {
	m := newMeter()
	m.begin.Store(0)
	c := newCauses(1, Signers{Count: 1})
	const n = maxCauses * 5 / 4
	for i := range int64(n) {
		c.arrived(event{account: 0, nonce: i, attempt: 1}, m.shard(0), 0)
	}
	if c.known.Len() > maxCauses || c.early > maxEarly {
		t.Errorf("%d known, %d arrivals; want at most %d", c.known.Len(), c.early, maxCauses)
	}
	if c.end(); m.events().Unmatched != n {
		t.Errorf("%d of no known request, want all %d", m.events().Unmatched, n)
	}
}
