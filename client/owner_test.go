package client

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"noncegate/wire"
)

func notOwner(url string) wire.ErrorData { return wire.ErrorData{OwnerNode: "b", OwnerURL: url} }

func (p *peer) sendTo(r received, url string) {
	p.t.Helper()
	p.refuse(r, wire.CodeNotOwner, "not_owner", notOwner(url))
}

func TestNotOwnerIsFollowedAtOnceAndRemembered(t *testing.T) {
	story(t, Config{}, func(t *testing.T, n *network, c *Client, p *peer) {
		began := time.Now()
		wait := allocate(t, c, AllocateRequest{})
		first := p.next(wire.MethodAllocate)
		p.sendTo(first, "http://b:8080")
		q := <-n.hosts["b"].peers
		second := q.next(wire.MethodAllocate)
		q.answer(second, held(1))
		if _, err := wait(); err != nil || first.requestID(t) != second.requestID(t) {
			t.Fatalf("error %v, request ids %q and %q", err, first.requestID(t), second.requestID(t))
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("took %v, want no pause", took)
		}
		wait = allocate(t, c, AllocateRequest{}) // straight to b now
		q.answer(q.next(wire.MethodAllocate), held(2))
		wait()
		wait = allocate(t, c, AllocateRequest{Signer: "other"}) // nothing known: to a
		p.answer(p.next(wire.MethodAllocate), held(1))
		if _, err := wait(); err != nil {
			t.Error(err)
		}
		if got, want := n.dials(), []string{"a", "b"}; !slices.Equal(got, want) {
			t.Errorf("dialled %v, want %v", got, want)
		}
	})
}

func TestTwoGatewaysThatNameEachOtherAreAskedWithPauses(t *testing.T) {
	story(t, Config{MaxElapsed: 2 * time.Second, BackoffMin: 400 * time.Millisecond}, func(t *testing.T, n *network, c *Client, p *peer) {
		tries := make(chan int, 2)
		blame := func(p *peer, url string) {
			count := 0
			for r := range p.requests {
				p.sendTo(r, url)
				count++
			}
			tries <- count
		}
		go blame(p, "ws://b")
		wait := allocate(t, c, AllocateRequest{})
		q := <-n.hosts["b"].peers
		go blame(q, "ws://a")
		if _, err := wait(); !errors.Is(err, ErrNotOwner) {
			t.Errorf("got error %v", err)
		}
		c.Close()
		if count := <-tries + <-tries; count < 3 || count > 8 {
			t.Errorf("%d tries in 2 s", count)
		}
	})
}

func TestAnOwnerThatCannotBeReachedIsForgotten(t *testing.T) {
	story(t, Config{}, func(t *testing.T, n *network, c *Client, p *peer) {
		wait := allocate(t, c, AllocateRequest{})
		p.sendTo(p.next(wire.MethodAllocate), "ws://nowhere")
		p.answer(p.next(wire.MethodAllocate), held(1)) // a has taken over meanwhile
		if _, err := wait(); err != nil {
			t.Error(err)
		}
		if got, want := n.dials(), []string{"a", "nowhere"}; !slices.Equal(got, want) {
			t.Errorf("dialled %v, want %v", got, want)
		}
	})
}

func TestAnOwnersConnectionThatIsLostIsOpenedForTheNextCall(t *testing.T) {
	story(t, Config{}, func(t *testing.T, n *network, c *Client, p *peer) {
		wait := allocate(t, c, AllocateRequest{})
		p.sendTo(p.next(wire.MethodAllocate), "ws://b")
		q := <-n.hosts["b"].peers
		first := q.next(wire.MethodAllocate)
		q.cut()
		q = <-n.hosts["b"].peers
		second := q.next(wire.MethodAllocate)
		if first.requestID(t) != second.requestID(t) {
			t.Error("repeated with another request id")
		}
		q.refuse(second, wire.CodeDraining, "draining", wire.ErrorData{})
		third := p.next(wire.MethodAllocate) // b is left
		p.answer(third, held(1))
		if _, err := wait(); err != nil {
			t.Error(err)
		}
		<-q.ended
	})
}

func TestAnOwnerThatForbidsToComeBackIsObeyed(t *testing.T) {
	story(t, Config{}, func(t *testing.T, n *network, c *Client, p *peer) {
		wait := allocate(t, c, AllocateRequest{})
		p.sendTo(p.next(wire.MethodAllocate), "ws://b")
		q := <-n.hosts["b"].peers
		q.next(wire.MethodAllocate)
		q.closeWith(4503)
		p.sendTo(p.next(wire.MethodAllocate), "ws://b")
		p.answer(p.next(wire.MethodAllocate), held(1))
		if _, err := wait(); err != nil {
			t.Error(err)
		}
		if got, want := n.dials(), []string{"a", "b"}; !slices.Equal(got, want) {
			t.Errorf("dialled %v, want %v", got, want)
		}
	})
}

