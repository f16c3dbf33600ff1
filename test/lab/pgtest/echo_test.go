//go:build unix

package pgtest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// echo is a server that does not speak PostgreSQL's protocol: it answers each line
// with its name and the line.
type echo struct {
	net.Listener
	name string
	got  chan string // lines, as they arrived

	mu    sync.Mutex // guards conns
	conns []net.Conn
}

func newEcho(t *testing.T, name string) *echo {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	e := &echo{Listener: ln, name: name, got: make(chan string, 16)}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			e.mu.Lock()
			e.conns = append(e.conns, conn)
			e.mu.Unlock()
			all.Go(func() { e.serve(conn) })
		}
	})
	t.Cleanup(func() {
		ln.Close()
		e.mu.Lock()
		for _, c := range e.conns {
			c.Close()
		}
		e.mu.Unlock()
		all.Wait()
	})
	return e
}

func (e *echo) serve(conn net.Conn) {
	defer conn.Close()
	lines := bufio.NewScanner(conn)
	for lines.Scan() {
		e.got <- lines.Text()
		if _, err := fmt.Fprintf(conn, "%s %s\n", e.name, lines.Text()); err != nil {
			return
		}
	}
}

// before is a proxy before an echo.
func (e *echo) before(t *testing.T) *Proxy {
	t.Helper()
	p, err := NewProxy(e.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

// line is a client of lines.
type line struct {
	net.Conn
	*bufio.Reader
}

func dialLine(t *testing.T, addr string) line {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(testTimeout)); err != nil {
		t.Fatal(err)
	}
	return line{conn, bufio.NewReader(conn)}
}

// ask sends a line and returns what came, "" where the connection ended.
func (l line) ask(t *testing.T, what string) string {
	t.Helper()
	if _, err := fmt.Fprintln(l.Conn, what); err != nil {
		return ""
	}
	answer, err := l.ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		var timeout net.Error
		if errors.As(err, &timeout) && timeout.Timeout() {
			t.Fatal("silence")
		}
	}
	return answer
}

func TestCutAnyReplyLosesAnAnswerOfWhateverProtocol(t *testing.T) {
	e := newEcho(t, "a")
	p := e.before(t)
	bystander, l := dialLine(t, p.Addr()), dialLine(t, p.Addr())
	if got := l.ask(t, "other"); got != "a other\n" {
		t.Fatalf("before: %q", got)
	}
	cut := p.CutAnyReply("evalsha", 0)
	if got := bystander.ask(t, "other"); got != "a other\n" {
		t.Errorf("a request that does not match got %q", got)
	}
	if got := l.ask(t, "evalsha x"); got != "" {
		t.Errorf("the answer was %q, want none", got)
	}
	<-cut
	for _, want := range []string{"other", "other", "evalsha x"} {
		if got := <-e.got; got != want {
			t.Errorf("the server got %q, want %q", got, want)
		}
	}
	if got := bystander.ask(t, "evalsha y"); got != "a evalsha y\n" {
		t.Errorf("the next request that matches got %q", got)
	}
}

func TestCutAnyReplyLateDeliversWhatItsClientHasGivenUp(t *testing.T) {
	e := newEcho(t, "a")
	p := e.before(t)
	const late = 100 * time.Millisecond
	began := time.Now()
	cut := p.CutAnyReply("evalsha", late)
	if got := dialLine(t, p.Addr()).ask(t, "evalsha x"); got != "" {
		t.Errorf("the answer was %q, want none", got)
	}
	if len(e.got) > 0 {
		t.Error("the server had it when the client was cut")
	}
	if got := <-e.got; got != "evalsha x" {
		t.Errorf("the server got %q", got)
	}
	if took := time.Since(began); took < late {
		t.Errorf("the server had it after %v, want at least %v", took, late)
	}
	<-cut
}

func TestARetargetedProxyLeadsNewConnectionsElsewhere(t *testing.T) {
	a, b := newEcho(t, "a"), newEcho(t, "b")
	p := a.before(t)
	old := dialLine(t, p.Addr())
	if got := old.ask(t, "x"); got != "a x\n" {
		t.Fatalf("before: %q", got)
	}
	p.Retarget(b.Addr().String())
	if got := dialLine(t, p.Addr()).ask(t, "x"); got != "b x\n" {
		t.Errorf("a new connection got %q, want the other server's answer", got)
	}
	if got := old.ask(t, "x"); got != "a x\n" {
		t.Errorf("the open connection got %q, want the first server's answer", got)
	}
}

func TestDropEndsOpenConnectionsAndTakesNewOnes(t *testing.T) {
	e := newEcho(t, "a")
	p := e.before(t)
	l := dialLine(t, p.Addr())
	if got := l.ask(t, "x"); got != "a x\n" {
		t.Fatalf("before: %q", got)
	}
	p.Drop()
	if got := l.ask(t, "y"); got != "" {
		t.Errorf("a dropped connection got %q", got)
	}
	if got := dialLine(t, p.Addr()).ask(t, "z"); got != "a z\n" {
		t.Errorf("a new connection got %q", got)
	}
}
