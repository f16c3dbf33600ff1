package lease

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"
)

// slow is a store that answers each heartbeat after a while.
type slow struct {
	takes   time.Duration
	counter int64
}

func (s *slow) Renew(ctx context.Context, _ Holder, ttl time.Duration) (Renewal, error) {
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
