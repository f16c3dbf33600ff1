package lease

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// leases is a store with one node, which counts its heartbeats.
type leases struct {
	counter int64
	at      []time.Time
	fail    func(beat int) error // may wait; nil: no heartbeat fails
}

func (l *leases) Renew(ctx context.Context, h Holder, ttl time.Duration) (Renewal, error) {
	l.at = append(l.at, time.Now())
	if l.fail != nil {
		if err := l.fail(len(l.at)); err != nil {
			return Renewal{}, err
		}
	}
	if err := ctx.Err(); err != nil {
		return Renewal{}, err
	}
	l.counter++
	return Renewal{Now: time.Now(), Until: time.Now().Add(ttl), Counter: l.counter}, nil
}

const ttl = 3 * time.Second

// renewals are the counters of the heartbeats that were confirmed.
type renewals struct {
	mu       sync.Mutex // guards counters
	counters []int64
}

func (r *renewals) add(counter int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counters = append(r.counters, counter)
}

func (r *renewals) len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.counters)
}

// kept runs test with a lease that is kept.
func kept(t *testing.T, l *leases, test func(k *Keeper, renewed *renewals, lost chan error)) {
	synctest.Test(t, func(t *testing.T) {
		var renewed renewals
		lost := make(chan error, 9)
		k, err := Keep(t.Context(), l, Holder{"a", 1}, ttl, func(r Renewal, started, ended time.Time) {
			if ended.Before(started) || !r.Until.Equal(ended.Add(ttl)) {
				t.Errorf("renewed until %v, between %v and %v", r.Until, started, ended)
			}
			renewed.add(r.Counter)
		}, func(err error) { lost <- err }, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		defer k.Stop()
		test(k, &renewed, lost)
	})
}

func wait(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestALeaseIsRenewedAtEachThirdOfIt(t *testing.T) {
	l := &leases{}
	kept(t, l, func(_ *Keeper, renewed *renewals, _ chan error) {
		if renewed.len() != 1 {
			t.Error("the lease was not taken at once")
		}
		wait(10*time.Second + 1)
		if renewed.len() != 11 {
			t.Errorf("renewed %d times in ten seconds, want 11", renewed.len())
		}
		for i := range l.at[1:] {
			if pause := l.at[i+1].Sub(l.at[i]); pause != ttl/3 {
				t.Errorf("heartbeat %d came after %v", i+1, pause)
			}
		}
	})
}

func TestThatTheFirstHeartbeatFailsIsTheError(t *testing.T) {
	l := &leases{fail: func(int) error { return errors.New("away") }}
	if _, err := Keep(t.Context(), l, Holder{"a", 1}, ttl, func(Renewal, time.Time, time.Time) { t.Error("renewed") }, nil, slog.New(slog.DiscardHandler)); err == nil {
		t.Error("no error")
	}
}

// TestALeaseIsKeptThroughAnOutage that is longer than it.
func TestALeaseIsKeptThroughAnOutage(t *testing.T) {
	l := &leases{fail: func(beat int) error {
		if beat > 2 && beat < 20 {
			return errors.New("away")
		}
		return nil
	}}
	kept(t, l, func(_ *Keeper, renewed *renewals, lost chan error) {
		wait(12 * time.Second)
		if got := renewed.len(); got < 5 || len(lost) > 0 {
			t.Errorf("renewed %d times, lost %d", got, len(lost))
		}
		if away := l.at[20].Sub(l.at[2]); away <= ttl {
			t.Errorf("the outage was %v, no longer than the lease", away)
		}
	})
}

// TestTwoHeartbeatsMayBeLost: the third comes before the lease ends.
func TestTwoHeartbeatsMayBeLost(t *testing.T) {
	l := &leases{fail: func(beat int) error {
		if beat == 2 || beat == 3 {
			return errors.New("lost")
		}
		return nil
	}}
	kept(t, l, func(_ *Keeper, renewed *renewals, _ chan error) {
		wait(ttl - time.Millisecond)
		if renewed.len() < 2 {
			t.Errorf("renewed %d times before the lease ended", renewed.len())
		}
	})
}

func TestAHeartbeatThatHangsIsGivenUpBeforeTheNext(t *testing.T) {
	hanging := &hung{}
	synctest.Test(t, func(t *testing.T) {
		k, err := Keep(t.Context(), hanging, Holder{"a", 1}, ttl, func(Renewal, time.Time, time.Time) {}, func(err error) { t.Error(err) }, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		wait(ttl)
		k.Stop()
		if hanging.took == 0 || hanging.took >= ttl/3 {
			t.Errorf("the second heartbeat was given up after %v", hanging.took)
		}
	})
}

// TestTwoHeartbeatsThatHangMayBeLost, too.
func TestTwoHeartbeatsThatHangMayBeLost(t *testing.T) {
	store := &hung{answersFrom: 4}
	synctest.Test(t, func(t *testing.T) {
		k, err := Keep(t.Context(), store, Holder{"a", 1}, ttl, func(Renewal, time.Time, time.Time) {}, func(err error) { t.Error(err) }, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		wait(ttl - time.Millisecond)
		k.Stop()
		if len(store.at) < 2 {
			t.Errorf("%d of %d heartbeats were confirmed before the lease ended, want the first and another one", len(store.at), store.beats)
		}
	})
}

// hung answers the first heartbeat, and those from one on; 0: no other.
type hung struct {
	leases
	beats, answersFrom int
	took               time.Duration // of the first that hung
}

func (h *hung) Renew(ctx context.Context, of Holder, ttl time.Duration) (Renewal, error) {
	h.beats++
	if h.beats == 1 || h.answersFrom > 0 && h.beats >= h.answersFrom {
		return h.leases.Renew(ctx, of, ttl)
	}
	began := time.Now()
	<-ctx.Done()
	if h.took == 0 {
		h.took = time.Since(began)
	}
	return Renewal{}, ctx.Err()
}

func TestACounterThatDoesNotRiseMeansThatTheStoreWentBack(t *testing.T) {
	for name, fall := range map[string]int64{"equal": 1, "lower": 3} {
		t.Run(name, func(t *testing.T) {
			l := &leases{}
			l.fail = func(beat int) error {
				if beat == 5 {
					l.counter -= fall
				}
				return nil
			}
			kept(t, l, func(_ *Keeper, renewed *renewals, lost chan error) {
				wait(time.Minute)
				if len(lost) != 1 || !errors.Is(<-lost, ErrWentBack) || renewed.len() != 4 || len(l.at) != 5 {
					t.Errorf("%d heartbeats, %d of them followed", len(l.at), renewed.len())
				}
			})
		})
	}
}

// TestACounterMayRiseByMore: the answer of a heartbeat was lost.
func TestACounterMayRiseByMore(t *testing.T) {
	l := &leases{}
	l.fail = func(beat int) error {
		if beat == 3 {
			l.counter++
			return errors.New("the answer was lost")
		}
		return nil
	}
	kept(t, l, func(_ *Keeper, renewed *renewals, lost chan error) {
		wait(5 * time.Second)
		if len(lost) > 0 || renewed.len() != 5 {
			t.Errorf("lost %d, renewed %d times", len(lost), renewed.len())
		}
	})
}

func TestALaterStartOfTheNodeEndsTheHeartbeat(t *testing.T) {
	l := &leases{fail: func(beat int) error {
		if beat == 3 {
			return ErrSuperseded
		}
		return nil
	}}
	kept(t, l, func(_ *Keeper, _ *renewals, lost chan error) {
		wait(time.Minute)
		if len(lost) != 1 || !errors.Is(<-lost, ErrSuperseded) || len(l.at) != 3 {
			t.Errorf("%d heartbeats", len(l.at))
		}
	})
}

func TestStopWaitsForAHeartbeatUnderWayAndMayBeCalledTwice(t *testing.T) {
	ended := false
	l := &leases{fail: func(beat int) error {
		if beat == 2 {
			time.Sleep(ttl / 6)
			ended = true
		}
		return nil
	}}
	kept(t, l, func(k *Keeper, renewed *renewals, lost chan error) {
		wait(ttl/3 + ttl/12)
		k.Stop()
		if !ended {
			t.Error("it was not waited for")
		}
		beats := len(l.at)
		k.Stop()
		wait(time.Minute)
		if len(l.at) != beats || len(lost) > 0 {
			t.Errorf("%d heartbeats after Stop, lost %d", len(l.at)-beats, len(lost))
		}
	})
}

// TestAnOutageIsSaidOnceAndSoIsItsEnd: six renewals fail.
func TestAnOutageIsSaidOnceAndSoIsItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said bytes.Buffer
		log := slog.New(slog.NewTextHandler(&said, nil))
		l := &leases{fail: func(beat int) error {
			if beat > 2 && beat < 9 {
				return errors.New("away")
			}
			return nil
		}}
		k, err := Keep(t.Context(), l, Holder{"a", 1}, ttl, func(Renewal, time.Time, time.Time) {}, func(err error) { t.Error(err) }, log)
		if err != nil {
			t.Fatal(err)
		}
		wait(12 * time.Second)
		k.Stop()
		if lines := strings.Split(strings.TrimSpace(said.String()), "\n"); len(lines) != 2 ||
			!strings.Contains(lines[0], "level=WARN") || !strings.Contains(lines[1], "level=INFO") || !strings.Contains(lines[1], "failed=6") {
			t.Errorf("the log has:\n%s", said.String())
		}
	})
}
