package backpressure

import (
	"strings"
	"testing"
	"time"
)

func marks() Marks {
	return Marks{High: 100, Low: 20, Max: 1000, MaxAge: time.Minute, SlowAfter: 10 * time.Second,
		Pause: true, Drop: true, Kick: true}
}

// A step is one Update; at counts seconds.
type step struct {
	at    int
	bytes int64
	age   time.Duration
	want  Decision
}

func run(t *testing.T, m Marks, steps []step) {
	t.Helper()
	var l Level
	for i, s := range steps {
		if got := l.Update(&m, s.bytes, s.age, time.Duration(s.at)*time.Second); got != s.want {
			t.Fatalf("step %d: got %+v, want %+v", i, got, s.want)
		}
	}
}

func slow(checkIn int) Decision {
	return Decision{Pause: true, Drop: true, CheckIn: time.Duration(checkIn) * time.Second}
}

func TestLevelHasHysteresis(t *testing.T) {
	run(t, marks(), []step{
		{at: 1, bytes: 100},                  // at the mark is not above it
		{at: 2, bytes: 101, want: slow(10)},  // above
		{at: 5, bytes: 60, want: slow(7)},    // between the marks: still slow
		{at: 6, bytes: 21, want: slow(6)},    // just above low
		{at: 7, bytes: 20},                   // low: well again
		{at: 8, bytes: 60},                   // between the marks: still well
		{at: 20, bytes: 500, want: slow(10)}, // a new period counts from 0
	})
}

func TestLevelKicksWhoStaysSlow(t *testing.T) {
	run(t, marks(), []step{
		{at: 0, bytes: 200, want: slow(10)},
		{at: 9, bytes: 50, want: slow(1)},
		{at: 10, bytes: 50, want: Decision{Kick: KickSlow}},
	})
}

func TestHardCapsHoldUnderEveryPolicy(t *testing.T) {
	for _, m := range []Marks{{High: 1, Max: 1000, MaxAge: time.Second}, {High: 1, Max: 1000, MaxAge: time.Second, Off: true}} {
		run(t, m, []step{{bytes: 1001, want: Decision{Kick: KickHardCap}}})
		run(t, m, []step{{bytes: 10, age: time.Second}, {bytes: 10, age: time.Second + 1, want: Decision{Kick: KickTooOld}}})
	}
}

func TestPolicyIsASubset(t *testing.T) {
	m := marks()
	m.Kick, m.Drop = false, false
	run(t, m, []step{{bytes: 200, want: Decision{Pause: true}}, {at: 1000, bytes: 200, want: Decision{Pause: true}}})
	m = marks()
	m.Pause, m.Kick = false, false
	run(t, m, []step{{bytes: 200, want: Decision{Drop: true}}})
	m = marks()
	m.Off = true
	run(t, m, []step{{bytes: 999}, {at: 1000, bytes: 999}})
}

func TestNotificationTakesOnlyWhatIsUnreserved(t *testing.T) {
	m := marks()
	for _, c := range []struct {
		name                string
		drop                bool
		unwritten, ahead, n int64
		wantDrop            DropReason
		wantKick            KickReason
	}{
		{name: "fits exactly", unwritten: 500, ahead: 400, n: 100},
		{name: "slow", drop: true, n: 1, wantDrop: DropSlow},
		{name: "promised to replies", unwritten: 500, ahead: 400, n: 101, wantDrop: DropNoRoom},
		{name: "over the cap by itself", unwritten: 950, n: 51, wantKick: KickHardCap},
	} {
		drop, kick := m.Notification(c.drop, c.unwritten, c.ahead, c.n)
		if drop != c.wantDrop || kick != c.wantKick {
			t.Errorf("%s: got %q, %q, want %q, %q", c.name, drop, kick, c.wantDrop, c.wantKick)
		}
	}
}

func TestValidateNamesTheContradiction(t *testing.T) {
	for _, c := range []struct {
		change func(*Marks)
		want   string
	}{
		{func(*Marks) {}, ""},
		{func(m *Marks) { m.Low = 101 }, "low mark"},
		{func(m *Marks) { m.Low = -1 }, "low mark"},
		{func(m *Marks) { m.Max = 100 }, "below the cap"},
		{func(m *Marks) { m.MaxAge = -1 }, "age"},
		{func(m *Marks) { m.SlowAfter = 0 }, "policy kick"},
		{func(m *Marks) { m.SlowAfter, m.Off = 0, true }, ""},
	} {
		m := marks()
		c.change(&m)
		switch err := m.Validate(); {
		case err == nil && c.want != "":
			t.Errorf("accepted, want an error with %q", c.want)
		case err != nil && (c.want == "" || !strings.Contains(err.Error(), c.want)):
			t.Errorf("got %v, want %q", err, c.want)
		}
	}
}
