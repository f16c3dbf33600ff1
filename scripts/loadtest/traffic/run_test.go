package traffic

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"noncegate/scripts/loadtest/access"
	"noncegate/scripts/loadtest/result"
	"noncegate/scripts/loadtest/target"
	"noncegate/scripts/loadtest/verify"
)

func TestMain(m *testing.M) { target.Main(m) }

func short(urls ...string) Load {
	return Load{
		URLs: urls, Connections: 3, Inflight: 4, Duration: 200 * time.Millisecond, Signers: Signers{Count: 5},
		grace: time.Second,
	}
}

// run runs a load that must have a result.
func run(t *testing.T, l Load) *result.Run {
	t.Helper()
	r, err := l.Run(t.Context())
	if err != nil {
		t.Fatalf("run: %v, %+v", err, r)
	}
	return r
}

// id is the id of a request as it was written.
func id(t testing.TB, message []byte) string {
	var f struct{ ID json.RawMessage }
	if err := json.Unmarshal(message, &f); err != nil {
		t.Errorf("request %q: %v", message, err)
	}
	return string(f.ID)
}

func okay(t testing.TB, message []byte) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"signer":"s","nonce":1,"attempt":1,"holdMs":60000}}`, id(t, message))
}

func refused(t testing.TB, message []byte, reason string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32005,"message":"m","data":{"reason":%q}}}`, id(t, message), reason)
}

var errEnd = errors.New("the server ends the connection")

func TestALoadOnAGatewayIsAcknowledged(t *testing.T) {
	g := target.StartGateway(t, "--max-holds=4096")
	for name, change := range map[string]func(*Load){
		"closed loop": func(*Load) {},
		"open loop":   func(l *Load) { l.Rate, l.Inflight = 500, 1 },
		"ramp-up":     func(l *Load) { l.Rate, l.RampUp = 500, 100*time.Millisecond },
		"hot signer":  func(l *Load) { l.Signers = Signers{Base: 77, Count: 1} },
		"zipf":        func(l *Load) { l.Signers.Zipf = 1.1 },
	} {
		t.Run(name, func(t *testing.T) {
			l := short(g.URL)
			change(&l)
			r := run(t, l)
			if r.Acknowledged == 0 || r.Refusals() != 0 || r.Failed != 0 || r.Unsent != 0 || len(r.Lost) != 0 || r.Opened != 3 {
				t.Errorf("%+v; want acknowledged requests and nothing else", r)
			}
			if r.LatencyMs.P50 <= 0 || r.LatencyMs.P50 > r.LatencyMs.P99 || r.LatencyMs.P99 > r.LatencyMs.Max {
				t.Errorf("latency %+v is not in order", r.LatencyMs)
			}
		})
	}
}

func TestAMixOnAGatewayIsAcknowledgedVerifiedAndSeenByItsSubscribers(t *testing.T) {
	g := target.StartGateway(t, "--max-holds=4096")
	l := short(g.URL)
	l.Mix = Mix{Allocate: 6, MarkUsed: 3, MarkRecyclable: 1, Status: 1}
	l.Verify, l.Subscribers, l.Duration = verify.NewRecorder(), 2, 2*time.Second
	r := run(t, l)
	if r.Refusals() != 0 || r.Failed != 0 || len(r.Lost) != 0 {
		t.Errorf("%+v; want acknowledged requests and nothing else", r)
	}
	var changes int64
	for _, m := range []Method{Allocate, MarkUsed, MarkRecyclable, Status} {
		n := r.Methods[m.String()].Acknowledged
		if n == 0 {
			t.Errorf("no %s was acknowledged", m)
		}
		if m != Status {
			changes += n
		}
	}
	if e := r.Events; e == nil || e.Missed != 0 || e.Unmatched != 0 || e.LatencyMs.P50 <= 0 || e.Received != 2*changes {
		t.Errorf("events %+v; want two for each of %d changes", r.Events, changes)
	}
	v, err := l.Verify.Check(t.Context(), l.URLs, access.Access{}, nil)
	if err != nil || v.ViolationCount != 0 || v.Repeats == 0 || v.Allocations < r.Methods["allocate"].Acknowledged {
		t.Errorf("verified as %+v, %v; want repeats, every allocation, and no violation", v, err)
	}
}

