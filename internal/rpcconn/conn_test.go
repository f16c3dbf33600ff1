package rpcconn

import (
	"context"
	"errors"
	"net"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorilla/websocket"

	"noncegate/internal/wsconn/wspeer"
)

func TestConcurrentCallsAreToldApartByID(t *testing.T) {
	kept(t, nil, func(t *testing.T, _ *wspeer.Network, k *Kept, p *wspeer.Peer) {
		const calls = 50
		var waits []chan answered
		var got []wspeer.Request
		for range calls {
			waits = append(waits, k.call(t.Context()))
			got = append(got, p.Next("ask"))
		}
		for i := calls - 1; i >= 0; i-- { // answered in another order
			p.Answer(got[i], i)
		}
		for i, wait := range waits {
			if a := <-wait; a.err != nil || string(a.Messages[0].Result) != strconv.Itoa(i) || string(a.Messages[0].ID) != string(got[i].ID) {
				t.Errorf("call %d got %+v", i, a)
			}
		}
	})
}

// stalling is a network connection whose writes count and can be held up.
type stalling struct {
	net.Conn
	writes  *atomic.Int64
	stalled chan struct{} // when it can be received from, or is closed, a write goes on
}

func (s stalling) Write(p []byte) (int, error) {
	s.writes.Add(1)
	<-s.stalled
	return s.Conn.Write(p)
}

// stalled is kept with a connection whose writes, after the upgrade, wait until goOn is closed. writes counts them all.
func stalled(t *testing.T, change func(*Config), test func(t *testing.T, k *Kept, p *wspeer.Peer, goOn chan struct{}, writes *atomic.Int64)) {
	goOn, writes := make(chan struct{}, 1), new(atomic.Int64)
	kept(t, func(cfg *Config) {
		goOn = make(chan struct{}, 1) // of the bubble
		goOn <- struct{}{}            // the upgrade
		dial := cfg.NetDial
		cfg.NetDial = func(ctx context.Context, network, addr string) (net.Conn, error) {
			raw, err := dial(ctx, network, addr)
			return stalling{raw, writes, goOn}, err
		}
		if change != nil {
			change(cfg)
		}
	}, func(t *testing.T, _ *wspeer.Network, k *Kept, p *wspeer.Peer) { test(t, k, p, goOn, writes) })
}

func TestRequestsQueuedBehindAWriteLeaveTogether(t *testing.T) {
	stalled(t, nil, func(t *testing.T, k *Kept, p *wspeer.Peer, goOn chan struct{}, writes *atomic.Int64) {
		var waits []chan answered
		for range 100 {
			waits = append(waits, k.call(t.Context()))
			synctest.Wait() // the first one is being written, the others queue up
		}
		ctx, cancel := context.WithCancel(t.Context())
		withdrawn := k.call(ctx)
		synctest.Wait()
		cancel()
		wantNotSent(t, (<-withdrawn).err, context.Canceled)
		close(goOn)
		for range 100 {
			p.Answer(p.Next("ask"), true)
		}
		for _, wait := range waits {
			if a := <-wait; a.err != nil {
				t.Error(a.err)
			}
		}
		if got := writes.Load(); got != 3 {
			t.Errorf("%d writes, want 3: the upgrade, the first request, the others", got)
		}
	})
}

func TestWithdrawnRequestsDoNotPileUp(t *testing.T) {
	stalled(t, func(cfg *Config) { cfg.MaxInflight = 1 }, func(t *testing.T, k *Kept, _ *wspeer.Peer, goOn chan struct{}, _ *atomic.Int64) {
		defer close(goOn)
		sent, err := 0, error(nil)
		for ; !errors.Is(err, ErrQueueFull) && sent < 1000; sent++ {
			ctx, cancel := context.WithCancel(t.Context())
			wait := k.call(ctx)
			synctest.Wait()
			cancel()
			err = (<-wait).err
		}
		wantNotSent(t, err, ErrQueueFull)
		if limit := spareFrames + 3; sent > limit {
			t.Errorf("%d requests were queued behind a stuck write, want at most %d", sent, limit)
		}
	})
}

func TestAPingIsAnsweredAndKeepsTheConnection(t *testing.T) {
	kept(t, nil, func(t *testing.T, n *wspeer.Network, _ *Kept, p *wspeer.Peer) {
		for range 10 {
			time.Sleep(50 * time.Second)
			p.WS.WriteControl(websocket.PingMessage, []byte("hello"), time.Now().Add(time.Second))
			if got := <-p.Pongs; got != "hello" {
				t.Errorf("got pong %q", got)
			}
		}
		if got := len(n.Dials()); got != 1 {
			t.Errorf("%d connections, want 1", got)
		}
	})
}

func TestAPeerThatDoesNotReadIsDead(t *testing.T) {
	kept(t, nil, func(t *testing.T, _ *wspeer.Network, k *Kept, p *wspeer.Peer) {
		synctest.Wait()
		p.StopReading()
		began := time.Now()
		first := k.call(t.Context())
		p.Next("ask") // the last it reads
		second := k.call(t.Context())
		synctest.Wait() // it is being written
		third := k.call(t.Context())
		for _, wait := range []chan answered{first, second} {
			a := <-wait
			if _, unsent := errors.AsType[*NotSentError](a.err); a.err == nil || unsent {
				t.Errorf("got %v, want that nobody knows", a.err)
			}
		}
		if n, ok := errors.AsType[*NotSentError]((<-third).err); !ok || !n.Again {
			t.Errorf("behind them: got %v, want not sent, and that another connection may take it", n)
		}
		if took := time.Since(began); took < 5*time.Second || took > 5*time.Second+lastWords {
			t.Errorf("it was dead after %v", took)
		}
	})
}

func TestTheWriterLeavesTheLastWordToTheCloseFrame(t *testing.T) {
	kept(t, nil, func(t *testing.T, _ *wspeer.Network, k *Kept, p *wspeer.Peer) {
		c := k.Latest()
		c.breakOff(errors.New("broken pipe")) // as after a write
		p.Close(4600, "go away")
		if <-c.Dead(); !websocket.IsCloseError(c.Err(), 4600) {
			t.Errorf("got error %v, want the close code", c.Err())
		}
	})
}
