//go:build unix

package traffic

import (
	"fmt"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func idleClients(l *Load, n int, m *meter) []atomic.Pointer[client] {
	clients := make([]atomic.Pointer[client], n)
	for i := range clients {
		r := &runner{load: *l, clock: clock{time.Now()}, meter: m}
		clients[i].Store(newClient(r, &socket{conn: &sink{}}, i))
	}
	return clients
}

// dues are the times of the bursts a client has sent or keeps waiting.
func dues(c *client) (all []time.Duration) {
	for _, b := range c.bursts {
		all = append(all, b.due)
	}
	return append(all, c.backlog.items[c.backlog.head:]...)
}

// schedule runs a scheduler of two connections for a time, on a clock that jumps.
func schedule(t *testing.T, interval, length time.Duration, change func(*scheduler)) (clients []atomic.Pointer[client], m *meter) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l := &Load{Inflight: 1, Rate: 1, Signers: Signers{Count: 1}}
		m = newMeter()
		m.begin.Store(0)
		clients = idleClients(l, 2, m)
		quit, ended := make(chan struct{}), new(atomic.Int64)
		s := &scheduler{
			clients: clients, step: 1, inflight: 1, shard: m.shard(0), interval: float64(interval),
			clock: clock{time.Now()}, quit: quit, ended: ended, pause: time.Sleep,
		}
		change(s)
		time.AfterFunc(length, func() {
			ended.Store(int64(s.clock.now()))
			close(quit)
		})
		s.loop()
	})
	return clients, m
}

func TestBurstsAreDueAtEvenTimesOnTheConnectionsInTurn(t *testing.T) {
	clients, _ := schedule(t, 10*time.Millisecond, 45*time.Millisecond, func(*scheduler) {})
	for i, want := range [][]time.Duration{{0, 20 * time.Millisecond, 40 * time.Millisecond}, {10 * time.Millisecond, 30 * time.Millisecond}} {
		if got := dues(clients[i].Load()); !slices.Equal(got, want) {
			t.Errorf("connection %d: due at %v, want %v", i, got, want)
		}
	}
}

func TestTheShareOfAnEndedConnectionIsTakenOverAndThatOfOneNotOpenIsNot(t *testing.T) {
	clients, _ := schedule(t, 10*time.Millisecond, 45*time.Millisecond, func(s *scheduler) { s.clients[0].Load().ended = true })
	if got := len(dues(clients[1].Load())); got != 5 {
		t.Errorf("%d bursts beside an ended connection, want all 5", got)
	}
	clients, m := schedule(t, 10*time.Millisecond, 45*time.Millisecond, func(s *scheduler) { s.clients[0].Store(nil) })
	if got := len(dues(clients[1].Load())); got != 2 || unsent(m) != 0 {
		t.Errorf("%d bursts beside a connection that is not open, and %d unsent; want 2 and 0", got, unsent(m))
	}
}

func TestWhatIsDueWhenNobodyIsLeftIsUnsent(t *testing.T) {
	_, m := schedule(t, 10*time.Millisecond, 45*time.Millisecond, func(s *scheduler) {
		for i := range s.clients {
			s.clients[i].Load().ended = true
		}
	})
	if got := unsent(m); got != 5 {
		t.Errorf("%d unsent, want 5", got)
	}
}

func TestASchedulerThatIsLateAtTheEndSendsWhatWasDueOrCountsItAsUnsent(t *testing.T) {
	for _, wakes := range []time.Duration{50 * time.Millisecond, 45*time.Millisecond + 2*catchUp} {
		clients, m := schedule(t, 10*time.Millisecond, 45*time.Millisecond, func(s *scheduler) {
			s.pause = func(time.Duration) { time.Sleep(wakes) } // when it should wake at 5 ms
			s.first = 5 * time.Millisecond
		})
		sent := int64(len(dues(clients[0].Load())) + len(dues(clients[1].Load())))
		if late := wakes > 50*time.Millisecond; late != (unsent(m) == 4) || sent+unsent(m) != 4 {
			t.Errorf("waking after %v: %d sent and %d unsent, want 4 of one kind", wakes, sent, unsent(m))
		}
	}
}

func unsent(m *meter) (n int64) {
	for i := range m.shards {
		n += m.shards[i].unsent
	}
	return n
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
	r := &runner{load: l, clock: clock{time.Now()}, meter: newMeter()}
	r.meter.begin.Store(0)
	c := newClient(r, &socket{conn: &sink{says: replies}, in: make([]byte, 64<<10)}, 0)
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
