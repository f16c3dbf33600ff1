//go:build unix

package socket

import (
	"net"
	"sync"
	"syscall"
)

// eager reads and writes a socket beneath net.Conn, without what an idle
// connection would have to keep: the buffer of a read is taken only when there
// are bytes, and a write that would wait is not begun.
type eager struct {
	raw syscall.RawConn

	// The read that is under way, and what was read and not taken yet. The read
	// goroutine's.
	buf     *readBuffer
	off     int
	tryRead func(fd uintptr) bool // e.read, made once

	// The write that is under way; one at a time, as of any writer.
	out      []byte
	wrote    int
	tryWrite func(fd uintptr) bool // e.write, made once
}

// readBytes is the size of a read: a burst of a client in one system call.
const readBytes = 8 << 10

type readBuffer struct {
	n     int
	bytes [readBytes]byte
}

var readBuffers = sync.Pool{New: func() any { return new(readBuffer) }}

// newEager is nil for a connection that is no plain socket, such as one of TLS.
func newEager(conn net.Conn) *eager {
	sc, ok := conn.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return nil
	}
	e := &eager{raw: raw}
	e.tryRead, e.tryWrite = e.read, e.write
	return e
}

// await waits until there are bytes for Read. false: there will be none, and Read says why.
func (e *eager) await() bool { return e.raw.Read(e.tryRead) == nil && e.buf != nil }

// Read is io.Reader's, with the errors of conn.
func (e *eager) Read(conn net.Conn, p []byte) (int, error) {
	if e.buf == nil && (len(p) >= readBytes || !e.await()) {
		return conn.Read(p) // at the end, or with an error, conn says which, in its own words
	}
	n := copy(p, e.peek())
	e.skip(n)
	return n, nil
}

// peek is what was read and not taken yet, until the next call of another method.
func (e *eager) peek() []byte {
	if e.buf == nil {
		return nil
	}
	return e.buf.bytes[e.off:e.buf.n]
}

// skip takes so many bytes of it.
func (e *eager) skip(n int) {
	e.off += n
	if e.off == e.buf.n {
		readBuffers.Put(e.buf)
		e.buf, e.off = nil, 0
	}
}

// buffered reports whether bytes were read and not taken yet.
func (e *eager) buffered() bool { return e.buf != nil }

// read tries once. It is false when there is nothing to be read yet.
func (e *eager) read(fd uintptr) bool {
	b := readBuffers.Get().(*readBuffer)
	n, err := ignoringEINTR(syscall.Read, int(fd), b.bytes[:])
	if n > 0 {
		b.n, e.buf, e.off = n, b, 0
		return true
	}
	readBuffers.Put(b)
	return err != syscall.EAGAIN
}

// TryWrite implements writer.EagerSocket.
func (e *eager) TryWrite(p []byte) int {
	e.out, e.wrote = p, 0
	// An error leaves something unwritten, and the write of that says it again.
	_ = e.raw.Write(e.tryWrite)
	e.out = nil
	return e.wrote
}

// write tries once, and is done whatever came of it.
func (e *eager) write(fd uintptr) bool {
	if n, _ := ignoringEINTR(syscall.Write, int(fd), e.out); n > 0 {
		e.wrote = n
	}
	return true
}

func ignoringEINTR(call func(int, []byte) (int, error), fd int, p []byte) (int, error) {
	for {
		n, err := call(fd, p)
		if err != syscall.EINTR {
			return n, err
		}
	}
}
