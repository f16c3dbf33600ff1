// Package writer is the way out of a connection: one ordered queue that encodes
// and then writes.
//
// It promises: messages leave in the order they were queued, whatever order the
// pool runs its tasks in, because at most one task of a queue encodes and at most
// one goroutine writes. A reply whose room was reserved is never refused until
// the close of the connection has begun. Every message and every slot is released exactly once. A
// queue is bounded in bytes, in messages and, with Marks.MaxAge, in age, however slowly the client
// reads. It does not promise that written messages arrive.
//
// A message goes through these stages:
//
//	Reserve → Push → Wake     the order is fixed at Push (or Notify)
//	encode task               turns all queued messages into frames, and writes what an eager
//	                          socket accepts at once; never waits for the socket
//	write goroutine           writes all ready frames with one call, a deadline before each
//
// An idle queue has no goroutine, no timer and no buffer; it creates them on demand
// and drops them when it is empty. The queue owns them: Kill or CloseAfterFlush
// ends them, and Done tells when they are gone. Only the write goroutine closes the
// socket, and makes writes that may wait, so the socket can block no other
// goroutine.
package writer

import (
	"errors"
	"fmt"
	"time"

	"noncegate/backpressure"
	"noncegate/encodepool"
	"noncegate/internal/taskpool"
)

// Message is something to be sent as one text frame.
type Message interface {
	// Append appends the payload to dst and returns the result. It is called at
	// most once, by a worker of the encode pool.
	Append(dst []byte) ([]byte, error)
	// Release is called exactly once, when the message was encoded or thrown
	// away. It must not block nor call the queue.
	Release()
}

// Written is a Message that wants to know when it was written or thrown away, after its
// Release: it returns what is called then, once, which must not block nor call the queue.
type Written interface {
	Message
	OnWritten() func()
}

// Socket is the part of a net.Conn that a queue uses.
type Socket interface {
	Write(p []byte) (int, error)
	SetWriteDeadline(t time.Time) error // must not block, and must end a running Write when t is past
	Close() error
}

// EagerSocket is a Socket that can write what it takes at once.
type EagerSocket interface {
	Socket
	// TryWrite writes as much of p as it can without waiting and returns how
	// much that was. Whatever kept it from more, the Write of the rest says.
	TryWrite(p []byte) int
}

// Pool runs encode tasks. Submit must not block as long as there are no more
// tasks than reserved slots, and must run every task once, in any order.
type Pool interface {
	TryReserve(share *backpressure.Share, n int) bool      // for replies
	TryReserveSpare(share *backpressure.Share, n int) bool // for notifications, which leave room for replies
	Unreserve(share *backpressure.Share, n int)
	Submit(t taskpool.Task)
}

var _ Pool = (*encodepool.Pool)(nil)

// Config holds what the queues of all connections have in common. The functions
// are called from the queue's goroutines and callers, outside its lock, and must
// not block; each may be nil except OnEncodeError.
type Config struct {
	Marks backpressure.Marks
	// MaxMessages bounds the messages one connection may have reserved, queued
	// and unwritten together. At least its requests in flight, or it refuses
	// before they do.
	MaxMessages int
	// MaxNotifications bounds the bytes of notifications that one connection may have queued
	// and unwritten, where Marks are for larger answers; 0: Marks alone bound them.
	MaxNotifications int64
	// Share is the most slots of the encode pool one connection may hold.
	Share int
	// WriteTimeout bounds one write; a client whose connection takes nothing for
	// so long is kicked.
	WriteTimeout time.Duration
	// CloseTimeout bounds an orderly close from CloseAfterFlush on: flushing,
	// the close frame, and the peer's answer to it.
	CloseTimeout time.Duration
	// KickCode and KickText are the close frame of a kicked client.
	KickCode int
	KickText string

	EncodeQueue func(time.Duration) // each message: queued → its encoding starts
	Encode      func(time.Duration) // each message: its encoding
	WriteQueue  func(time.Duration) // each message: encoded → its write starts

	OnDrop func(backpressure.DropReason) // a notification was not queued
	OnKick func(backpressure.KickReason) // the client was disconnected for being slow

	// OnEncodeError learns that Append failed or panicked and returns what to
	// send in its place; nothing is sent for nil.
	OnEncodeError func(m Message, err error) []byte
}

// Validate names the setting that is wrong or contradicts another.
func (c *Config) Validate() error {
	switch {
	case c.MaxMessages < 1:
		return fmt.Errorf("writer: %d messages a connection, at least 1 is needed", c.MaxMessages)
	case c.Share < 1:
		return fmt.Errorf("writer: a share of %d encode slots a connection, at least 1 is needed", c.Share)
	case c.WriteTimeout <= 0 || c.CloseTimeout <= 0:
		return fmt.Errorf("writer: write timeout %v and close timeout %v must be positive", c.WriteTimeout, c.CloseTimeout)
	case c.OnEncodeError == nil:
		return errors.New("writer: nobody to ask what to send when an encoding fails")
	}
	if err := c.Marks.Validate(); err != nil {
		return fmt.Errorf("writer: %w", err)
	}
	return nil
}

// Refusal says which stage had no room for a reply. The values are the stages of
// server_busy.
type Refusal string

// The outcomes of Reserve.
const (
	Granted           Refusal = ""
	RefusedConnection Refusal = "connection" // the connection's bytes or messages, or it is closing
	RefusedEncode     Refusal = "encode"     // no slot in the encode pool, or in the connection's share of it
)

// ErrClosed is the cause of a queue that ended in the orderly way.
var ErrClosed = errors.New("closed in order")

// errCloseTimeout is the cause of a queue whose orderly close took too long.
var errCloseTimeout = errors.New("the close was not finished in time")

// KickError is the cause of a queue that ended because its client was too slow.
type KickError struct{ Reason backpressure.KickReason }

// Error implements error.
func (e *KickError) Error() string { return "kicked: " + string(e.Reason) }

// call calls f if there is one.
func call[T any](f func(T), v T) {
	if f != nil {
		f(v)
	}
}

// epoch is where this package counts time from: a reading of the monotonic clock
// alone costs half of time.Now, and there are three for each message.
var epoch = time.Now()

// clock is the time since epoch.
func clock() time.Duration { return time.Since(epoch) }

// deadline is the wall clock at now of clock, plus d.
func deadline(now, d time.Duration) time.Time { return epoch.Add(now + d) }
