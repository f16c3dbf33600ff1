package client

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"noncegate/wire"
)

func notOwner(url string) wire.ErrorData { return wire.ErrorData{OwnerNode: "b", OwnerURL: url} }

func sendTo(p *peer, r received, url string) {
	p.T.Helper()
	p.Reject(r, wire.CodeNotOwner, "not_owner", notOwner(url))
}

func TestNotOwnerIsFollowedAtOnceAndRemembered(t *testing.T) {
	for pause, refuse := range []func(*peer, received, string){sendTo, away} { // another's: at once; one that it does not reach: soon
		story(t, Config{}, func(t *testing.T, n *network, c *Client, p *peer) {
			began := time.Now()
			wait := allocate(t, c, AllocateRequest{})
			first := p.Next(wire.MethodAllocate)
			refuse(p, first, "http://b:8080")
			q := <-n.Host("b").Peers
			second := q.Next(wire.MethodAllocate)
			q.Answer(second, held(1))
			if _, err := wait(); err != nil || requestID(t, first) != requestID(t, second) {
				t.Fatalf("error %v, request ids %q and %q", err, requestID(t, first), requestID(t, second))
			}
			if took := time.Since(began); took > time.Duration(pause)*time.Second {
				t.Errorf("took %v, want at most %d s", took, pause)
			}
			wait = allocate(t, c, AllocateRequest{}) // straight to b now
			q.Answer(q.Next(wire.MethodAllocate), held(2))
			wait()
			wait = allocate(t, c, AllocateRequest{Signer: "other"}) // nothing known: to a
			p.Answer(p.Next(wire.MethodAllocate), held(1))
			finish(t, wait)
			if got, want := n.Dials(), []string{"a", "b"}; !slices.Equal(got, want) {
				t.Errorf("dialled %v, want %v", got, want)
			}
		})
	}
}

func TestTwoGatewaysThatNameEachOtherAreAskedWithPauses(t *testing.T) {
	story(t, Config{MaxElapsed: 2 * time.Second, BackoffMin: 400 * time.Millisecond}, func(t *testing.T, n *network, c *Client, p *peer) {
		tries := make(chan int, 2)
		blame := func(p *peer, url string) {
			count := 0
			for r := range p.Requests {
				sendTo(p, r, url)
				count++
			}
			tries <- count
		}
		go blame(p, "ws://b")
		wait := allocate(t, c, AllocateRequest{})
		q := <-n.Host("b").Peers
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
		sendTo(p, p.Next(wire.MethodAllocate), "ws://nowhere")
		p.Answer(p.Next(wire.MethodAllocate), held(1)) // a has taken over meanwhile
		finish(t, wait)
		if got, want := n.Dials(), []string{"a", "nowhere"}; !slices.Equal(got, want) {
			t.Errorf("dialled %v, want %v", got, want)
		}
	})
}

func TestAnOwnersConnectionThatIsLostIsOpenedForTheNextCall(t *testing.T) {
	story(t, Config{}, func(t *testing.T, n *network, c *Client, p *peer) {
		wait := allocate(t, c, AllocateRequest{})
		sendTo(p, p.Next(wire.MethodAllocate), "ws://b")
		q := <-n.Host("b").Peers
		first := q.Next(wire.MethodAllocate)
		q.Cut()
		q = <-n.Host("b").Peers
		second := q.Next(wire.MethodAllocate)
		if requestID(t, first) != requestID(t, second) {
			t.Error("repeated with another request id")
		}
		q.Reject(second, wire.CodeDraining, "draining", wire.ErrorData{})
		third := p.Next(wire.MethodAllocate) // b is left
		p.Answer(third, held(1))
		finish(t, wait)
		<-q.Ended
	})
}

func TestAnOwnerThatForbidsToComeBackIsObeyed(t *testing.T) {
	story(t, Config{}, func(t *testing.T, n *network, c *Client, p *peer) {
		wait := allocate(t, c, AllocateRequest{})
		sendTo(p, p.Next(wire.MethodAllocate), "ws://b")
		q := <-n.Host("b").Peers
		q.Next(wire.MethodAllocate)
		closeWith(q, 4503)
		sendTo(p, p.Next(wire.MethodAllocate), "ws://b")
		p.Answer(p.Next(wire.MethodAllocate), held(1))
		finish(t, wait)
		if got, want := n.Dials(), []string{"a", "b"}; !slices.Equal(got, want) {
			t.Errorf("dialled %v, want %v", got, want)
		}
	})
}

func TestOwnerConnectionsAreBounded(t *testing.T) {
	story(t, Config{OwnerConnections: 1}, func(t *testing.T, n *network, c *Client, p *peer) {
		busy := allocate(t, c, AllocateRequest{Signer: "s"})
		sendTo(p, p.Next(wire.MethodAllocate), "ws://b")
		q := <-n.Host("b").Peers
		r := q.Next(wire.MethodAllocate)

		wait := allocate(t, c, AllocateRequest{Signer: "other"})
		sendTo(p, p.Next(wire.MethodAllocate), "ws://b:2") // no room: b is in use
		p.Answer(p.Next(wire.MethodAllocate), held(1))
		finish(t, wait)
		q.Answer(r, held(1))
		busy()

		wait = allocate(t, c, AllocateRequest{Signer: "other"})
		sendTo(p, p.Next(wire.MethodAllocate), "ws://b:2") // now b is idle, and gives way
		<-q.Ended
		q = <-n.Host("b").Peers
		q.Answer(q.Next(wire.MethodAllocate), held(1))
		finish(t, wait)
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
			sendTo(p, p.Next(wire.MethodAllocate), c.url)
			p.Answer(p.Next(wire.MethodAllocate), held(1))
			finish(t, wait)
			if got := len(n.Dials()); got != 1 {
				t.Errorf("%s: dialled %v", c.url, n.Dials())
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
		n.AddSilent("silent")
		wait := allocate(t, c, AllocateRequest{})
		sendTo(p, p.Next(wire.MethodAllocate), "ws://silent")
		synctest.Wait()
		began := time.Now()
		c.Close()
		if _, err := wait(); !errors.Is(err, ErrClosed) || time.Since(began) > time.Second {
			t.Errorf("got error %v after %v", err, time.Since(began))
		}
	})
}

// away is what a gateway says that does not reach the owner.
func away(p *peer, r received, url string) {
	p.T.Helper()
	p.Reject(r, wire.CodeUnavailable, "unavailable", wire.ErrorData{Outcome: wire.OutcomeNone, RetryAfterMs: 500, OwnerNode: "b", OwnerURL: url})
}

func TestAnOwnerThatNobodyReachesKeepsNoCallWaiting(t *testing.T) {
	story(t, Config{}, func(t *testing.T, n *network, c *Client, p *peer) {
		n.AddSilent("silent")
		began := time.Now()
		wait := allocate(t, c, AllocateRequest{})
		for range 3 {
			away(p, p.Next(wire.MethodAllocate), "ws://silent")
		}
		p.Answer(p.Next(wire.MethodAllocate), held(1))
		if _, err := wait(); err != nil || time.Since(began) > 3*time.Second {
			t.Errorf("error %v after %v", err, time.Since(began))
		}
		if got, want := n.Dials(), []string{"a", "silent"}; !slices.Equal(got, want) {
			t.Errorf("dialled %v, want %v", got, want)
		}
	})
}
