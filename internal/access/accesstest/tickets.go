package accesstest

import (
	"context"
	"crypto/sha256"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"noncegate/internal/access"
	"noncegate/internal/access/ticket"
)

func hash(text string) ticket.Hash { return sha256.Sum256([]byte(text)) }

func put(t *testing.T, s ticket.Store, text string, g ticket.Grant, ttl time.Duration) {
	t.Helper()
	expires, err := s.PutTicket(t.Context(), hash(text), g, ttl, 2)
	if err != nil {
		t.Fatal(err)
	}
	if left := time.Until(expires); (left - ttl).Abs() > time.Minute {
		t.Errorf("a ticket for %v is good for %v", ttl, left)
	}
}

func wantNone(t *testing.T, s ticket.Store, text string) {
	t.Helper()
	if g, err := s.TakeTicket(t.Context(), hash(text)); !errors.Is(err, ticket.ErrUnknown) {
		t.Errorf("ticket %q: got %+v, %v, want %v", text, g, err, ticket.ErrUnknown)
	}
}

func ticketIsTakenOnce(t *testing.T, s access.Store) {
	wantNone(t, s, "made up")
	want := ticket.Grant{Principal: "alice", Credential: "token:1", Ends: time.Now().Add(time.Hour).Truncate(time.Microsecond)}
	put(t, s, "1", want, time.Hour)
	put(t, s, "endless", ticket.Grant{Principal: "bob", Credential: "key:1"}, time.Hour)
	var taken atomic.Int32
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			g, err := s.TakeTicket(context.WithoutCancel(t.Context()), hash("1"))
			if err == nil {
				taken.Add(1)
			}
			if err == nil && (g.Principal != want.Principal || g.Credential != want.Credential || !g.Ends.Equal(want.Ends)) {
				t.Errorf("got %+v, want %+v", g, want)
			}
			if err != nil && !errors.Is(err, ticket.ErrUnknown) {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if n := taken.Load(); n != 1 {
		t.Errorf("a ticket was taken %d times", n)
	}
	if g, err := s.TakeTicket(t.Context(), hash("endless")); err != nil || !g.Ends.IsZero() || g.Credential != "key:1" {
		t.Errorf("got %+v, %v", g, err)
	}
}

func lateTicketIsNone(t *testing.T, s access.Store) {
	put(t, s, "late", ticket.Grant{Principal: "alice", Credential: "key:1"}, time.Microsecond)
	wantNone(t, s, "late")
	put(t, s, "later", ticket.Grant{Principal: "alice", Credential: "key:1"}, time.Microsecond)
	put(t, s, "good", ticket.Grant{Principal: "alice", Credential: "key:1"}, time.Hour)
	if err := s.PruneTickets(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantNone(t, s, "later")
	if _, err := s.TakeTicket(t.Context(), hash("good")); err != nil {
		t.Error(err)
	}
}

func ticketsAreBounded(t *testing.T, s access.Store) {
	alice, bob := ticket.Grant{Principal: "alice", Credential: "key:1"}, ticket.Grant{Principal: "bob", Credential: "key:2"}
	put(t, s, "late", alice, time.Microsecond) // it counts no more
	put(t, s, "1", alice, time.Hour)
	put(t, s, "2", alice, time.Hour)
	if _, err := s.PutTicket(t.Context(), hash("3"), alice, time.Hour, 2); !errors.Is(err, ticket.ErrTooMany) {
		t.Errorf("got %v, want %v", err, ticket.ErrTooMany)
	}
	wantNone(t, s, "3")
	put(t, s, "4", bob, time.Hour)
	if _, err := s.TakeTicket(t.Context(), hash("1")); err != nil {
		t.Fatal(err)
	}
	put(t, s, "5", alice, time.Hour)
}
