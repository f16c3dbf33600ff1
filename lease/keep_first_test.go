package lease

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"
)

// slow is a store that answers each heartbeat after a while.
type slow struct {
	takes   time.Duration
	fails   int // this heartbeat, from 1; 0: none does
	beats   int
	counter int64
}

func (s *slow) Renew(ctx context.Context, _ Holder, ttl time.Duration) (Renewal, error) {
	if s.beats++; s.beats == s.fails {
		return Renewal{}, errors.New("lost")
	}
	select {
	case <-time.After(s.takes):
		s.counter++
		return Renewal{Now: time.Now(), Until: time.Now().Add(ttl), Counter: s.counter}, nil
	case <-ctx.Done():
		return Renewal{}, ctx.Err()
	}
}

func TestANodeThatStartsWaitsLongerForItsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, renewed := &slow{takes: 2 * time.Second}, 0
		k, err := Keep(t.Context(), store, Holder{"a", 1}, time.Second, func(Renewal, time.Time, time.Time) { renewed++ }, nil, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		k.Stop()
		if renewed != 1 {
			t.Errorf("renewed %d times by a store that takes longer than a lease, want once", renewed)
		}
	})
}

// TestOneLostHeartbeatDoesNotEndTheLeaseOfASlowStore: a try that is cut short is followed by one
// that has the time of any other.
func TestOneLostHeartbeatDoesNotEndTheLeaseOfASlowStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, renewed := &slow{takes: ttl / 4, fails: 3}, 0
		k, err := Keep(t.Context(), store, Holder{"a", 1}, ttl, func(Renewal, time.Time, time.Time) { renewed++ }, nil, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * ttl)
		k.Stop()
		if renewed < 20 {
			t.Errorf("renewed %d times in ten leases", renewed)
		}
	})
}
