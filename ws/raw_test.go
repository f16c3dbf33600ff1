package ws

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"noncegate/wire"
)

// The raw-frame suite: bytes that no client library sends, over real sockets, at a
// whole Server behind net/http. Each case has one defined outcome, and leaves no
// goroutine and no descriptor behind.

// outcome is what a peer sees of the end of its bytes.
type outcome string

const (
	served outcome = "served" // a request behind it is answered
	gone   outcome = "gone"   // the connection ends without a word
)

func closedBy(code int) outcome { return outcome(fmt.Sprintf("close %d", code)) }
func status(code int) outcome   { return outcome(fmt.Sprintf("HTTP %d", code)) }

// raw is a socket to the gateway.
type raw struct {
	testing.TB
	net.Conn
	in *bufio.Reader
}

const (
	opContinuation = 0x0
	opText         = 0x1
	opBinary       = 0x2
	opPing         = 0x9
	opPong         = 0xA

	fin  = 0x80
	rsv1 = 0x40
	rsv2 = 0x20
	rsv3 = 0x10
)

// frame is one that follows RFC 6455 in length and mask, if not in its first byte.
func frame(first byte, payload string) []byte {
	var length []byte
	switch n := len(payload); {
	case n < 126:
		length = []byte{byte(n)}
	case n < 1<<16:
		length = binary.BigEndian.AppendUint16([]byte{126}, uint16(n))
	default:
		length = binary.BigEndian.AppendUint64([]byte{127}, uint64(n))
	}
	return framed(first, length, payload)
}

// framed is a masked frame whose length is written as it is told to be.
func framed(first byte, length []byte, payload string) []byte {
	mask := []byte{0x37, 0xfa, 0x21, 0x3d}
	b := append([]byte{first}, length...)
	b[1] |= 0x80
	b = append(b, mask...)
	for i := range len(payload) {
		b = append(b, payload[i]^mask[i%4])
	}
	return b
}

func text(payload string) []byte { return frame(fin|opText, payload) }

func closing(code int, reason string) []byte {
	return frame(fin|opClose, string(binary.BigEndian.AppendUint16(nil, uint16(code)))+reason)
}

func probe(id string) []byte {
	return text(`{"jsonrpc":"2.0","id":"` + id + `","method":"nonce_status","params":["s"]}`)
}

func (r *raw) write(parts ...[]byte) {
	r.Helper()
	for _, p := range parts {
		if _, err := r.Write(p); err != nil {
			return // the gateway has ended it; what it said is still to be read
		}
	}
}

// trickle writes byte by byte, with a pause after each.
func (r *raw) trickle(pause time.Duration, p []byte) {
	for i := range p {
		if _, err := r.Write(p[i : i+1]); err != nil {
			return
		}
		time.Sleep(pause) // the slowness is what is tested
	}
}

const handshake = "GET /ws HTTP/1.1\r\nHost: gateway\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" +
	"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"

// upgrade makes the socket a WebSocket.
func (r *raw) upgrade(headers ...string) *http.Response {
	r.Helper()
	r.write([]byte(handshake + strings.Join(headers, "") + "\r\n"))
	response, err := http.ReadResponse(r.in, nil)
	must(r.TB, err)
	if response.StatusCode != http.StatusSwitchingProtocols {
		r.Fatalf("the upgrade is answered %s", response.Status)
	}
	return response
}

// read returns the next frame of the gateway; op 0 and an error at the end.
func (r *raw) read() (op byte, payload string, err error) {
	if err := r.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return 0, "", err // a case has closed it
	}
	head := make([]byte, 2)
	if _, err := io.ReadFull(r.in, head); err != nil {
		return 0, "", err
	}
	n := int(head[1] & 0x7f)
	if head[0]&(rsv1|rsv2|rsv3) != 0 || head[0]&fin == 0 || head[1]&0x80 != 0 || n == 127 {
		r.Fatalf("the gateway sent a frame that begins %x", head)
	}
	if n == 126 {
		long := make([]byte, 2)
		if _, err := io.ReadFull(r.in, long); err != nil {
			return 0, "", err
		}
		n = int(binary.BigEndian.Uint16(long))
	}
	body := make([]byte, n)
	_, err = io.ReadFull(r.in, body)
	return head[0] & 0x0f, string(body), err
}

