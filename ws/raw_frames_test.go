package ws

import (
	"bytes"
	"net"
	"strings"
	"testing"
	"time"

	"noncegate/wire"
)

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
	const pause = 125 * time.Millisecond
	runInBubbles(t, func(s *setup) { s.ws.MessageTimeout = time.Second }, []rawCase{
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
		{"a message byte by byte, for ever", closedBy(1008), func(r *raw) { r.beside.Go(func() { r.trickle(pause, text(strings.Repeat(" ", 9))) }) }},
		{"fragments without end", closedBy(1008), func(r *raw) {
			r.write(frame(opText, "["))
			r.beside.Go(func() { r.repeat(15, pause, frame(opContinuation, " ")) })
		}},
		{"empty fragments without end", closedBy(1008), func(r *raw) {
			r.write(frame(opText, ""))
			r.beside.Go(func() { r.repeat(200, 10*time.Millisecond, frame(opContinuation, "")) })
		}},
		{"a fragment, and pings to live on", closedBy(1008), func(r *raw) {
			r.write(frame(opText, "["))
			r.beside.Go(func() { r.repeat(15, pause, frame(fin|opPing, "")) })
		}},
		{"slow, and in time", served, func(r *raw) { r.trickle(time.Millisecond, text(status0)[:40]); r.write(text(status0)[40:]) }},
		{"nothing at all is no message", served, func(*raw) { time.Sleep(2 * time.Second) }},
	}, true)
}

func TestRawFramesThatDoNotBegin(t *testing.T) {
	runInBubbles(t, func(s *setup) { s.ws.FirstTimeout = time.Second }, []rawCase{
		{"silence", closedBy(1008), func(r *raw) { r.silent() }},
		{"a pong is enough", served, func(r *raw) {
			r.want(opPing, "")
			r.write(frame(fin|opPong, ""))
			time.Sleep(1500 * time.Millisecond)
		}},
		{"a request is enough", served, func(r *raw) {
			r.write(text(status0))
			time.Sleep(1500 * time.Millisecond)
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
	runInBubbles(t, func(s *setup) { s.ws.IdleTimeout = time.Second }, []rawCase{
		{"no request", closedBy(1001), func(r *raw) { r.silent() }},
		{"no request, and pongs", closedBy(1001), func(r *raw) {
			r.beside.Go(func() { r.repeat(20, 100*time.Millisecond, frame(fin|opPong, "")) })
		}},
		{"no further request", closedBy(1001), func(r *raw) { r.write(text(status0)); r.silent() }},
		{"a request now and then", served, func(r *raw) {
			r.beside.Go(func() { r.repeat(6, 250*time.Millisecond, text(status0)) })
			for range 6 {
				r.want(opText, `"id":"x"`)
			}
		}},
		{"a subscription", served, func(r *raw) {
			r.write(text(`{"jsonrpc":"2.0","id":"sub","method":"nonce_subscribe","params":["events"]}`))
			r.want(opText, `"id":"sub"`)
			time.Sleep(2 * time.Second)
		}},
	}, true)
}

func TestRawPeersThatFallSilent(t *testing.T) {
	runInBubbles(t, func(s *setup) { s.ws.PingInterval = time.Second }, []rawCase{
		{"pings are answered", served, func(r *raw) {
			for range 3 {
				r.want(opPing, "")
				r.write(frame(fin|opPong, ""))
			}
		}},
		{"half open: nothing comes any more", gone, func(r *raw) { r.write(text(status0)); r.silent() }},
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
		{"HTTP/2 without TLS", status(400), plain("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")},
		{"HTTP/3.0", status(505), plain(strings.Replace(handshake, "HTTP/1.1", "HTTP/3.0", 1) + line(""))},
		{"an origin of another host", status(403), plain(handshake + line("Origin: https://evil.example") + line(""))},
		{"two origins", status(403), plain(handshake + line("Origin: http://gateway") + line("Origin: http://gateway") + line(""))},
		{"the origin of a page without one", status(403), plain(handshake + line("Origin: null") + line(""))},
	}, false)
	h.WantMetrics(map[string]float64{"upgrade_refused_total{broken}": 5}) // who says more before the answer
}

func TestRawHandshakesThatStop(t *testing.T) {
	plain := func(s string) func(*raw) { return func(r *raw) { r.write([]byte(s)) } }
	runInBubbles(t, func(s *setup) { s.headers = 200 * time.Millisecond }, []rawCase{
		{"headers that stop", gone, plain(handshake)},
		{"a request line that stops", status(400), plain("GET /ws")},
		{"nothing", gone, plain("")},
		{"headers byte by byte", gone, func(r *raw) {
			r.write([]byte(handshake + "X-Slow: ")) // a line that is cut before its colon is answered
			r.beside.Go(func() { r.trickle(10*time.Millisecond, []byte(strings.Repeat("y", 200))) })
		}},
		{"frames at once", status(400), func(r *raw) { r.write(text(status0)) }},
	}, false)
}

// Nobody who was refused keeps a socket: what comes behind is not looked at.
func TestWhatComesBehindARefusalIsNotServed(t *testing.T) {
	h := startRaw(t, letIn("ada"))
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
