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
	goesOn  bool                 // what the node does when the counter went back
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
		}, func(err error, _ bool) bool { lost <- err; return l.goesOn }, slog.New(slog.DiscardHandler))
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

// TestWhatAHeartbeatThatFailsDoes: the counter is that of heartbeats that arrived.
func TestWhatAHeartbeatThatFailsDoes(t *testing.T) {
	away := errors.New("away")
	for name, test := range map[string]struct {
		fail           func(l *leases, beat int) error
		after          time.Duration
		renewed, beats int // at least; exactly, if it is lost
		lost           error
	}{
		"an outage that is longer than the lease": {func(l *leases, beat int) error {
			if beat > 2 && time.Since(l.at[1]) < 2*ttl {
				return away
			}
			return nil
		}, 12 * time.Second, 5, 6, nil},
		"two are lost, and the third comes before the lease ends": {func(_ *leases, beat int) error {
			if beat == 2 || beat == 3 {
				return away
			}
			return nil
		}, ttl - time.Millisecond, 2, 4, nil},
		"the answer of one is lost, so that the counter rises by two": {func(l *leases, beat int) error {
			if beat == 3 {
				l.counter++
				return away
			}
			return nil
		}, 5 * time.Second, 5, 6, nil},
		"the counter is as it was: the store went back":         {fallsAt5(1), time.Minute, 4, 5, ErrWentBack},
		"the counter is lower than it was: the store went back": {fallsAt5(3), time.Minute, 4, 5, ErrWentBack},
		"a later start of the node": {func(_ *leases, beat int) error {
			if beat == 3 {
				return ErrSuperseded
			}
			return nil
		}, time.Minute, 2, 3, ErrSuperseded},
	} {
		t.Run(name, func(t *testing.T) {
			l := &leases{}
			l.fail = func(beat int) error { return test.fail(l, beat) }
			kept(t, l, func(_ *Keeper, renewed *renewals, lost chan error) {
				wait(test.after)
				exactly := renewed.len() == test.renewed && len(l.at) == test.beats
				if renewed.len() < test.renewed || len(l.at) < test.beats || test.lost != nil && !exactly {
					t.Errorf("renewed %d times by %d heartbeats, want %d by %d", renewed.len(), len(l.at), test.renewed, test.beats)
				}
				if test.lost == nil && len(lost) > 0 || test.lost != nil && (len(lost) != 1 || !errors.Is(<-lost, test.lost)) {
					t.Errorf("lost %d times, want %v", len(lost), test.lost)
				}
			})
		})
	}
}

// fallsAt5 has the fifth heartbeat find a counter that is so much lower.
func fallsAt5(by int64) func(*leases, int) error {
	return func(l *leases, beat int) error {
		if beat == 5 {
			l.counter -= by
		}
		return nil
	}
}

func TestAHeartbeatThatHangsIsGivenUpBeforeTheNext(t *testing.T) {
	hanging := &hung{}
	synctest.Test(t, func(t *testing.T) {
		k, err := Keep(t.Context(), hanging, Holder{"a", 1}, ttl, func(Renewal, time.Time, time.Time) {}, func(err error, _ bool) bool { t.Error(err); return false }, slog.New(slog.DiscardHandler))
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
		k, err := Keep(t.Context(), store, Holder{"a", 1}, ttl, func(Renewal, time.Time, time.Time) {}, func(err error, _ bool) bool { t.Error(err); return false }, slog.New(slog.DiscardHandler))
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
		k, err := Keep(t.Context(), l, Holder{"a", 1}, ttl, func(Renewal, time.Time, time.Time) {}, func(err error, _ bool) bool { t.Error(err); return false }, log)
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
