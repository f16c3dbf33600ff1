package traffic

import (
	"cmp"
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

	"noncegate/scripts/loadtest/access"
)

const (
	dialTimeout   = 10 * time.Second
	readBytes     = 1 << 10 // to begin with
	maxReadBytes  = 1 << 20 // a longer frame is not an answer to what we send
	maxCloseBytes = 125     // of a control frame's payload
)

// socket is a WebSocket connection without masks, buffers for writing, and
// fragments. read and next belong to one goroutine; Close of conn may come from
// elsewhere; writes are for the owner to order.
type socket struct {
	conn      net.Conn
	in        []byte // what was read
	used, end int    // in[used:end] was not looked at yet
}

// dial opens a connection whose send buffer takes burst bytes at once. gorilla
// makes the handshake; after it the bare connection is ours. Its error names the
// URL.
func dial(ctx context.Context, url string, in access.Access, burst int) (*socket, error) {
	d := websocket.Dialer{HandshakeTimeout: dialTimeout, ReadBufferSize: 1024, WriteBufferSize: 1024, TLSClientConfig: in.TLS}
	ws, resp, err := d.DialContext(ctx, url, in.Header)
	if err != nil {
		if resp != nil {
			err = fmt.Errorf("%w: %s", err, resp.Status)
		}
		return nil, fmt.Errorf("connect to %s: %w", url, err)
	}
	conn := ws.NetConn()
	if tcp, ok := conn.(*net.TCPConn); ok && burst > defaultSendBuffer {
		if err := tcp.SetWriteBuffer(2 * burst); err != nil {
			conn.Close()
			return nil, fmt.Errorf("send buffer of %s: %w", url, err)
		}
	}
	return &socket{conn: conn, in: make([]byte, readBytes)}, nil
}

// openAll opens n connections, or none when one cannot be opened.
func openAll(ctx context.Context, n int, open func(ctx context.Context, i int) (*socket, error)) ([]*socket, error) {
	sockets := make([]*socket, n)
	opening, openCtx := errgroup.WithContext(ctx)
	opening.SetLimit(dialers)
	for i := range sockets {
		opening.Go(func() (err error) {
			sockets[i], err = open(openCtx, i)
			return err
		})
	}
	err := cmp.Or(opening.Wait(), ctx.Err())
	if err != nil {
		for _, s := range sockets {
			if s != nil {
				s.conn.Close()
			}
		}
	}
	return sockets, err
}

// OpenIdle opens the connections of a load, asks for one nonce on each, and leaves them
// alone: nobody answers a ping. release closes them.
func (l Load) OpenIdle(ctx context.Context) (release func(), err error) {
	sockets, err := openAll(ctx, l.Connections, func(ctx context.Context, i int) (*socket, error) {
		s, err := dial(ctx, l.URLs[i%len(l.URLs)], l.Access, 0)
		if err != nil {
			return nil, err
		}
		s.conn.SetDeadline(time.Now().Add(drainGrace))
		rep, err := s.ask(allocation(l.Signers.Name(i % l.Signers.Count)))
		if err == nil && rep.failed {
			err = rep.refused()
		}
		if err != nil {
			err = fmt.Errorf("ask for a nonce: %w", err)
		}
		return s, err
	})
	return func() {
		for _, s := range sockets {
			s.conn.Close()
		}
	}, err
}

// defaultSendBuffer is what every system takes without being asked.
const defaultSendBuffer = 16 << 10

// read makes one read call. What next returned before is gone.
func (s *socket) read() error { return s.readAtMost(maxReadBytes) }

func (s *socket) readAtMost(n int) error {
	s.end = copy(s.in, s.in[s.used:s.end])
	s.used = 0
	if s.end == len(s.in) {
		if len(s.in) >= maxReadBytes {
			return fmt.Errorf("a frame of more than %d bytes", maxReadBytes)
		}
		s.in = append(s.in, make([]byte, len(s.in))...)
	}
	got, err := s.conn.Read(s.in[s.end:min(len(s.in), s.end+n)])
	s.end += got
	if got > 0 {
		return nil
	}
	return err
}

// follow looks at what each read brings until one of the two fails.
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

// ask sends a request by itself and waits for the answer, which is valid until
// read. Nothing but control frames may come before.
func (s *socket) ask(request string) (reply, error) {
	if _, err := s.conn.Write(appendFrame(nil, finText, []byte(request))); err != nil {
		return reply{}, err
	}
	for {
		op, payload, ok := s.next()
		switch {
		case !ok:
			if err := s.read(); err != nil {
				return reply{}, err
			}
		case op == finText:
			return parseReply(payload)
		default:
			if err := s.control(op, payload); err != nil {
				return reply{}, err
			}
		}
	}
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

// control handles a frame that is no text: it answers a ping. A close frame, or
// anything a gateway does not send, is an error.
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

// reason is why a connection ended, without the addresses, so that equal reasons
// can be counted together.
func reason(err error) string {
	if op, ok := errors.AsType[*net.OpError](err); ok {
		return op.Op + ": " + strings.TrimPrefix(op.Err.Error(), op.Op+": ")
	}
	if errors.Is(err, io.EOF) {
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

// appendFrame appends a client's frame. The mask is all zero, which RFC 6455
// lets the payload stand as it is: masks protect proxies from browsers, and here
// nothing of the payload is chosen by others.
func appendFrame(dst []byte, op byte, payload []byte) []byte {
	dst = append(dst, op)
	switch {
	case len(payload) < 126:
		dst = append(dst, maskBit|byte(len(payload)))
	case len(payload) <= 0xffff:
		dst = binary.BigEndian.AppendUint16(append(dst, maskBit|126), uint16(len(payload)))
	default:
		dst = binary.BigEndian.AppendUint64(append(dst, maskBit|127), uint64(len(payload)))
	}
	dst = append(dst, 0, 0, 0, 0)
	return append(dst, payload...)
}

// serverFrame splits the first frame off buf. size is its whole length, 0 when
// buf does not hold all of it.
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
