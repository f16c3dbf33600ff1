package verify_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"noncegate/scripts/loadtest/access"
	"noncegate/scripts/loadtest/result"
	"noncegate/scripts/loadtest/target"
	"noncegate/scripts/loadtest/traffic"
	"noncegate/scripts/loadtest/verify"
)

func TestMain(m *testing.M) { target.Main(m) }

// verified is the verdict on a mixed load of a target.
func verified(t *testing.T, url string, change func(*traffic.Load)) *result.Verify {
	t.Helper()
	l := traffic.Load{
		URLs: []string{url}, Connections: 4, Inflight: 4, Duration: 250 * time.Millisecond,
		Mix:     traffic.Mix{Allocate: 6, MarkUsed: 3, MarkRecyclable: 1, Status: 1},
		Signers: traffic.Signers{Base: 100, Count: 5}, Verify: verify.NewRecorder(),
	}
	if change != nil {
		change(&l)
	}
	if r, err := l.Run(t.Context()); err != nil && !errors.Is(err, traffic.ErrAllLost) {
		t.Fatalf("run: %v, %+v", err, r)
	}
	v, err := l.Verify.Check(t.Context(), l.URLs, access.Access{}, nil)
	if err != nil {
		t.Fatalf("check: %v", err)
	}
	return v
}

func TestAGatewayThatKeepsTheRulesHasNoViolation(t *testing.T) {
	for name, change := range map[string]func(*traffic.Load){
		"a mix":      nil,
		"one signer": func(l *traffic.Load) { l.Signers.Count = 1 },
		"open loop":  func(l *traffic.Load) { l.Rate = 2000 },
		"allocates":  func(l *traffic.Load) { l.Mix = traffic.Mix{} },
	} {
		t.Run(name, func(t *testing.T) {
			g := target.StartGateway(t, "--max-holds=4096")
			v := verified(t, g.URL, change)
			if v.ViolationCount != 0 || len(v.Violations) != 0 || v.Allocations < 20 || v.Repeats < 1 || v.Signers == 0 || v.Unanswered != 0 {
				t.Errorf("%+v; want allocations, repeats and no violation", v)
			}
		})
	}
}

func TestHoldsThatExpireUnderTheLoadAreNoViolation(t *testing.T) {
	g := target.StartGateway(t, "--max-holds=4096", "--hold-ttl=1s", "--sweep-interval=100ms")
	v := verified(t, g.URL, func(l *traffic.Load) {
		l.Duration, l.Rate, l.Mix = 2500*time.Millisecond, 1000, traffic.Mix{}
	})
	if v.ViolationCount != 0 || v.Repeats == 0 {
		t.Errorf("%+v; want repeats and no violation", v)
	}
}

func TestWhatWasNeverAnsweredIsNoViolation(t *testing.T) {
	g := target.StartGateway(t, "--max-holds=4096")
	ctx, cancel := context.WithCancel(t.Context())
	proxy := cutter(t, g.URL)
	l := traffic.Load{
		URLs: []string{proxy}, Connections: 4, Inflight: 16, Duration: time.Minute,
		Mix:     traffic.Mix{Allocate: 2, MarkUsed: 1, MarkRecyclable: 1},
		Signers: traffic.Signers{Count: 5}, Verify: verify.NewRecorder(),
	}
	defer cancel()
	if _, err := l.Run(ctx); !errors.Is(err, traffic.ErrAllLost) {
		t.Fatalf("run: %v, want that all were cut off", err)
	}
	v, err := l.Verify.Check(t.Context(), []string{g.URL}, access.Access{}, nil)
	if err != nil || v.ViolationCount != 0 || v.Unanswered == 0 || v.Allocations == 0 {
		t.Errorf("%+v, %v; want unanswered requests and no violation", v, err)
	}
}

func TestEveryPlantedFaultIsFound(t *testing.T) {
	for f, want := range map[fault]string{
		none:              "",
		handsOutTwice:     "handed out twice with attempt 1",
		losesARow:         "was handed out and is not in the store",
		skipsANonce:       "neither held, released nor consumed",
		setsAttemptBack:   "and the store has attempt 1",
		forgetsAMark:      "acknowledged as used",
		marksAnother:      "by another transaction than the store's",
		reusesAUsed:       "handed out with attempt 2 all the same",
		answersOther:      "when repeated with nonce",
		refusesRepeat:     "neither marked nor due",
		heldThoughEnded:   "its hold had ended by a mark",
		conflictsOnOthers: "a conflict about other nonces",
		countsWrong:       "the status has",
		sumsWrong:         "are together not next",
		listsBeyond:       "in the store and not below next",
	} {
		t.Run(string(f), func(t *testing.T) {
			t.Parallel()
			_, url := startFake(t, f)
			v := verified(t, url, nil)
			found := strings.Join(v.Violations, "\n")
			if want == "" && v.ViolationCount != 0 || !strings.Contains(found, want) || want != "" && v.ViolationCount == 0 {
				t.Errorf("found %d: %.2000s\nwant %q", v.ViolationCount, found, want)
			}
			if len(v.Violations) > 100 || int64(len(v.Violations)) > v.ViolationCount {
				t.Errorf("%d sentences of %d", len(v.Violations), v.ViolationCount)
			}
		})
	}
}

func TestAccountingFindsALostNonceWithoutHavingSeenTheLoad(t *testing.T) {
	for _, f := range []fault{none, losesARow, skipsANonce, sumsWrong} {
		_, url := startFake(t, f)
		verified(t, url, nil)
		v, err := verify.Accounting(t.Context(), []string{url}, access.Access{}, 100, 5, nil)
		if err != nil || (v.ViolationCount > 0) != (f != none) || v.Signers != 5 || v.Allocations == 0 {
			t.Errorf("%s: %+v, %v", f, v, err)
		}
	}
}

func TestASignerThatWasNeverSeenIsAccountedFor(t *testing.T) {
	g := target.StartGateway(t)
	var told int
	v, err := verify.Accounting(t.Context(), []string{g.URL}, access.Access{}, 9, 1, func(done, all int) { told = done * all })
	if err != nil || v.ViolationCount != 0 || v.Signers != 1 || v.Allocations != 0 || told != 1 {
		t.Errorf("%+v, %v, told %d; want nothing wrong", v, err, told)
	}
}

func TestAGatewayThatIsAwayIsAnErrorAndNoViolation(t *testing.T) {
	v, err := verify.Accounting(t.Context(), []string{"ws://127.0.0.1:1/ws"}, access.Access{}, 0, 1, nil)
	if err == nil || v == nil || v.ViolationCount != 0 || v.Signers != 0 {
		t.Errorf("%+v, %v; want an error", v, err)
	}
}
