package ws

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

// transport is the net.Conn gorilla reads from. After the upgrade it lets nobody
// write: what gorilla itself would write, the close frames of protocol errors
// and of the read limit, becomes a close of the writer's queue instead.
type transport struct {
	net.Conn
	eager *eager // nil: Conn is no plain socket

	// closeFrame takes over what gorilla writes; nil until the upgrade is done,
	// then called in the read goroutine only.
	closeFrame func(code int, reason string)

	frames follower // of the peer
	taken  uint64   // messages and control frames that gorilla has handed on; the read goroutine's

	reading atomic.Bool // a read of the socket is under way: the peer could speak
	heard   atomic.Bool // bytes came since the registry last looked

	// part is odd while bytes came of something that is not finished, and another
	// number whenever something was finished; 0 until the first bytes. The read
	// goroutine writes it.
	part atomic.Uint32
}

var errNotAClose = errors.New("ws: only close frames are written here")

// Read notes that the peer lives.
func (t *transport) Read(p []byte) (int, error) {
	if t.eager != nil && t.eager.buffered() {
		n, err := t.eager.Read(t.Conn, p)
		t.frames.see(p[:n])
		return n, err
	}
	t.reading.Store(true)
	n, err := t.receive(p)
	t.reading.Store(false)
	if n > 0 {
		t.began()
		t.frames.see(p[:n])
	}
	return n, err
}

// empty reports whether all that came was taken, so that there is nothing in any buffer.
// It is false where that is not known.
func (t *transport) empty() bool {
	n, whole := t.frames.whole()
	return t.eager != nil && !t.eager.buffered() && whole && n == t.taken
}

// await waits for bytes. false: there will be none, and Read says why. It is for a transport
// with a plain socket that is empty.
func (t *transport) await() bool {
	t.reading.Store(true)
	came := t.eager.await()
	t.reading.Store(false)
	if came {
		t.began()
	}
	return came
}

// control takes a ping or a pong that comes first in what was read, by RFC 6455, 5.5: its
// opcode and its payload. false: there is none, or not all of it, or something is wrong with
// it, which is for gorilla to say. The transport was empty before.
func (t *transport) control() (kind int, payload []byte, ok bool) {
	const head, longest = 2 + 4, 125 // with the mask
	p := t.eager.peek()
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
	t.frames.see(p[:head+n])
	t.eager.skip(head + n)
	return kind, payload, true
}

// began notes that bytes came. They may be the whole of something, or finish what
// came before: then finished follows before the next read.
func (t *transport) began() {
	if !t.heard.Load() {
		t.heard.Store(true)
	}
	if t.part.Load()%2 == 0 {
		t.part.Add(1)
	}
}

// finished notes that a message, or a control frame between two, is complete. What
// was read of the next one already is not known here: its time counts from the next
// byte on.
func (t *transport) finished() {
	if t.part.Load()%2 == 1 && t.part.Add(1) == 0 {
		t.part.Store(2) // 0 is for those from whom nothing ever came
	}
}

func (t *transport) receive(p []byte) (int, error) {
	if t.eager != nil {
		return t.eager.Read(t.Conn, p)
	}
	return t.Conn.Read(p)
}

// boundSendBuffer keeps the kernel from holding more than about so many bytes for
// a client that does not read, 0: as many as it likes. Left to itself it grows to
// megabytes a connection, and the client is noticed only behind them.
func (t *transport) boundSendBuffer(bytes int) {
	if s, ok := beneathTLS(t.Conn).(interface{ SetWriteBuffer(int) error }); ok && bytes > 0 {
		_ = s.SetWriteBuffer(bytes) // the kernel's own bound stays
	}
}

// Write writes the answer to the upgrade, and afterwards queues close frames.
func (t *transport) Write(p []byte) (int, error) {
	if t.closeFrame == nil {
		return t.Conn.Write(p)
	}
	if len(p) < 4 || p[0] != 0x80|opClose {
		return 0, errNotAClose
	}
	t.closeFrame(int(binary.BigEndian.Uint16(p[2:])), string(p[4:]))
	return len(p), nil
}

// SetWriteDeadline is the writer's business after the upgrade.
func (t *transport) SetWriteDeadline(at time.Time) error {
	if t.closeFrame == nil {
		return t.Conn.SetWriteDeadline(at)
	}
	return nil
}

// silent reports whether nothing was heard since the last call although the
// socket was being read. While reads are paused nothing can be heard, and that
// is not the peer's fault.
func (t *transport) silent() bool { return !t.heard.Swap(false) && t.reading.Load() }

// discard reads the rest of what the peer sends, until it closes or the read
// deadline of socket.Close passes.
func (t *transport) discard() { _, _ = io.Copy(io.Discard, t.Conn) }

// socket is the writer's side of a transport. Its Close ends the sending side and
// gives the peer lingerTime to read; the read goroutine closes for good.
type socket struct{ *transport }

// Write writes frames to the wire.
func (s socket) Write(p []byte) (int, error) { return s.Conn.Write(p) }

// eagerSocket is that of a transport with a plain socket.
type eagerSocket struct{ socket }

var _ writer.EagerSocket = eagerSocket{}

// TryWrite implements writer.EagerSocket.
func (s eagerSocket) TryWrite(p []byte) int { return s.eager.TryWrite(p) }

// out is the writer's side of t.
func (t *transport) out() writer.Socket {
	if t.eager != nil {
		return eagerSocket{socket{t}}
	}
	return socket{t}
}

// SetWriteDeadline bounds the writes that follow.
func (s socket) SetWriteDeadline(at time.Time) error { return s.Conn.SetWriteDeadline(at) }

// Close ends the sending side, also a write that is under way.
func (s socket) Close() error {
	half, ok := beneathTLS(s.Conn).(interface{ CloseWrite() error })
	if !ok {
		return s.Conn.Close()
	}
	if encrypted, ok := s.Conn.(*tls.Conn); ok {
		lastWords(encrypted)
	}
	now := time.Now()
	return errors.Join(half.CloseWrite(), s.Conn.SetWriteDeadline(now), s.Conn.SetReadDeadline(now.Add(lingerTime)))
}

// beneathTLS is the connection that TLS is spoken on, conn itself without.
func beneathTLS(conn net.Conn) net.Conn {
	if t, ok := conn.(*tls.Conn); ok {
		return t.NetConn()
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

// hijacker gives gorilla our transport instead of net/http's connection.
type hijacker struct {
	http.ResponseWriter
	transport *transport
}

// Hijack implements http.Hijacker.
func (h *hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(h.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	h.transport = &transport{Conn: conn, eager: newEager(conn)}
	return h.transport, rw, nil
}
