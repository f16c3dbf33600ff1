package traffic

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"noncegate/scripts/loadtest/target"
	"noncegate/scripts/loadtest/verify"
)

func TestALostConnectionIsCountedWithItsCloseCodeAndTheOthersGoOn(t *testing.T) {
	url := target.Serve(t, func(c *target.Conn, n int, message []byte) error {
		if c.Number == 0 && n == 1 {
			c.WriteMessage(websocket.CloseMessage, websocket.FormatCloseMessage(4001, "slow_consumer"))
			return errEnd
		}
		return c.Reply(okay(t, message))
	})
	r := run(t, short(url))
	if len(r.Lost) != 1 || r.Lost["closed by the server: 4001 slow_consumer"] != 1 {
		t.Errorf("lost %v, want one with its code", r.Lost)
	}
	// It had one answer of its burst, and the measured time had begun for both.
	if r.Acknowledged == 0 || r.Failed > 3 {
		t.Errorf("%d acknowledged and %d failed, want those of the others, and at most 3", r.Acknowledged, r.Failed)
	}
}

func TestRequestsOfALostConnectionHaveFailed(t *testing.T) {
	url := target.Serve(t, func(c *target.Conn, n int, message []byte) error {
		if c.Number == 0 && n == 2 {
			return errEnd
		}
		return c.Reply(okay(t, message))
	})
	l := short(url)
	l.Rate, l.Inflight = 100, 2
	l.Verify = verify.NewRecorder()
	r := run(t, l)
	if r.Failed != 2 || l.Verify.Result().Unanswered != 2 {
		t.Errorf("%d failed and %d left out, want the burst of two", r.Failed, l.Verify.Result().Unanswered)
	}
	// The others have taken over its share of the rate.
	if all := r.Acknowledged + r.Failed; all < 18 || all > 22 {
		t.Errorf("%d requests, want those of 100/s in 0.2 s", all)
	}
}

func TestWhenEveryConnectionIsLostTheResultComesWithAnError(t *testing.T) {
	url := target.Serve(t, func(c *target.Conn, n int, message []byte) error {
		if n == 40 {
			return errEnd
		}
		return c.Reply(okay(t, message))
	})
	l := short(url)
	l.Duration = time.Hour
	r, err := l.Run(t.Context())
	if !errors.Is(err, ErrAllLost) || !strings.Contains(err.Error(), "closed by the server") {
		t.Errorf("run: %v, want that every connection was lost, and why", err)
	}
	if r == nil || r.Acknowledged == 0 || r.Failed == 0 || r.Lost["closed by the server without a close frame"] != 3 {
		t.Errorf("%+v; want what was measured until then", r)
	}
}

func TestWhatIsNoAnswerEndsTheConnection(t *testing.T) {
	for name, messages := range map[string][]string{
		"no JSON":               {"hello"},
		"another id":            {`{"jsonrpc":"2.0","id":7,"result":{}}`},
		"an id not asked":       {`{"jsonrpc":"2.0","id":999999,"result":{}}`},
		"neither":               {`{"jsonrpc":"2.0","id":100000}`},
		"a result without hold": {`{"jsonrpc":"2.0","id":100000,"result":{}}`},
		"one that comes twice":  {okay(t, []byte(`{"id":100000}`)), okay(t, []byte(`{"id":100000}`))},
	} {
		t.Run(name, func(t *testing.T) {
			url := target.Serve(t, func(c *target.Conn, _ int, _ []byte) error {
				for _, message := range messages {
					if err := c.Reply(message); err != nil {
						return err
					}
				}
				return nil
			})
			l := short(url)
			l.Verify = verify.NewRecorder()
			if r, err := l.Run(t.Context()); !errors.Is(err, ErrAllLost) || len(messages) == 1 && r.Acknowledged != 0 {
				t.Errorf("run: %v, %+v; want that every connection was lost", err, r)
			}
		})
	}
}

func TestAServerThatNeverAnswersHasFailed(t *testing.T) {
	url := target.Serve(t, func(*target.Conn, int, []byte) error { return nil })
	l := short(url)
	l.grace = 50 * time.Millisecond
	r := run(t, l)
	// Each burst left before the measured time began.
	if r.Acknowledged != 0 || r.Failed > 12 || r.Lost[errNoAnswer.Error()] != 3 {
		t.Errorf("%+v; want no answer on three connections", r)
	}
}

func TestAnUnreachableTargetIsNamedAtOnce(t *testing.T) {
	for _, subscribers := range []int{0, 1} {
		load := short(nowhere)
		load.Subscribers = subscribers
		if r, err := load.Run(t.Context()); r != nil || err == nil || !strings.Contains(err.Error(), nowhere) {
			t.Errorf("run: %v, %v; want an error that names %s", r, err, nowhere)
		}
	}
}

func TestReasonsOfLostConnectionsHaveNoAddresses(t *testing.T) {
	for want, err := range map[string]error{
		"read: connection reset by peer":                   &net.OpError{Op: "read", Net: "tcp", Addr: &net.TCPAddr{Port: 5}, Err: os.NewSyscallError("read", syscall.ECONNRESET)},
		"write: i/o timeout":                               &net.OpError{Op: "write", Net: "tcp", Addr: &net.TCPAddr{Port: 5}, Err: os.ErrDeadlineExceeded},
		"closed by the server without a close frame":       io.EOF,
		"closed by the server: 4001 slow_consumer":         &closedError{4001, "slow_consumer"},
		"closed by the server without a code":              &closedError{},
		"a message that is no answer to a request of ours": errNoReply,
	} {
		if got := reason(err); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestALostSubscriberIsCountedAndTheLoadGoesOn(t *testing.T) {
	url := target.Serve(t, func(c *target.Conn, _ int, message []byte) error {
		if c.Number == 0 {
			c.Reply(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":"0x1"}`, id(t, message)))
			return errEnd
		}
		return c.Reply(okay(t, message))
	})
	l := short(url)
	l.Subscribers = 1
	r := run(t, l)
	if r.Acknowledged == 0 || r.Lost["subscriber: closed by the server without a close frame"] != 1 {
		t.Errorf("%+v; want results and one lost subscriber", r)
	}
}

func TestASubscriptionThatIsRefusedEndsTheRun(t *testing.T) {
	url := target.Serve(t, func(c *target.Conn, _ int, message []byte) error { return c.Reply(refused(t, message, "server_busy")) })
	l := short(url)
	l.Subscribers = 1
	if r, err := l.Run(t.Context()); r != nil || err == nil || !strings.Contains(err.Error(), "subscribe at "+url) {
		t.Errorf("run: %v, %v; want that it could not subscribe", r, err)
	}
}
