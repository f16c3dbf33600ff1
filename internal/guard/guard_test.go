package guard

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"noncegate/test/lab/expect"
)

// script is Locks that do what a test says.
type script func(ctx context.Context, steps []Step)

func (s script) Run(ctx context.Context, steps []Step) { s(ctx, steps) }

// gate keeps every step waiting until it is opened.
type gate struct {
	Locks
	open chan struct{}
	came chan int // how many steps a Run has
}

func newGate(locks Locks) *gate { return &gate{locks, make(chan struct{}), make(chan int, 1000)} }

func (g *gate) Run(ctx context.Context, steps []Step) {
	g.came <- len(steps)
	<-g.open
	g.Locks.Run(ctx, steps)
}

func TestTheLockIsFreeForTheNextWhenItsCallHasEnded(t *testing.T) {
	r := start(t, NewMemory(10))
	first := r.take("k", time.Minute, Granted)
	second := r.take("k", time.Minute, Taken)
	if left := second.lock.Left; left <= 59*time.Second || left > time.Minute {
		t.Errorf("the second is told to wait for %v, want what is left of a minute", left)
	}
	other := r.take("other", time.Minute, Granted)
	r.end(first)
	third := r.take("k", time.Minute, Granted)
	if third.lock.value == first.lock.value || third.lock.value == other.lock.value || third.lock.value == "" {
		t.Errorf("locks with the values %q, %q and %q", first.lock.value, other.lock.value, third.lock.value)
	}
	r.end(third)
	r.end(other)
	r.counted(map[string]float64{"acquired_total": 3, "refused_total": 1, "released_total": 3})
	if got := r.log.String(); !strings.Contains(got, `msg="lock taken" component=guard key=k value=`+first.lock.value) ||
		!strings.Contains(got, `msg="lock released" component=guard key=k value=`+third.lock.value) {
		t.Errorf("the log says\n%s", got)
	}
}

func TestALockThatHasExpiredIsNotReleasedByItsFormerCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, NewMemory(10))
		first := r.take("k", 100*time.Millisecond, Granted)
		time.Sleep(99 * time.Millisecond)
		r.take("k", time.Minute, Taken)
		time.Sleep(time.Millisecond)
		second := r.take("k", time.Minute, Granted)
		r.end(first)
		r.counted(map[string]float64{"release_failed_total{value_mismatch}": 1, "released_total": 0, "hold_seconds": 0.1})
		if !strings.Contains(r.log.String(), "reason=value_mismatch") {
			t.Errorf("the log says\n%s", r.log)
		}
		r.take("k", time.Minute, Taken)
		r.end(second)
		r.end(r.take("k", time.Minute, Granted))
	})
}

func TestALockThatIsKeptEndsWithItsInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, NewMemory(10))
		first := r.ask("k", time.Second, true)
		r.want(first, Granted)
		r.end(first)
		if second := r.take("k", time.Second, Taken); second.lock.Left != time.Second {
			t.Errorf("%v are left, want a second", second.lock.Left)
		}
		time.Sleep(time.Second)
		third := r.ask("k", time.Second, true)
		r.want(third, Granted)
		if !r.End(&third.lock, false) {
			t.Error("a lock that is not to be kept after all is kept")
		}
		<-third.ended
		r.end(r.take("k", time.Second, Granted))
		r.counted(map[string]float64{"kept_total": 1, "released_total": 2})
	})
}

func TestAPrincipalKeepsNoMoreLocksThanItMay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, NewMemory(10), func(c *Config) { c.KeptEach = 2 })
		for _, key := range []string{"a", "b"} {
			l := r.ask(key, time.Second, true)
			r.want(l, Granted)
			r.end(l)
		}
		r.want(r.ask("c", time.Second, true), Full)
		r.end(r.take("c", time.Second, Granted)) // it is not to be kept
		time.Sleep(time.Second)
		synctest.Wait() // until they are not counted any more
		l := r.ask("c", time.Second, true)
		r.want(l, Granted)
		r.end(l)
	})
}