func TestResultsAndRefusalsAreCountedApart(t *testing.T) {
	url := target.Serve(t, func(c *target.Conn, n int, message []byte) error {
		if n%4 == 3 {
			return c.Reply(refused(t, message, "server_busy"))
		}
		return c.Reply(okay(t, message))
	})
	r := run(t, short(url))
	busy := r.Refused["server_busy"]
	if r.Acknowledged == 0 || busy == 0 || len(r.Refused) != 1 || len(r.Lost) != 0 {
		t.Fatalf("%+v; want results, server_busy and nothing else", r)
	}
	if edge := int64(3 * 4); r.Acknowledged < 3*busy-edge || r.Acknowledged > 3*busy+edge {
		t.Errorf("%d acknowledged beside %d refused, want three to one", r.Acknowledged, busy)
	}
	var seconds int64
	for _, s := range r.Timeline {
		seconds += s.Acknowledged + s.Refused
	}
	if seconds != r.Acknowledged+busy {
		t.Errorf("%d requests in the timeline, want all %d", seconds, r.Acknowledged+busy)
	}
}

func TestAClosedLoopSendsTheNextBurstOnlyAfterAllAnswers(t *testing.T) {
	var open, most atomic.Int64
	url := target.Serve(t, func(c *target.Conn, n int, message []byte) error {
		if now := open.Add(1); now > most.Load() {
			most.Store(now)
		}
		if n%4 != 3 {
			return nil
		}
		defer open.Add(-4)
		for i := range 4 {
			if err := c.Reply(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":{}}`, firstID+i)); err != nil {
				return err
			}
		}
		return nil
	})
	l := short(url)
	l.Connections = 1
	if r := run(t, l); r.Acknowledged == 0 {
		t.Errorf("%+v; want acknowledged requests", r)
	}
	if got := most.Load(); got != 4 {
		t.Errorf("up to %d requests under way, want 4", got)
	}
}

func TestAnOpenLoopKeepsItsRateAndCountsLatencyFromWhenRequestsWereDue(t *testing.T) {
	const stall = 150 * time.Millisecond
	var once sync.Once
	url := target.Serve(t, func(c *target.Conn, _ int, message []byte) error {
		once.Do(func() { time.Sleep(stall) }) // what a server does that stalls
		return c.Reply(okay(t, message))
	})
	l := short(url)
	l.Connections, l.Inflight, l.Rate, l.Duration = 1, 1, 200, 300*time.Millisecond
	r := run(t, l)
	// On a busy machine the end of the measured time comes late, and is then what
	// the result says.
	if want := l.Rate * r.Seconds; math.Abs(float64(r.Acknowledged)-want) > 3 || r.Seconds < l.Duration.Seconds() {
		t.Errorf("%d requests in %v s, want %.0f", r.Acknowledged, r.Seconds, want)
	}
	// The requests that came during the stall waited for the rest of it.
	if ms := float64(stall.Milliseconds()); r.LatencyMs.Max < ms*0.9 || r.LatencyMs.P90 < ms/2 || r.LatencyMs.P50 > ms*0.9 {
		t.Errorf("latency %+v; want a stall of %v to show in those that were due in it", r.LatencyMs, stall)
	}
}

func TestWhatCannotLeaveInAnOpenLoopIsUnsent(t *testing.T) {
	var got atomic.Int64
	url := target.Serve(t, func(*target.Conn, int, []byte) error { got.Add(1); return nil })
	l := short(url)
	l.Connections, l.Inflight, l.Rate, l.grace = 1, 1, 2000, 50*time.Millisecond
	r := run(t, l)
	if got.Load() != windowRequests {
		t.Errorf("%d requests left unanswered, want the bound of %d", got.Load(), windowRequests)
	}
	if all := r.Unsent + r.Failed; all < 380 || all > 420 || r.Failed > windowRequests {
		t.Errorf("%d unsent and %d failed, want together those of 2000/s in 0.2 s", r.Unsent, r.Failed)
	}
}

func TestARampUpOpensConnectionsOverItsTime(t *testing.T) {
	var mu sync.Mutex
	var came []time.Time
	url := target.Serve(t, func(c *target.Conn, n int, message []byte) error {
		if n == 0 {
			mu.Lock()
			came = append(came, time.Now())
			mu.Unlock()
		}
		return c.Reply(okay(t, message))
	})
	l := short(url)
	l.Connections, l.RampUp = 4, 200*time.Millisecond
	run(t, l)
	mu.Lock()
	defer mu.Unlock()
	if len(came) != 4 || came[3].Sub(came[0]) < 100*time.Millisecond {
		t.Errorf("first requests at %v, want four over 150 ms", came)
	}
}

