package traffic

import (
	"fmt"
	"net"
	"testing"
	"time"
)

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
