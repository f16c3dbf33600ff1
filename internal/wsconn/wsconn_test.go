package wsconn

import (
	"context"
	"errors"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorilla/websocket"

	"noncegate/test/lab/expect"
)

func TestWhatIsWrittenWhileHeldLeavesInOneWrite(t *testing.T) {
	here, there := net.Pipe()
	defer there.Close()
	defer here.Close()
	c := &Cork{Conn: here}
	c.Hold()
	for _, text := range []string{"one ", "two ", "three"} {
		if n, err := c.Write([]byte(text)); n != len(text) || err != nil {
			t.Errorf("%q: %d, %v", text, n, err)
		}
	}
	released := make(chan error, 1)
	go func() { released <- c.Release(time.Now().Add(time.Minute)) }()
	buf := make([]byte, 100)
	n, err := there.Read(buf) // of a pipe it returns what one write had
	if got := string(buf[:n]); got != "one two three" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	expect.Check(t, <-released)
}

// A close frame comes from another goroutine with a deadline of its own.
func TestADeadlineOfAnotherEndsAStuckRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, there := net.Pipe()
		defer there.Close()
		defer here.Close()
		c := &Cork{Conn: here}
		c.Hold()
		_, _ = c.Write([]byte("nobody reads this"))
		began := time.Now()
		released := make(chan error, 1)
		go func() { released <- c.Release(began.Add(time.Hour)) }()
		synctest.Wait()
		expect.Must(t, c.SetWriteDeadline(began.Add(time.Second)))
		if err := <-released; !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(began) != time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}

func TestADialEndsWithItsContextWhileTheOtherSideIsSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, there := net.Pipe()
		defer there.Close()
		go there.Read(make([]byte, 1<<10)) // the upgrade, which is not answered
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errors.New("over"))
		defer cancel()
		d := websocket.Dialer{NetDialContext: func(context.Context, string, string) (net.Conn, error) { return here, nil }}
		began := time.Now()
		if _, _, err := Dial(ctx, d, "ws://silent", nil); err == nil || time.Since(began) != time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}

func TestOnlyTheLatestPongIsKept(t *testing.T) {
	p := NewPongs()
	p.Put("1")
	p.Put("2")
	if got := string(<-p); got != "2" || len(p) != 0 {
		t.Errorf("got %q, %d are left", got, len(p))
	}
}
