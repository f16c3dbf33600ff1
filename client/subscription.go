package client

import (
	"context"
	"fmt"
	"sync"

	"noncegate/internal/rpcconn"
	"noncegate/wire"
)

// Event is one event of a subscription, and what is missing before it.
type Event struct {
	// Event is what the gateway sent. Its Missed counts the events known to be
	// missing before this one: dropped by the gateway because this client read
	// slowly, or here because Config.EventBuffer was full.
	wire.Event
	// Gap says that the subscription was interrupted before this event: any
	// number of events may be missing. An Event with Gap and an empty Type
	// carries nothing else. It comes as soon as the subscription is live again.
	Gap bool
}

// Subscription receives events of the gateway until Close is called, the client
// is closed, or the gateway refuses it. It is renewed on each new connection.
type Subscription struct {
	c      *Client
	params []any           // "events" and, where some are named, {"signers": …}
	ctx    context.Context // ends with Close, or the client
	cancel context.CancelFunc
	done   chan struct{} // closed when its goroutine has ended
	lost   chan struct{} // holds a token after the connection was lost
	events chan Event

	mu     sync.Mutex    // guards what follows
	at     *rpcconn.Conn // where it is live, nil while it is not
	id     string        // its name there
	missed int64         // events dropped since the last one delivered
	gap    bool          // interrupted since the last one delivered
	ended  bool          // events is closed
	err    error
}

// Subscribe asks for the events of the signers given, or of all. ctx bounds only
// the asking. The caller must read Events and call Close.
func (c *Client) Subscribe(ctx context.Context, signers ...string) (*Subscription, error) {
	s := &Subscription{
		c: c, params: []any{wire.TopicEvents},
		done: make(chan struct{}), lost: make(chan struct{}, 1), events: make(chan Event, c.cfg.EventBuffer),
	}
	if len(signers) > 0 {
		s.params = append(s.params, map[string][]string{"signers": signers})
	}
	s.ctx, s.cancel = context.WithCancel(c.ctx)
	err := s.open(ctx, false)
	if err == nil && !c.spawn(s.keep) {
		err = ErrClosed
	}
	if err != nil {
		s.end(err)
		return nil, err
	}
	return s, nil
}

// Events returns the events, in the order of the gateway's. The channel is
// closed when the subscription has ended; Err says why.
func (s *Subscription) Events() <-chan Event { return s.events }

// Err returns why the subscription ended: nil while it goes on and after Close,
// ErrClosed when the client was closed, else what the gateway said.
func (s *Subscription) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Close ends the subscription and waits for its goroutine. It may be called more
// than once.
func (s *Subscription) Close() {
	s.end(nil)
	<-s.done
}

// keep is the subscription's goroutine: it opens it again when it was lost.
func (s *Subscription) keep() {
	defer close(s.done)
	for {
		select {
		case <-s.lost:
		case <-s.ctx.Done():
			s.end(context.Cause(s.c.ctx))
			return
		}
		// When the client is closed, the connection may be lost before s.ctx has ended.
		if err := s.open(s.ctx, true); err != nil && s.ctx.Err() == nil && s.c.ctx.Err() == nil {
			s.end(err)
			return
		}
	}
}

func (s *Subscription) open(ctx context.Context, patient bool) error {
	_, err := s.c.do(ctx, &op{method: wire.MethodSubscribe, params: s.params, repeat: repeatRead, patient: patient, sub: feed{s}})
	return err
}

// feed is a Subscription as its connections know it.
type feed struct{ *Subscription }

// Live implements rpcconn.Sub.
func (s feed) Live(at *rpcconn.Conn, id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return false
	}
	s.at, s.id = at, id
	if s.gap {
		s.offerLocked(Event{})
	}
	return true
}

// Ended implements rpcconn.Sub.
func (s feed) Ended(at *rpcconn.Conn, _ error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.at != at {
		return
	}
	s.at, s.gap = nil, true
	select {
	case s.lost <- struct{}{}:
	default:
	}
}

// Notify implements rpcconn.Sub: an event is passed on, or counted as missed.
func (s feed) Notify(data wire.Raw) error {
	var e Event
	if err := wire.Unmarshal(data, &e.Event); err != nil {
		return fmt.Errorf("event of the gateway: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ended {
		s.offerLocked(e)
	}
	return nil
}

func (s *Subscription) offerLocked(e Event) {
	s.missed += e.Missed
	e.Missed, e.Gap = s.missed, s.gap
	select {
	case s.events <- e:
		s.missed, s.gap = 0, false
	default:
		if e.Type != "" {
			s.missed++
		}
	}
}

// end closes the subscription at the first call.
func (s *Subscription) end(err error) {
	s.cancel()
	s.mu.Lock()
	if s.ended {
		s.mu.Unlock()
		return
	}
	s.ended, s.err = true, err
	at, id := s.at, s.id
	close(s.events)
	s.mu.Unlock()
	if at != nil {
		at.Unsubscribe(id)
	}
}
