// Package socket is the server's side of the socket beneath a WebSocket: what gorilla reads from,
// and what package writer writes to.
//
// It promises: an idle connection holds no buffer; its reader learns of a whole ping
// or pong without gorilla; it is known how many messages have come whole. After the upgrade only
// the writer writes to it: the close frames that gorilla would write go to OnClose. Close of the
// writer's side ends what is sent, and leaves the peer a second to read it.
//
// It does not decide when anything ends, and starts no goroutine. A Conn belongs to the goroutine
// that reads; Silent, Reading and Part may be called by any, and the writer's side by the writer's.
// There is no lock.
//
// Where to begin reading: socket.go, eager_unix.go (beneath net.Conn), follower.go (which frames
// have come).
package socket

import (
	"bufio"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/gorilla/websocket"

	"noncegate/writer"
)

// lingerTime is how long a connection we closed is still read, and what comes
// thrown away. Closing a socket with unread bytes in it resets the connection,
// and the peer may then never see the close frame.
const lingerTime = time.Second

// Conn is the net.Conn gorilla reads from. After the upgrade its Write
// sends nothing: what gorilla itself would write, the close frames of protocol errors
// and of the read limit, becomes a close of the writer's queue.
type Conn struct {
	net.Conn
	eager *eager // nil: Conn is no plain socket

	// OnClose takes over what gorilla writes; nil until the upgrade is done,
	// then called in the read goroutine only.
	OnClose func(code int, reason string)

	frames follower // of the peer
	taken  uint64   // messages and control frames that gorilla has handed on; the read goroutine's

	reading atomic.Bool // a read of the socket is under way: the peer could speak
	heard   atomic.Bool // bytes came since Silent was last called

	part atomic.Uint32 // see Part; the read goroutine writes it
}

// New wraps a connection.
func New(conn net.Conn) *Conn { return &Conn{Conn: conn, eager: newEager(conn)} }

var errNotAClose = errors.New("socket: only close frames are written here")

// Read notes that the peer lives.
func (c *Conn) Read(p []byte) (int, error) {
	if c.eager != nil && c.eager.buffered() {
		n, err := c.eager.Read(c.Conn, p)
		c.frames.see(p[:n])
		return n, err
	}
	c.reading.Store(true)
	n, err := c.receive(p)
	c.reading.Store(false)
	if n > 0 {
		c.began()
		c.frames.see(p[:n])
	}
	return n, err
}

// Empty reports whether all that came was taken, so that there is nothing in any buffer.
// It is false where that is not known.
func (c *Conn) Empty() bool {
	n, whole := c.frames.whole()
	return c.eager != nil && !c.eager.buffered() && whole && n == c.taken
}

// Await waits for bytes. false: there will be none, and Read says why. It is for one
// with a plain socket that is empty.
func (c *Conn) Await() bool {
	c.reading.Store(true)
	came := c.eager.await()
	c.reading.Store(false)
	if came {
		c.began()
	}
	return came
}

// Control takes a ping or a pong that comes first in what was read, by RFC 6455, 5.5: its
// opcode and its payload. false: there is none, or not all of it, or something is wrong with
// it, which is for gorilla to say. The Conn was empty before.
func (c *Conn) Control() (kind int, payload []byte, ok bool) {
	const head, longest = 2 + 4, 125 // with the mask
	p := c.eager.peek()
	if len(p) < head || p[0] != finBit|websocket.PingMessage && p[0] != finBit|websocket.PongMessage {
		return 0, nil, false
	}
	n := int(p[1] &^ maskBit)
	if p[1]&maskBit == 0 || n > longest || len(p) < head+n {
		return 0, nil, false
	}
	kind = int(p[0] &^ finBit)
	payload = slices.Clone(p[head : head+n])
	for i := range payload {
		payload[i] ^= p[2+i%4]
	}
	c.frames.see(p[:head+n])
	c.eager.skip(head + n)
	return kind, payload, true
}

// began notes that bytes came. They may be the whole of something, or finish what
// came before: then Took follows before the next read.
func (c *Conn) began() {
	if !c.heard.Load() {
		c.heard.Store(true)
	}
	if c.part.Load()%2 == 0 {
		c.part.Add(1)
	}
}

// Took notes that gorilla has handed on a message or a control frame. whole: nothing is begun any
// more, as it is while a control frame comes between those of a message. What was read of the next
// one already is not known here: its time counts from the next byte on.
func (c *Conn) Took(whole bool) {
	c.taken++
	if whole && c.part.Load()%2 == 1 && c.part.Add(1) == 0 {
		c.part.Store(2) // 0 is for clients that have sent nothing yet
	}
}

// Plain reports whether there is a socket without TLS beneath, for which alone Await, Empty and
// Control are.
func (c *Conn) Plain() bool { return c.eager != nil }

// Reading reports whether the peer is being listened to.
func (c *Conn) Reading() bool { return c.reading.Load() }