func TestOwnerConnectionsAreBounded(t *testing.T) {
	story(t, Config{OwnerConnections: 1}, func(t *testing.T, n *network, c *Client, p *peer) {
		busy := allocate(t, c, AllocateRequest{Signer: "s"})
		p.sendTo(p.next(wire.MethodAllocate), "ws://b")
		q := <-n.hosts["b"].peers
		r := q.next(wire.MethodAllocate)

		wait := allocate(t, c, AllocateRequest{Signer: "other"})
		p.sendTo(p.next(wire.MethodAllocate), "ws://b:2") // no room: b is in use
		p.answer(p.next(wire.MethodAllocate), held(1))
		if _, err := wait(); err != nil {
			t.Error(err)
		}
		q.answer(r, held(1))
		busy()

		wait = allocate(t, c, AllocateRequest{Signer: "other"})
		p.sendTo(p.next(wire.MethodAllocate), "ws://b:2") // now b is idle, and gives way
		<-q.ended
		q = <-n.hosts["b"].peers
		q.answer(q.next(wire.MethodAllocate), held(1))
		if _, err := wait(); err != nil {
			t.Error(err)
		}
	})
}

func TestWhatMustNotBeFollowedIsNot(t *testing.T) {
	secure := Config{URLs: []string{"wss://b"}}
	never := Config{OwnerConnections: -1}
	for _, c := range []struct {
		cfg Config
		url string
	}{{secure, "ws://c"}, {never, "ws://c"}, {Config{}, "ftp://c"}, {Config{}, ""}} {
		story(t, c.cfg, func(t *testing.T, n *network, client *Client, p *peer) {
			wait := allocate(t, client, AllocateRequest{})
			p.sendTo(p.next(wire.MethodAllocate), c.url)
			p.answer(p.next(wire.MethodAllocate), held(1))
			if _, err := wait(); err != nil {
				t.Error(err)
			}
			if got := len(n.dials()); got != 1 {
				t.Errorf("%s: dialled %v", c.url, n.dials())
			}
		})
	}
}

func TestRoutesAreBounded(t *testing.T) {
	w := newOwners(&Client{cfg: Config{OwnerConnections: 1}})
	for i := range maxRoutes + 10 {
		w.learn(&op{signer: fmt.Sprint(i)}, &wire.ErrorData{OwnerURL: "ws://b"})
	}
	if w.routes.Len() != maxRoutes {
		t.Errorf("%d routes, want %d", w.routes.Len(), maxRoutes)
	}
	last := op{signer: fmt.Sprint(maxRoutes + 9)}
	if got := w.route(&last); got != "ws://b/ws" {
		t.Errorf("got route %q of the latest", got)
	}
}

func TestCloseEndsADialToAnOwner(t *testing.T) {
	story(t, Config{}, func(t *testing.T, n *network, c *Client, p *peer) {
		n.mu.Lock()
		n.hosts["silent"] = &gateway{conns: make(chan net.Conn, 1)} // nobody serves it
		n.mu.Unlock()
		wait := allocate(t, c, AllocateRequest{})
		p.sendTo(p.next(wire.MethodAllocate), "ws://silent")
		synctest.Wait()
		began := time.Now()
		c.Close()
		if _, err := wait(); !errors.Is(err, ErrClosed) || time.Since(began) > time.Second {
			t.Errorf("got error %v after %v", err, time.Since(began))
		}
	})
}

// away is what a gateway says that does not reach the owner.
func (p *peer) away(r received, url string) {
	p.t.Helper()
	p.refuse(r, wire.CodeUnavailable, "unavailable", wire.ErrorData{Outcome: wire.OutcomeNone, RetryAfterMs: 500, OwnerNode: "b", OwnerURL: url})
}

func TestAnOwnerThatTheGatewayDoesNotReachIsAskedByTheClient(t *testing.T) {
	story(t, Config{}, func(t *testing.T, n *network, c *Client, p *peer) {
		wait := allocate(t, c, AllocateRequest{})
		first := p.next(wire.MethodAllocate)
		p.away(first, "ws://b")
		q := <-n.hosts["b"].peers
		second := q.next(wire.MethodAllocate)
		q.answer(second, held(1))
		if _, err := wait(); err != nil || first.requestID(t) != second.requestID(t) {
			t.Fatalf("error %v, request ids %q and %q", err, first.requestID(t), second.requestID(t))
		}
		wait = allocate(t, c, AllocateRequest{})
		q.answer(q.next(wire.MethodAllocate), held(2)) // remembered
		if _, err := wait(); err != nil {
			t.Error(err)
		}
	})
}

func TestAnOwnerThatNobodyReachesKeepsNoCallWaiting(t *testing.T) {
	story(t, Config{}, func(t *testing.T, n *network, c *Client, p *peer) {
		n.mu.Lock()
		n.hosts["silent"] = &gateway{conns: make(chan net.Conn, 1)} // nobody serves it
		n.mu.Unlock()
		began := time.Now()
		wait := allocate(t, c, AllocateRequest{})
		for range 3 {
			p.away(p.next(wire.MethodAllocate), "ws://silent")
		}
		p.answer(p.next(wire.MethodAllocate), held(1))
		if _, err := wait(); err != nil || time.Since(began) > 3*time.Second {
			t.Errorf("error %v after %v", err, time.Since(began))
		}
		if got, want := n.dials(), []string{"a", "silent"}; !slices.Equal(got, want) {
			t.Errorf("dialled %v, want %v", got, want)
		}
	})
}