// Whatever gathers while the locks are asked goes in one piece, and in order.
func TestLocksOfOneKeyAreTakenInTheOrderTheyAreAskedFor(t *testing.T) {
	g := newGate(NewMemory(10))
	r := start(t, g, func(c *Config) { c.Workers = 1 })
	plug := r.ask("plug", time.Minute, false)
	<-g.came
	var calls []*call
	for range 20 {
		calls = append(calls, r.ask("k", time.Minute, false))
	}
	close(g.open)
	for i, c := range calls {
		want := Taken
		if i == 0 {
			want = Granted
		}
		r.want(c, want)
	}
	if n := <-g.came; n != 20 {
		t.Errorf("%d steps at once, want all 20", n)
	}
	r.want(plug, Granted)
	r.end(calls[0])
	r.end(plug)
}

func TestPlacesBoundTheCallsAndComeBack(t *testing.T) {
	r := start(t, NewMemory(10), func(c *Config) { c.Slots = 2 })
	first, second := r.take("a", time.Minute, Granted), r.take("b", time.Minute, Granted)
	if r.Reserve() {
		t.Fatal("a third slot of two")
	}
	r.end(first)
	r.take("b", time.Minute, Taken) // and its slot is free again
	if !r.Reserve() {
		t.Fatal("no slot after one was given back")
	}
	r.Cancel()
	r.end(second)
}

func TestMoreLocksThanMayBeKeptAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := NewMemory(2)
		r := start(t, memory)
		first, second := r.take("a", time.Second, Granted), r.take("b", time.Minute, Granted)
		r.take("c", time.Minute, Full)
		r.take("a", time.Minute, Taken)
		time.Sleep(time.Second)
		synctest.Wait() // until the first is dropped
		third := r.take("c", time.Minute, Granted)
		r.end(second)
		r.end(third)
		r.end(first)
		if n := memory.Len(); n != 0 {
			t.Errorf("%d locks are left", n)
		}
	})
}

// The answer of a take may be lost when it was done already.
func TestATakeWithoutAnAnswerIsRefusedAndGivenBack(t *testing.T) {
	memory := NewMemory(10)
	lost := errors.New("lost")
	released := make(chan Step, 10)
	r := start(t, script(func(ctx context.Context, steps []Step) {
		memory.Run(ctx, steps)
		for i := range steps {
			if steps[i].Release {
				released <- steps[i]
			} else {
				steps[i].OK, steps[i].Err = false, lost
			}
		}
	}))
	c := r.take("k", time.Minute, Unanswered)
	if !errors.Is(c.lock.Err, lost) {
		t.Errorf("the error is %v", c.lock.Err)
	}
	if s := <-released; s.Key != "k" || s.Value != c.lock.value || !s.OK {
		t.Errorf("given back: %+v, want the lock with the value %s", s, c.lock.value)
	}
	if n := memory.Len(); n != 0 {
		t.Errorf("%d locks are left", n)
	}
	r.counted(map[string]float64{
		"unanswered_total": 1, "acquired_total": 0, "released_total": 0, "release_failed_total{value_mismatch}": 0, "release_failed_total{away}": 0,
	})
}

func TestALockThatCannotBeGivenBackIsCountedAndItsCallEnds(t *testing.T) {
	away := false
	memory := NewMemory(10)
	r := start(t, script(func(ctx context.Context, steps []Step) {
		if memory.Run(ctx, steps); away {
			steps[0].OK, steps[0].Err = false, errors.New("away")
		}
	}), func(c *Config) { c.Workers = 1 })
	c := r.take("k", time.Minute, Granted)
	away = true
	r.end(c)
	r.counted(map[string]float64{"release_failed_total{away}": 1})
	if !strings.Contains(r.log.String(), "reason=away") {
		t.Errorf("the log says\n%s", r.log)
	}
}

func TestLocksThatHangRefuseEverybodyInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := func(ctx context.Context, steps []Step) {
			<-ctx.Done()
			for i := range steps {
				steps[i].Err = ctx.Err()
			}
		}
		r := start(t, script(hang), func(c *Config) { c.Workers = 1 })
		began := time.Now()
		var calls []*call
		for i := range 50 {
			calls = append(calls, r.ask(fmt.Sprint(i), time.Minute, false))
			synctest.Wait()
			time.Sleep(10 * time.Millisecond)
		}
		for _, c := range calls {
			r.want(c, Unanswered)
		}
		// The last one came after half a second, while the first was asked, and then
		// was asked beside a release.
		if took := time.Since(began); took > 2500*time.Millisecond {
			t.Errorf("all are told after %v, want within two timeouts of the last", took)
		}
	})
}

