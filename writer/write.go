package writer

import (
	"errors"
	"fmt"
	"os"
	"time"

	"noncegate/backpressure"
	"noncegate/encodepool"
)

// farewellTimeout bounds the write of a kicked client's close frame.
const farewellTimeout = 100 * time.Millisecond

// longGone is a deadline that ends a running write.
var longGone = time.Unix(1, 0)

// startWriteLocked reports whether the write goroutine must be started: there is
// something to write and no goroutine writes.
func (q *Queue) startWriteLocked() bool {
	if q.writing || !q.writableLocked() {
		return false
	}
	q.writing = true
	return true
}

// writableLocked reports whether there is anything to write.
func (q *Queue) writableLocked() bool {
	return !q.closed && (q.ready != nil || len(q.ping) > 0 || len(q.pong) > 0 || q.closeDueLocked())
}

// closeDueLocked reports whether the close frame's turn has come: everything
// before it was encoded.
func (q *Queue) closeDueLocked() bool {
	return q.sealed && !q.closed && !q.closeSent && !q.encoding && q.pending == nil
}

// writeLoop is the write goroutine. It writes until nothing is ready, and closes
// the socket when the queue is closed.
func (q *Queue) writeLoop() { q.writeOn(nil, nil) }

// writeOn goes on behind a batch that was written with the outcome err.
func (q *Queue) writeOn(written *batch, err error) {
	for {
		b, cause := q.next(written, err, true)
		if b == nil {
			if cause != nil {
				q.closeSocket(cause, err != nil)
			}
			return
		}
		err = q.write(b.buf)
		written = b
	}
}

// pieceBytes is how much is written under one deadline: a client that takes it in
// time is not slow, however long the whole is.
const pieceBytes = 1 << 20

// write writes p piece by piece. The deadline of the first one is set.
func (q *Queue) write(p []byte) error {
	for len(p) > pieceBytes {
		if _, err := q.sock.Write(p[:pieceBytes]); err != nil {
			return err
		}
		p = p[pieceBytes:]
		q.extend()
	}
	_, err := q.sock.Write(p)
	return err
}

// extend sets the deadline of a write that may wait, unless the queue was closed: then
// it is past, and stays so.
func (q *Queue) extend() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.closed {
		q.deadlineLocked(clock())
	}
}

// tryWrite writes what the socket takes at once, in the caller's goroutine, which
// never waits for it: a client that keeps up costs no goroutine and no timer. For
// the rest the write goroutine is started. The caller was told by
// startWriteLocked that no other goroutine writes.
func (q *Queue) tryWrite() {
	b, cause := q.next(nil, nil, false)
	for b != nil {
		if n := q.eager.TryWrite(b.buf); n < len(b.buf) {
			go q.writeRest(b, n)
			return
		}
		b, cause = q.next(b, nil, false)
	}
	if cause != nil {
		go q.closeSocket(cause, false)
	}
}

// writeRest is the write goroutine of a batch whose first n bytes are written.
func (q *Queue) writeRest(b *batch, n int) {
	q.extend()
	q.writeOn(b, q.write(b.buf[n:]))
}

// next accounts for the batch that was written, nil at first, with the outcome of
// its write, and takes the next one. Whether the client is too slow is asked
// again here, just before the write. No batch: the goroutine that writes must end, and
// with a cause hang up first.
func (q *Queue) next(written *batch, err error, waits bool) (*batch, error) {
	now := clock()
	q.mu.Lock()
	if written != nil {
		q.forgetLocked(written)
		q.oldest = now // if an encode task has the next ones in hand, it corrects this
		if q.ready != nil {
			q.oldest = q.ready.encoded[0]
		}
	}
	var t todo
	switch {
	case err != nil:
		t = q.endLocked(writeFailure(err))
	case q.closeSent && q.peerClosed:
		t = q.endLocked(ErrClosed)
	default:
		t = q.judgeLocked(now)
	}
	b := q.takeLocked()
	if b != nil && waits {
		q.deadlineLocked(now)
	}
	var cause error
	if q.closed {
		cause = q.cause
	} else if b == nil {
		q.writing = false
		if waits {
			// One that is left would pass, and keep a later write from being tried.
			_ = q.sock.SetWriteDeadline(time.Time{})
		}
	}
	q.mu.Unlock()

	q.do(t)
	if b != nil {
		for _, at := range b.encoded {
			call(q.cfg.WriteQueue, now-at)
		}
	}
	return b, cause
}

// deadlineLocked sets the deadline of a write that may wait. It is set under the
// lock so that endLocked, which moves it to the past, cannot be overtaken.
func (q *Queue) deadlineLocked(now time.Duration) {
	// This fails only on a broken socket, and then the write says so.
	_ = q.sock.SetWriteDeadline(deadline(now, q.cfg.WriteTimeout))
}

// takeLocked takes all that can be written. Control frames go behind the ready
// ones and share their write.
func (q *Queue) takeLocked() *batch {
	if !q.writableLocked() {
		return nil
	}
	b := q.ready
	q.ready = nil
	if b == nil {
		b = batches.Get().(*batch)
	}
	b.buf = append(append(b.buf, q.ping...), q.pong...)
	q.ping, q.pong = nil, nil
	if q.closeDueLocked() {
		b.buf = append(b.buf, q.closeFrame...)
		q.closeFrame, q.closeSent = nil, true
	}
	return b
}

// forgetLocked stops counting a batch, which was written or is thrown away.
func (q *Queue) forgetLocked(b *batch) {
	q.unwritten -= b.bytes
	q.msgs -= b.messages
	q.notes -= b.notes
	for _, f := range b.written {
		f()
	}
	clear(b.written)
	putBatch(b)
}

// closeSocket ends the write goroutine of a closed queue and closes the socket. A
// kicked client is told so if no frame was cut in the middle and its connection
// takes the few bytes at once. Behind a full one the attempt is pointless, and
// the client sees the connection end.
func (q *Queue) closeSocket(cause error, midFrame bool) {
	if _, kicked := errors.AsType[*KickError](cause); kicked && !midFrame {
		_ = q.sock.SetWriteDeadline(deadline(clock(), farewellTimeout))
		_, _ = q.sock.Write(encodepool.AppendClose(nil, q.cfg.KickCode, q.cfg.KickText))
	}
	_ = q.sock.Close() // whatever it says, the socket is not used again
	q.mu.Lock()
	defer q.mu.Unlock()
	q.writing = false
	q.finishLocked()
}

// writeFailure turns the error of a write into the cause of the end.
func writeFailure(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return &KickError{backpressure.KickWriteTimeout}
	}
	return fmt.Errorf("write: %w", err)
}
