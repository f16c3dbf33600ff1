package ws

import (
	"bufio"
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
	"testing/synctest"
	"time"

	"noncegate/test/lab/inprocess"
	"noncegate/test/lab/rawframe"
	"noncegate/test/lab/wait"

	"go.uber.org/goleak"
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
	in     *bufio.Reader
	beside sync.WaitGroup // what is written while the test reads
}

const (
	opContinuation, opText, opBinary, opPing, opPong = rawframe.Continuation, rawframe.Text, rawframe.Binary, rawframe.Ping, rawframe.Pong

	opClose = rawframe.Close
	fin     = rawframe.Fin
	rsv1    = 0x40
	rsv2    = 0x20
	rsv3    = 0x10
)

var frame, framed, text, closing = rawframe.Of, rawframe.Framed, rawframe.TextOf, rawframe.Closing

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

// repeat writes p so many times, with a pause after each.
func (r *raw) repeat(times int, pause time.Duration, p []byte) {
	for range times {
		if _, err := r.Write(p); err != nil {
			return
		}
		time.Sleep(pause) // the slowness is what is tested
	}
}

// trickle writes byte by byte, with a pause after each.
func (r *raw) trickle(pause time.Duration, p []byte) {
	for i := range p {
		r.repeat(1, pause, p[i:i+1])
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

// rawGateway is a gateway for raw cases.
type rawGateway struct {
	*gateway
	alive goleak.Option // what lives before a case
	files int
}

func rawSetup(s *setup) {
	s.ws.PingInterval = time.Hour
	s.ws.Writer.CloseTimeout = 200 * time.Millisecond
	s.headers = patience
	s.serve = func(t testing.TB, web *http.Server) (string, func()) {
		web.ReadHeaderTimeout, web.ReadTimeout, web.IdleTimeout, web.MaxHeaderBytes = patience, patience, patience, 4096
		return inprocess.Serve(t, web)
	}
}

func startRaw(t *testing.T, changes ...func(*setup)) *rawGateway {
	t.Helper()
	h := &rawGateway{gateway: startGateway(t, append([]func(*setup){rawSetup}, changes...)...)}
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
	wait.Until(t, "the end of the connection", h.srv.conns.empty)
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
	wait.Until(t, "all descriptors to be closed that are new", func() bool { return descriptors(t) <= h.files })
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

// run plays cases one after the other; none may leave anything behind.
func (h *rawGateway) run(t *testing.T, cases []rawCase, upgraded bool) {
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			defer h.wantNothingLeft(t)
			r := h.connect(t)
			defer func() { _ = r.Close() }()
			playRaw(t, r, c, upgraded)
		})
	}
}

// pipes is a listener in memory, so that a case runs in a bubble of synctest, in whose time
// nobody waits.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
}

func (p pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p pipes) Close() error   { close(p.closed); return nil }
func (p pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipes"} }

func (p pipes) connect(t testing.TB) *raw {
	mine, peer := net.Pipe()
	p.conns <- mine
	return &raw{TB: t, Conn: peer, in: bufio.NewReader(peer)}
}

// runInBubbles plays cases about time, each with a gateway of its own.
func runInBubbles(t *testing.T, change func(*setup), cases []rawCase, upgraded bool) {
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, change, func(t *testing.T, r *raw) { playRaw(t, r, c, upgraded) })
		})
	}
}

// inBubble runs a test of a socket to a gateway in fake time. What it leaves running fails it.
func inBubble(t *testing.T, change func(*setup), test func(t *testing.T, r *raw)) {
	synctest.Test(t, func(t *testing.T) {
		p := pipes{make(chan net.Conn), make(chan struct{})}
		startGateway(t, rawSetup, change, func(s *setup) {
			headers := s.headers
			s.serve = func(t testing.TB, web *http.Server) (string, func()) {
				web.ReadHeaderTimeout, web.ReadTimeout, web.IdleTimeout = headers, headers, headers
				served := make(chan error, 1)
				go func() { served <- web.Serve(p) }()
				return "", func() { check(t, web.Close()); <-served }
			}
		})
		r := p.connect(t)
		defer func() { _ = r.Close(); r.beside.Wait() }()
		test(t, r)
	})
}

func playRaw(t *testing.T, r *raw, c rawCase, upgraded bool) {
	t.Helper()
	if upgraded {
		r.upgrade()
	}
	c.send(r)
	got := outcome("")
	if upgraded {
		got = r.outcome(c.want)
	} else {
		got = r.reply()
	}
	if got != c.want {
		t.Errorf("got %s, want %s", got, c.want)
	}
}

func frames(all ...[]byte) func(*raw) { return func(r *raw) { r.write(slices.Concat(all...)) } }

const status0 = `{"jsonrpc":"2.0","id":"x","method":"nonce_status","params":["s"]}`