func TestConnectionsTakeTheTargetsInTurn(t *testing.T) {
	var a, b atomic.Int64
	count := func(connections *atomic.Int64) func(*target.Conn, int, []byte) error {
		return func(c *target.Conn, n int, message []byte) error {
			if n == 0 {
				connections.Add(1)
			}
			return c.Reply(okay(t, message))
		}
	}
	run(t, short(target.Serve(t, count(&a)), target.Serve(t, count(&b))))
	if a.Load() != 2 || b.Load() != 1 {
		t.Errorf("%d and %d connections, want 2 and 1", a.Load(), b.Load())
	}
}

func TestAnInterruptedLoadReturnsWhatItHas(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	url := target.Serve(t, func(c *target.Conn, n int, message []byte) error {
		if n == 100 {
			cancel()
		}
		return c.Reply(okay(t, message))
	})
	l := short(url)
	l.Duration = time.Hour
	var began, ended int
	l.BeginMeasure, l.EndMeasure = func() { began++ }, func() { ended++ }
	r, err := l.Run(ctx)
	if err != nil || !r.Interrupted || r.Acknowledged == 0 || r.Failed != 0 || len(r.Lost) != 0 {
		t.Errorf("run: %v, %+v; want acknowledged requests, interrupted", err, r)
	}
	if began != 1 || ended != 1 {
		t.Errorf("the measured time began %d and ended %d times", began, ended)
	}
}

func TestALoadThatIsInterruptedBeforeItIsMeasuredHasAnEmptyResult(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	url := target.Serve(t, func(c *target.Conn, n int, message []byte) error {
		cancel()
		return c.Reply(okay(t, message))
	})
	l := short(url)
	l.Warmup = time.Hour
	l.EndMeasure = func() { t.Error("EndMeasure without BeginMeasure") }
	r, err := l.Run(ctx)
	if err != nil || !r.Interrupted || r.Acknowledged != 0 || r.Seconds != 0 || len(r.Timeline) != 0 {
		t.Errorf("run: %v, %+v; want an empty result, interrupted", err, r)
	}
}

func TestProgressIsToldEverySecondButTheLast(t *testing.T) {
	g := target.StartGateway(t, "--max-holds=4096")
	l := short(g.URL)
	l.Duration = 1200 * time.Millisecond
	var told []result.Second
	l.Progress = func(s result.Second) { told = append(told, s) }
	r := run(t, l)
	if len(told) != 1 || told[0].Acknowledged == 0 || told[0].Seconds != 1 || len(r.Timeline) != 2 {
		t.Errorf("told %+v of %+v, want the first of two seconds", told, r.Timeline)
	}
	if last := r.Timeline[1]; last.At != 1 || last.Seconds < 0.2 || last.Seconds > 0.5 {
		t.Errorf("the last second is %+v, want 0.2 s from 1 s on", last)
	}
}

func TestAPingIsAnswered(t *testing.T) {
	pong := make(chan string, 1)
	url := target.Serve(t, func(c *target.Conn, n int, message []byte) error {
		if n == 0 {
			c.SetPongHandler(func(data string) error { pong <- data; return nil })
			if err := c.WriteMessage(websocket.PingMessage, []byte("are you there")); err != nil {
				return err
			}
		}
		return c.Reply(okay(t, message))
	})
	l := short(url)
	l.Connections = 1
	run(t, l)
	select {
	case got := <-pong:
		if got != "are you there" {
			t.Errorf("pong %q, want the ping's payload", got)
		}
	case <-time.After(10 * time.Second):
		t.Error("no pong")
	}
}

func TestAnAnswerLongerThanTheBufferIsRead(t *testing.T) {
	url := target.Serve(t, func(c *target.Conn, _ int, message []byte) error {
		return c.Reply(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"signer":"%s"}}`, id(t, message), strings.Repeat("s", 10_000)))
	})
	if r := run(t, short(url)); r.Acknowledged == 0 || len(r.Lost) != 0 {
		t.Errorf("%+v; want results", r)
	}
}
