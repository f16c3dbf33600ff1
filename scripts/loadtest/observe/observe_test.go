package observe

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"noncegate/scripts/loadtest/result"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const commit = "noncegate_commit_seconds"

// busy is a gateway that, since it began, commits each second a hundred times
// more, all below ten milliseconds, and counts one a second.
type busy struct {
	mu    sync.Mutex // guards the rest, where a test changes it
	began time.Time
	start float64 // as process_start_time_seconds; 0 says none
}

func (b *busy) read(ctx context.Context, _ string) (*reading, error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	seconds := uint64(time.Since(b.began).Seconds())
	return &reading{
		counters:   map[string]float64{"a_total": float64(seconds), "still_total": 5},
		histograms: map[string]cumulative{commit: of(0, 100*seconds, 100*seconds, 100*seconds)},
		memory:     float64(1000 + seconds),
		started:    b.start,
	}, nil
}

func stage(t *testing.T, n result.Node) result.Stage {
	t.Helper()
	if len(n.Stages) != 1 || n.Stages[0].Name != "commitMs" {
		t.Fatalf("stages %+v, want commitMs alone", n.Stages)
	}
	return n.Stages[0]
}

func TestAnObserverReadsEachSecondOfTheMeasuredTimeAndNothingElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gateway := &busy{began: time.Now()}
		released := 0
		o := start(t.Context(), []string{"a", "b"}, gateway.read, func() { released++ })
		time.Sleep(10*time.Second + 500*time.Millisecond)
		o.Begin()
		time.Sleep(20*time.Second + 200*time.Millisecond)
		nodes := o.End()
		if len(nodes) != 2 || nodes[0].Metrics != "a" || nodes[1].Metrics != "b" {
			t.Fatalf("nodes %+v, want a and b", nodes)
		}
		for _, n := range nodes {
			s := stage(t, n)
			if s.Count != 2000 || math.Abs(s.P50-5.5) > 1e-9 || len(s.Second) != 20 {
				t.Errorf("count %d, p50 %v, %d seconds; want 2000, 5.5, 20", s.Count, s.P50, len(s.Second))
			}
			if last := s.Second[19]; math.Abs(last.At-20) > 0.01 || math.Abs(last.Value-9.55) > 1e-9 {
				t.Errorf("last second %+v, want p95 9.55 at 20 s", last)
			}
			if want := map[string]float64{"a_total": 20}; !reflect.DeepEqual(n.Counters, want) {
				t.Errorf("counters %v, want %v", n.Counters, want)
			}
			if len(n.Memory) != 22 || n.Memory[0] != (result.Point{At: 0, Value: 1010}) {
				t.Errorf("memory %v, want 22 points from 1010 on", n.Memory)
			}
			if n.Missing != "" || s.Growth.Grows {
				t.Errorf("missing %q, growth %+v; want none", n.Missing, s.Growth)
			}
		}
		if again := o.End(); !reflect.DeepEqual(again, nodes) || released != 1 {
			t.Errorf("a second End: other figures, or released %d times; want the same, once", released)
		}
	})
}

func TestAReadingRightAfterAnotherIsNoSecondOfItsOwn(t *testing.T) {
	n := newNode("a")
	for _, at := range []struct {
		second float64
		count  uint64
	}{{0, 0}, {1, 100}, {2, 200}, {2.01, 201}} {
		n.take(&reading{histograms: map[string]cumulative{commit: of(0, at.count, at.count, at.count)}}, at.second)
	}
	s := stage(t, n.result(2*time.Second))
	if s.Count != 201 || len(s.Second) != 2 || s.Second[1].At != 2 {
		t.Errorf("count %d, seconds %v; want 201, and two seconds", s.Count, s.Second)
	}
}

func TestAGatewayThatRestartsIsCountedOnFromZero(t *testing.T) {
	for _, told := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			gateway := &busy{began: time.Now().Add(-3 * time.Second)}
			if told {
				gateway.start = 1000
			}
			o := start(t.Context(), []string{"a"}, gateway.read, func() {})
			o.Begin()
			time.Sleep(5*time.Second + 100*time.Millisecond)
			// Its counters are behind; where it says its start time, they need not
			// be for the restart to be seen.
			gateway.mu.Lock()
			gateway.began = time.Now()
			if told {
				gateway.began, gateway.start = time.Now().Add(-100*time.Second), 2000
			}
			gateway.mu.Unlock()
			time.Sleep(5 * time.Second)
			n := o.End()[0]
			want := int64(500 + 500)
			if told {
				want = 500 + 10_500
			}
			if s := stage(t, n); s.Count != want {
				t.Errorf("count %d, want %d", s.Count, want)
			}
			if got := n.Counters["a_total"]; got != float64(want)/100 {
				t.Errorf("counter %v, want %v", got, want/100)
			}
			if n.Restarts != 1 || !strings.Contains(n.Missing, "restarted") {
				t.Errorf("%d restarts, missing %q; want one, and said", n.Restarts, n.Missing)
			}
		})
	}
}