// Part is odd while something has begun to come and is not finished, and another number whenever
// something was finished; 0: nothing ever came.
func (c *Conn) Part() uint32 { return c.part.Load() }

// HalfCode reports whether a close frame came whose payload is one byte, which gorilla lets pass
// (RFC 6455, 5.5.1, wants a code of two first where there is a payload).
func (c *Conn) HalfCode() bool { return c.frames.half }

// Incoming is how long the message that has begun can still be, behind what was read of it: as the
// header of its frame says, unless more frames follow. false: that is not known.
func (c *Conn) Incoming() (bytes int64, known bool) {
	return int64(min(c.frames.skip, 1<<62)), !c.frames.open
}

func (c *Conn) receive(p []byte) (int, error) {
	if c.eager != nil {
		return c.eager.Read(c.Conn, p)
	}
	return c.Conn.Read(p)
}

// BoundSendBuffer keeps the kernel from holding more than about so many bytes for
// a client that does not read, 0: as many as it likes. Left to itself it grows to
// megabytes a connection, and the client is noticed only behind them.
func (c *Conn) BoundSendBuffer(bytes int) {
	if s, ok := beneathTLS(c.Conn).(interface{ SetWriteBuffer(int) error }); ok && bytes > 0 {
		_ = s.SetWriteBuffer(bytes) // the kernel's own bound stays
	}
}

// Write writes the answer to the upgrade, and afterwards queues close frames.
func (c *Conn) Write(p []byte) (int, error) {
	if c.OnClose == nil {
		return c.Conn.Write(p)
	}
	if len(p) < 4 || p[0] != 0x80|opClose {
		return 0, errNotAClose
	}
	c.OnClose(int(binary.BigEndian.Uint16(p[2:])), string(p[4:]))
	return len(p), nil
}

// SetWriteDeadline is the writer's business after the upgrade.
func (c *Conn) SetWriteDeadline(at time.Time) error {
	if c.OnClose == nil {
		return c.Conn.SetWriteDeadline(at)
	}
	return nil
}

// Silent reports whether nothing was heard since the last call although the
// socket was being read. While reads are paused nothing can be heard, and that
// is not the peer's fault.
func (c *Conn) Silent() bool { return !c.heard.Swap(false) && c.reading.Load() }

// Discard reads the rest of what the peer sends, until it closes or the read
// deadline of socket.Close passes.
func (c *Conn) Discard() { _, _ = io.Copy(io.Discard, c.Conn) }

// socket is the writer's side of a Conn. Its Close ends the sending side and
// gives the peer lingerTime to read; the read goroutine closes for good.
type socket struct{ *Conn }

// Write writes frames to the wire.
func (s socket) Write(p []byte) (int, error) { return s.Conn.Conn.Write(p) }

// eagerSocket is that of a Conn with a plain socket.
type eagerSocket struct{ socket }

var _ writer.EagerSocket = eagerSocket{}

// TryWrite implements writer.EagerSocket.
func (s eagerSocket) TryWrite(p []byte) int { return s.eager.TryWrite(p) }

// Writer is the writer's side of c.
func (c *Conn) Writer() writer.Socket {
	if c.eager != nil {
		return eagerSocket{socket{c}}
	}
	return socket{c}
}

// SetWriteDeadline bounds the writes that follow.
func (s socket) SetWriteDeadline(at time.Time) error { return s.Conn.Conn.SetWriteDeadline(at) }

// Close ends the sending side, also a write that is under way.
func (s socket) Close() error {
	half, ok := beneathTLS(s.Conn.Conn).(interface{ CloseWrite() error })
	if !ok {
		return s.Conn.Conn.Close()
	}
	if encrypted, ok := s.Conn.Conn.(*tls.Conn); ok {
		lastWords(encrypted)
	}
	now := time.Now()
	return errors.Join(half.CloseWrite(), s.Conn.Conn.SetWriteDeadline(now), s.Conn.Conn.SetReadDeadline(now.Add(lingerTime)))
}

// beneathTLS is the connection that TLS is spoken on, conn itself without.
func beneathTLS(conn net.Conn) net.Conn {
	if encrypted, ok := conn.(*tls.Conn); ok {
		return encrypted.NetConn()
	}
	return conn
}

// lastWordsTime bounds the last record of TLS to a peer whose socket may be full.
const lastWordsTime = 100 * time.Millisecond

// lastWords tells the peer that nothing was cut off behind what it has read. crypto/tls
// would try it for five seconds.
func lastWords(conn *tls.Conn) {
	enough := time.AfterFunc(lastWordsTime, func() { _ = conn.NetConn().SetWriteDeadline(time.Unix(1, 0)) })
	_ = conn.CloseWrite() // a peer that cannot be told sees the connection end
	enough.Stop()
}

// Hijacker gives gorilla a Conn instead of net/http's connection.
type Hijacker struct {
	http.ResponseWriter
	Conn *Conn // nil before the upgrade
}

// Hijack implements http.Hijacker.
func (h *Hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(h.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	h.Conn = New(conn)
	return h.Conn, rw, nil
}
