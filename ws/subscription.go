package ws

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"sync"
	"time"

	"noncegate/internal/access"
	"noncegate/internal/events"
	"noncegate/wire"
	"noncegate/writer"
)

// subscription is one subscription of a connection.
type subscription struct {
	id     string // "0x" and 32 hexadecimal digits, random
	conn   *conn
	method string               // of its notifications
	names  int                  // how many signers it names
	events *events.Subscription // noted in the hub; delivers once it is live
}

var (
	_ events.Subscriber = (*subscription)(nil)
	_ events.Selective  = (*subscription)(nil)
)

// addSubscription makes a subscription that is not live yet. The hub knows of it,
// so that other nodes can be asked for what it wants.
func (c *conn) addSubscription(method string, signers []string) (*subscription, *wire.Error) {
	var random [16]byte
	_, _ = rand.Read(random[:]) // never fails
	s := &subscription{id: "0x" + hex.EncodeToString(random[:]), conn: c, method: method, names: len(signers)}
	subscriptions, names := c.subscribed()
	if limit := c.srv.cfg.MaxSubscriptions; subscriptions >= limit {
		return nil, wire.Errorf(wire.CodeInvalidRequest, "a connection may have at most %d subscriptions", limit)
	}
	if names+s.names > connectionNames {
		return nil, wire.Errorf(wire.CodeInvalidRequest, "the subscriptions of a connection may name at most %d signers", connectionNames)
	}
	if err := c.takeSubscription(s.names); err != nil {
		return nil, err
	}
	scope := events.Everywhere
	if c.peer != nil {
		scope = events.Here
	}
	events, err := c.srv.hub.Subscribe(s, scope, signers)
	if err != nil { // more signers than parsing let through: cannot be
		c.giveSubscription(s.names)
		return nil, invalidParams("signers", err.Error())
	}
	s.events = events
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.subs == nil {
		c.subs = make(map[string]*subscription)
	}
	c.subs[s.id] = s
	return s, nil
}

// subscribed is how many subscriptions the connection has, and how many signers they
// name. Only its read goroutine adds any.
func (c *conn) subscribed() (subscriptions, names int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.subs {
		names += s.names
	}
	if c.dialect != nil {
		subscriptions = len(c.dialect.streams)
	}
	return subscriptions + len(c.subs), names
}

// awaitTime bounds how long one frame's subscriptions wait for the other nodes to
// take them. One that does not answer for so long is away, and what it commits
// would be missed anyhow.
const awaitTime = time.Second

// awaitNodes waits until the other nodes have taken what the clients of this one
// want, so that what happens after the answer to a subscription is delivered,
// whichever node it happens at. The time is one frame's, not one subscription's.
func (c *conn) awaitNodes() {
	if c.srv.cfg.AwaitInterest == nil || c.peer != nil {
		return
	}
	if c.awaitBy.IsZero() {
		c.awaitBy = time.Now().Add(awaitTime)
	}
	ctx, cancel := context.WithDeadline(c.srv.life, c.awaitBy)
	defer cancel()
	c.srv.cfg.AwaitInterest(ctx)
}

// announce comes before the reply is queued: the client may have it before goLive.
// nil: nothing to do.
func (s *subscription) announce() {
	if s != nil {
		s.events.Announce()
	}
}

// goLive makes a subscription deliver events. Its reply is queued, so that no
// event can overtake the id. nil: nothing to do; one that ended meanwhile stays
// silent.
func (c *conn) goLive(s *subscription) {
	if s != nil {
		s.events.Start()
	}
}

// removeSubscription ends a subscription; false: there is none of this id.
func (c *conn) removeSubscription(id string) bool {
	c.mu.Lock()
	s, ok := c.subs[id]
	delete(c.subs, id)
	var heir *subscription
	for _, heir = range c.subs {
		break
	}
	c.mu.Unlock()
	if !ok {
		return false
	}
	c.giveSubscription(s.names)
	// A node replaces its one subscription by another: what it was not told of the
	// old one it must hear by the new one.
	if missed := s.events.Close(); missed > 0 && c.peer != nil && heir != nil {
		heir.events.Miss(missed)
	}
	return true
}

// closeSubscriptions ends all of them; none goes live afterwards.
func (c *conn) closeSubscriptions() {
	c.mu.Lock()
	subs := c.subs
	c.subs = nil
	c.mu.Unlock()
	for _, s := range subs {
		c.giveSubscription(s.names)
		s.events.Close()
	}
}

// May implements events.Selective, by the rights that are in force now. Whose session has
// ended is owed answers and no events.
func (s *subscription) May(signer string) bool {
	return s.conn.expired.Load() == 0 && s.conn.session.May(access.RightSubscribe, signer)
}

// Offer implements events.Subscriber.
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
