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

// subscription is one subscription of a connection, to what is committed or to what a
// Protocol tells.
type subscription struct {
	id     string // "0x" and 32 hexadecimal digits, random
	conn   *conn
	method string // of its notifications
	names  int    // how many signers it names
	feed   Feed
	// write is wire.AppendSubscription, or what writes the notifications of a Protocol.
	write func(dst []byte, method, id string, event []byte, missed int64) []byte
}

var (
	_ Feed              = (*events.Subscription)(nil)
	_ events.Subscriber = (*subscription)(nil)
	_ events.Selective  = (*subscription)(nil)
)

// addSubscription gives a subscription its id, and the connection the subscription, if it
// may have one more.
func (c *conn) addSubscription(s *subscription) *wire.Error {
	var random [16]byte
	_, _ = rand.Read(random[:]) // never fails
	s.conn, s.id = c, "0x"+hex.EncodeToString(random[:])
	c.mu.Lock()
	defer c.mu.Unlock()
	names := s.names
	for _, other := range c.subs {
		names += other.names
	}
	switch limit := c.srv.cfg.MaxSubscriptions; {
	case c.noSubs:
		return ErrEnded()
	case len(c.subs) >= limit:
		return wire.Errorf(wire.CodeInvalidRequest, "a connection may have at most %d subscriptions", limit)
	case names > connectionNames:
		return wire.Errorf(wire.CodeInvalidRequest, "the subscriptions of a connection may name at most %d signers", connectionNames)
	}
	if err := c.takeSubscription(s.names); err != nil {
		return err
	}
	if c.subs == nil {
		c.subs = make(map[string]*subscription)
	}
	c.subs[s.id] = s
	return nil
}

// subscribe makes a subscription to what is committed. The hub knows of it, so that other
// nodes can be asked for what it wants, and delivers once it is live.
func (c *conn) subscribe(method string, signers []string) (*subscription, *wire.Error) {
	s := &subscription{method: method, names: len(signers), write: wire.AppendSubscription}
	if err := c.addSubscription(s); err != nil {
		return nil, err
	}
	s.feed = c.srv.hub.Subscribe(s, signers)
	return s, nil
}

// subscribed reports whether the connection has subscriptions.
func (c *conn) subscribed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.subs) > 0
}

// awaitTime bounds how long one frame's subscriptions wait for the other nodes to
// take them. One that does not answer for so long is away, and what it commits
// would be missed anyhow.
const awaitTime = time.Second

// awaitNodes waits until the other nodes have taken what the clients of this one
// want, so that what happens after the answer to a subscription is delivered,
// whichever node it happens at. The time is one frame's, not one subscription's.
func (c *conn) awaitNodes() {
	if c.srv.cfg.AwaitInterest == nil {
		return
	}
	if c.awaitBy.IsZero() {
		c.awaitBy = time.Now().Add(awaitTime)
	}
	ctx, cancel := context.WithDeadline(c.srv.life, c.awaitBy)
	defer cancel()
	c.srv.cfg.AwaitInterest(ctx)
}

func (s *subscription) close() (missed int64) {
	s.conn.giveSubscription(s.names)
	return s.feed.Close()
}

// removeSubscription ends a subscription; false: there is none of this id.
func (c *conn) removeSubscription(id string) bool {
	c.mu.Lock()
	s, ok := c.subs[id]
	delete(c.subs, id)
	c.mu.Unlock()
	if !ok {
		return false
	}
	s.close()
	return true
}

// closeSubscriptions ends all of them; none is added, nor goes live, afterwards.
func (c *conn) closeSubscriptions() {
	c.mu.Lock()
	subs := c.subs
	c.subs, c.noSubs = nil, true
	c.mu.Unlock()
	for _, s := range subs {
		s.close()
	}
}

// May implements events.Selective, by the rights that are in force now. Whose session has
// ended is owed answers and no events.
func (s *subscription) May(signer string) bool {
	return s.conn.expired.Load() == 0 && s.conn.session.May(access.RightSubscribe, signer)
}

// envelopeBytes is the worst case of a notification without its event: with the id, and the number
// missed.
const envelopeBytes = 192

// Take implements events.Subscriber.
func (s *subscription) Take(e *events.Event, missed int64) bool { return s.Offer(e.JSON(), missed) }

// Offer queues one event, which is JSON, for the client. false: there is no room.
func (s *subscription) Offer(event []byte, missed int64) bool {
	n := notifications.Get().(*notification)
	*n = notification{subscription: s, event: event, missed: missed}
	return s.conn.out.Notify(n, envelopeBytes+int64(len(event)))
}

// notification is one event on its way to one subscriber.
type notification struct {
	subscription *subscription
	event        []byte // shared with other subscribers
	missed       int64
}

var _ writer.Message = (*notification)(nil)

var notifications = sync.Pool{New: func() any { return new(notification) }}

// Append implements writer.Message.
func (n *notification) Append(dst []byte) ([]byte, error) {
	s := n.subscription
	return s.write(dst, s.method, s.id, n.event, n.missed), nil
}

// Release implements writer.Message.
func (n *notification) Release() {
	*n = notification{}
	notifications.Put(n)
}
