//go:build unix

package traffic

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// paced has a pacer offer a burst each 10 ms from first on for 45 ms, on a clock that jumps, to two connections of which some have ended.
// It returns when those were due that were sent, and how many were not.
func paced(t *testing.T, first time.Duration, pause func(time.Duration), ended ...int) (sent [2][]time.Duration, unsent int64) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l := Load{Inflight: 1, Rate: 1, Signers: Signers{Count: 1}}
		r := &runner{load: l, meter: newMeter()}
		r.meter.measure(0)
		for i := range sent {
			r.clients = append(r.clients, newClient(&l, r.meter, nil, i))
			r.clients[i].sent = l.window() // so that all that is due waits
		}
		for _, i := range ended {
			r.clients[i].ended = true
		}
		p := &pacer{meter: r.meter, first: first, interval: float64(10 * time.Millisecond), next: r.offer, left: r.meter.leave, pause: pause}
		time.AfterFunc(45*time.Millisecond, p.end)
		p.loop()
		for i, c := range r.clients {
			sent[i] = c.backlog
		}
		unsent = r.meter.unsent
	})
	return sent, unsent
}

func TestBurstsAreDueAtEvenTimesOnTheConnectionsInTurn(t *testing.T) {
	sent, _ := paced(t, 0, time.Sleep)
	for i, want := range [][]time.Duration{{0, 20 * time.Millisecond, 40 * time.Millisecond}, {10 * time.Millisecond, 30 * time.Millisecond}} {
		if !slices.Equal(sent[i], want) {
			t.Errorf("connection %d: due at %v, want %v", i, sent[i], want)
		}
	}
}

func TestTheShareOfAConnectionThatEndedIsTakenOverAndIsUnsentWhenNoneIsLeft(t *testing.T) {
	if sent, unsent := paced(t, 0, time.Sleep, 0); len(sent[1]) != 5 || unsent != 0 {
		t.Errorf("%d bursts beside an ended connection, %d unsent, want all 5", len(sent[1]), unsent)
	}
	if _, unsent := paced(t, 0, time.Sleep, 0, 1); unsent != 5 {
		t.Errorf("%d unsent, want 5", unsent)
	}
}

func TestAPacerThatIsLateAtTheEndSendsWhatWasDueOrCountsItAsUnsent(t *testing.T) {
	for _, wakes := range []time.Duration{50 * time.Millisecond, 45*time.Millisecond + 2*catchUp} { // when it should wake at 5 ms
		sent, unsent := paced(t, 5*time.Millisecond, func(time.Duration) { time.Sleep(wakes) })
		n := int64(len(sent[0]) + len(sent[1]))
		if late := wakes > 50*time.Millisecond; late != (unsent == 4) || n+unsent != 4 {
			t.Errorf("waking after %v: %d sent and %d unsent, want 4 of one kind", wakes, n, unsent)
		}
	}
}
