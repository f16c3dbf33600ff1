package client

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"noncegate/internal/wsconn/wspeer"
	"noncegate/test/lab/expect"
	"noncegate/wire"
)

func event(p *peer, subscription string, version, missed int64) {
	p.T.Helper()
	p.Send(`{"jsonrpc":"2.0","method":"nonce_subscription","params":{"subscription":%q,"result":{"type":"allocated",`+
		`"signer":"s","nonce":1,"attempt":1,"version":%d,"at":"2026-11-20T18:33:56.123Z","missed":%d}}}`, subscription, version, missed)
}

// subscribed opens a subscription that p names "1".
func subscribed(t *testing.T, c *Client, p *peer, signers ...string) *Subscription {
	t.Helper()
	wait := later(func() (*Subscription, error) { return c.Subscribe(t.Context(), signers...) })
	p.Answer(p.Next(wire.MethodSubscribe), "1")
	s, err := wait()
	expect.Must(t, err)
	t.Cleanup(s.Close)
	return s
}

// wantEvent asserts what the next event is.
func wantEvent(t *testing.T, s *Subscription, version, missed int64, gap bool) {
	t.Helper()
	e, ok := <-s.Events()
	if !ok || e.Version != version || e.Missed != missed || e.Gap != gap {
		t.Errorf("got version %d, missed %d, gap %v (open %v), want %d, %d, %v",
			e.Version, e.Missed, e.Gap, ok, version, missed, gap)
	}
}

func TestEventsComeInOrder(t *testing.T) {
	story(t, Config{}, func(t *testing.T, _ *network, c *Client, p *peer) {
		wait := later(func() (*Subscription, error) { return c.Subscribe(t.Context(), "s", "u") })
		r := p.Next(wire.MethodSubscribe)
		if got, want := string(r.Params), `["events",{"signers":["s","u"]}]`; got != want {
			t.Errorf("got params %s, want %s", got, want)
		}
		p.Answer(r, "1")
		event(p, "1", 1, 0) // at once behind the answer
		event(p, "1", 2, 0)
		s, err := wait()
		expect.Must(t, err)
		wantEvent(t, s, 1, 0, false)
		wantEvent(t, s, 2, 0, false)
		s.Close()
		if got, want := string(p.Next(wire.MethodUnsubscribe).Params), `["1"]`; got != want {
			t.Errorf("unsubscribed %s, want %s", got, want)
		}
		if _, ok := <-s.Events(); ok || s.Err() != nil {
			t.Errorf("open %v, error %v", ok, s.Err())
		}
		s.Close()
	})
}

func TestMissedEventsOfBothSidesAreCounted(t *testing.T) {
	story(t, Config{EventBuffer: 2}, func(t *testing.T, _ *network, c *Client, p *peer) {
		s := subscribed(t, c, p)
		event(p, "1", 1, 0)
		event(p, "1", 2, 5) // dropped by the gateway: 5
		event(p, "1", 3, 0) // dropped here
		event(p, "1", 6, 2) // dropped here, and two before
		synctest.Wait()
		wantEvent(t, s, 1, 0, false)
		wantEvent(t, s, 2, 5, false)
		event(p, "1", 7, 1)
		wantEvent(t, s, 7, 5, false) // 3, two, 6, and one
		event(p, "1", 8, 0)
		wantEvent(t, s, 8, 0, false)
	})
}

func TestAReconnectIsAGapThatIsToldAtOnce(t *testing.T) {
	story(t, Config{}, func(t *testing.T, n *network, c *Client, p *peer) {
		s := subscribed(t, c, p)
		event(p, "1", 1, 0)
		wantEvent(t, s, 1, 0, false)
		p.Cut()
		p = <-n.Host("a").Peers
		busy(p, p.Next(wire.MethodSubscribe), 0)
		p.Answer(p.Next(wire.MethodSubscribe), "other")
		if e := <-s.Events(); !e.Gap || e.Type != "" {
			t.Errorf("got %+v, want a gap alone", e)
		}
		event(p, "other", 9, 0)
		wantEvent(t, s, 9, 0, false)
	})
}

func TestAGapThatFindsNoRoomComesWithTheNextEvent(t *testing.T) {
	story(t, Config{EventBuffer: 1}, func(t *testing.T, n *network, c *Client, p *peer) {
		s := subscribed(t, c, p)
		event(p, "1", 1, 0)
		event(p, "1", 2, 0) // missed
		p.Cut()
		p = <-n.Host("a").Peers
		p.Answer(p.Next(wire.MethodSubscribe), "1")
		synctest.Wait()
		wantEvent(t, s, 1, 0, false)
		event(p, "1", 9, 0)
		wantEvent(t, s, 9, 1, true)
	})
}

