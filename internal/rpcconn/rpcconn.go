// Package rpcconn keeps a WebSocket connection that speaks JSON-RPC 2.0 as a client: the
// Go client's to a gateway, and the gateway's to a node of a chain.
//
// A Conn is one life of a connection. Any number of goroutines call Do; one goroutine
// reads, and one writes what was queued meanwhile in one go. A call has one of three
// outcomes: it was answered; it did not happen (*NotSentError: nothing of it left this
// process); or that is unknown (any other error). What the other side sends that answers
// nothing that was asked ends the connection: it may have been meant for any of the calls.
// Events of a subscription come in order, in the goroutine that reads.
//
// A Kept is a connection over all its lives: it dials again, address after address, with
// full jitter, until its context ends or the other side forbids it.
//
// Every queue is bounded: Config.MaxInflight calls under way, Config.QueueLimit that wait
// for one of those places, and as many frames to be written as there are places, with
// spareFrames for requests without a caller. The next one is ErrQueueFull.
//
// The package makes no call twice, and knows no method.
//
// Read rpcconn.go (settings, words), conn.go (a call), read.go, write.go, message.go,
// dial.go, kept.go.
package rpcconn

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/cenkalti/backoff/v5"

	"noncegate/wire"
)

// Config holds the settings of connections to the same other side. There are no
// defaults.
type Config struct {
	URLs    []string // of the same peer; those of a Kept, in turn
	Header  http.Header
	TLS     *tls.Config
	NetDial func(ctx context.Context, network, addr string) (net.Conn, error)

	DialTimeout time.Duration // of one attempt, upgrade included
	// ReadTimeout is how long a connection may be silent before it counts as dead; 0 or
	// less: for ever. PingEvery is how often it is tried; 0: the other side does that.
	ReadTimeout, PingEvery time.Duration
	WriteTimeout           time.Duration

	MaxInflight, QueueLimit int   // see the package
	MaxRequest              int   // bytes of a message that is sent; 0: any
	MaxAnswer               int64 // and of one that is received

	// Event is the method of the notifications of subscriptions; Unsubscribe the one that
	// ends one.
	Event, Unsubscribe string
	// Strict ends the connection upon an error that names no request, and upon an event
	// that cannot be read. Without it, such an error is that of the only request under
	// way, or of the only batch, else of none; and such an event is left out.
	Strict bool

	BackoffMin, BackoffMax time.Duration // the pauses of a Kept; see Pace
	MaxAway                time.Duration // the longest Retry-After that is obeyed

	// NotDialled and Lost make of the error of an attempt to connect, which may have a
	// *StatusError in it, and of the end of a connection what callers are told.
	NotDialled func(url string, err error) error
	Lost       func(err error) error
	// Final reports whether a Kept must not come back after this end; nil: it always may.
	Final func(err error) bool
	// Changed is told by a Kept that c is up (nil), that it is lost, or being left
	// (ErrLeaving), and with a nil c that an attempt failed. It must not block.
	Changed func(c *Conn, err error)
}

// Errors of calls.
var (
	ErrQueueFull   = errors.New("client queue full")
	ErrTooLarge    = errors.New("request too large")
	ErrLargeAnswer = errors.New("the answer is larger than allowed")
	ErrNonsense    = errors.New("the answer makes no sense")
	// ErrLeaving: the connection is being replaced by another.
	ErrLeaving = errors.New("replaced by another")

	errNotConnected = errors.New("not connected")
	errNewSession   = errors.New("connected anew meanwhile")
)

// NotSentError says that nothing of a call left this process.
type NotSentError struct {
	Err   error
	Again bool // it was for want of a connection: another may take it
}

// Error says why.
func (e *NotSentError) Error() string { return "not sent: " + e.Err.Error() }

// Unwrap returns why it was not sent.
func (e *NotSentError) Unwrap() error { return e.Err }

// Answer is what answered a call.
type Answer struct {
	Messages []Message // of one call one; of a batch what there was, in any order
	First    uint64    // the id of the first call; those behind it have the next ones
	Bytes    int       // of the whole
	SentAt   time.Time
}

// Sub receives the events of a subscription. Notify and Ended may not block, and are
// called under no lock; Live is called under the connection's lock and must not call it.
type Sub interface {
	// Live says that it is open at c under an id, as the other side wrote it, before the
	// first event. A false ends it again.
	Live(c *Conn, id string) bool
	// Notify passes an event on. An error ends the connection.
	Notify(event wire.Raw) error
	// Ended says that c sends no more events; it is not called after Unsubscribe.
	Ended(c *Conn, err error)
}

// Pace is a fresh sequence of pauses with full jitter: each is drawn from between 0 and
// a bound, which is shortest at first and doubles until it is longest.
func Pace(shortest, longest time.Duration) *backoff.ExponentialBackOff {
	return &backoff.ExponentialBackOff{
		InitialInterval: shortest / 2, RandomizationFactor: 1, Multiplier: 2, MaxInterval: longest / 2,
	}
}

// Why is why ctx ended: its cause, which matches ctx.Err in any case.
func Why(ctx context.Context) error {
	cause := context.Cause(ctx)
	if errors.Is(cause, ctx.Err()) {
		return cause
	}
	return fmt.Errorf("%w: %w", ctx.Err(), cause)
}
