package traffic

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/gorilla/websocket"
	"golang.org/x/sync/errgroup"
)

const (
	dialTimeout       = 10 * time.Second
	dialers           = 64      // connections being opened at a time
	readBytes         = 1 << 10 // to begin with
	maxReadBytes      = 1 << 20 // a longer frame is not an answer to what we send
	maxCloseBytes     = 125     // of a control frame's payload
	defaultSendBuffer = 16 << 10
)

// dial opens a WebSocket. Its error names the URL. netDial opens the connection beneath; nil: as
// usual.
func (a Access) dial(ctx context.Context, url string, netDial func(context.Context, string, string) (net.Conn, error)) (*websocket.Conn, error) {
	d := websocket.Dialer{HandshakeTimeout: dialTimeout, ReadBufferSize: 1024, WriteBufferSize: 1024, TLSClientConfig: a.TLS, NetDialContext: netDial}
	ws, resp, err := d.DialContext(ctx, url, a.Header)
	if err != nil {
		if resp != nil {
			err = fmt.Errorf("%w: %s", err, resp.Status)
		}
		return nil, fmt.Errorf("connect to %s: %w", url, err)
	}
	return ws, nil
}

// openAll opens n connections, or none when one cannot be opened or ctx ends.
func openAll[T io.Closer](ctx context.Context, n int, open func(ctx context.Context, i int) (T, error)) ([]T, error) {
	all, opened := make([]T, n), make([]bool, n)
	opening, openCtx := errgroup.WithContext(ctx)
	opening.SetLimit(dialers)
	for i := range all {
		opening.Go(func() (err error) {
			if openCtx.Err() != nil {
				return context.Cause(openCtx)
			}
			all[i], err = open(openCtx, i)
			opened[i] = err == nil
			return err
		})
	}
	err := opening.Wait()
	if err == nil {
		return all, nil
	}
	for i, c := range all {
		if opened[i] {
			c.Close()
		}
	}
	return nil, err
}

// OpenIdle opens the connections of a load, asks for one nonce on each, and leaves them alone: no
// ping is answered. release closes them.
func (l Load) OpenIdle(ctx context.Context) (release func(), err error) {
	all, err := openAll(ctx, l.Connections, func(ctx context.Context, i int) (*websocket.Conn, error) {
		ws, err := l.Access.dial(ctx, l.URLs[i%len(l.URLs)], nil)
		if err != nil {
			return nil, err
		}
		if err := firstRequest(ws, allocation(l.Signers.Name(i%l.Signers.Count))); err != nil {
			ws.Close()
			return nil, fmt.Errorf("ask for a nonce: %w", err)
		}
		return ws, nil
	})
	return func() {
		for _, ws := range all {
			ws.Close()
		}
	}, err
}

// firstRequest makes the first request of a connection, and returns an error when that is the answer.
func firstRequest(ws *websocket.Conn, text []byte) error {
	ws.SetReadDeadline(time.Now().Add(dialTimeout))
	defer ws.SetReadDeadline(time.Time{})
	if err := ws.WriteMessage(websocket.TextMessage, text); err != nil {
		return err
	}
	_, payload, err := ws.ReadMessage()
	if err != nil {
		return err
	}
	rep, err := parseReply(payload)
	if err == nil && rep.failed {
		err = errors.New(rep.refusal())
	}
	return err
}

// socket is a WebSocket connection without masks, buffers for writing, and fragments. read and next
// belong to one goroutine; Close may come from elsewhere; writes are for the owner to order.
type socket struct {
	conn      net.Conn
	in        []byte // what was read
	used, end int    // in[used:end] was not looked at yet
}

// open opens a connection whose send buffer takes the unanswered requests at once. gorilla makes the
// handshake; after it the bare connection is ours.
func (l *Load) open(ctx context.Context, i int) (*socket, error) {
	ws, err := l.Access.dial(ctx, l.URLs[i%len(l.URLs)], nil)
	if err != nil {
		return nil, err
	}
	conn, burst := ws.NetConn(), l.window()*l.Inflight*maxRequestBytes
	if tcp, ok := conn.(*net.TCPConn); ok && burst > defaultSendBuffer {
		if err := tcp.SetWriteBuffer(2 * burst); err != nil {
			conn.Close()
			return nil, fmt.Errorf("send buffer: %w", err)
		}
	}
	return &socket{conn: conn, in: make([]byte, readBytes)}, nil
}

