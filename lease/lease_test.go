package lease

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, goleak.Cleanup(os.Exit)) }

func TestTrustCountsFromTheStartOfTheAttemptLessTheMargin(t *testing.T) {
	started := time.Now()
	term := NewTerm(7, started, 10*time.Second, Margin(10*time.Second))
	if !term.Trusted(started.Add(9*time.Second - 1)) {
		t.Error("not trusted inside the window")
	}
	if term.Trusted(started.Add(9 * time.Second)) {
		t.Error("trusted within the margin of the expiry")
	}
	if (Term{}).Trusted(started) {
		t.Error("the zero term is trusted")
	}
}

func TestARenewalNeverShortensTrustAndLeavesTheToken(t *testing.T) {
	now := time.Now()
	term := NewTerm(7, now, 10*time.Second, time.Second)
	late := term.Renewed(now.Add(-5*time.Second), 10*time.Second, time.Second)
	if !late.Trusted(now.Add(8 * time.Second)) {
		t.Error("a renewal whose attempt started earlier shortened the trust")
	}
	longer := term.Renewed(now.Add(5*time.Second), 10*time.Second, time.Second)
	if !longer.Trusted(now.Add(13*time.Second)) || longer.Token != 7 {
		t.Errorf("got %+v, want trust until 14s and token 7", longer)
	}
}

func TestMarginIsATenthAndAtLeast100ms(t *testing.T) {
	for ttl, want := range map[time.Duration]time.Duration{
		10 * time.Second:       time.Second,
		time.Second:            100 * time.Millisecond,
		500 * time.Millisecond: 100 * time.Millisecond,
	} {
		if got := Margin(ttl); got != want {
			t.Errorf("Margin(%v): got %v, want %v", ttl, got, want)
		}
	}
}

func TestAGrantIsHeldUntilItsExpiry(t *testing.T) {
	now := time.Now()
	for _, c := range []struct {
		g    Grant
		want bool
	}{
		{Grant{Holder: Holder{Node: "a"}, ExpiresAt: now.Add(1)}, true},
		{Grant{Holder: Holder{Node: "a"}, ExpiresAt: now}, false},
		{Grant{ExpiresAt: now.Add(time.Hour)}, false},
	} {
		if got := c.g.Held(now); got != c.want {
			t.Errorf("Held of %+v: got %v, want %v", c.g, got, c.want)
		}
	}
}

func TestAHeartbeatIsJudgedByIncarnationAndCounter(t *testing.T) {
	h := Holder{Node: "a", Incarnation: 5}
	for _, c := range []struct {
		name string
		seen int64
		beat Heartbeat
		want error
	}{
		{"the next beat", 3, Heartbeat{Incarnation: 5, Counter: 4}, nil},
		{"a beat after one whose answer was lost", 3, Heartbeat{Incarnation: 5, Counter: 5}, nil},
		{"a later start", 3, Heartbeat{Incarnation: 6, Counter: 1}, ErrSuperseded},
		{"a counter that stood still", 3, Heartbeat{Incarnation: 5, Counter: 3}, ErrWentBack},
		{"a counter that fell", 3, Heartbeat{Incarnation: 5, Counter: 1}, ErrWentBack},
		{"an incarnation that fell", 3, Heartbeat{Incarnation: 4, Counter: 9}, ErrWentBack},
	} {
		if got := judge(h, c.seen, c.beat); !errors.Is(got, c.want) || c.want == nil && got != nil {
			t.Errorf("%s: got %v, want %v", c.name, got, c.want)
		}
	}
}

// registry is a Registry whose answers a test scripts.
type registry struct {
	mu      sync.Mutex
	present Presence
	beats   []func() (Heartbeat, error)
	signers []int64 // as they were written by beats
	seen    int
	left    []Holder
	nodes   []func() ([]Node, error)
	looks   int
}

func (r *registry) Register(_ context.Context, p Presence) (Holder, error) {
	r.present = p
	return Holder{Node: "a", Incarnation: 5}, nil
}

func (r *registry) Nodes(ctx context.Context) ([]Node, time.Time, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.looks++
	if len(r.nodes) == 0 {
		return nil, time.Time{}, nil
	}
	next := r.nodes[0]
	r.nodes = r.nodes[1:]
	list, err := next()
	if err == nil && list == nil { // a look that hangs
		<-ctx.Done()
		err = ctx.Err()
	}
	return list, time.Time{}, err
}

