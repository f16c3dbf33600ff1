// Package accesstest is the suite that every store of credentials passes.
package accesstest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"noncegate/internal/access"
	"noncegate/internal/access/apikey"
)

// Run tests the store that open returns, a new and empty one at each call.
func Run(t *testing.T, open func(t *testing.T) access.Store) {
	for _, test := range []struct {
		name string
		run  func(*testing.T, access.Store)
	}{
		{"a key is kept as it was made", keyIsKept},
		{"a third live key is refused, also when they are made at the same time", thirdKeyIsRefused},
		{"an expired key makes room for another", expiredKeyMakesRoom},
		{"the first time of a revocation stays", revokedOnce},
		{"keys that are known are not listed", knownKeysAreNotListed},
		{"a ticket is taken once, also by many at the same time", ticketIsTakenOnce},
		{"a ticket whose time is over is none", lateTicketIsNone},
		{"the unused tickets of a principal are bounded", ticketsAreBounded},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, open(t)) })
	}
}

func create(t *testing.T, s apikey.Store, principal string, lifetime time.Duration) apikey.Key {
	t.Helper()
	_, r := apikey.Generate(principal, lifetime)
	k, err := s.CreateKey(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	if k.ID != r.ID || k.Principal != principal || k.Hash != r.Hash || !k.Revoked.IsZero() {
		t.Errorf("got %+v of %+v", k, r)
	}
	return k
}

func keys(t *testing.T, s apikey.Store, known int64) apikey.Listing {
	t.Helper()
	list, err := s.Keys(t.Context(), known)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func keyIsKept(t *testing.T, s access.Store) {
	if list := keys(t, s, 0); list.Generation == 0 || len(list.Keys) != 0 || time.Since(list.Now).Abs() > time.Minute {
		t.Errorf("an empty store lists %+v", list)
	}
	b, a := create(t, s, "b", 0), create(t, s, "a", time.Hour)
	if !b.Expires.IsZero() || a.Expires.Sub(a.Created) != time.Hour {
		t.Errorf("got expiries %v, and %v after %v", b.Expires, a.Expires, a.Created)
	}
	list := keys(t, s, 0)
	if len(list.Keys) != 2 || !same(list.Keys[0], a) || !same(list.Keys[1], b) {
		t.Errorf("got %+v, want %+v and %+v", list.Keys, a, b)
	}
}

// same compares two readings of a key, whose times may be of different zones.
func same(a, b apikey.Key) bool {
	return a.ID == b.ID && a.Principal == b.Principal && a.Hash == b.Hash &&
		a.Created.Equal(b.Created) && a.Expires.Equal(b.Expires) && a.Revoked.Equal(b.Revoked)
}

func thirdKeyIsRefused(t *testing.T, s access.Store) {
	var made, refused int
	var mu sync.Mutex
	var all sync.WaitGroup
	for range 6 {
		all.Go(func() {
			_, r := apikey.Generate("alice", 0)
			_, err := s.CreateKey(context.WithoutCancel(t.Context()), r)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				made++
			case errors.Is(err, apikey.ErrTooManyLive):
				refused++
			default:
				t.Error(err)
			}
		})
	}
	all.Wait()
	if made != apikey.MaxLive || refused != 6-apikey.MaxLive {
		t.Errorf("%d were made and %d refused, want %d and %d", made, refused, apikey.MaxLive, 6-apikey.MaxLive)
	}
	create(t, s, "bob", 0)
	first := keys(t, s, 0).Keys[0]
	if _, err := s.RevokeKey(t.Context(), first.ID); err != nil {
		t.Fatal(err)
	}
	create(t, s, "alice", 0)
}

func expiredKeyMakesRoom(t *testing.T, s access.Store) {
	create(t, s, "alice", 0)
	create(t, s, "alice", time.Microsecond)
	create(t, s, "alice", 0)
}

func revokedOnce(t *testing.T, s access.Store) {
	if _, err := s.RevokeKey(t.Context(), "0123456789abcdef"); !errors.Is(err, apikey.ErrUnknown) {
		t.Errorf("got %v, want %v", err, apikey.ErrUnknown)
	}
	k := create(t, s, "alice", 0)
	var revoked [2]apikey.Key
	for i := range revoked {
		var err error
		if revoked[i], err = s.RevokeKey(t.Context(), k.ID); err != nil {
			t.Fatal(err)
		}
	}
	if revoked[0].Revoked.IsZero() || !same(revoked[0], revoked[1]) || revoked[0].Principal != "alice" {
		t.Errorf("got %+v, then %+v", revoked[0], revoked[1])
	}
	if list := keys(t, s, 0); len(list.Keys) != 1 || !same(list.Keys[0], revoked[0]) {
		t.Errorf("got %+v, want %+v", list.Keys, revoked[0])
	}
}

func knownKeysAreNotListed(t *testing.T, s access.Store) {
	seen := map[int64]bool{}
	last := keys(t, s, 0)
	for i, change := range []func(){
		func() {},
		func() { create(t, s, "alice", 0) },
		func() { create(t, s, "bob", 0) },
		func() {
			if _, err := s.RevokeKey(t.Context(), last.Keys[0].ID); err != nil {
				t.Fatal(err)
			}
		},
	} {
		change()
		next := keys(t, s, last.Generation)
		if i == 0 {
			if next.Generation != last.Generation || next.Keys != nil {
				t.Errorf("without a change: got %+v after generation %d", next, last.Generation)
			}
			continue
		}
		if seen[next.Generation] || next.Generation == last.Generation || len(next.Keys) == 0 {
			t.Error(fmt.Sprintf("after change %d: ", i), next)
		}
		seen[last.Generation] = true
		last = next
	}
	if again := keys(t, s, last.Generation); again.Keys != nil || again.Now.IsZero() {
		t.Errorf("got %+v of the generation that is known", again)
	}
}
