package writer

import (
	"bytes"
	"errors"
	"os"
	"runtime"
	"testing"
	"time"

	"noncegate/backpressure"
)

func TestWhatASocketTakesAtOnceNeedsNoGoroutineAndNoDeadline(t *testing.T) {
	sock, pool := &eagerMemory{memorySocket: newMemorySocket()}, newManualPool(10)
	q := New(sock, pool, testConfig())
	send(t, q, text("one"))
	pool.runAll()
	// Nothing is waited for: the task itself has written.
	if got := sock.all(); len(got) != 1 || sock.deadlines != 0 {
		t.Errorf("%d writes and %d deadlines, want 1 and 0", len(got), sock.deadlines)
	}
	q.Kill(errors.New("the end"))
	<-q.Done()
}

// fullSocket takes n bytes at once; its Write waits for room, for ever, until its
// deadline is past.
type fullSocket struct {
	*memorySocket
	n       int
	writing chan []byte
	ended   chan struct{}
}

func (s *fullSocket) TryWrite(p []byte) int {
	n, _ := s.memorySocket.Write(p[:min(s.n, len(p))])
	return n
}

func (s *fullSocket) Write(p []byte) (int, error) {
	s.writing <- bytes.Clone(p)
	<-s.ended
	return 0, os.ErrDeadlineExceeded
}

func (s *fullSocket) SetWriteDeadline(at time.Time) error {
	if at.Before(time.Now()) {
		close(s.ended)
	}
	return s.memorySocket.SetWriteDeadline(at)
}

func TestTheRestOfWhatASocketDidNotTakeWaitsInAGoroutineOfItsOwn(t *testing.T) {
	sock := &fullSocket{memorySocket: newMemorySocket(), n: 4, writing: make(chan []byte), ended: make(chan struct{})}
	pool := newManualPool(10)
	q := New(sock, pool, testConfig())
	send(t, q, text("a message"))
	pool.runAll() // returns although the socket is full
	rest := <-sock.writing
	if got, want := string(sock.all()[0])+string(rest), "\x81\x09a message"; got != want {
		t.Errorf("written at once and then: %q, want %q", got, want)
	}
	if sock.deadlines != 1 {
		t.Errorf("%d deadlines were set for the write that may wait, want 1", sock.deadlines)
	}
	q.Kill(errPeer)
	<-q.Done()
	if q.Cause() != errPeer {
		t.Errorf("the queue ended by %v, want %v", q.Cause(), errPeer)
	}
}

func TestNoDeadlineIsLeftBehindAWriteThatMayHaveWaited(t *testing.T) {
	sock := &eagerMemory{memorySocket: newMemorySocket()}
	q := New(sock, newManualPool(10), testConfig())
	q.Ping(nil) // by the write goroutine
	<-sock.wrote
	for q.busy() {
		runtime.Gosched()
	}
	sock.mu.Lock()
	if !sock.deadline.IsZero() {
		t.Errorf("the deadline %v is left", sock.deadline)
	}
	sock.mu.Unlock()
	q.Kill(errPeer)
	<-q.Done()
}

var errPeer = errors.New("the peer is gone")

func TestAnEncodeTaskNeverSaysFarewell(t *testing.T) {
	// The farewell of a kicked client may wait for its socket, so it is another
	// goroutine's even when the task finds out.
	sock := &fullSocket{memorySocket: newMemorySocket(), n: 0, writing: make(chan []byte), ended: make(chan struct{})}
	pool, cfg := newManualPool(10), testConfig()
	q := New(sock, pool, cfg)
	q.mu.Lock()
	q.writing, q.closed, q.sealed, q.cause = true, true, true, &KickError{backpressure.KickWriteTimeout}
	q.mu.Unlock()
	q.tryWrite()
	<-sock.writing // the farewell, after tryWrite has returned
	close(sock.ended)
	<-q.Done()
}
