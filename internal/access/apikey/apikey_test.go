package apikey_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"noncegate/internal/access/apikey"
	"noncegate/test/lab/expect"
)

// store keeps keys in memory. Its clock is ahead of ours.
type store struct {
	mu         sync.Mutex
	generation int64
	keys       []apikey.Key
	ahead      time.Duration
	away       error

	asked, listed atomic.Int32
}

func (s *store) now() time.Time { return time.Now().Add(s.ahead) }

func (s *store) CreateKey(_ context.Context, r apikey.Request) (apikey.Key, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := apikey.Key{ID: r.ID, Principal: r.Principal, Hash: r.Hash, Created: s.now()}
	if r.Lifetime > 0 {
		k.Expires = k.Created.Add(r.Lifetime)
	}
	s.keys = append(s.keys, k)
	s.generation = apikey.NewGeneration()
	return k, nil
}

func (s *store) RevokeKey(_ context.Context, id string) (apikey.Key, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.keys {
		if s.keys[i].ID == id {
			s.keys[i].Revoked = s.now()
			s.generation = apikey.NewGeneration()
			return s.keys[i], nil
		}
	}
	return apikey.Key{}, apikey.ErrUnknown
}

func (s *store) Keys(_ context.Context, known int64) (apikey.Listing, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked.Add(1)
	if s.away != nil {
		return apikey.Listing{}, s.away
	}
	list := apikey.Listing{Generation: s.generation, Now: s.now()}
	if known != s.generation {
		s.listed.Add(1)
		list.Keys = append(list.Keys, s.keys...)
	}
	return list, nil
}

func (s *store) goAway(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.away = err
}

func (s *store) create(t *testing.T, principal string, lifetime time.Duration) (text string, k apikey.Key) {
	t.Helper()
	text, r := apikey.Generate(principal, lifetime)
	k, err := s.CreateKey(t.Context(), r)
	expect.Must(t, err)
	return text, k
}

func open(t *testing.T, s *store) *apikey.Cache {
	t.Helper()
	s.generation = max(1, s.generation)
	c, err := apikey.Open(t.Context(), s, apikey.Config{})
	expect.Must(t, err)
	t.Cleanup(c.Stop)
	return c
}

func wantErr(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: got %v, want %v", what, err, want)
	}
}

func TestAKeyIsGoodUntilItIsRevokedAndLittleLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store{}
		text, k := s.create(t, "alice", 0)
		c := open(t, s)
		if got, err := c.Check(t.Context(), text); err != nil || got.Principal != "alice" || got.ID != k.ID {
			t.Fatalf("got %+v, %v", got, err)
		}
		if _, err := s.RevokeKey(t.Context(), k.ID); err != nil {
			t.Fatal(err)
		}
		if err := c.Ended(k.ID, time.Now()); err != nil {
			t.Error("it ended before the store was asked")
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		_, err := c.Check(t.Context(), text)
		wantErr(t, "a login 2s later", err, apikey.ErrRevoked)
		wantErr(t, "a session 2s later", c.Ended(k.ID, time.Now()), apikey.ErrRevoked)
		wantErr(t, "a session of a key that is gone", c.Ended("0123456789abcdef", time.Now()), apikey.ErrRevoked)
		time.Sleep(time.Minute)
		if n := s.listed.Load(); n != 2 {
			t.Errorf("all keys were read %d times, want once and once after the change", n)
		}
	})
}

func TestAKeyThatIsNewIsGoodAfterATenthOfASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store{}
		c := open(t, s)
		text, _ := s.create(t, "alice", 0)
		_, err := c.Check(t.Context(), text)
		wantErr(t, "at once", err, apikey.ErrUnknown)
		time.Sleep(100 * time.Millisecond)
		if _, err := c.Check(t.Context(), text); err != nil {
			t.Errorf("after a tenth of a second: %v", err)
		}
	})
}

func TestUnknownKeysDoNotAskTheStoreEach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store{}
		text, _ := s.create(t, "alice", 0)
		c := open(t, s)
		for range 100 { // ten seconds
			for range 100 {
				unknown, _ := apikey.Generate("alice", 0)
				if _, err := c.Check(t.Context(), unknown); !errors.Is(err, apikey.ErrUnknown) {
					t.Fatal(err)
				}
				if _, err := c.Check(t.Context(), text); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(100 * time.Millisecond)
		}
		if n := s.asked.Load(); n > 106 { // and once each 2 s for what is known
			t.Errorf("10,000 unknown keys in 10s asked the store %d times", n)
		}
	})
}

