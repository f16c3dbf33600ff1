package ticket_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"noncegate/internal/access/ticket"
	"noncegate/test/lab/expect"
)

// store keeps tickets in memory.
type store struct {
	mu     sync.Mutex
	kept   map[ticket.Hash]ticket.Grant
	pruned int
	err    error
	block  bool // until the context ends
	takes  time.Duration
	asked  atomic.Int32
}

func (s *store) PutTicket(_ context.Context, h ticket.Hash, g ticket.Grant, ttl time.Duration, _ int) (time.Time, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return time.Time{}, s.err
	}
	s.kept[h] = g
	return time.Now().Add(ttl), nil
}

func (s *store) TakeTicket(ctx context.Context, h ticket.Hash) (ticket.Grant, error) {
	s.asked.Add(1)
	time.Sleep(s.takes) // of a clock that is the test's
	if s.block {
		<-ctx.Done()
		return ticket.Grant{}, context.Cause(ctx)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	g, ok := s.kept[h]
	if !ok {
		return ticket.Grant{}, ticket.ErrUnknown
	}
	delete(s.kept, h)
	return g, s.err
}

func (s *store) PruneTickets(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pruned++
	return s.err
}

func open(t *testing.T, s *store, cfg ticket.Config) *ticket.Issuer {
	t.Helper()
	s.kept = map[ticket.Hash]ticket.Grant{}
	o, err := ticket.Open(t.Context(), s, cfg)
	expect.Must(t, err)
	t.Cleanup(o.Stop)
	return o
}

var alice = ticket.Grant{Principal: "alice", Credential: "key:1"}

func TestATicketIsGoodOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := open(t, &store{}, ticket.Config{})
		text, expires, err := o.Issue(t.Context(), alice)
		if err != nil || time.Until(expires) != 30*time.Second || !strings.HasPrefix(text, ticket.Prefix) {
			t.Fatalf("got %q until %v, %v", text, expires, err)
		}
		if g, err := o.Redeem(t.Context(), text); err != nil || g != alice {
			t.Errorf("got %+v, %v", g, err)
		}
		if _, err := o.Redeem(t.Context(), text); !errors.Is(err, ticket.ErrUnknown) {
			t.Errorf("the second time: got %v", err)
		}
	})
}

func TestWhatNobodyRedeemedIsDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store{}
		o := open(t, s, ticket.Config{})
		time.Sleep(100 * time.Second)
		o.Stop()
		o.Stop()
		if s.pruned != 3 {
			t.Errorf("in 100s it was looked for %d times, want 3", s.pruned)
		}
	})
}

func TestOnlySoManyAskAtATimeAndOnlySoManyWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store{block: true}
		o := open(t, s, ticket.Config{MaxConcurrent: 3, Waiting: 2})
		text := ticket.Prefix + strings.Repeat("0", 64)
		var all sync.WaitGroup
		for range 5 { // three are asked for, two wait; each has five seconds
			all.Go(func() {
				began := time.Now()
				if _, err := o.Redeem(t.Context(), text); !errors.Is(err, ticket.ErrUnavailable) || time.Since(began) != 5*time.Second {
					t.Errorf("got %v after %v", err, time.Since(began))
				}
			})
		}
		synctest.Wait()
		if n := s.asked.Load(); n != 3 {
			t.Errorf("%d were asked for at a time, want 3", n)
		}
		began := time.Now()
		if _, err := o.Redeem(t.Context(), text); !errors.Is(err, ticket.ErrUnavailable) || time.Since(began) != 0 {
			t.Errorf("the sixth: got %v after %v", err, time.Since(began))
		}
		all.Wait()
	})
}

func TestAStoreThatIsAwayIsUnavailable(t *testing.T) {
	s := &store{}
	o := open(t, s, ticket.Config{})
	text, _, err := o.Issue(t.Context(), alice)
	expect.Must(t, err)
	s.err = errors.New("away")
	if _, err := o.Redeem(t.Context(), text); !errors.Is(err, ticket.ErrUnavailable) {
		t.Errorf("redeem: got %v", err)
	}
	if text, _, err := o.Issue(t.Context(), alice); !errors.Is(err, ticket.ErrUnavailable) || text != "" {
		t.Errorf("issue: got %q, %v", text, err)
	}
}

func TestSettingsThatAreWrongStopTheStart(t *testing.T) {
	for _, cfg := range []ticket.Config{{TTL: time.Hour}, {TTL: time.Millisecond}, {PerPrincipal: -1}, {MaxConcurrent: -1}, {Waiting: -1}} {
		if o, err := ticket.Open(t.Context(), &store{}, cfg); err == nil {
			o.Stop()
			t.Errorf("%+v was taken", cfg)
		}
	}
}

// FuzzParse looks for texts that panic, or that are taken and are not a ticket.
func FuzzParse(f *testing.F) {
	f.Add(ticket.Prefix + strings.Repeat("0", 64))
	f.Add(ticket.Prefix)
	f.Add("")
	f.Fuzz(func(t *testing.T, text string) {
		_, err := ticket.Parse(text)
		if wrong := len(text) != 68 || text[:4] != ticket.Prefix || strings.Trim(text[4:], "0123456789abcdef") != ""; wrong != (err != nil) {
			t.Errorf("%q: got %v", text, err)
		}
	})
}