// Even where a client library does not end in time.
func TestATakeThatHasWaitedTooLongIsNotAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := NewMemory(10)
		r := start(t, script(func(ctx context.Context, steps []Step) {
			time.Sleep(3 * time.Second)
			memory.Run(ctx, steps)
		}), func(c *Config) { c.Workers = 1 })
		first := r.ask("a", time.Minute, false)
		synctest.Wait()
		second := r.ask("b", time.Minute, false)
		r.want(second, Unanswered)
		r.want(first, Granted)
		r.end(first)
		r.counted(map[string]float64{"acquired_total": 1, "unanswered_total": 1})
	})
}

func TestALockIsNotAskedForWhenNobodyWaitsForItAnyMore(t *testing.T) {
	g := newGate(NewMemory(10))
	r := start(t, g, func(c *Config) { c.Workers = 1 })
	plug := r.ask("plug", time.Minute, false)
	<-g.came
	gone := &call{decided: make(chan struct{}), ended: make(chan struct{}), gone: true}
	gone.lock = Lock{Key: "k", Interval: time.Minute, Caller: gone}
	r.begin(gone)
	close(g.open)
	r.want(gone, Gone)
	r.want(plug, Granted)
	r.end(plug)
	r.counted(map[string]float64{"acquired_total": 1})
}

func TestStopWaitsForCallsAndLetsNobodyIn(t *testing.T) {
	memory := NewMemory(10)
	r := start(t, memory)
	c := r.take("k", time.Minute, Granted)
	stopped := make(chan error)
	go func() { stopped <- r.Stop(t.Context()) }()
	for r.Reserve() { // until it is closed
		r.Cancel()
	}
	select {
	case <-stopped:
		t.Fatal("it stopped with a call under way")
	default:
	}
	r.end(c)
	expect.Check(t, <-stopped)
	if n := memory.Len(); n != 0 {
		t.Errorf("%d locks are left", n)
	}
}

func TestStopSaysWhatHasNotEnded(t *testing.T) {
	r := start(t, NewMemory(10))
	c := r.take("k", time.Minute, Granted)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.Stop(ctx); err == nil || !strings.Contains(err.Error(), "1 calls have not ended") {
		t.Errorf("Stop says %v", err)
	}
	if r.End(&c.lock, false) {
		t.Error("a guard that has stopped promises to give a lock back")
	}
}

func TestManyAtOnceGetOneLock(t *testing.T) {
	for name, locks := range map[string]Locks{"memory": NewMemory(10), "redis": NewRedis(client(t, server), "test")} {
		t.Run(name, func(t *testing.T) {
			nodes := []*rig{start(t, locks), start(t, locks)}
			var inside, peak, granted int
			var mu sync.Mutex
			var all sync.WaitGroup
			for i := range 50 {
				all.Go(func() {
					r := nodes[i%2]
					for range 20 {
						c := r.ask("one", time.Minute, false)
						<-c.decided
						if c.lock.Verdict != Granted {
							continue
						}
						mu.Lock()
						inside, granted = inside+1, granted+1
						peak = max(peak, inside)
						mu.Unlock()
						mu.Lock()
						inside--
						mu.Unlock()
						r.end(c)
					}
				})
			}
			all.Wait()
			if peak != 1 || granted == 0 {
				t.Errorf("%d had the lock at a time, %d in all", peak, granted)
			}
		})
	}
}

func TestKeysOfDifferentCallsAreDifferent(t *testing.T) {
	seen := map[string]bool{}
	for _, key := range []string{
		NamedKey("", "a"), NamedKey("a", ""), NamedKey("1:a", "b"), NamedKey("1", "a:b"), NamedKey("", "1:a:b"),
		CallKey("", "allocate", [32]byte{}), CallKey("", "allocate", [32]byte{1}), CallKey("", "mark_used", [32]byte{}),
		CallKey("a", "allocate", [32]byte{}), NamedKey("", "allocate:"+strings.Repeat("0", 64)),
	} {
		if seen[key] {
			t.Errorf("%s twice", key)
		}
		seen[key] = true
	}
}

func TestWrongSettingsAreRefused(t *testing.T) {
	for _, c := range []Config{{0, 1, 1, time.Second}, {1, 0, 1, time.Second}, {1, 1, 0, time.Second}, {1, 1, 1, 0}} {
		if _, err := New(NewMemory(1), c, prometheus.NewRegistry(), nil); err == nil {
			t.Errorf("%+v is accepted", c)
		}
	}
}
