package traffic

import (
	"encoding/json"
	"testing"
	"time"

	"noncegate/scripts/loadtest/result"
)

func TestOnlyWhatIsDueInTheMeasuredTimeCounts(t *testing.T) {
	m := newMeter()
	all := func(due time.Duration) {
		m.acknowledge(Allocate, due, due+2*time.Millisecond)
		m.refuse(MarkUsed, due, "conflict")
		m.fail(due, 1)
		m.leave(due, 1)
		m.arrive(due, due+5*time.Millisecond)
		m.unmatch(due)
		m.miss(due, 1)
	}
	all(time.Hour) // it has not begun
	m.measure(time.Second)
	all(time.Second - 1)
	all(time.Second)
	all(time.Minute)
	m.endSecond(2 * time.Second)
	r := &result.Run{Seconds: 2, Load: result.Load{Subscribers: 1}}
	m.report(r)
	if r.Acknowledged != 2 || r.Refused["conflict"] != 2 || r.Failed != 2 || r.Unsent != 2 || r.PerSecond != 1 {
		t.Errorf("%+v; want two of each", r)
	}
	if e := r.Events; e.Received != 4 || e.LatencyMs.Count != 2 || e.Unmatched != 2 || e.Missed != 2 || e.LatencyMs.P50 < 4.9 ||
		e.LatencyMs.P50 > 5.1 {
		t.Errorf("events %+v; want two of each, after 5 ms", e)
	}
	if l := r.Methods["allocate"].LatencyMs; l.P99 < 1.9 || l.P99 > 2.1 || r.Methods["markUsed"].Refused["conflict"] != 2 {
		t.Errorf("methods %+v; want 2 ms and two conflicts", r.Methods)
	}
}

func TestASecondHasWhatCameInIt(t *testing.T) {
	m := newMeter()
	m.measure(0)
	m.acknowledge(Allocate, 0, time.Millisecond)
	m.acknowledge(Status, 0, 9*time.Millisecond)
	m.acknowledge(MarkUsed, 0, time.Millisecond)
	first := m.endSecond(time.Second)
	m.refuse(Allocate, 0, "server_busy")
	m.fail(0, 2)
	second := m.endSecond(time.Second * 3 / 2)
	if first.Acknowledged != 3 || first.Refused != 0 || first.P50 > 1.1 || first.P99 < 8.9 || first.At != 0 {
		t.Errorf("first second %+v", first)
	}
	if want := (result.Second{At: 1, Seconds: 0.5, Refused: 1, Failed: 2}); second != want {
		t.Errorf("second second %+v, want %+v", second, want)
	}
}

func TestAnEmptyRunHasNoFigureThatIsNoNumber(t *testing.T) {
	m := newMeter()
	m.measure(0)
	m.endSecond(0)
	r := &result.Run{Load: result.Load{Subscribers: 1}}
	m.report(r)
	if _, err := json.Marshal(r); err != nil || r.PerSecond != 0 || r.LatencyMs != (result.Latency{}) {
		t.Errorf("%v, %+v; want zeros", err, r)
	}
}

func TestALatencyBeyondTheLongestOrBelowZeroIsCountedAtTheEnd(t *testing.T) {
	m := newMeter()
	m.measure(0)
	m.acknowledge(Allocate, 0, 24*time.Hour)
	m.acknowledge(Allocate, time.Second, 0)
	if s := m.endSecond(1); s.Acknowledged != 2 || s.P99 < 0.99*float64(maxLatency.Milliseconds()) {
		t.Errorf("%+v; want both counted", s)
	}
}

func TestEventsAreMatchedInAnyOrderForEverySubscriber(t *testing.T) {
	m := newMeter()
	m.measure(0)
	c := newCauses(m, 2)
	e := event{nonceOf{1, 2, 1}, Allocate}
	c.arrived(e, 30*time.Millisecond)
	if c.pending() {
		t.Error("an event whose request is not known is waited for")
	}
	c.caused(e, 10*time.Millisecond)
	if !c.pending() {
		t.Error("the second subscriber's event is not waited for")
	}
	c.arrived(event{nonceOf{1, 2, 1}, MarkUsed}, 0)
	c.arrived(e, 50*time.Millisecond)
	if c.pending() {
		t.Error("something is waited for though all has come")
	}
	c.end()
	got := events(m)
	if got.Received != 3 || got.Unmatched != 1 || got.LatencyMs.Count != 2 || got.LatencyMs.P50 < 19 || got.LatencyMs.P50 > 21 ||
		got.LatencyMs.Max < 39 {
		t.Errorf("events %+v; want 20 and 40 ms, and one of no known request", got)
	}
}

func TestWhatIsRememberedOfEventsIsBounded(t *testing.T) {
	m := newMeter()
	m.measure(0)
	c := newCauses(m, 1)
	const n = maxCauses * 5 / 4
	for i := range int64(n) {
		c.arrived(event{nonceOf{0, i, 1}, Allocate}, 0)
	}
	if c.known.Len() > maxCauses {
		t.Errorf("%d known; want at most %d", c.known.Len(), maxCauses)
	}
	if c.end(); events(m).Unmatched != n {
		t.Errorf("%d of no known request, want all %d", events(m).Unmatched, n)
	}
}

func events(m *meter) *result.Events {
	r := &result.Run{Load: result.Load{Subscribers: 1}}
	m.report(r)
	return r.Events
}
