package ws

import (
	"crypto/rand"
	"encoding/hex"
	"sync"

	"noncegate/wire"
	"noncegate/writer"
)

// stream is a subscription of a dialect: its events come from the dialect, its id, its
// bounds and its end are the connection's.
type stream struct {
	id     string // "0x" and 32 hexadecimal digits, random
	conn   *conn
	method string // of its notifications
	end    func() // tells the dialect, once

	mu     sync.Mutex // guards what follows
	live   bool       // the reply that names it is queued
	over   bool
	early  [][]byte // events that came before
	missed int64    // events since the last one that was queued
}

// Stream is a subscription of a connection of a dialect. Its methods may be called from
// any goroutine, also after its end.
type Stream struct{ *stream }

// ID is its id, which the answer of the call that opened it must be.
func (s Stream) ID() string { return s.id }

// earlyEvents bounds what is kept for a stream whose reply is not queued yet.
const earlyEvents = 64

// Open opens a stream of notifications with the given method. end is called once, when
// the stream was closed or its connection has ended; it must not block. By POST there are
// none. The first event comes after the answer of this call, and none if that is an error.
func (c *Call) Open(method string, end func()) (Stream, *wire.Error) {
	conn := c.who.conn
	if conn == nil {
		return Stream{}, wire.Errorf(wire.CodeMethodNotFound, "notifications not supported: subscriptions need a WebSocket")
	}
	var random [16]byte
	_, _ = rand.Read(random[:]) // never fails
	s := &stream{id: "0x" + hex.EncodeToString(random[:]), conn: conn, method: method, end: end}
	if err := conn.takeSubscription(0); err != nil {
		return Stream{}, err
	}
	if err := conn.addStream(s); err != nil {
		conn.giveSubscription(0)
		return Stream{}, err
	}
	c.stream = s
	return Stream{s}, nil
}

func (c *conn) addStream(s *stream) *wire.Error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch limit := c.srv.cfg.MaxSubscriptions; {
	case c.dialect.ended:
		return errCallEnded()
	case len(c.dialect.streams) >= limit:
		return wire.Errorf(wire.CodeInvalidRequest, "a connection may have at most %d subscriptions", limit)
	}
	if c.dialect.streams == nil {
		c.dialect.streams = make(map[string]*stream)
	}
	c.dialect.streams[s.id] = s
	return nil
}

// Close ends a stream of the connection that asks. false: it has none of this id.
func (c *Call) Close(id string) bool {
	conn := c.who.conn
	if conn == nil {
		return false
	}
	conn.mu.Lock()
	s := conn.dialect.streams[id]
	delete(conn.dialect.streams, id)
	conn.mu.Unlock()
	if s == nil {
		return false
	}
	s.close()
	return true
}

// Drop ends the stream that this call has opened: its answer is an error.
func (c *Call) Drop() {
	if s := c.stream; s != nil {
		c.stream = nil
		c.Close(s.id)
	}
}

// close ends all streams of a connection that has ended, and what it has under way as far
// as that may be cut off.
func (t *dialectConn) close(c *conn) {
	if t == nil {
		return
	}
	t.end(errPeerGone)
	c.mu.Lock()
	streams := t.streams
	t.streams, t.ended = nil, true
	c.mu.Unlock()
	for _, s := range streams {
		s.close()
	}
}

func (s *stream) close() {
	s.mu.Lock()
	s.over, s.early = true, nil
	s.mu.Unlock()
	s.conn.giveSubscription(0)
	s.end()
}

// Lost ends the connection of the stream: events of it are lost for good, and whoever
// waits for them has to know.
func (s Stream) Lost(why string) { s.conn.close(wire.CloseSubscriptionLost, why) }

// Notify sends one event, which is JSON, may be shared, and must not be changed. It does
// not block: a client that does not read misses events, and the next that it gets says
// how many.
func (s Stream) Notify(event []byte) {
	if s.conn.expired.Load() != 0 {
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

func (s *stream) sendLocked(event []byte) {
	n := streamed.Get().(*streamedEvent)
	*n = streamedEvent{stream: s, event: event, missed: s.missed}
	if s.conn.out.Notify(n, n.size()) {
		s.missed = 0
	} else {
		s.missed++
	}
}

// goLive makes a stream deliver: its reply is queued. nil: nothing to do.
func (s *stream) goLive() {
	if s == nil {
		return
	}
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

// streamedEvent is one event on its way.
type streamedEvent struct {
	stream *stream
	event  []byte
	missed int64
}

var _ writer.Message = (*streamedEvent)(nil)

var streamed = sync.Pool{New: func() any { return new(streamedEvent) }}

func (n *streamedEvent) size() int64 {
	const envelope = 192
	return envelope + int64(len(n.event))
}

// Append implements writer.Message.
func (n *streamedEvent) Append(dst []byte) ([]byte, error) {
	return wire.AppendNotification(dst, n.stream.method, n.stream.id, n.event, n.missed), nil
}

// Release implements writer.Message.
func (n *streamedEvent) Release() {
	*n = streamedEvent{}
	streamed.Put(n)
}
