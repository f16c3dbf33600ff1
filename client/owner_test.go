package client

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"noncegate/wire"
)

func notOwner(url string) wire.ErrorData { return wire.ErrorData{OwnerNode: "b", OwnerURL: url} }

func sendTo(p *peer, r received, url string) {
	p.T.Helper()
	p.Reject(r, wire.CodeNotOwner, "not_owner", notOwner(url))
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
		if count := <-tries + <-tries; count < 3 || count > 40 { // without pauses there is no end
			t.Errorf("%d tries in 2 s", count)
		}
	})
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
