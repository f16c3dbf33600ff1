package ws

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"noncegate/nonce"
	"noncegate/nonce/fairness"
)

const (
	// freeBytes is how long a message may be that is received without being counted: it fits
	// what the process has for a connection anyway.
	freeBytes = 8 << 10
	// buffered is at least what gorilla has read of a message when its length is known.
	buffered = readBufferBytes
)

// receiving counts the bytes of messages that clients are sending and, of those of a Room,
// that are not answered yet. What is too much waits unread, so that half a message costs
// little memory, and what one principal sends none of the others'.
type receiving struct{ shares *fairness.Shares }

func newReceiving(bytes int64, waits int) *receiving {
	return &receiving{shares: fairness.NewShares(bytes, 0, waits)}
}

// receipt is the bytes that one message has, until it was dropped as often as it was kept; nil: they
// are not counted.
type receipt struct {
	of    *receiving
	p     nonce.Principal
	bytes int64
	users atomic.Int32
}

func (rc *receiving) receipt(p nonce.Principal, bytes int64) *receipt {
	r := &receipt{of: rc, p: p, bytes: bytes}
	r.users.Store(1)
	return r
}

func (r *receipt) keep() *receipt {
	if r != nil {
		r.users.Add(1)
	}
	return r
}

func (r *receipt) drop() {
	if r != nil && r.users.Add(-1) == 0 {
		r.of.shares.Release(r.p, r.bytes)
	}
}

// shrink gives back what the message did not have.
func (r *receipt) shrink(bytes int64) {
	if r != nil && bytes < r.bytes {
		r.of.shares.Release(r.p, r.bytes-bytes)
		r.bytes = bytes
	}
}

// receiveTimeout bounds the wait of a POST until its body is read on.
const receiveTimeout = 10 * time.Second

var errReceiving = errors.New("as many bytes of requests are being received as may")

// body reads the body of a POST, of at most limit bytes. The error is errReceiving if it waited
// in vain.
func (rc *receiving) body(w http.ResponseWriter, r *http.Request, p nonce.Principal, limit int64) ([]byte, *receipt, error) {
	size := r.ContentLength
	if size < 0 || size > limit { // it is chunked, or will be refused when it was read so far
		size = limit
	}
	return receive(nil, http.MaxBytesReader(w, r.Body, limit), size, func() (*receipt, error) {
		ctx, cancel := context.WithTimeout(r.Context(), receiveTimeout)
		defer cancel()
		if rc.shares.Acquire(ctx, p, size) != nil {
			return nil, errReceiving
		}
		return rc.receipt(p, size), nil
	})
}

// message reads the rest of a message whose first frame has begun. How long it can be is known by
// the header of its frame, unless more frames follow.
func (c *conn) message(buf []byte, r io.Reader) ([]byte, *receipt, error) {
	size := c.room.bounds.MaxMessageBytes
	if bytes, known := c.transport.Incoming(); known {
		size = min(bytes+buffered, size)
	}
	return receive(buf, r, size, func() (*receipt, error) { return c.claim(size) })
}

// claim takes the bytes of a message before it is read on.
func (c *conn) claim(size int64) (*receipt, error) {
	rc := c.srv.receiving
	granted, withdraw, err := rc.shares.Claim(c.asker, size)
	if err != nil { // there are more waits than connections, which cannot be
		return nil, err
	}
	if granted != nil && !c.awaitClaim(granted) && withdraw() {
		return nil, errReceiving
	}
	return rc.receipt(c.asker, size), nil
}

// awaitClaim reports whether the claim was granted before the end of the connection.
func (c *conn) awaitClaim(granted <-chan struct{}) bool {
	closing := make(chan struct{})
	c.claiming.Store(&closing)
	defer c.claiming.Store(nil)
	if c.isClosing() {
		return false
	}
	select {
	case <-granted:
		return true
	case <-closing:
	case <-c.out.Done():
	}
	return false
}

var errLonger = errors.New("the message is longer than its header said")

// receive appends a message of at most size bytes to buf, which is empty, with memory for as
// much as has come and three times that beyond. What is longer than freeBytes is claimed before
// it is read on; it holds nothing of others while it waits for that.
func receive(buf []byte, r io.Reader, size int64, claim func() (*receipt, error)) ([]byte, *receipt, error) {
	const growth, least = 4, 512
	var rc *receipt
	for {
		if len(buf) == cap(buf) {
			if rc == nil && len(buf) >= freeBytes {
				var err error
				if rc, err = claim(); err != nil {
					return buf, nil, err
				}
			}
			room := max(min(int64(growth*cap(buf)), size+1), int64(len(buf))+least)
			if rc == nil {
				room = min(room, freeBytes)
			}
			buf = append(make([]byte, 0, max(room, int64(len(buf))+1)), buf...)
		}
		n, err := r.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		if err == nil && int64(len(buf)) > size {
			err = errLonger
		}
		switch {
		case err == io.EOF:
			rc.shrink(int64(len(buf)))
			return buf, rc, nil
		case err != nil:
			return buf, rc, err
		}
	}
}
