package relay

import (
	"sync"

	"noncegate/wire"
	"noncegate/ws"
)

// Stream is a subscription of a connection, to which it is the ws.Feed. Notify, ID and Lost may be
// called from any goroutine, also after its end.
type Stream struct {
	*ws.Subscription
	visitor *ws.Visitor
	method  string
	end     func() // tells the Handler, once

	mu     sync.Mutex // guards what follows
	live   bool
	over   bool
	early  [][]byte // events that came before the reply
	missed int64    // events since the last one that was queued
}

// earlyEvents bounds what is kept for a stream whose reply is not queued yet.
const earlyEvents = 64

// Open opens a stream of notifications with the given method. end is called once, when
// the stream was closed or its connection has ended; it must not block. By POST there are
// none. The first event comes after the answer of this call, and none if that is an error.
// Where Open fails, end is not called. A call may have one stream, because its answer names
// one: to open another before Drop is a mistake of the programmer and panics.
func (c *Call) Open(method string, end func()) (*Stream, *wire.Error) {
	if c.stream != nil {
		panic("relay: one stream a call")
	}
	s := &Stream{visitor: c.Visitor, method: method, end: end}
	of, err := c.Subscribe(method, s)
	if err != nil {
		return nil, err
	}
	s.Subscription, c.stream = of, s
	return s, nil
}

// Close ends a stream of the connection that asks. false: it has none of this id.
func (c *Call) Close(id string) bool { return c.Unsubscribe(id) }

// Drop ends the stream that this call has opened: its answer is an error.
func (c *Call) Drop() {
	if s := c.stream; s != nil {
		c.stream = nil
		c.Close(s.ID())
	}
}

// Notify sends one event, which is JSON, may be shared, and must not be changed. It does
// not block: a client that does not read misses events, and the next that it gets says
// how many.
func (s *Stream) Notify(event []byte) {
	if s.Muted() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.over:
	case s.live:
		s.sendLocked(event)
	case len(s.early) < earlyEvents:
		s.early = append(s.early, event)
	default:
		s.missed++
	}
}

func (s *Stream) sendLocked(event []byte) {
	if s.Offer(event, s.missed) {
		s.missed = 0
	} else {
		s.missed++
	}
}

// Announce implements ws.Feed: what comes before Start is kept.
func (s *Stream) Announce() {}

// Start implements ws.Feed.
func (s *Stream) Start() {
	s.mu.Lock()
	defer s.mu.Unlock()
	missed := s.missed // they came after the early ones
	s.missed = 0
	for _, event := range s.early {
		s.sendLocked(event)
	}
	s.missed += missed
	s.live, s.early = !s.over, nil
}

// Close implements ws.Feed. It reports nothing as missed: a subscriber that missed something is gone.
func (s *Stream) Close() (missed int64) {
	s.mu.Lock()
	s.over, s.early = true, nil
	s.mu.Unlock()
	s.tellEnd()
	return 0
}

// tellEnd tells the Handler. A mistake of its own there ends nothing else: the connection may
// be ending, and the streams behind this one are to end as well.
func (s *Stream) tellEnd() {
	defer func() {
		if v := recover(); v != nil {
			s.visitor.Panicked("the end of a stream", v, s.method)
		}
	}()
	s.end()
}
