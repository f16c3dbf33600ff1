package reload_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"noncegate/internal/reload"
	"noncegate/test/lab/expect"
)

// source is what is read: a number that grows, or an error.
type source struct {
	reads atomic.Int32
	fails atomic.Pointer[error]
	block atomic.Bool // until the context ends
}

func (s *source) load(ctx context.Context, _ *int) (*int, error) {
	n := int(s.reads.Add(1))
	if s.block.Load() {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	if err := s.fails.Load(); err != nil {
		return nil, *err
	}
	return &n, nil
}

func (s *source) failWith(text string) {
	err := errors.New(text)
	s.fails.Store(&err)
}

func open(t *testing.T, s *source, cfg reload.Config) *reload.Value[int] {
	t.Helper()
	v, err := reload.Open(t.Context(), cfg, s.load)
	expect.Must(t, err)
	t.Cleanup(v.Stop)
	return v
}

func TestAValueIsReadAgainAndAnErrorLeavesItInForce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		s := &source{}
		v := open(t, s, reload.Config{Name: "the thing", Every: 10 * time.Second, Retry: time.Second, Log: slog.New(slog.NewTextHandler(&log, nil))})
		began := time.Now()
		time.Sleep(25 * time.Second)
		if got := *v.Get(); got != 3 {
			t.Errorf("after 25s it was read %d times, want 3", got)
		}
		s.failWith("broken")
		time.Sleep(10 * time.Second) // one reading fails at 30s, the next five a second later each
		synctest.Wait()
		good, err := v.State()
		if got := *v.Get(); got != 3 || err == nil || err.Error() != "broken" || good.Sub(began) != 20*time.Second {
			t.Errorf("got %d, %v, good after %v", got, err, good.Sub(began))
		}
		if n := s.reads.Load(); n != 3+6 {
			t.Errorf("it was read %d times, want 9", n)
		}
		s.failWith("broken otherwise")
		time.Sleep(2 * time.Second)
		s.fails.Store(nil)
		time.Sleep(time.Second)
		synctest.Wait()
		if _, err := v.State(); err != nil || *v.Get() <= 3 {
			t.Errorf("after it was mended: %v", err)
		}
		for text, want := range map[string]int{"error=broken\n": 1, "otherwise": 1, "can be used again": 1, "level=ERROR": 2} {
			if got := strings.Count(log.String(), text); got != want {
				t.Errorf("the log says %q %d times, want %d:\n%s", text, got, want, log.String())
			}
		}
	})
}

func TestSoonIsAtOnceHoweverLongAgoTheLastWas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &source{}
		v := open(t, s, reload.Config{Name: "the thing", Every: time.Hour})
		for want := 2; want < 5; want++ {
			v.Soon()
			synctest.Wait()
			if got := *v.Get(); got != want {
				t.Errorf("it was read %d times, want %d", got, want)
			}
		}
	})
}

func TestManyWhoAskAgainCostOneReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &source{}
		v := open(t, s, reload.Config{Name: "the thing", Every: time.Hour})
		if err := v.Again(t.Context()); err != nil || s.reads.Load() != 1 {
			t.Errorf("within a second it was read %d times: %v", s.reads.Load(), err)
		}
		for want := int32(2); want < 5; want++ {
			time.Sleep(time.Second)
			var all sync.WaitGroup
			for range 50 {
				all.Go(func() {
					expect.Check(t, v.Again(t.Context()))
					if got := *v.Get(); got != int(want) {
						t.Errorf("after Again the value is %d, want %d", got, want)
					}
				})
			}
			all.Wait()
			if n := s.reads.Load(); n != want {
				t.Errorf("it was read %d times, want %d", n, want)
			}
		}
	})
}

func TestAgainTellsTheErrorOfItsReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &source{}
		v := open(t, s, reload.Config{Name: "the thing", Every: time.Hour})
		s.failWith("away")
		for range 3 { // the second and third are told of the first
			time.Sleep(400 * time.Millisecond)
			_ = v.Again(t.Context())
		}
		if err := v.Again(t.Context()); err == nil || err.Error() != "away" || s.reads.Load() != 2 {
			t.Errorf("got %v after %d readings", err, s.reads.Load())
		}
	})
}

func TestAReadingHasATimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &source{}
		v := open(t, s, reload.Config{Name: "the thing", Every: time.Minute, Timeout: 3 * time.Second})
		s.block.Store(true)
		time.Sleep(time.Second)
		asked := time.Now()
		if err := v.Again(t.Context()); !errors.Is(err, context.DeadlineExceeded) || time.Since(asked) != 3*time.Second {
			t.Errorf("got %v after %v", err, time.Since(asked))
		}
		time.Sleep(time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := v.Again(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a caller whose time is over is told %v", err)
		}
	})
}

func TestStopEndsAReadingAndWhoWaitsForIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &source{}
		v := open(t, s, reload.Config{Name: "the thing", Every: time.Hour, Timeout: time.Hour})
		s.block.Store(true)
		time.Sleep(time.Second)
		told := make(chan error, 1)
		go func() { told <- v.Again(t.Context()) }()
		synctest.Wait()
		v.Stop()
		v.Stop()
		if err := <-told; !errors.Is(err, reload.ErrStopped) {
			t.Errorf("who waited is told %v", err)
		}
		time.Sleep(time.Second)
		if err := v.Again(t.Context()); !errors.Is(err, reload.ErrStopped) {
			t.Errorf("who asks later is told %v", err)
		}
		if *v.Get() != 1 {
			t.Error("the value is gone")
		}
	})
}

func TestAFirstReadingThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &source{}
		s.failWith("away")
		cfg := reload.Config{Name: "the thing", Every: time.Hour, Retry: time.Second}
		if v, err := reload.Open(t.Context(), cfg, s.load); v != nil || err == nil {
			t.Errorf("got %v, %v", v, err)
		}
		v := reload.OpenLater(t.Context(), cfg, s.load)
		defer v.Stop()
		if v.Get() != nil {
			t.Error("there is a value")
		}
		s.fails.Store(nil)
		time.Sleep(time.Second)
		synctest.Wait()
		if v.Get() == nil {
			t.Error("it was not read again soon")
		}
	})
}