func TestWithoutAStartTimeWhateverGoesBackTellsARestart(t *testing.T) {
	for name, back := range map[string]func(n float64) *reading{
		"a counter": func(n float64) *reading { return &reading{counters: map[string]float64{"a_total": n}} },
		"a stage": func(n float64) *reading {
			c := uint64(n)
			return &reading{histograms: map[string]cumulative{commit: of(c, c, c, c)}}
		},
	} {
		n := newNode("a")
		for at, v := range []float64{10, 12, 3} {
			n.take(back(v), float64(at))
		}
		if n.restarts != 1 || n.increase["a_total"]+float64(n.total[commit].count()) != 5 {
			t.Errorf("%s: %d restarts, grew by %v and %v; want one, by 5", name, n.restarts, n.increase, n.total)
		}
	}
}

func TestReadingsThatFailAreSaidAndBridged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gateway, calls := &busy{began: time.Now()}, 0
		read := func(ctx context.Context, url string) (*reading, error) {
			calls++
			switch {
			case calls > 3 && calls <= 6:
				return nil, fmt.Errorf("attempt %d", calls)
			case calls == 8: // a page that lacks a counter and a stage is no restart
				return &reading{}, nil
			}
			return gateway.read(ctx, url)
		}
		o := start(t.Context(), []string{"a"}, read, func() {})
		o.Begin()
		time.Sleep(10*time.Second + 100*time.Millisecond)
		n := o.End()[0]
		if s := stage(t, n); s.Count != 1000 || n.Counters["a_total"] != 10 || n.Restarts != 0 {
			t.Errorf("count %d, counter %v, %d restarts; want 1000, 10, none", s.Count, n.Counters["a_total"], n.Restarts)
		}
		if want := "3 of 12 readings failed, the last one: attempt 6"; n.Missing != want {
			t.Errorf("missing %q, want %q", n.Missing, want)
		}
	})
}

func TestAGatewayThatNeverAnswersCostsNothingButItsFigures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hangs := func(ctx context.Context, _ string) (*reading, error) {
			ctx, cancel := context.WithTimeoutCause(ctx, readTimeout, errors.New("hangs"))
			defer cancel()
			<-ctx.Done()
			return nil, context.Cause(ctx)
		}
		o := start(t.Context(), []string{"a"}, hangs, func() {})
		o.Begin()
		time.Sleep(7 * time.Second)
		ended := time.Now()
		n := o.End()[0]
		if took := time.Since(ended); took > readTimeout {
			t.Errorf("End took %v, want at most %v", took, readTimeout)
		}
		if n.Missing != "could not be read: hangs" || n.Stages != nil || n.Counters != nil {
			t.Errorf("%+v, want nothing but why", n)
		}
	})
}

func TestAReadingThatTheEndCutsOffIsNoFailureOfTheGateway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gateway, calls := &busy{began: time.Now()}, 0
		read := func(ctx context.Context, url string) (*reading, error) {
			calls++
			if calls == 6 {
				<-ctx.Done()
			}
			return gateway.read(ctx, url)
		}
		o := start(t.Context(), []string{"a"}, read, func() {})
		o.Begin()
		time.Sleep(5*time.Second + 800*time.Millisecond)
		n := o.End()[0]
		if s := stage(t, n); n.Missing != "" || s.Count != 500 {
			t.Errorf("missing %q, count %d; want nothing missing, 500", n.Missing, s.Count)
		}
	})
}

func TestAnEndBeforeTheBeginHasNoFiguresAndSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gateway := &busy{began: time.Now()}
		o := start(t.Context(), []string{"a"}, gateway.read, func() {})
		time.Sleep(5 * time.Second)
		want := []result.Node{{Metrics: "a", Missing: "was not read within the measured time"}}
		if got := o.End(); !reflect.DeepEqual(got, want) {
			t.Errorf("%+v, want %+v", got, want)
		}
	})
}

func TestTheLastReadingIsMadeAlsoAfterTheContextHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		gateway := &busy{began: time.Now()}
		o := start(ctx, []string{"a"}, gateway.read, func() {})
		o.Begin()
		time.Sleep(5*time.Second + 500*time.Millisecond)
		cancel()
		synctest.Wait()
		time.Sleep(2 * time.Second)
		if s := stage(t, o.End()[0]); s.Count != 700 {
			t.Errorf("count %d, want the 500 of before and the 200 of after", s.Count)
		}
	})
}

func TestStartReadsARealPageAndLeavesNothingBehind(t *testing.T) {
	var read atomic.Int64
	twice := make(chan struct{})
	page := func() string {
		n := read.Add(1)
		if n == 2 {
			close(twice)
		}
		return fmt.Sprintf("# TYPE a_total counter\na_total %d\n", n)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { text(page())(w, r) }))
	defer server.Close()
	o := Start(t.Context(), []string{server.URL, "http://127.0.0.1:1/metrics"})
	o.Begin()
	o.Begin()
	<-twice
	nodes := o.End()
	if got := nodes[0].Counters["a_total"]; got < 1 {
		t.Errorf("counter grew by %v, want at least 1 (%s)", got, nodes[0].Missing)
	}
	if !strings.Contains(nodes[1].Missing, "could not be read") {
		t.Errorf("a port where nobody listens: %q, want that it could not be read", nodes[1].Missing)
	}
}
