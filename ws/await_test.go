package ws

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"noncegate/nonce"
	"noncegate/test/lab/inprocess"
	"noncegate/test/lab/wait"
	"noncegate/wire"
)

func TestASubscriptionIsAnsweredWhenTheOtherNodesHaveTakenIt(t *testing.T) {
	asked, taken := make(chan struct{}), make(chan struct{})
	g := startGateway(t, func(s *setup) {
		s.ws.AwaitInterest = func(context.Context) { asked <- struct{}{}; <-taken }
	})
	c, other := g.dial(), g.dial()
	other.Request("sub", "nonce_subscribe", `["events",{"signers":["a"]}]`)
	wait.For(t, asked, "the other nodes to be asked")
	taken <- struct{}{}
	if frame := other.frame(); frame["id"] != "sub" {
		t.Fatalf("%v came before the answer", frame)
	}
	c.Request("sub", "nonce_subscribe", `["events",{"signers":["a"]}]`)
	wait.For(t, asked, "the other nodes to be asked")
	if got := g.Hub.Interest().Signers; len(got) != 1 || got[0] != "a" {
		t.Errorf("the other nodes are asked for %v", got)
	}
	other.Request("1", "nonce_setFloor", `["a",1]`) // before the answer: not delivered
	other.WantResult("1")
	other.Notification() // it has been delivered, or is about to be, to whom it is for
	g.Hub.Lost()
	close(taken)
	frame := c.frame()
	if frame["id"] != "sub" {
		t.Fatalf("%v came before the answer", frame)
	}
	other.Ask("2", "nonce_setFloor", `["a",2]`)
	events := []map[string]any{c.event()}
	if fmt.Sprint(events[0]["nonce"]) == "1" { // its delivery found the subscription live
		events = append(events, c.event())
	}
	if last := events[len(events)-1]; fmt.Sprint(last["nonce"]) != "2" || fmt.Sprint(events[0]["missed"]) != "1" {
		t.Errorf("got %v, want the second event, and that one was lost", events)
	}
}

// event reads a notification and returns what it tells.
func (c *client) event() map[string]any {
	c.Helper()
	return c.Notification()["params"].(map[string]any)["result"].(map[string]any)
}

// frame reads one frame that is no batch.
func (c *client) frame() map[string]any {
	c.Helper()
	must(c.TB, c.Read())
	if len(c.Replies) > 0 {
		return inprocess.Take(c.Client, &c.Replies)
	}
	return inprocess.Take(c.Client, &c.Notifications)
}

func TestTheSubscriptionsOfAFrameShareTheTimeOtherNodesHave(t *testing.T) {
	var mu sync.Mutex
	var until []time.Time
	g := startGateway(t, func(s *setup) {
		s.ws.AwaitInterest = func(ctx context.Context) {
			mu.Lock()
			defer mu.Unlock()
			end, _ := ctx.Deadline()
			until = append(until, end)
		}
	})
	c := g.dial()
	sub := `{"jsonrpc":"2.0","id":1,"method":"nonce_subscribe","params":["events"]}`
	before := time.Now()
	c.Send("[" + sub + "," + sub + "]")
	c.Batch()
	after := time.Now()
	c.Send(sub)
	c.Reply()
	mu.Lock()
	defer mu.Unlock()
	switch {
	case len(until) != 3 || until[0] != until[1]:
		t.Errorf("the deadlines are %v, want the first two to be one", until)
	case until[0].Before(before.Add(awaitTime)) || until[0].After(after.Add(awaitTime)):
		t.Errorf("the deadline is %v after the frame, want %v", until[0].Sub(before), awaitTime)
	case !until[2].After(until[1]):
		t.Error("another frame has the time of the first")
	}
}

func TestTheEndOfTheGatewayEndsTheWaitForOtherNodes(t *testing.T) {
	asked := make(chan struct{})
	var why error
	g := startGateway(t, func(s *setup) {
		s.ws.AwaitInterest = func(ctx context.Context) { close(asked); <-ctx.Done(); why = ctx.Err() }
	})
	c := g.dial()
	c.Request("sub", "nonce_subscribe", `["events"]`)
	wait.For(t, asked, "the other nodes to be asked")
	must(t, g.srv.Stop(t.Context()))
	if why != context.Canceled {
		t.Errorf("it ended with %v", why)
	}
}

func TestARefusalForWantOfAPlaceAtAnotherNodeIsCounted(t *testing.T) {
	g := startGateway(t)
	rejected := g.rejections()
	g.onSubmit(func(s *submission) {
		s.slot.Cancel()
		s.res.Err = nonce.ErrForwardBusy
		s.done.Done(s.res).Wake()
	})
	c := g.dial()
	if data := c.AskRefused("1", "nonce_allocate", `["a"]`, "server_busy"); data["stage"] != wire.StageForward {
		t.Errorf("got %v", data)
	}
	if stage := wait.For(t, rejected, "the count"); stage != wire.StageForward {
		t.Errorf("counted at %s", stage)
	}
}
