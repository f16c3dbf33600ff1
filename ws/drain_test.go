package ws

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"noncegate/test/lab/wait"
	"noncegate/wire"
)

// drain starts a Drain and returns what it will come to.
func (g *gateway) drain(ctx context.Context) <-chan error {
	drained := make(chan error, 1)
	go func() { drained <- g.srv.Drain(ctx) }()
	return drained
}

func TestDrainAnswersWhatIsInFlightAndClosesInOrder(t *testing.T) {
	g := startGateway(t, func(s *setup) { s.ws.CloseSpread = 20 * time.Millisecond })
	busy, idle := g.dial(), []*client{g.dial(), g.dial(), g.dial()}
	release := g.hang(busy, "1", "nonce_allocate", `["a"]`)
	drained := g.drain(t.Context())
	for _, c := range idle {
		c.WantClosed(websocket.CloseServiceRestart)
	}
	g.wantUnavailable()
	wait.Until(g, "the end of the spread", g.srv.draining.Load)
	busy.AskRefused("2", "nonce_allocate", `["a"]`, "draining")
	g.srv.closeSome(0) // every connection's turn has come
	select {
	case err := <-drained:
		t.Fatalf("Drain returned (%v) with a request in flight", err)
	default:
	}
	release()
	busy.WantResult("1")
	busy.WantClosed(websocket.CloseServiceRestart)
	must(t, wait.For(t, drained, "Drain"))
	if g.next("a") != 1 {
		t.Errorf("%d nonces were taken, want 1", g.next("a"))
	}
}

func TestRequestsAreServedWhileConnectionsAreBeingClosed(t *testing.T) {
	g := startGateway(t, func(s *setup) { s.ws.CloseSpread = time.Hour })
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c := g.dial()
	c.settle()
	drained := g.drain(ctx)
	wait.Until(g, "the beginning of the drain", g.srv.conns.isLeaving)
	g.wantUnavailable()
	for i := range 5 {
		c.Ask(fmt.Sprint(i), "nonce_allocate", `["a"]`)
	}
	cancel()
	if err := wait.For(t, drained, "Drain"); err == nil {
		t.Error("an hour has passed")
	}
}

// Clients ask on while their connections are closed. What was done was answered:
// a request is not taken when its answer would have no way out.
func TestNothingIsDoneForARequestThatCrossesTheClose(t *testing.T) {
	const clients = 40
	g := startGateway(t, func(s *setup) { s.ws.CloseSpread = 300 * time.Millisecond })
	answered, asking := make([]int64, clients), sync.WaitGroup{}
	for i := range clients {
		c := g.dial()
		c.settle()
		asking.Go(func() {
			ask := fmt.Sprintf(`{"jsonrpc":"2.0","id":"1","method":"nonce_setFloor","params":["signer-%d",%%d]}`, i)
			for n := int64(1); ; n++ {
				if c.Conn.WriteMessage(websocket.TextMessage, fmt.Appendf(nil, ask, n)) != nil || c.Read() != nil {
					return
				}
				if last := c.Replies[len(c.Replies)-1]; last["error"] == nil {
					answered[i] = n
				}
			}
		})
	}
	must(t, wait.For(t, g.drain(t.Context()), "Drain"))
	asking.Wait()
	for i, n := range answered {
		if got := g.next(fmt.Sprintf("signer-%d", i)); got != n {
			t.Errorf("client %d: the floor is %d, the last answer was %d", i, got, n)
		}
	}
	if slices.Max(answered) == 0 {
		t.Error("nobody was served")
	}
}

func TestARequestGetsInOrItsConnectionIsClosedNeverBoth(t *testing.T) {
	g := startGateway(t)
	for range 5000 {
		c, _, end := g.pipeConn()
		refused, start := make(chan *wire.Error), make(chan struct{})
		go func() { <-start; refused <- c.room.enter(c.share, c.asker, 1) }()
		close(start)
		c.closeIdle()
		switch err := <-refused; {
		case err == nil && c.isClosing():
			t.Fatal("both")
		case err == nil:
			c.room.leave(c.share, c.asker, 1)
		case !c.isClosing():
			t.Fatal("neither")
		case err.Code != wire.CodeDraining: // also when the close was only about to begin
			t.Fatalf("refused with %v", err)
		}
		end()
	}
}
