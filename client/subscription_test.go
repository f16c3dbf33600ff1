package client

import (
	"testing"
	"testing/synctest"

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
