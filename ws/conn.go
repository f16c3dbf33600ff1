package ws

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorilla/websocket"

	"noncegate/backpressure"
	"noncegate/internal/socket"
	"noncegate/nonce"
	"noncegate/wire"
	"noncegate/writer"
)

// maxBadFrames is how many frames in a row may hold no valid request before the
// connection is closed: its client does not speak this protocol.
const maxBadFrames = 1000

// conn is one connection. What this package calls its read goroutine is two, which never run at once:
// read waits for bytes on the smallest stack there is, and starts serve, which decodes frames, admits
// and starts requests, until nothing is left. An idle connection holds this struct, gorilla's read
// buffer and read's stack.
type conn struct {
	srv       *Server
	room      *Room
	ws        *websocket.Conn
	transport *socket.Conn
	out       *writer.Queue
	share     *backpressure.Share // its requests in flight

	identity                 // the principal it was let in as
	asker    nonce.Principal // the same, as holds know it; 0: without a session

	// The read goroutine's.
	serving    sync.WaitGroup
	over       bool          // serve read the last frame
	badFrames  int           // in a row
	peerClosed bool          // its close frame came
	awaitBy    time.Time     // see awaitNodes; zero: this frame has not begun to wait
	inMessage  bool          // a data frame was begun and is not finished
	receipt    *receipt      // of the frame that is being handled
	rest       time.Duration // how long nothing is read, because a quota is used up
	controls   controls

	began   atomic.Int32  // the code an orderly close was begun with, or clientsClose; 0: none was
	gone    atomic.Bool   // the client reads no answer any more
	expired atomic.Int32  // the close code of its session's end; 0: it has not ended
	frames  atomic.Uint32 // data frames that were read

	claiming atomic.Pointer[chan struct{}] // closed when a close is begun, while the read goroutine waits to receive; nil: it does not

	speaker Speaker // of a Room; nil: it speaks the protocol of nonces

	lines *lines // made by the read goroutine with the first request that needs a lock

	mu     sync.Mutex               // guards what follows
	subs   map[string]*subscription // by id
	noSubs bool                     // none is added any more

	// The pinger's.
	heardAt, pingAt time.Time
	expiredAt       time.Time
	watch           watch
}

// scratch is the memory one frame needs while it is decoded and started. It is
// lent for a frame, so that idle connections have none.
type scratch struct {
	payload  []byte
	frame    wire.Frame
	requests []*request
}

var scratches = sync.Pool{New: func() any { return new(scratch) }}

func (s *scratch) release() {
	clear(s.requests)
	s.requests = s.requests[:0]
	if cap(s.payload) <= freeBytes {
		s.payload = s.payload[:0]
		scratches.Put(s)
	}
}

// read is the connection's goroutine, from the upgrade to the end.
func (c *conn) read() {
	defer c.srv.left(c)
	defer c.end()
	defer c.recovered("a connection's read loop")
	for !c.over && c.out.WaitReadable() {
		switch {
		case !c.transport.Plain():
			c.serve()
		case !c.transport.Await() || !c.takeControls():
			c.serving.Add(1)
			go c.serveOnce() // as serving.Go, of which a burst would cost two objects
			c.serving.Wait()
		}
	}
}

// takeControls handles the pings and pongs that come first in what was read. It reports whether
// that was all: an idle peer sends nothing else, and serve would stay for the message behind
// them.
func (c *conn) takeControls() bool {
	for {
		kind, payload, ok := c.transport.Control()
		switch {
		case !ok:
			return c.transport.Empty()
		case kind == websocket.PingMessage:
			_ = c.onPing(string(payload)) // it does not fail
		default:
			c.control()
		}
	}
}

func (c *conn) serveOnce() {
	defer c.serving.Done()
	c.serve()
}

// serve reads frames and starts what they ask for, until the transport is known to be empty
// or there will be no more.
func (c *conn) serve() {
	c.over = true
	defer c.recovered("a connection's read loop")
	for c.next() {
		c.pause()
		if !c.out.WaitReadable() {
			return
		}
		if c.transport.Empty() {
			c.over = false
			return
		}
	}
}

// next reads one frame and starts what it asks for. false: that was the last.
// Once a close was begun frames are read only to find the peer's own.
func (c *conn) next() bool {
	kind, payload, err := c.ws.NextReader()
	switch {
	case err != nil:
		return c.broken(err)
	case c.isClosing():
		return true
	case kind != websocket.TextMessage:
		c.close(wire.CloseUnsupported, "text frames only")
		return true
	}
	s := scratches.Get().(*scratch)
	defer s.release()
	c.inMessage = true
	s.payload, c.receipt, err = c.message(s.payload, payload)
	defer func() { c.receipt.drop(); c.receipt = nil }()
	if errors.Is(err, errReceiving) {
		return true // it is closing
	}
	if err != nil {
		return c.broken(err)
	}
	c.inMessage = false
	c.transport.Took(true)
	c.frames.Add(1)
	if c.handle(s) {
		c.badFrames = 0
	} else if c.badFrames++; c.badFrames == maxBadFrames {
		c.close(wire.ClosePolicy, "too many frames in a row that are no requests")
	}
	return true
}

// broken is the end of what can be read. A length that no message may have, such as a
// negative one, is not answered by gorilla.
func (c *conn) broken(err error) bool {
	if errors.Is(err, websocket.ErrReadLimit) && !c.isClosing() {
		c.close(wire.CloseTooLarge, "")
	}
	return false
}