func TestDrainingMovesSubscriptions(t *testing.T) {
	story(t, Config{URLs: []string{"ws://b"}}, func(t *testing.T, n *network, c *Client, p *peer) {
		s := subscribed(t, c, p)
		c.main.current().leave()
		q := <-n.Host("b").Peers
		q.Answer(q.Next(wire.MethodSubscribe), "2")
		wantEvent(t, s, 0, 0, true)
		<-p.Ended
		event(q, "2", 5, 0)
		wantEvent(t, s, 5, 0, false)
	})
}

func TestASubscriptionEndsWithTheClientOrARefusal(t *testing.T) {
	story(t, Config{}, func(t *testing.T, n *network, c *Client, p *peer) {
		s := subscribed(t, c, p)
		p.Cut()
		p = <-n.Host("a").Peers
		p.Reject(p.Next(wire.MethodSubscribe), wire.CodeForbidden, "forbidden", wire.ErrorData{})
		if _, ok := <-s.Events(); ok || !errors.Is(s.Err(), ErrForbidden) {
			t.Errorf("open %v, error %v", ok, s.Err())
		}
		s = subscribed(t, c, p)
		c.Close()
		if _, ok := <-s.Events(); ok || !errors.Is(s.Err(), ErrClosed) {
			t.Errorf("open %v, error %v", ok, s.Err())
		}
		if _, err := c.Subscribe(t.Context()); !errors.Is(err, ErrClosed) {
			t.Errorf("got error %v", err)
		}
	})
}

func TestASubscriptionIsRenewedHoweverLongItTakes(t *testing.T) {
	story(t, Config{MaxElapsed: time.Second}, func(t *testing.T, n *network, c *Client, p *peer) {
		s := subscribed(t, c, p)
		n.Host("a").Refuse.Store(&wspeer.Refusal{Status: 500})
		p.Cut()
		time.Sleep(time.Hour)
		n.Host("a").Refuse.Store(nil)
		p = <-n.Host("a").Peers
		p.Answer(p.Next(wire.MethodSubscribe), "1")
		wantEvent(t, s, 0, 0, true)
	})
}

func TestASubscriptionNobodyWaitsForAnyMoreIsEnded(t *testing.T) {
	story(t, Config{}, func(t *testing.T, _ *network, c *Client, p *peer) {
		ctx, cancel := context.WithCancel(t.Context())
		wait := later(func() (*Subscription, error) { return c.Subscribe(ctx) })
		r := p.Next(wire.MethodSubscribe)
		cancel()
		if _, err := wait(); !errors.Is(err, context.Canceled) {
			t.Errorf("got error %v", err)
		}
		p.Answer(r, "1")
		p.Next(wire.MethodUnsubscribe)
		for range 100 { // it was not heard: asked again, but not each time
			event(p, "1", 1, 0)
		}
		p.Next(wire.MethodUnsubscribe)
		synctest.Wait()
		if got := len(p.Requests); got != 0 {
			t.Errorf("asked %d times more", got)
		}
	})
}

func TestASubscriptionIDThatIsNoneEndsTheConnection(t *testing.T) {
	story(t, Config{}, func(t *testing.T, n *network, c *Client, p *peer) {
		wait := later(func() (*Subscription, error) { return c.Subscribe(t.Context()) })
		p.Answer(p.Next(wire.MethodSubscribe), 5)
		p = <-n.Host("a").Peers
		p.Answer(p.Next(wire.MethodSubscribe), "1")
		s, err := wait()
		expect.Must(t, err)
		defer s.Close()
		wantEvent(t, s, 0, 0, true)
	})
}

// TestAFullQueueEndsNoSubscription: after a reconnect all of them are opened again at once.
func TestAFullQueueEndsNoSubscription(t *testing.T) {
	story(t, Config{MaxInflight: 1, QueueLimit: 1}, func(t *testing.T, n *network, c *Client, p *peer) {
		all := []*Subscription{subscribed(t, c, p)}
		for _, id := range []string{"2", "3"} {
			wait := later(func() (*Subscription, error) { return c.Subscribe(t.Context()) })
			p.Answer(p.Next(wire.MethodSubscribe), id)
			s, err := wait()
			expect.Must(t, err)
			all = append(all, s)
		}
		p.Cut()
		p = <-n.Host("a").Peers
		for _, id := range []string{"4", "5", "6"} {
			p.Answer(p.Next(wire.MethodSubscribe), id)
		}
		synctest.Wait()
		for i, s := range all {
			if s.Err() != nil {
				t.Errorf("subscription %d ended: %v", i, s.Err())
			}
		}
	})
}