// Close ends the connection without a word.
func (s *socket) Close() error { return s.conn.Close() }

// follow makes one read after the other, and looks at what each brings, until one of the two fails.
// What next returned before is gone with a read.
func (s *socket) follow(receive func() error) error {
	for {
		if err := s.read(); err != nil {
			return err
		}
		if err := receive(); err != nil {
			return err
		}
	}
}

func (s *socket) read() error {
	s.end = copy(s.in, s.in[s.used:s.end])
	s.used = 0
	if s.end == len(s.in) {
		if len(s.in) >= maxReadBytes {
			return fmt.Errorf("a frame of more than %d bytes", maxReadBytes)
		}
		s.in = append(s.in, make([]byte, len(s.in))...)
	}
	got, err := s.conn.Read(s.in[s.end:])
	s.end += got
	if got > 0 {
		return nil
	}
	return err
}

// next returns the next frame that was read as a whole. It is valid until read.
func (s *socket) next() (op byte, payload []byte, ok bool) {
	op, payload, size := serverFrame(s.in[s.used:s.end])
	s.used += size
	return op, payload, size > 0
}

// goodbye sends the frame of a normal closure; the other side may be gone.
func (s *socket) goodbye() {
	s.conn.Write(appendFrame(nil, finClose, binary.BigEndian.AppendUint16(nil, websocket.CloseNormalClosure)))
}

// control handles a frame that is no text: it answers a ping. A close frame, or anything a gateway
// does not send, is an error.
func (s *socket) control(op byte, payload []byte) error {
	switch op {
	case finPing:
		_, err := s.conn.Write(appendFrame(nil, finPong, payload[:min(len(payload), maxCloseBytes)]))
		return err
	case finPong:
		return nil
	case finClose:
		if len(payload) < 2 {
			return &closedError{}
		}
		return &closedError{code: int(binary.BigEndian.Uint16(payload)), text: string(payload[2:])}
	}
	return fmt.Errorf("a frame of type %#x, which no gateway sends", op)
}

type closedError struct {
	code int // 0: it had none
	text string
}

func (e *closedError) Error() string {
	if e.code == 0 {
		return "closed by the server without a code"
	}
	return strings.TrimSpace(fmt.Sprintf("closed by the server: %d %s", e.code, e.text))
}

// reason is why a connection ended, without the addresses, so that equal reasons can be counted
// together.
func reason(err error) string {
	if op, ok := errors.AsType[*net.OpError](err); ok {
		return op.Op + ": " + strings.TrimPrefix(op.Err.Error(), op.Op+": ")
	}
	closed, said := errors.AsType[*websocket.CloseError](err)
	switch {
	case said && closed.Code != websocket.CloseAbnormalClosure:
		return (&closedError{closed.Code, closed.Text}).Error()
	case said, errors.Is(err, io.EOF):
		return "closed by the server without a close frame"
	}
	return err.Error()
}

// Opcodes of RFC 6455, in a frame that is not fragmented.
const (
	finText  = 0x81
	finClose = 0x88
	finPing  = 0x89
	finPong  = 0x8a
	maskBit  = 0x80
)

// appendFrame appends a client's frame of at most 65,535 bytes. The mask is all zero, which RFC 6455
// lets the payload stand as it is: masks protect proxies from browsers, and here nothing of the
// payload is chosen by others.
func appendFrame(dst []byte, op byte, payload []byte) []byte {
	if dst = append(dst, op); len(payload) < 126 {
		dst = append(dst, maskBit|byte(len(payload)))
	} else {
		dst = binary.BigEndian.AppendUint16(append(dst, maskBit|126), uint16(len(payload)))
	}
	return append(append(dst, 0, 0, 0, 0), payload...)
}

// serverFrame splits the first frame off buf. size is its whole length, 0 when buf does not hold all
// of it.
func serverFrame(buf []byte) (op byte, payload []byte, size int) {
	if len(buf) < 2 {
		return 0, nil, 0
	}
	head, length := 2, int(buf[1])
	switch {
	case length == 126 && len(buf) >= 4:
		head, length = 4, int(binary.BigEndian.Uint16(buf[2:]))
	case length == 127 && len(buf) >= 10:
		head, length = 10, int(binary.BigEndian.Uint64(buf[2:]))
	case length >= 126:
		return 0, nil, 0
	}
	if length < 0 || len(buf)-head < length {
		return 0, nil, 0
	}
	return buf[0], buf[head : head+length], head + length
}