// handle decodes a frame and starts what it asks for, or answers why not. Not good:
// there was no valid request in it.
func (c *conn) handle(s *scratch) (good bool) {
	s.frame.MaxBatch = c.srv.cfg.MaxBatch
	c.awaitBy = time.Time{}
	if err := s.frame.Decode(s.payload); err != nil {
		c.answer(err)
		return false
	}
	for i := range s.frame.Calls {
		r := c.newRequest(&s.frame.Calls[i])
		good = good || r.err == nil || r.err.Code == wire.CodeForbidden // which is said to a request only
		s.requests = append(s.requests, r)
	}
	if s.frame.Batch {
		c.startBatch(s.requests)
	} else {
		c.startOne(s.requests[0])
	}
	return good
}

// answer answers a frame as a whole.
func (c *conn) answer(err *wire.Error) {
	c.startOne(c.newRequest(&wire.Call{ID: []byte("null"), Err: err}))
}

func (c *conn) startOne(r *request) {
	if err := c.reserve(&r.took, r.answerBytes(), []*request{r}); err != nil {
		c.refuse(r, err, r)
		return
	}
	r.start()
}

// startAll starts admitted requests. If a panic of one ends that, those behind it end, too.
func (c *conn) startAll(requests []*request) {
	started := 0
	defer func() {
		for _, r := range requests[started:] {
			r.err = ErrOurs()
			r.conclude()
		}
	}()
	for _, r := range requests {
		started++
		r.start()
	}
}

func (c *conn) startBatch(requests []*request) {
	b := newBatch(c, requests)
	if b.answerBytes() > c.room.maxAnswer() {
		_ = c.chargePrincipal(len(requests)-1, time.Now()) // the answer counts one
		b.Release()
		c.answer(wire.Errorf(wire.CodeInvalidRequest,
			"the answers to this batch could be larger than what may wait for a connection; send it in parts"))
		return
	}
	if err := c.reserve(&b.took, b.answerBytes(), requests); err != nil {
		c.refuse(b, err, requests...)
		return
	}
	c.startAll(requests)
}

// reply is a request or a batch.
type reply interface {
	writer.Message
	answerBytes() int64 // worst case of the answer; 0: there is none
}

// refuse answers requests that were not admitted. The refusal needs room too:
// while there is none this connection is not read, so that a client that is refused for
// ever cannot make its queue grow.
func (c *conn) refuse(m reply, err *wire.Error, requests ...*request) {
	c.srv.countBusy(err, len(requests))
	for _, r := range requests {
		r.refuse(err)
		r.audit()
	}
	room, bytes := reservation{srv: c.srv}, m.answerBytes()
	if bytes == 0 || !c.awaitRoom(func() bool { return room.reserveAnswer(c.out, bytes) == nil }, nil) {
		m.Release()
		return
	}
	room.push(m)
	c.out.Wake()
}

// awaitRoom waits until room for an answer could be taken. false: the connection is
// closing, or there was enough waiting.
func (c *conn) awaitRoom(take func() bool, enough <-chan time.Time) bool {
	const longest = 50 * time.Millisecond
	for wait := time.Millisecond; !take(); wait = min(2*wait, longest) {
		if c.isClosing() {
			return false
		}
		select {
		case <-c.out.Done():
			return false
		case <-enough:
			return false
		case <-time.After(wait):
		}
	}
	return true
}

// close begins the orderly end: what is queued is sent, then a close frame. It does nothing
// where one was begun before.
func (c *conn) close(code int, reason string) { c.closeAs(int32(code), code, reason) }

// closeAs is close, counted as began: a code or clientsClose.
func (c *conn) closeAs(began int32, code int, reason string) {
	if c.began.CompareAndSwap(0, began) {
		c.out.CloseAfterFlush(code, reason)
		if wake := c.claiming.Load(); wake != nil {
			close(*wake)
		}
	}
}

func (c *conn) isClosing() bool { return c.began.Load() != 0 }

// recovered keeps a mistake of ours from ending the process. what is where it was made.
func (c *conn) recovered(what string) {
	if v := recover(); v != nil {
		c.srv.panicked(what, c.remote(), v)
		c.close(wire.CloseInternal, "internal error")
	}
}

func (c *conn) remote() string { return c.transport.RemoteAddr().String() }

// end waits until the queue has said its last, and closes the socket. A peer that
// has not closed yet is still listened to, so that it can read the close frame.
func (c *conn) end() {
	c.gone.Store(true)
	if c.speaker != nil {
		c.speaker.Leave()
	}
	c.closeSubscriptions()
	switch {
	case !c.isClosing():
		c.out.Kill(errPeerGone)
	case !c.peerClosed:
		c.transport.Discard()
	}
	c.out.PeerClosed()
	<-c.out.Done()
	if !c.peerClosed {
		c.transport.Discard()
	}
	_ = c.ws.Close()
}

func (c *conn) onPing(payload string) error {
	c.control()
	c.out.Pong([]byte(payload))
	return nil
}

func (c *conn) onClose(code int, _ string) error {
	c.peerClosed = true
	if c.transport.HalfCode() {
		c.close(wire.CloseProtocolError, "a close frame with half a code")
		return nil
	}
	if code == websocket.CloseNoStatusReceived {
		code = websocket.CloseNormalClosure
	}
	c.closeAs(clientsClose, code, "")
	return nil
}