// want reads until a frame of this kind that has the text in it.
func (r *raw) want(op byte, part string) {
	r.Helper()
	for {
		got, payload, err := r.read()
		if err != nil {
			r.Fatalf("no frame %x with %q: %v", op, part, err)
		}
		if got == op && strings.Contains(payload, part) {
			return
		}
	}
}

// outcome reads to the end, or to the answer to a probe that it sends where the end
// is not wanted.
func (r *raw) outcome(want outcome) outcome {
	r.Helper()
	if want == served {
		r.write(probe("probe"))
	}
	for {
		op, payload, err := r.read()
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			r.Fatal("neither an answer nor an end")
		case err != nil:
			return gone
		case op == opText && strings.Contains(payload, `"id":"probe"`):
			return served
		case op == opClose && len(payload) >= 2:
			code := int(binary.BigEndian.Uint16([]byte(payload)))
			r.write(closing(code, ""))
			return closedBy(code)
		case op == opClose:
			return closedBy(0)
		}
	}
}

// reply reads an answer in HTTP, or the end.
func (r *raw) reply() outcome {
	r.Helper()
	must(r.TB, r.SetReadDeadline(time.Now().Add(patience)))
	response, err := http.ReadResponse(r.in, nil)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		r.Fatal("neither an answer nor an end")
	}
	if err != nil {
		return gone
	}
	_, _ = io.Copy(io.Discard, response.Body)
	return status(response.StatusCode)
}

// rawGateway is a gateway for raw cases, with what its http.Server is given.
type rawGateway struct {
	*gateway
	web   *http.Server
	alive goleak.Option // what lives before a case
	files int
}

func startRaw(t *testing.T, changes ...func(*setup)) *rawGateway {
	t.Helper()
	var headers time.Duration
	first := func(s *setup) {
		s.ws.PingInterval = time.Hour
		s.ws.Writer.CloseTimeout = 200 * time.Millisecond
		s.headers = 200 * time.Millisecond
	}
	last := func(s *setup) { headers = s.headers }
	g := startGateway(t, slices.Concat([]func(*setup){first}, changes, []func(*setup){last})...)
	h := &rawGateway{gateway: g, web: &http.Server{
		Handler: g.srv, ConnState: g.srv.ConnState,
		ReadHeaderTimeout: headers, ReadTimeout: max(headers, time.Second), IdleTimeout: headers, MaxHeaderBytes: 4096,
	}}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	g.address = l.Addr().String()
	var serving sync.WaitGroup
	serving.Go(func() { _ = h.web.Serve(l) })
	t.Cleanup(func() { check(t, h.web.Close()); serving.Wait() })
	warm := h.connect(t)                          // what the first connection brings to life stays
	warm.upgrade("Authorization: Bearer ada\r\n") // where anybody is asked
	warm.outcome(served)
	must(t, warm.Close())
	h.settle(t)
	h.files, h.alive = descriptors(t), goleak.IgnoreCurrent()
	return h
}

func (h *rawGateway) connect(t testing.TB) *raw {
	t.Helper()
	c, err := net.Dial("tcp", h.address)
	must(t, err)
	return &raw{TB: t, Conn: c, in: bufio.NewReader(c)}
}

// settle waits until no connection is left.
func (h *rawGateway) settle(t testing.TB) {
	t.Helper()
	await(t, h.srv.conns.whenEmpty(), "the end of the connection")
}

// descriptors counts the open files of this process, where the system lists them:
// elsewhere the goroutines alone are compared.
func descriptors(t testing.TB) int {
	t.Helper()
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil && runtime.GOOS == "linux" {
		t.Fatal(err)
	}
	return len(open)
}

// poolWorkers are those of the encode pool, which come and go by the second.
var poolWorkers = goleak.IgnoreAnyFunction("github.com/panjf2000/ants/v2.(*goWorker).run.func1")

