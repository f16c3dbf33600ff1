package client

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorilla/websocket"

	"noncegate/internal/wsconn/wspeer"
	"noncegate/test/lab/expect"
	"noncegate/wire"
)

func TestConcurrentCallsAreToldApartByID(t *testing.T) {
	story(t, Config{}, func(t *testing.T, _ *network, c *Client, p *peer) {
		const calls = 50
		var waits []func() (Allocation, error)
		for range calls {
			waits = append(waits, allocate(t, c, AllocateRequest{}))
		}
		byRequest := make(map[string]int64)
		var got []received
		for i := range calls {
			r := p.Next(wire.MethodAllocate)
			byRequest[requestID(t, r)] = int64(i)
			got = append(got, r)
		}
		for i := calls - 1; i >= 0; i-- { // answered in another order
			p.Answer(got[i], held(int64(i)))
		}
		for _, wait := range waits {
			if a, err := wait(); err != nil || a.Nonce != byRequest[a.RequestID] {
				t.Errorf("got nonce %d, %v, want %d", a.Nonce, err, byRequest[a.RequestID])
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

// stallingStory is a story whose client's writes, after the upgrade, wait until
// stalled is closed. writes counts them all.
func stallingStory(t *testing.T, cfg Config, tell func(t *testing.T, c *Client, p *peer, stalled chan struct{}, writes *atomic.Int64)) {
	synctest.Test(t, func(t *testing.T) {
		n := wspeer.New(t, "a")
		var writes atomic.Int64
		stalled := make(chan struct{}, 1)
		stalled <- struct{}{} // the upgrade
		cfg.NetDial = func(ctx context.Context, network, addr string) (net.Conn, error) {
			raw, err := n.Dial(ctx, network, addr)
			return stalling{raw, &writes, stalled}, err
		}
		c, err := Dial(t.Context(), "ws://a", cfg)
		expect.Must(t, err)
		defer c.Close()
		tell(t, c, <-n.Host("a").Peers, stalled, &writes)
	})
}

func TestRequestsQueuedBehindAWriteLeaveTogether(t *testing.T) {
	stallingStory(t, Config{}, func(t *testing.T, c *Client, p *peer, stalled chan struct{}, writes *atomic.Int64) {
		var waits []func() (Allocation, error)
		for range 100 {
			waits = append(waits, allocate(t, c, AllocateRequest{}))
			synctest.Wait() // the first one is being written, the others queue up
		}
		ctx, cancel := context.WithCancel(t.Context())
		withdrawn := later(func() (Allocation, error) { return c.Allocate(ctx, AllocateRequest{Signer: "s"}) })
		synctest.Wait()
		cancel()
		_, err := withdrawn()
		wantNotSent(t, err, context.Canceled)
		close(stalled)
		for range 100 {
			p.Answer(p.Next(wire.MethodAllocate), held(1))
		}
		finish(t, waits...)
		if got := writes.Load(); got != 3 {
			t.Errorf("%d writes, want 3: the upgrade, the first request, the others", got)
		}
	})
}

func TestWithdrawnRequestsDoNotPileUp(t *testing.T) {
	stallingStory(t, Config{MaxInflight: 1}, func(t *testing.T, c *Client, p *peer, stalled chan struct{}, _ *atomic.Int64) {
		defer close(stalled)
		sent, err := 0, error(nil)
		for ; !errors.Is(err, ErrQueueFull) && sent < 1000; sent++ {
			ctx, cancel := context.WithCancel(t.Context())
			wait := later(func() (Allocation, error) { return c.Allocate(ctx, AllocateRequest{Signer: "s"}) })
			synctest.Wait()
			cancel()
			_, err = wait()
		}
		wantNotSent(t, err, ErrQueueFull)
		if limit := unsubscribeRoom + 3; sent > limit {
			t.Errorf("%d requests were queued behind a stuck write, want at most %d", sent, limit)
		}
	})
}

func TestAPingIsAnsweredAndKeepsTheConnection(t *testing.T) {
	story(t, Config{}, func(t *testing.T, n *network, c *Client, p *peer) {
		for range 10 {
			time.Sleep(30 * time.Second)
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
	story(t, Config{WriteTimeout: 5 * time.Second}, func(t *testing.T, n *network, c *Client, p *peer) {
		synctest.Wait()
		p.StopReading()
		began := time.Now()
		first := allocate(t, c, AllocateRequest{})
		p.Next(wire.MethodAllocate) // the last it reads
		second := allocate(t, c, AllocateRequest{})
		p = <-n.Host("a").Peers
		if took := time.Since(began); took < 5*time.Second || took > 5*time.Second+lastWords+time.Second {
			t.Errorf("came back after %v", took)
		}
		p.Answer(p.Next(wire.MethodAllocate), held(1))
		p.Answer(p.Next(wire.MethodAllocate), held(1))
		finish(t, first, second)
	})
}