func TestExpiryIsByTheClockOfTheStore(t *testing.T) {
	for _, ahead := range []time.Duration{0, time.Minute, -time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			s := &store{ahead: ahead}
			text, k := s.create(t, "alice", 30*time.Second)
			c := open(t, s)
			got, err := c.Check(t.Context(), text)
			if err != nil || time.Until(got.Expires) != 30*time.Second {
				t.Errorf("%v ahead: got %+v, %v", ahead, got, err)
			}
			if err := c.Ended(k.ID, time.Now().Add(30*time.Second-1)); err != nil {
				t.Errorf("%v ahead: %v", ahead, err)
			}
			wantErr(t, "at the end", c.Ended(k.ID, time.Now().Add(30*time.Second)), apikey.ErrExpired)
			time.Sleep(30 * time.Second)
			_, err = c.Check(t.Context(), text)
			wantErr(t, "a login at the end", err, apikey.ErrExpired)
		})
	}
}

func TestWhileTheStoreIsAwayKnownKeysAreGoodForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store{}
		text, k := s.create(t, "alice", 0)
		c := open(t, s)
		s.goAway(errors.New("away"))
		time.Sleep(4 * time.Minute)
		if _, err := c.Check(t.Context(), text); err != nil {
			t.Errorf("after 4m: %v", err)
		}
		unknown, _ := apikey.Generate("alice", 0)
		_, err := c.Check(t.Context(), unknown)
		wantErr(t, "an unknown key", err, apikey.ErrUnavailable)
		_, err = c.Live(t.Context(), "0123456789abcdef")
		wantErr(t, "an unknown id", err, apikey.ErrUnavailable)
		time.Sleep(2 * time.Minute)
		_, err = c.Check(t.Context(), text)
		wantErr(t, "after 6m", err, apikey.ErrUnavailable)
		wrong := text[:len(text)-1] + string("0123456789abcdef"[(strings.IndexByte("0123456789abcdef", text[len(text)-1])+1)%16])
		_, err = c.Check(t.Context(), wrong)
		wantErr(t, "a wrong secret is told so in any case", err, apikey.ErrSecret)
		if err := c.Ended(k.ID, time.Now()); err != nil {
			t.Errorf("a session was ended: %v", err)
		}
		s.goAway(nil)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if _, err := c.Check(t.Context(), text); err != nil {
			t.Errorf("when it is back: %v", err)
		}
	})
}

func TestSettingsThatDisagreeStopTheStart(t *testing.T) {
	if _, err := apikey.Open(t.Context(), &store{generation: 1}, apikey.Config{Refresh: time.Minute, Trust: time.Second}); err == nil {
		t.Error("keys are trusted for shorter than they are kept")
	}
	if _, err := apikey.Open(t.Context(), &store{away: errors.New("away")}, apikey.Config{}); err == nil {
		t.Error("it started without keys")
	}
}

func TestAKeyHasOneSpelling(t *testing.T) {
	text, r := apikey.Generate("alice", 0)
	if id, hash, err := apikey.Parse(text); err != nil || id != r.ID || hash != r.Hash {
		t.Errorf("%q: got %q, %v", text, id, err)
	}
	if again, _ := apikey.Generate("alice", 0); again == text {
		t.Error("two keys are the same")
	}
	for _, wrong := range []string{
		"", "nck_", text[1:], text + "0", text[:len(text)-1], " " + text[1:], strings.ToUpper(text), "nck-" + text[4:],
		text[:len(text)-1] + "g", strings.Replace(text, "_", "-", 2), text[:len(text)-1] + "\n",
	} {
		if _, _, err := apikey.Parse(wrong); !errors.Is(err, apikey.ErrFormat) {
			t.Errorf("%q: got %v", wrong, err)
		}
	}
}

// FuzzParse looks for texts that panic, or that are taken and are not a key.
func FuzzParse(f *testing.F) {
	text, _ := apikey.Generate("alice", 0)
	f.Add(text)
	f.Add("")
	f.Add("nck__")
	f.Add(strings.Repeat("_", len(text)))
	f.Fuzz(func(t *testing.T, text string) {
		id, _, err := apikey.Parse(text)
		if err != nil {
			if id != "" {
				t.Errorf("an id %q beside the error", id)
			}
			return
		}
		if !apikey.IsID(id) || !strings.HasPrefix(text, apikey.Prefix+id+"_") || strings.Trim(text[len(apikey.Prefix)+len(id)+1:], "0123456789abcdef") != "" {
			t.Errorf("%q was taken as %q", text, id)
		}
	})
}
