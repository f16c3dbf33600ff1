package client

import (
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorilla/websocket"

	"noncegate/internal/wsconn/wspeer"
	"noncegate/wire"
)

func TestDialTriesEachAddressOnceAndJoinsTheErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := wspeer.New(t, "a")
		n.Host("a").Refuse.Store(&wspeer.Refusal{Status: 503, RetryAfter: "7", Text: "full \x1b[31mhouse\xff\nand more"})
		_, err := Dial(t.Context(), "ws://nowhere", Config{URLs: []string{"ws://a"}, NetDial: n.Dial})
		e, ok := errors.AsType[*DialError](err)
		if !ok || e.URL != "ws://nowhere/ws" {
			t.Fatalf("got error %v", err)
		}
		if got, want := n.Dials(), []string{"nowhere", "a"}; !slices.Equal(got, want) {
			t.Errorf("dialled %v, want %v", got, want)
		}
		_, err = Dial(t.Context(), "ws://a", Config{NetDial: n.Dial})
		if e, _ = errors.AsType[*DialError](err); e == nil || e.Status != 503 || e.RetryAfter != 7*time.Second || e.Reason != "full [31mhouse" {
			t.Errorf("got error %v", err)
		}
	})
}

func TestSettingsThatContradictAreNamed(t *testing.T) {
	for want, cfg := range map[string]Config{
		"client: Config.BackoffMax (1ms) is below BackoffMin (100ms)": {BackoffMax: time.Millisecond},
		"client: Config.RetryMax (1ms) is below BackoffMin (100ms)":   {RetryMax: time.Millisecond},
		"client: Config.QueueLimit must be positive":                  {QueueLimit: -1},
	} {
		if _, err := Dial(t.Context(), "ws://a", cfg); err == nil || err.Error() != want {
			t.Errorf("got error %v, want %s", err, want)
		}
	}
}

func TestAClientThatIsClosedHasLostNothing(t *testing.T) {
	var log strings.Builder
	story(t, Config{Logger: slog.New(slog.NewTextHandler(&log, nil))}, func(t *testing.T, n *network, c *Client, p *peer) {
		c.Close()
	})
	if log.String() != "" {
		t.Errorf("it said %q", log.String())
	}
}

func TestDrainingMovesToAnotherGatewayBeforeTheOldOneIsLeft(t *testing.T) {
	story(t, Config{URLs: []string{"ws://b"}}, func(t *testing.T, n *network, c *Client, p *peer) {
		old := later(func() (wire.StatusResult, error) { return c.Status(t.Context(), "served") })
		served := p.Next(wire.MethodStatus)
		wait := allocate(t, c, AllocateRequest{})
		first := p.Next(wire.MethodAllocate)
		p.Reject(first, wire.CodeDraining, "draining", wire.ErrorData{})
		q := <-n.Host("b").Peers
		var second received
		select {
		case second = <-q.Requests:
		case second = <-p.Requests: // it was faster than the new connection
			p.Reject(second, wire.CodeDraining, "draining", wire.ErrorData{})
			second = q.Next(wire.MethodAllocate)
		}
		if requestID(t, second) != requestID(t, first) {
			t.Error("repeated with another request id")
		}
		q.Answer(second, held(1))
		finish(t, wait)
		p.Answer(served, wire.StatusResult{Next: 5}) // what is under way there may end
		if s, err := old(); err != nil || s.Next != 5 {
			t.Errorf("got %v, %v", s, err)
		}
		if ended := <-p.Ended; !websocket.IsCloseError(ended, websocket.CloseNormalClosure) {
			t.Errorf("the old gateway saw %v, want a goodbye", ended)
		}
	})
}
