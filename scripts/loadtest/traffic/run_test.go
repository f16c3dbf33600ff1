//go:build unix

package traffic

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"noncegate/scripts/loadtest/result"
	"noncegate/test/lab/wait"
)

// patience is the safety net of a wait.
const patience = wait.Patience

// endless is a load that ends when it is interrupted, and then waits for its answers.
func endless(urls ...string) Load {
	return Load{URLs: urls, Connections: 3, Inflight: 4, Duration: time.Hour, Signers: Signers{Count: 5}, grace: patience}
}

// enough runs an endless load until so many requests were answered.
func enough(t *testing.T, l Load, answers int64) *result.Run {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	l.Progress = func(s result.Second) {
		if answers -= s.Acknowledged + s.Refused; answers <= 0 {
			cancel()
		}
	}
	r, err := l.Run(ctx)
	if err != nil || !r.Interrupted {
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

func TestALoadOnAGatewayIsAcknowledgedAndSeenByItsSubscribers(t *testing.T) {
	g := startGateway(t, "--max-holds=4096")
	for name, change := range map[string]func(*Load){
		"closed loop": func(l *Load) { l.Mix = Mix{Pairs: true} },
		"open loop":   func(l *Load) { l.Rate, l.Inflight, l.Mix = 300, 1, Mix{Pairs: true} },
		"ramp-up":     func(l *Load) { l.Rate, l.RampUp = 100, 100*time.Millisecond },
		"mix":         func(l *Load) { l.Rate, l.Mix = 200, Mix{Shares: shares(6, 3, 1, 1)} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := endless(g.URL)
			change(&l)
			l.Signers.Base = int64(len(name)) * 100
			if name == "mix" {
				l.Subscribers = 2
			}
			r := enough(t, l, 100)
			if r.Acknowledged == 0 || r.Refusals() != 0 || r.Failed != 0 || len(r.Lost) != 0 || r.Opened != int64(3+l.Subscribers) {
				t.Errorf("%+v; want acknowledged requests and nothing else", r)
			}
			if r.LatencyMs.P50 <= 0 || r.LatencyMs.P50 > r.LatencyMs.P99 || r.LatencyMs.P99 > r.LatencyMs.Max {
				t.Errorf("latency %+v is not in order", r.LatencyMs)
			}
			if e := r.Events; name == "mix" && (e == nil || e.Missed != 0 || e.LatencyMs.Count == 0) {
				t.Errorf("events %+v; want some with a latency, and none missed", e)
			}
		})
	}
}

func TestResultsAndRefusalsAreCountedApart(t *testing.T) {
	url := serve(t, func(c *conn, n int, message []byte) error {
		if n%4 == 3 {
			return c.reply(refused(t, message, "server_busy"))
		}
		return c.reply(okay(t, message))
	})
	r := enough(t, endless(url), 100)
	busy := r.Refused["server_busy"]
	if edge := int64(3 * 4); busy == 0 || len(r.Refused) != 1 || r.Acknowledged < 3*busy-edge || r.Acknowledged > 3*busy+edge {
		t.Errorf("%d acknowledged beside %v refused, want three to one", r.Acknowledged, r.Refused)
	}
	var seconds int64
	for _, s := range r.Timeline {
		seconds += s.Acknowledged + s.Refused
	}
	if seconds != r.Acknowledged+busy {
		t.Errorf("%d requests in the timeline, want all %d", seconds, r.Acknowledged+busy)
	}
}

func TestWhatHasNoRoomInAnOpenLoopIsUnsentAndWhatHasNoAnswerFailed(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var measured atomic.Bool // until then it is answered
	var got atomic.Int64
	url := serve(t, func(c *conn, _ int, message []byte) error {
		if !measured.Load() {
			return c.reply(okay(t, message))
		}
		if got.Add(1) == windowRequests {
			cancel()
		}
		return nil
	})
	l := endless(url)
	l.Connections, l.Inflight, l.Rate, l.grace = 1, 1, 2000, 50*time.Millisecond
	l.BeginMeasure = func() { measured.Store(true) }
	r, err := l.Run(ctx)
	if err != nil || got.Load() != windowRequests || r.Failed > windowRequests || r.Failed == 0 || r.Lost[errNoAnswer.Error()] != 1 {
		t.Errorf("%v, %d left unanswered, %+v; want the bound of %d, and no answer", err, got.Load(), r, windowRequests)
	}
}

func TestConnectionsTakeTheTargetsInTurnAndAPingIsAnswered(t *testing.T) {
	var connections [2]atomic.Int64
	var all atomic.Int64
	ctx, cancel := context.WithCancel(t.Context())
	server := func(i int) string {
		return serve(t, func(c *conn, n int, message []byte) error {
			if n == 0 {
				connections[i].Add(1)
				if all.Add(1) == 3 {
					c.SetPongHandler(func(data string) error { cancel(); return nil })
					c.WriteMessage(websocket.PingMessage, []byte("are you there"))
				}
			}
			return c.reply(okay(t, message))
		})
	}
	l := endless(server(0), server(1))
	l.Inflight = 1
	if r, err := l.Run(ctx); err != nil || r.Opened != 3 {
		t.Errorf("%v, %+v", err, r)
	}
	if a, b := connections[0].Load(), connections[1].Load(); a != 2 || b != 1 {
		t.Errorf("%d and %d connections, want 2 and 1", a, b)
	}
}

func TestALoadThatIsInterruptedBeforeItIsMeasuredHasAnEmptyResult(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	url := serve(t, func(c *conn, n int, message []byte) error {
		cancel()
		return c.reply(okay(t, message))
	})
	l := endless(url)
	l.Warmup = time.Hour
	l.EndMeasure = func() { t.Error("EndMeasure without BeginMeasure") }
	r, err := l.Run(ctx)
	if err != nil || !r.Interrupted || r.Acknowledged != 0 || r.Seconds != 0 || len(r.Timeline) != 0 {
		t.Errorf("run: %v, %+v; want an empty result, interrupted", err, r)
	}
}

// TestALostConnectionIsCountedWithItsReasonAndTheOthersGoOn: of a client as of a subscriber.
func TestALostConnectionIsCountedWithItsReasonAndTheOthersGoOn(t *testing.T) {
	url := serve(t, func(c *conn, n int, message []byte) error {
		switch {
		case strings.Contains(string(message), "subscribe"):
			c.reply(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":"0x1"}`, id(t, message)))
			return errEnd
		case c.number == 1 && n == 1:
			c.WriteMessage(websocket.CloseMessage, websocket.FormatCloseMessage(4001, "slow_consumer"))
			return errEnd
		}
		return c.reply(okay(t, message))
	})
	l := endless(url)
	l.Subscribers = 1
	r := enough(t, l, 100)
	if len(r.Lost) != 2 || r.Lost["closed by the server: 4001 slow_consumer"] != 1 ||
		r.Lost["subscriber: closed by the server without a close frame"] == 0 {
		t.Errorf("lost %v, want both with their reasons", r.Lost)
	}
	if r.Failed > 3 { // it had one answer of its burst, which left before or after the measured time began
		t.Errorf("%d failed, want at most 3", r.Failed)
	}
}

func TestWhenEveryConnectionIsLostTheResultComesWithAnError(t *testing.T) {
	url := serve(t, func(c *conn, n int, message []byte) error {
		if n == 40 {
			return errEnd
		}
		return c.reply(okay(t, message))
	})
	r, err := endless(url).Run(t.Context())
	if !errors.Is(err, ErrAllLost) || r == nil || r.Lost["closed by the server without a close frame"] != 3 {
		t.Errorf("run: %v, %+v; want what was measured until then", err, r)
	}
}

func TestWhatIsNoAnswerEndsTheConnection(t *testing.T) {
	for name, messages := range map[string][]string{
		"no JSON":               {"hello"},
		"an id not asked":       {`{"jsonrpc":"2.0","id":999999,"result":{}}`},
		"a result without hold": {`{"jsonrpc":"2.0","id":100000,"result":{}}`},
		"one that comes twice":  {okay(t, []byte(`{"id":100000}`)), okay(t, []byte(`{"id":100000}`))},
	} {
		t.Run(name, func(t *testing.T) {
			url := serve(t, func(c *conn, _ int, _ []byte) error {
				for _, message := range messages {
					if err := c.reply(message); err != nil {
						return err
					}
				}
				return nil
			})
			if r, err := endless(url).Run(t.Context()); !errors.Is(err, ErrAllLost) {
				t.Errorf("run: %v, %+v; want that every connection was lost", err, r)
			}
		})
	}
}

func TestASubscriptionThatIsRefusedIsToldAtOnce(t *testing.T) {
	url := serve(t, func(c *conn, _ int, message []byte) error {
		return c.reply(refused(t, message, "forbidden"))
	})
	l := endless(url)
	l.Subscribers = 1
	if r, err := l.Run(t.Context()); r != nil || err == nil || !strings.Contains(err.Error(), "subscribe at "+url) {
		t.Errorf("run: %v, %v; want that it could not subscribe", r, err)
	}
}

func TestReasonsOfLostConnectionsHaveNoAddresses(t *testing.T) {
	for want, err := range map[string]error{
		"read: connection reset by peer": &net.OpError{Op: "read", Net: "tcp", Addr: &net.TCPAddr{Port: 5},
			Err: os.NewSyscallError("read", syscall.ECONNRESET)},
		"closed by the server without a close frame": &websocket.CloseError{Code: websocket.CloseAbnormalClosure,
			Text: io.ErrUnexpectedEOF.Error()},
		"closed by the server: 4001 slow_consumer": &websocket.CloseError{Code: 4001, Text: "slow_consumer"},
	} {
		if got := reason(err); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
