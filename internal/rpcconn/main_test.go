package rpcconn

import (
	"context"
	"errors"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"noncegate/internal/wsconn/wspeer"
	"noncegate/test/lab/expect"
)

func TestMain(m *testing.M) {
	os.Unsetenv("HTTP_PROXY") // the names of the tests' network are not for a proxy
	os.Unsetenv("http_proxy")
	goleak.VerifyTestMain(m)
}

var errClosed = errors.New("closed")

// settings are those of a connection in n to host "a".
func settings(n *wspeer.Network) *Config {
	return &Config{
		URLs: []string{"ws://a"}, NetDial: n.Dial, DialTimeout: 10 * time.Second, ReadTimeout: time.Minute, WriteTimeout: 5 * time.Second,
		MaxInflight: 256, QueueLimit: 1024, MaxAnswer: 1 << 20, Event: "event", Unsubscribe: "unsubscribe", Strict: true,
		BackoffMin: 100 * time.Millisecond, BackoffMax: time.Second, MaxAway: time.Minute,
		NotDialled: func(_ string, err error) error { return err },
		Lost:       func(err error) error { return err },
		Changed:    func(*Conn, error) {},
	}
}

// kept does a test in fake time with a connection to host "a" that is kept, whose first life is c, with p at the
// other end.
func kept(t *testing.T, change func(*Config), test func(t *testing.T, n *wspeer.Network, k *Kept, p *wspeer.Peer)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n := wspeer.New(t, "a")
		cfg := settings(n)
		if change != nil {
			change(cfg)
		}
		k := NewKept(cfg)
		expect.Must(t, k.Dial(t.Context()))
		ctx, cancel := context.WithCancel(context.Background())
		var run sync.WaitGroup
		run.Go(func() { k.Run(ctx, errClosed) })
		t.Cleanup(func() { cancel(); run.Wait() })
		test(t, n, k, <-n.Host("a").Peers)
	})
}

// answered is how a call ended.
type answered struct {
	Answer
	err error
}

// call makes a call of method "ask" in a goroutine.
func (k *Kept) call(ctx context.Context) chan answered {
	done := make(chan answered, 1)
	c := k.Latest()
	go func() {
		a, err := c.Do(ctx, nil, Call{Method: "ask"})
		done <- answered{a, err}
	}()
	return done
}

// wantNotSent fails unless err says that nothing was sent, because of target.
func wantNotSent(t *testing.T, err, target error) {
	t.Helper()
	if _, ok := errors.AsType[*NotSentError](err); !ok || !errors.Is(err, target) {
		t.Errorf("got error %v, want not sent because of %v", err, target)
	}
}
