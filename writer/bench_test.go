package writer

import (
	"errors"
	"testing"
	"time"
)

// countingSocket tells when the frames that the benchmark waits for were written.
type countingSocket struct {
	want, got int
	done      chan struct{}
}

func (s *countingSocket) Write(p []byte) (int, error) {
	if s.got += len(p); s.got >= s.want {
		s.got = 0
		s.done <- struct{}{}
	}
	return len(p), nil
}

func (s *countingSocket) SetWriteDeadline(time.Time) error { return nil }
func (s *countingSocket) Close() error                     { return nil }

// benchmarkBurst measures from Reserve to the write, of n replies of 200 bytes.
func benchmarkBurst(b *testing.B, n int) {
	cfg := testConfig()
	cfg.Marks.Max, cfg.Marks.High = 1<<20, 64<<10
	sock := &countingSocket{want: n * 204, done: make(chan struct{})}
	q := New(sock, newEncodePool(b), cfg)
	m := sized(200)
	b.ReportAllocs()
	for b.Loop() {
		for range n {
			if q.Reserve(300) != Granted {
				b.Fatal("refused")
			}
		}
		for range n {
			q.Push(m, 300)
		}
		q.Wake()
		<-sock.done
	}
	q.Kill(errors.New("done"))
	<-q.Done()
}

func BenchmarkOneReply(b *testing.B)  { benchmarkBurst(b, 1) }
func BenchmarkBurstOf16(b *testing.B) { benchmarkBurst(b, 16) }
