package taskpool

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"noncegate/test/lab/expect"
)

// Ants starts a default pool when it is imported; what runs before the tests is
// not ours.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m, goleak.IgnoreCurrent()) }

type taskFunc func()

func (f taskFunc) Run() { f() }

func newPool(t testing.TB, workers, capacity int) *Pool {
	t.Helper()
	p, err := New(Config{Name: "test", Workers: workers, Capacity: capacity}, slog.New(slog.DiscardHandler))
	expect.Must(t, err)
	t.Cleanup(func() {
		expect.Check(t, p.Stop(context.Background()))
	})
	return p
}

// submit runs f with a slot of its own, given back when f returned or panicked.
func submit(t testing.TB, p *Pool, f func()) {
	t.Helper()
	if !p.TryReserve(nil, 1) {
		t.Fatal("no slot")
	}
	p.Submit(taskFunc(func() {
		defer p.Unreserve(nil, 1)
		f()
	}))
}

func TestSizesBelowOneAreRefused(t *testing.T) {
	for _, c := range []Config{{Workers: 0, Capacity: 1}, {Workers: 1}, {Workers: -1, Capacity: 1}} {
		if _, err := New(c, slog.New(slog.DiscardHandler)); err == nil {
			t.Errorf("%+v accepted", c)
		}
	}
}

func TestRingKeepsTheOrderWhenItGrowsInTheMiddle(t *testing.T) {
	var r ring
	next, want := 0, 0
	mark := func(i int) Task { return taskFunc(func() { want = i }) }
	for round := range 50 {
		for range round {
			r.push(mark(next), 10000)
			next++
		}
		for range round / 2 {
			expect := want
			task, _ := r.pop()
			if task.Run(); want != expect {
				t.Fatalf("popped %d, want %d", want, expect)
			}
			want++
		}
	}
}

func TestStuckTasksNeitherBlockSubmitNorExceedTheWorkers(t *testing.T) {
	const workers, capacity = 3, 50
	p := newPool(t, workers, capacity)
	gate := make(chan struct{})
	started := make(chan struct{}, capacity)
	for range capacity {
		submit(t, p, func() { started <- struct{}{}; <-gate })
	}
	for range workers {
		<-started
	}
	if p.TryReserve(nil, 1) {
		t.Error("a slot beyond the capacity was granted")
	}
	if p.Running() != workers || p.Waiting() != capacity-workers || p.Reserved() != capacity || p.Capacity() != capacity {
		t.Errorf("running %d, waiting %d, reserved %d", p.Running(), p.Waiting(), p.Reserved())
	}
	close(gate)
}

func TestAPanicLosesNeitherPlaceNorWorker(t *testing.T) {
	var out bytes.Buffer
	p, err := New(Config{Name: "test", Workers: 1, Capacity: 8}, slog.New(slog.NewTextHandler(&out, nil)))
	expect.Must(t, err)
	ran := make(chan struct{})
	submit(t, p, func() { panic("boom") })
	submit(t, p, func() { close(ran) })
	<-ran
	expect.Must(t, p.Stop(context.Background()))
	if p.Panics() != 1 || p.Reserved() != 0 || p.Running() != 0 {
		t.Errorf("panics %d, reserved %d, running %d, want 1, 0, 0", p.Panics(), p.Reserved(), p.Running())
	}
	if !strings.Contains(out.String(), "boom") {
		t.Errorf("the log does not say what happened: %s", out.String())
	}
}

func TestStopRunsWhatIsQueuedAndThenTasksRunInTheCaller(t *testing.T) {
	p := newPool(t, 2, 100)
	gate := make(chan struct{})
	var ran atomic.Int64
	for range 100 {
		submit(t, p, func() { <-gate; ran.Add(1) })
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := p.Stop(ctx); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "stop test pool") {
		t.Errorf("Stop with stuck tasks and no time: %v", err)
	}
	if p.TryReserve(nil, 1) {
		t.Error("a slot was granted after Stop")
	}
	close(gate)
	for range 2 {
		expect.Must(t, p.Stop(context.Background()))
		if ran.Load() != 100 {
			t.Fatalf("Stop returned after %d of 100 tasks", ran.Load())
		}
	}
	p.Submit(taskFunc(func() { ran.Add(1) }))
	if ran.Load() != 101 {
		t.Error("a task submitted after Stop was lost")
	}
}

func TestAStopWhoseTimeIsOverKnowsAPoolThatIsQuiet(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for range 100 { // a select would choose either
		expect.Must(t, newPool(t, 1, 1).Stop(ctx))
	}
}

func TestATaskThatEndsItsGoroutineCostsNoWorker(t *testing.T) {
	p := newPool(t, 1, 2)
	ran := make(chan struct{})
	submit(t, p, runtime.Goexit)
	submit(t, p, func() { close(ran) })
	<-ran
	expect.Must(t, p.Stop(context.Background()))
}

func TestMoreTasksThanPlacesPanics(t *testing.T) {
	p := newPool(t, 1, 1)
	gate, started := make(chan struct{}), make(chan struct{})
	p.Submit(taskFunc(func() { close(started); <-gate }))
	<-started
	p.Submit(taskFunc(func() {}))
	defer close(gate)
	defer func() {
		if recover() == nil {
			t.Error("the second waiting task of a pool of one slot was accepted")
		}
	}()
	p.Submit(taskFunc(func() {}))
}

func TestNoTaskIsLostUnderContention(t *testing.T) {
	const producers, each = 8, 3000
	p := newPool(t, 2, 2*producers)
	var ran, busy atomic.Int64
	var wg sync.WaitGroup
	for range producers {
		wg.Go(func() {
			done := make(chan struct{})
			for range each {
				// One task at a time for each producer, so that workers leave
				// and come back all the time; no task may be stranded.
				submit(t, p, func() {
					if got := busy.Add(1); got > 2 {
						t.Errorf("%d tasks at once with 2 workers", got)
					}
					ran.Add(1)
					busy.Add(-1)
					done <- struct{}{}
				})
				<-done
			}
		})
	}
	wg.Wait()
	expect.Must(t, p.Stop(context.Background()))
	if ran.Load() != producers*each {
		t.Fatalf("%d tasks ran, want %d", ran.Load(), producers*each)
	}
}