func (r *registry) Beat(_ context.Context, _ Holder, signers int64) (Heartbeat, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen++
	r.signers = append(r.signers, signers)
	if len(r.beats) == 0 {
		return Heartbeat{Incarnation: 5, Counter: int64(r.seen)}, nil
	}
	next := r.beats[0]
	r.beats = r.beats[1:]
	return next()
}

func (r *registry) Leave(_ context.Context, h Holder) error {
	r.left = append(r.left, h)
	return nil
}

var everySecond = MembershipConfig{Interval: time.Second, Timeout: 500 * time.Millisecond}

func TestAMemberBeatsUntilItStopsAndThenLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &registry{}
		m, err := Join(t.Context(), r, "a", "ws://a", everySecond, slog.New(slog.DiscardHandler), func(err error) { t.Error(err) })
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(10*time.Second + time.Millisecond)
		if err := m.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		if r.seen != 10 || len(r.left) != 1 || r.left[0] != m.Holder() {
			t.Errorf("got %d beats and left %v, want 10 and %v", r.seen, r.left, m.Holder())
		}
	})
}

func TestAMemberThatCannotReachTheStoreGoesOnAndOneThatIsSupersededEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &registry{beats: []func() (Heartbeat, error){
			func() (Heartbeat, error) { return Heartbeat{}, errors.New("away") },
			func() (Heartbeat, error) { return Heartbeat{Incarnation: 5, Counter: 2}, nil },
			func() (Heartbeat, error) { return Heartbeat{Incarnation: 6, Counter: 1}, nil },
		}}
		ended := make(chan error, 2)
		m, err := Join(t.Context(), r, "a", "ws://a", everySecond, slog.New(slog.DiscardHandler), func(err error) { ended <- err })
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		if err := m.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := <-ended; !errors.Is(got, ErrSuperseded) || r.seen != 3 || len(ended) > 0 {
			t.Errorf("got %v after %d beats, want %v after 3, once", got, r.seen, ErrSuperseded)
		}
	})
}

func TestSettingsOfAMembershipMustAgree(t *testing.T) {
	for what, cfg := range map[string]MembershipConfig{
		"a timeout as long as the interval":        {Interval: time.Second, Timeout: time.Second},
		"a patience that one late beat wears out":  {Interval: time.Second, Timeout: time.Second / 2, Patience: 3 * time.Second / 2},
		"a patience below what has passed already": {Interval: time.Second, Timeout: time.Second / 2, Patience: -1},
	} {
		if _, err := Join(t.Context(), &registry{}, "a", "", cfg, slog.New(slog.DiscardHandler), nil); err == nil {
			t.Errorf("%s was taken", what)
		}
	}
}

func TestAMemberSaysHowItServesHowPatientOneIsWithItAndHowMuchItOwns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &registry{}
		owned := int64(0)
		cfg := everySecond
		cfg.Mode, cfg.Signers = "basic", func() int64 { owned++; return owned }
		m, err := Join(t.Context(), r, "a", "ws://a", cfg, slog.New(slog.DiscardHandler), func(err error) { t.Error(err) })
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(3*time.Second + time.Millisecond)
		if err := m.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		// Two beats lost, and the third as late as it can be.
		if want := (Presence{Node: "a", URL: "ws://a", Mode: "basic", Patience: 3500 * time.Millisecond}); r.present != want {
			t.Errorf("registered as %+v, want %+v", r.present, want)
		}
		if !slices.Equal(r.signers, []int64{1, 2, 3}) {
			t.Errorf("beats said %v signers, want 1 2 3", r.signers)
		}
	})
}

func TestAMemberThatLeftGoesOnBeatingAndStillEndsWhenItIsSuperseded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answer := func(incarnation, counter int64) func() (Heartbeat, error) {
			return func() (Heartbeat, error) { return Heartbeat{Incarnation: incarnation, Counter: counter}, nil }
		}
		r := &registry{beats: []func() (Heartbeat, error){answer(5, 1), answer(5, 2), answer(6, 0)}}
		ended := make(chan error, 1)
		m, err := Join(t.Context(), r, "a", "ws://a", everySecond, slog.New(slog.DiscardHandler), func(err error) { ended <- err })
		if err != nil {
			t.Fatal(err)
		}
		if err := m.Leave(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := <-ended; !errors.Is(got, ErrSuperseded) || r.seen != 3 {
			t.Errorf("got %v after %d beats, want %v after 3", got, r.seen, ErrSuperseded)
		}
		if err := m.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		if len(r.left) != 2 || r.left[0] != m.Holder() {
			t.Errorf("left %v, want %v when told and when stopped", r.left, m.Holder())
		}
	})
}