// wantNothingLeft fails if a case left a goroutine or a descriptor.
func (h *rawGateway) wantNothingLeft(t testing.TB) {
	t.Helper()
	h.settle(t)
	for began := time.Now(); ; { // net/http lingers half a second on what it refuses
		left := goleak.Find(h.alive, poolWorkers)
		if left == nil {
			break
		}
		if time.Since(began) > patience {
			t.Fatal(left)
		}
	}
	for began := time.Now(); descriptors(t) > h.files; time.Sleep(time.Millisecond) {
		if time.Since(began) > patience {
			t.Fatalf("%d descriptors are open, %d were before", descriptors(t), h.files)
		}
	}
	if h.srv.Waiting() != 0 {
		t.Errorf("%d sockets count as waiting", h.srv.Waiting())
	}
	if n := h.srv.Panics(); n != 0 {
		t.Fatalf("%d panics", n)
	}
}

type rawCase struct {
	name string
	want outcome
	send func(r *raw) // after the upgrade, or in handshake cases instead of it
}

func (h *rawGateway) run(t *testing.T, cases []rawCase, upgraded bool) {
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			r := h.connect(t)
			defer h.wantNothingLeft(t)
			defer func() { _ = r.Close() }()
			if !upgraded {
				c.send(r)
				if got := r.reply(); got != c.want {
					t.Errorf("got %s, want %s", got, c.want)
				}
				return
			}
			r.upgrade()
			c.send(r)
			if got := r.outcome(c.want); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

func frames(all ...[]byte) func(*raw) { return func(r *raw) { r.write(slices.Concat(all...)) } }

const status0 = `{"jsonrpc":"2.0","id":"x","method":"nonce_status","params":["s"]}`

func TestRawFrames(t *testing.T) {
	h := startRaw(t)
	half := len(status0) / 2
	long := strings.Repeat(" ", 64<<10)
	h.run(t, []rawCase{
		{"reserved bit 1, as for compression", closedBy(1002), frames(frame(fin|rsv1|opText, status0))},
		{"reserved bit 2", closedBy(1002), frames(frame(fin|rsv2|opText, status0))},
		{"reserved bit 3", closedBy(1002), frames(frame(fin|rsv3|opText, status0))},
		{"reserved bit in a control frame", closedBy(1002), frames(frame(fin|rsv1|opPing, ""))},
		{"reserved bit in a later fragment", closedBy(1002), frames(frame(opText, status0[:half]), frame(fin|rsv1|opContinuation, status0[half:]))},
		{"a text frame without a mask", closedBy(1002), frames(append([]byte{fin | opText, byte(len(status0))}, status0...))},
		{"a ping without a mask", closedBy(1002), frames([]byte{fin | opPing, 0})},
		{"data opcode 3", closedBy(1002), frames(frame(fin|0x3, status0))},
		{"data opcode 7", closedBy(1002), frames(frame(fin|0x7, ""))},
		{"control opcode B", closedBy(1002), frames(frame(fin|0xB, ""))},
		{"control opcode F", closedBy(1002), frames(frame(fin|0xF, ""))},
		{"a continuation of nothing", closedBy(1002), frames(frame(fin|opContinuation, status0))},
		{"a continuation of a finished message", closedBy(1002), frames(text(status0), frame(fin|opContinuation, status0))},
		{"a message in the middle of another", closedBy(1002), frames(frame(opText, status0[:half]), text(status0))},
		{"a binary message in the middle of another", closedBy(1002), frames(frame(opText, status0[:half]), frame(fin|opBinary, "x"))},

		{"a binary message", closedBy(1003), frames(frame(fin|opBinary, status0))},
		{"an empty binary message", closedBy(1003), frames(frame(fin|opBinary, ""))},
		{"a binary message in fragments", closedBy(1003), frames(frame(opBinary, "x"), frame(fin|opContinuation, "y"))},

		{"a message of exactly the longest length", served, frames(text(status0 + long[:64<<10-len(status0)]))},
		{"one byte more", closedBy(1009), frames(text(status0 + long[:64<<10-len(status0)+1]))},
		{"fragments that are too long together", closedBy(1009), frames(frame(opText, long[:40<<10]), frame(fin|opContinuation, long[:40<<10]))},
		{"a length of a terabyte, announced only", closedBy(1009), frames(framed(fin|opText, []byte{127, 0, 0, 1, 0, 0, 0, 0, 0}, ""))},
		{"the longest length there is", closedBy(1009), frames(framed(fin|opText, []byte{127, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, ""))},
		{"a length with the sign bit", closedBy(1009), frames(framed(fin|opText, []byte{127, 0x80, 0, 0, 0, 0, 0, 0, 0}, ""))},
		{"lengths whose sum overflows", closedBy(1009), frames(frame(opText, "x"), framed(fin|opContinuation, []byte{127, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, ""))},
		{"16 bits for a short length", served, frames(framed(fin|opText, []byte{126, 0, byte(len(status0))}, status0))},
		{"64 bits for a short length", served, frames(framed(fin|opText, []byte{127, 0, 0, 0, 0, 0, 0, 0, byte(len(status0))}, status0))},

		{"a ping of 126 bytes", closedBy(1002), frames(frame(fin|opPing, long[:126]))},
		{"a ping in fragments", closedBy(1002), frames(frame(opPing, "x"))},
		{"a close in fragments", closedBy(1002), frames(frame(opClose, "\x03\xe8"))},
		{"a close of 126 bytes", closedBy(1002), frames(frame(fin|opClose, "\x03\xe8"+long[:124]))},
		{"a ping of 125 bytes", served, func(r *raw) { r.write(frame(fin|opPing, long[:125])); r.want(opPong, long[:125]) }},
		{"a ping between two fragments", served, func(r *raw) {
			r.write(frame(opText, status0[:half]), frame(fin|opPing, "now?"))
			r.want(opPong, "now?")
			r.write(frame(fin|opContinuation, status0[half:]))
			r.want(opText, `"id":"x"`)
		}},
		{"a pong that nobody asked for", served, frames(frame(fin|opPong, "here"))},
		{"a flood of pings", closedBy(1008), frames(bytes.Repeat(frame(fin|opPing, "!"), floodFrames))},
		{"a flood of pongs", closedBy(1008), frames(bytes.Repeat(frame(fin|opPong, ""), floodFrames))},
		{"a flood of pings inside of a message", closedBy(1008), frames(frame(opText, "["), bytes.Repeat(frame(fin|opPing, ""), floodFrames))},
		{"many pings, and not a flood", served, frames(bytes.Repeat(frame(fin|opPing, ""), floodFrames-1))},

		{"a close without a code", closedBy(1000), frames(frame(fin|opClose, ""))},
		{"a close with half a code", closedBy(1002), frames(frame(fin|opClose, "\x03"))},
		{"a close with half a code, byte by byte", closedBy(1002), func(r *raw) { r.trickle(0, frame(fin|opClose, "\x03")) }},
		{"a close with half a code behind messages of every length", closedBy(1002), frames(
			text(status0), text(status0+long[:1000]), framed(fin|opText, []byte{127, 0, 0, 0, 0, 0, 0, 0, byte(len(status0))}, status0),
			text(status0+long[:64<<10-len(status0)]), frame(fin|opPing, ""), frame(fin|opClose, "\x03"))},
		{"a close with half a code in the middle of a message", closedBy(1002), frames(frame(opText, status0[:half]), frame(fin|opClose, "\x03"))},
		{"a close with half a code behind one without", closedBy(1000), frames(frame(fin|opClose, ""), frame(fin|opClose, "\x03"))},
		{"close 1000", closedBy(1000), frames(closing(1000, "bye"))},
		{"close 4999", closedBy(4999), frames(closing(4999, ""))},
		{"close 999", closedBy(1002), frames(closing(999, ""))},
		{"close 1004, which is reserved", closedBy(1002), frames(closing(1004, ""))},
		{"close 1005, which stands for none", closedBy(1002), frames(closing(1005, ""))},
		{"close 1006, which stands for a broken connection", closedBy(1002), frames(closing(1006, ""))},
		{"close 1015, which stands for TLS", closedBy(1002), frames(closing(1015, ""))},
		{"close 5000", closedBy(1002), frames(closing(5000, ""))},
		{"a close whose reason is not UTF-8", closedBy(1002), frames(closing(1000, "\xff\xfe"))},
		{"a close in the middle of a message", closedBy(1000), frames(frame(opText, status0[:half]), closing(1000, ""))},
		{"text after the close", closedBy(1000), frames(closing(1000, ""), text(`{"jsonrpc":"2.0","method":"nonce_allocate","params":["after"]}`))},
		{"two closes", closedBy(1000), frames(closing(1000, ""), closing(1001, ""))},

		{"text that is not UTF-8", served, func(r *raw) { r.write(text("\"\xff\xfe\"")); r.want(opText, "parse_error") }},
		{"a character cut by the end of the message", served, func(r *raw) { r.write(text("\"\xe2\x82")); r.want(opText, "parse_error") }},
		{"a character cut by two fragments", served, func(r *raw) {
			r.write(frame(opText, `{"jsonrpc":"2.0","id":"`+"\xe2\x82"), frame(fin|opContinuation, "\xac"+`","method":"nonce_status","params":["s"]}`))
			r.want(opText, `"id":"€"`)
		}},
		{"an empty message", served, func(r *raw) { r.write(text("")); r.want(opText, "parse_error") }},
		{"an empty message in fragments", served, func(r *raw) {
			r.write(frame(opText, ""), frame(opContinuation, ""), frame(fin|opContinuation, ""))
			r.want(opText, "parse_error")
		}},
		{"a message in bytes, one segment each", served, func(r *raw) { r.trickle(0, text(status0)); r.want(opText, `"id":"x"`) }},
		{"a mask of zeros", served, func(r *raw) {
			r.write(append([]byte{fin | opText, 0x80 | byte(len(status0)), 0, 0, 0, 0}, status0...))
			r.want(opText, `"id":"x"`)
		}},
		{"a thousand requests in one segment", served, func(r *raw) {
			go func() { r.write(bytes.Repeat(text(`{"jsonrpc":"2.0","method":"nonce_status","params":["s"]}`), 1000)) }()
		}},

		{"an end in the middle of a header", gone, func(r *raw) { r.write([]byte{fin | opText}); r.hangUp() }},
		{"an end in the middle of a message", gone, func(r *raw) { r.write(text(status0)[:half]); r.hangUp() }},
		{"an end between two fragments", gone, func(r *raw) { r.write(frame(opText, status0)); r.hangUp() }},
		{"a reset in the middle of a message", gone, func(r *raw) { r.write(text(status0)[:half]); r.reset() }},
		{"a reset behind a request", gone, func(r *raw) { r.write(text(status0)); r.reset() }},
		{"an end after nothing", gone, func(r *raw) { r.hangUp() }},
	}, true)
	if n := h.next("after"); n != 0 {
		t.Errorf("%d nonces were handed out by a message after the close", n)
	}
}

// hangUp ends the sending side: the gateway sees the end, and may still send.
func (r *raw) hangUp() { must(r.TB, r.Conn.(*net.TCPConn).CloseWrite()) }

// reset ends the connection without a word.
func (r *raw) reset() {
	must(r.TB, r.Conn.(*net.TCPConn).SetLinger(0))
	must(r.TB, r.Close())
}

func TestRawFramesThatTakeTooLong(t *testing.T) {
	h := startRaw(t, func(s *setup) { s.ws.MessageTimeout = 160 * time.Millisecond })
	const pause = 20 * time.Millisecond
	h.run(t, []rawCase{
		{"the first byte of a header, and silence", closedBy(1008), frames([]byte{fin | opText})},
		{"a header, and silence", closedBy(1008), frames([]byte{fin | opText, 0x80 | 100})},
		{"half of a message, and silence", closedBy(1008), frames(text(status0)[:20])},
		{"a fragment, and silence", closedBy(1008), frames(frame(opText, status0))},
		{"half of a ping, and silence", closedBy(1008), frames(frame(fin|opPing, "hello")[:4])},
		{"a message behind another one, and silence", closedBy(1008), func(r *raw) {
			r.write(text(status0))
			r.want(opText, `"id":"x"`)
			r.write(text(status0)[:20])
		}},
		{"a message byte by byte, for ever", closedBy(1008), func(r *raw) { r.trickle(pause, text(strings.Repeat(" ", 9))) }},
		{"fragments without end", closedBy(1008), func(r *raw) {
			r.write(frame(opText, "["))
			for range 15 {
				if _, err := r.Write(frame(opContinuation, " ")); err != nil {
					return
				}
				time.Sleep(pause)
			}
		}},
		{"empty fragments without end", closedBy(1008), func(r *raw) {
			r.write(frame(opText, ""))
			for began := time.Now(); time.Since(began) < 300*time.Millisecond; {
				if _, err := r.Write(bytes.Repeat(frame(opContinuation, ""), 100)); err != nil {
					return
				}
			}
		}},
		{"a fragment, and pings to live on", closedBy(1008), func(r *raw) {
			r.write(frame(opText, "["))
			for range 15 {
				if _, err := r.Write(frame(fin|opPing, "")); err != nil {
					return
				}
				time.Sleep(pause)
			}
		}},
		{"slow, and in time", served, func(r *raw) { r.trickle(time.Millisecond, text(status0)[:40]); r.write(text(status0)[40:]) }},
		{"nothing at all is no message", served, func(*raw) { time.Sleep(2 * 160 * time.Millisecond) }},
	}, true)
}

func TestRawFramesThatDoNotBegin(t *testing.T) {
	h := startRaw(t, func(s *setup) { s.ws.FirstTimeout = 200 * time.Millisecond })
	h.run(t, []rawCase{
		{"silence", closedBy(1008), func(r *raw) { r.silent() }},
		{"a pong is enough", served, func(r *raw) {
			r.want(opPing, "")
			r.write(frame(fin|opPong, ""))
			time.Sleep(300 * time.Millisecond)
		}},
		{"a request is enough", served, func(r *raw) {
			r.write(text(status0))
			time.Sleep(300 * time.Millisecond)
		}},
	}, true)
}

// silent says nothing until the gateway has closed.
func (r *raw) silent() {
	for {
		_ = r.SetReadDeadline(time.Now().Add(patience))
		if first, err := r.in.Peek(1); err != nil || first[0] == fin|opClose {
			return
		}
		if _, _, err := r.read(); err != nil {
			return
		}
	}
}

func TestRawConnectionsThatAskForNothing(t *testing.T) {
	h := startRaw(t, func(s *setup) { s.ws.IdleTimeout = 200 * time.Millisecond })
	h.run(t, []rawCase{
		{"no request", closedBy(1001), func(r *raw) { r.silent() }},
		{"no request, and pongs", closedBy(1001), func(r *raw) {
			for range 20 {
				if _, err := r.Write(frame(fin|opPong, "")); err != nil {
					return
				}
				time.Sleep(20 * time.Millisecond)
			}
		}},
		{"no further request", closedBy(1001), func(r *raw) { r.write(text(status0)); r.silent() }},
		{"a request now and then", served, func(r *raw) {
			for range 6 {
				r.write(text(status0))
				time.Sleep(60 * time.Millisecond)
			}
		}},
		{"a subscription", served, func(r *raw) {
			r.write(text(`{"jsonrpc":"2.0","id":"sub","method":"nonce_subscribe","params":["events"]}`))
			r.want(opText, `"id":"sub"`)
			time.Sleep(400 * time.Millisecond)
		}},
	}, true)
}

func TestRawPeersThatFallSilent(t *testing.T) {
	h := startRaw(t, func(s *setup) { s.ws.PingInterval = 80 * time.Millisecond })
	h.run(t, []rawCase{
		{"half open: nothing comes any more", gone, func(r *raw) { r.write(text(status0)); r.silent() }},
		{"half open: the sending side was ended", gone, func(r *raw) { r.write(text(status0)); r.hangUp() }},
	}, true)
}

func TestRawHandshakes(t *testing.T) {
	h := startRaw(t)
	line := func(s string) string { return s + "\r\n" }
	without := func(header string) string {
		var kept []string
		for _, l := range strings.SplitAfter(handshake, "\r\n") {
			if !strings.HasPrefix(l, header+":") {
				kept = append(kept, l)
			}
		}
		return strings.Join(kept, "")
	}
	plain := func(s string) func(*raw) { return func(r *raw) { r.write([]byte(s)) } }
	h.run(t, []rawCase{
		{"a good one", status(101), plain(handshake + line(""))},
		{"frames before it is answered", gone, plain(handshake + line("") + string(text(status0)))},
		{"half a frame before it is answered", gone, plain(handshake + line("") + "\x81")},
		{"a second request behind it", gone, plain(handshake + line("") + handshake + line(""))},
		{"headers that stop", gone, plain(handshake)},
		{"a request line that stops", status(400), plain("GET /ws")},
		{"nothing", gone, plain("")},
		{"headers byte by byte", gone, func(r *raw) {
			r.write([]byte(handshake))
			r.trickle(10*time.Millisecond, []byte("X-Slow: "+strings.Repeat("y", 200)))
		}},
		{"an end in the middle of the headers", status(400), func(r *raw) { r.write([]byte(handshake)); r.hangUp() }},
		{"a header that is too long", status(431), plain(handshake + line("Cookie: "+strings.Repeat("x", 16<<10)) + line(""))},
		{"too many headers", status(431), plain(handshake + strings.Repeat(line("X: y"), 4000) + line(""))},
		{"no key", status(400), plain(without("Sec-WebSocket-Key") + line(""))},
		{"a key that is too short", status(400), plain(without("Sec-WebSocket-Key") + line("Sec-WebSocket-Key: c2hvcnQ=") + line(""))},
		{"a key that is not base64", status(400), plain(without("Sec-WebSocket-Key") + line("Sec-WebSocket-Key: !!!!") + line(""))},
		{"version 8", status(400), plain(without("Sec-WebSocket-Version") + line("Sec-WebSocket-Version: 8") + line(""))},
		{"no version", status(400), plain(without("Sec-WebSocket-Version") + line(""))},
		{"no Upgrade", status(400), plain(without("Upgrade") + line(""))},
		{"no Connection", status(400), plain(without("Connection") + line(""))},
		{"two hosts", status(400), plain(handshake + line("Host: other") + line(""))},
		{"no host", status(400), plain(without("Host") + line(""))},
		{"a header with a null byte", status(400), plain(handshake + line("X: a\x00b") + line(""))},
		{"a header that is folded", status(400), plain(handshake + line(" X: y") + line(""))},
		{"a POST", status(405), plain("POST" + strings.TrimPrefix(handshake, "GET") + line("Content-Length: 0") + line(""))},
		{"a body", gone, plain(handshake + line("Content-Length: 4") + line("") + "body")},
		{"a chunked body", gone, plain(handshake + line("Transfer-Encoding: chunked") + line("") + "4\r\nbody\r\n0\r\n\r\n")},
		{"length and chunks", status(400), plain(handshake + line("Content-Length: x") + line("Transfer-Encoding: chunked") + line(""))},
		{"no HTTP at all", status(400), plain("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + strings.Repeat("\x00", 64) + "\r\n\r\n")},
		{"frames at once", status(400), func(r *raw) { r.write(text(status0)) }},
		{"HTTP/2 without TLS", status(400), plain("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")},
		{"HTTP/3.0", status(505), plain(strings.Replace(handshake, "HTTP/1.1", "HTTP/3.0", 1) + line(""))},
		{"an origin of another host", status(403), plain(handshake + line("Origin: https://evil.example") + line(""))},
		{"two origins", status(403), plain(handshake + line("Origin: http://gateway") + line("Origin: http://gateway") + line(""))},
		{"the origin of a page without one", status(403), plain(handshake + line("Origin: null") + line(""))},
	}, false)
}

// Nobody who was refused keeps a socket: what comes behind is not looked at.
func TestWhatComesBehindARefusalIsNotServed(t *testing.T) {
	p := newPeople()
	p.grant("ada", "*", everyRight)
	h := startRaw(t, func(s *setup) { s.ws.Auth = p })
	defer h.wantNothingLeft(t)
	r := h.connect(t)
	defer r.Close()
	r.write([]byte(handshake + "\r\n" + handshake + "Authorization: Bearer ada\r\n\r\n"))
	if got := r.reply(); got != status(401) {
		t.Errorf("got %s", got)
	}
	if got := r.reply(); got != gone {
		t.Errorf("a second handshake on the same socket: %s", got)
	}
}

func TestCompressionIsNotTaken(t *testing.T) {
	h := startRaw(t)
	defer h.wantNothingLeft(t)
	r := h.connect(t)
	defer r.Close()
	response := r.upgrade("Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\r\n", "Sec-WebSocket-Protocol: chat\r\n")
	for _, header := range []string{"Sec-WebSocket-Extensions", "Sec-WebSocket-Protocol"} {
		if got := response.Header.Get(header); got != "" {
			t.Errorf("the gateway takes %s %q", header, got)
		}
	}
	r.write(frame(fin|rsv1|opText, "\xaa\x56\x2a\x4e\x2d\x2a\xcb\x4c\x4e\x05\x00")) // deflated
	if got := r.outcome(closedBy(wire.CloseProtocolError)); got != closedBy(wire.CloseProtocolError) {
		t.Errorf("a compressed message: %s", got)
	}
}
