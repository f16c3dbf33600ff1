//go:build unix

package traffic

import (
	"fmt"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// dues are the times of the bursts a client has sent or keeps waiting.
func dues(c *client) (all []time.Duration) {
	for _, b := range c.bursts {
		all = append(all, b.due)
	}
	return append(all, c.backlog.items[c.backlog.head:]...)
}

// paced has a pacer offer a burst each 10 ms from first on for 45 ms, on a clock that jumps, to two
// connections of which some have ended. It returns when those were due that were sent, and how many
// were not.
func paced(t *testing.T, first time.Duration, pause func(time.Duration), ended ...int) (sent [2][]time.Duration, unsent int64) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l := Load{Inflight: 1, Rate: 1, Signers: Signers{Count: 1}}
		r := &runner{load: l, meter: newMeter()}
		r.meter.measure(0)
		for i := range sent {
			r.clients = append(r.clients, newClient(&l, r.meter, nil, &socket{conn: &sink{}}, i))
		}
		for _, i := range ended {
			r.clients[i].ended = true
		}
		p := &pacer{meter: r.meter, first: first, interval: float64(10 * time.Millisecond), next: r.offer, left: r.meter.leave, pause: pause}
		time.AfterFunc(45*time.Millisecond, p.end)
		p.loop()
		for i, c := range r.clients {
			sent[i] = dues(c)
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

// sink is a connection that takes everything and has always the same to say.
type sink struct {
	net.Conn
	says []byte
}

func (s *sink) Write(p []byte) (int, error)     { return len(p), nil }
func (s *sink) Read(p []byte) (int, error)      { return copy(p, s.says), nil }
func (s *sink) Close() error                    { return nil }
func (s *sink) SetReadDeadline(time.Time) error { return nil }

// answeredAtOnce is a client in a closed loop whose bursts of n are answered by
// one read.
func answeredAtOnce(m Mix, n int) *client {
	var replies []byte
	for i := range n {
		text := fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"result":{"signer":"s","nonce":1,"attempt":1,"holdMs":3600000}}`, firstID+i)
		replies = append(append(replies, finText, byte(len(text))), text...)
	}
	l := Load{Inflight: n, Mix: m, Signers: Signers{Count: 1000}}
	meter := newMeter()
	meter.measure(0)
	c := newClient(&l, meter, nil, &socket{conn: &sink{says: replies}, in: make([]byte, 64<<10)}, 0)
	c.first()
	return c
}

func exchange(t testing.TB, c *client) {
	if err := c.read(); err != nil {
		t.Fatal(err)
	}
	if err := c.receive(); err != nil {
		t.Fatal(err)
	}
}

func TestABurstTakesNoMemory(t *testing.T) {
	for _, m := range []Mix{{}, {Pairs: true}} {
		c := answeredAtOnce(m, 16)
		exchange(t, c) // the first ones make room
		exchange(t, c)
		if got := testing.AllocsPerRun(100, func() { exchange(t, c) }); got != 0 {
			t.Errorf("%+v: %v allocations of memory a burst, want none", m, got)
		}
	}
}

// BenchmarkBurst is the generator's own cost for a burst of 16 in a closed loop:
// composing it, and counting its replies, without the system calls.
func BenchmarkBurst(b *testing.B) {
	for name, m := range map[string]Mix{"allocate": {}, "pairs": {Pairs: true}} {
		b.Run(name, func(b *testing.B) {
			c := answeredAtOnce(m, 16)
			b.ReportAllocs()
			for b.Loop() {
				exchange(b, c)
			}
		})
	}
}
