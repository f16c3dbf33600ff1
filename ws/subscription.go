package ws

import (
	"crypto/rand"
	"encoding/hex"
	"sync"

	"noncegate/hub"
	"noncegate/wire"
	"noncegate/writer"
)

// subscription is one subscription of a connection.
type subscription struct {
	id      string // "0x" and 32 hexadecimal digits, random
	conn    *conn
	method  string // of its notifications
	signers []string
	events  *hub.Subscription // nil until it is live; guarded by conn.mu
}

var _ hub.Subscriber = (*subscription)(nil)

// addSubscription makes a subscription that is not live yet.
func (c *conn) addSubscription(method string, signers []string) (*subscription, *wire.Error) {
	var random [16]byte
	_, _ = rand.Read(random[:]) // never fails
	s := &subscription{id: "0x" + hex.EncodeToString(random[:]), conn: c, method: method, signers: signers}
	c.mu.Lock()
	defer c.mu.Unlock()
	if most := c.srv.cfg.MaxSubscriptions; len(c.subs) >= most {
		return nil, wire.Errorf(wire.CodeInvalidRequest, "invalid_request", "a connection may have at most %d subscriptions", most)
	}
	if c.subs == nil {
		c.subs = make(map[string]*subscription)
	}
	c.subs[s.id] = s
	return s, nil
}

// goLive makes a subscription receive events. Its reply is queued, so that no
// event can overtake the id. nil: nothing to do.
func (c *conn) goLive(s *subscription) {
	if s == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.subs[s.id] != s {
		return // the connection ended, or unsubscribed within the same batch
	}
	events, err := c.srv.hub.Subscribe(s, s.signers)
	if err != nil {
		delete(c.subs, s.id) // more signers than parsing let through: cannot be
		return
	}
	s.events = events
}

// removeSubscription ends a subscription; false: there is none of this id.
func (c *conn) removeSubscription(id string) bool {
	c.mu.Lock()
	s, ok := c.subs[id]
	delete(c.subs, id)
	c.mu.Unlock()
	if ok && s.events != nil {
		s.events.Close()
	}
	return ok
}

// closeSubscriptions ends all of them; none goes live afterwards.
func (c *conn) closeSubscriptions() {
	c.mu.Lock()
	subs := c.subs
	c.subs = nil
	c.mu.Unlock()
	for _, s := range subs {
		if s.events != nil {
			s.events.Close()
		}
	}
}

// Offer implements hub.Subscriber.
func (s *subscription) Offer(event []byte, missed int64) bool {
	n := notifications.Get().(*notification)
	*n = notification{subscription: s, event: event, missed: missed}
	return s.conn.out.Notify(n, n.size())
}

// notification is one event on its way to one subscriber.
type notification struct {
	subscription *subscription
	event        []byte // shared with other subscribers
	missed       int64
}

var _ writer.Message = (*notification)(nil)

var notifications = sync.Pool{New: func() any { return new(notification) }}

// size is the worst case of the notification without its event: the envelope,
// the id, and the number missed.
func (n *notification) size() int64 {
	const envelope = 192
	return envelope + int64(len(n.event))
}

// Append implements writer.Message.
func (n *notification) Append(dst []byte) ([]byte, error) {
	return wire.AppendSubscription(dst, n.subscription.method, n.subscription.id, n.event, n.missed), nil
}

// Release implements writer.Message.
func (n *notification) Release() {
	*n = notification{}
	notifications.Put(n)
}
