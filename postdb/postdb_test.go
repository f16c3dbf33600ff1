package postdb

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"noncegate/test/lab/expect"
)

// Ants starts a default pool when it is imported; what runs before the tests is
// not ours.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m, goleak.IgnoreCurrent()) }

func newPool(t testing.TB, cfg Config) *Pool {
	t.Helper()
	p, err := New(cfg, slog.New(slog.DiscardHandler))
	expect.Must(t, err)
	t.Cleanup(func() { stop(t, p) })
	return p
}

func stop(t testing.TB, p *Pool) {
	t.Helper()
	expect.Check(t, p.Stop(context.Background()))
	if p.Reserved() != 0 {
		t.Errorf("%d slots are still taken", p.Reserved())
	}
}

func submit(t testing.TB, l *SerialQueue, fn func()) {
	t.Helper()
	if !l.TryReserve() {
		t.Fatal("no slot")
	}
	l.Submit(fn, time.Now())
}

func TestAQueueKeepsItsOrderBesideOthers(t *testing.T) {
	const queues, each = 6, 2000
	p := newPool(t, Config{Workers: 4, Queue: queues * each, Queues: queues, QueueShare: each})
	var ran [queues]int // of each queue: how many ran. Unguarded: the race detector sees two at a time
	var wg sync.WaitGroup
	for i := range queues {
		wg.Go(func() {
			for n := range each {
				submit(t, p.Queue(i), func() {
					if ran[i] != n {
						t.Errorf("queue %d: work %d ran as number %d", i, n, ran[i])
					}
					ran[i]++
				})
			}
		})
	}
	wg.Wait()
	stop(t, p)
	for i := range queues {
		if ran[i] != each {
			t.Errorf("queue %d ran %d of %d", i, ran[i], each)
		}
	}
}

func TestAHangingQueueLeavesTheOthersRunningAndIsRefusedWhenFull(t *testing.T) {
	p := newPool(t, Config{Workers: 2, Queue: 10, Queues: 3, QueueShare: 4})
	hang := make(chan struct{})
	stuck := p.Queue(0)
	for range 4 {
		submit(t, stuck, func() { <-hang })
	}
	if stuck.TryReserve() {
		t.Error("a full queue granted a slot")
	}
	for n := range 100 {
		ran := make(chan struct{})
		submit(t, p.Queue(1+n%2), func() { close(ran) })
		<-ran
	}
	close(hang)
}

func TestAPanicKeepsTheLaneGoing(t *testing.T) {
	p := newPool(t, Config{Workers: 1, Queue: 40, Queues: 1, QueueShare: 40})
	ran := 0
	for n := range 40 {
		submit(t, p.Queue(0), func() {
			ran++
			if n%3 == 0 {
				panic("boom")
			}
		})
	}
	stop(t, p)
	if ran != 40 || p.Panics() != 14 {
		t.Errorf("%d ran and %d panicked, want 40 and 14", ran, p.Panics())
	}
}

func TestTheWaitIsObserved(t *testing.T) {
	var observed atomic.Int64
	p := newPool(t, Config{Workers: 1, Queue: 2, Queues: 1, QueueShare: 2, Queued: func(d time.Duration) { observed.Store(int64(d)) }})
	l := p.Queue(0)
	if !l.TryReserve() {
		t.Fatal("no slot")
	}
	l.Submit(func() {}, time.Now().Add(-time.Hour))
	stop(t, p)
	if d := time.Duration(observed.Load()); d < time.Hour || d > 2*time.Hour {
		t.Errorf("observed %v, want an hour", d)
	}
}

func TestWrongSizesAreNamed(t *testing.T) {
	for _, c := range []struct {
		cfg  Config
		want string
	}{
		{Config{Workers: 1, Queue: 1, QueueShare: 1}, "queues"},
		{Config{Workers: 1, Queue: 1, Queues: 1, QueueShare: 2}, "share"},
		{Config{Workers: 1, Queue: 1, Queues: 1}, "share"},
		{Config{Queue: 1, Queues: 1, QueueShare: 1}, "workers"},
	} {
		if _, err := New(c.cfg, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: got %v, want %q", c.cfg, err, c.want)
		}
	}
}
