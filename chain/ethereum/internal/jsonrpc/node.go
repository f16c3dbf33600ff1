// Package jsonrpc asks one node by JSON-RPC 2.0, over HTTP or over a WebSocket.
//
// Both carriers keep the same contract, Node. An answer has a bound in bytes that is kept while it is read; one
// that fits nothing that was asked is the node's failure and never the result of another request. Redirects are
// not followed. Credentials of the address go into a header, and no text that leaves this package has them.
//
// Every request has one of three outcomes: the node answered it (Call.Result or
// Call.Err), or Call.Fail says why not. errors.Is(Fail, ErrNotSent) then says that
// nothing of it can have reached the node; otherwise the node may have carried it out.
//
// HTTP has no goroutine of its own. A WebSocket's are those of Run.
//
// Read node.go, message.go (calls and answers), http.go, socket.go, endpoint.go (addresses).
package jsonrpc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"time"

	"noncegate/internal/rpcconn"
)

// Node is one node, over HTTP or WebSocket. Its methods may be called by many
// goroutines.
type Node interface {
	// Do sends calls as one request, a batch where there are several, and waits for the
	// answer, of at most limit bytes. Each call is settled when it returns. With another
	// session than 0 nothing is sent unless it is the one there is now. The time is
	// bounded by ctx alone.
	Do(ctx context.Context, session uint64, calls []*Call, limit int64)
	// Subscribe opens a subscription (eth_subscribe) with params, in a session as for Do. notify is called for
	// each notification, one call at a time, and must not block; ended once, with the
	// reason, unless Close was called before. Neither is called under a lock.
	Subscribe(ctx context.Context, session uint64, params json.RawMessage, notify func(json.RawMessage), ended func(error)) (
		*Subscription, *Error, error)
	// Session counts connections: what was found out about a node holds for one. 0: there is none now. Over HTTP it is always 1.
	Session() uint64
	// Dials counts connections that come and go without a session, behind each of which there may
	// be another node: those over HTTP, and the WebSockets for what is ForOthers.
	Dials() uint64
	// Reconnect ends the connection there is, if it is that of the session. Over HTTP
	// it drops idle ones.
	Reconnect(session uint64, reason error)
	// Run keeps the node connected until ctx ends, then ends everything and waits for
	// it. It is called once.
	Run(ctx context.Context)
}

// Config holds the settings of a Node. There are no defaults: the caller has them.
type Config struct {
	Dial        func(ctx context.Context, network, addr string) (net.Conn, error)
	MaxInflight int             // requests under way; it sizes pools, the caller keeps it
	MaxAnswer   int64           // the greatest limit that Do will be given, and of a message of a WebSocket
	Timeout     time.Duration   // of an attempt to connect, and of a write
	MaxPause    time.Duration   // between two attempts to connect
	Changed     func(err error) // a WebSocket was connected (nil) or lost; it must not block
}

// Open returns the node at an endpoint. Nothing is connected before Run, or before the
// first Do over HTTP.
func Open(e *Endpoint, cfg Config) Node {
	if e.WebSocket() {
		return newSocket(e, cfg)
	}
	return newHTTP(e, cfg)
}

// forOthers is the key of ForOthers.
type forOthers struct{}

// ForOthers returns a context for calls and subscriptions of others: while their large answers
// are read, those to the gateway's own questions are read, too.
func ForOthers(ctx context.Context) context.Context { return context.WithValue(ctx, forOthers{}, true) }

func isForOthers(ctx context.Context) bool { return ctx.Value(forOthers{}) != nil }

// What a caller may branch on. They are in the tree of Call.Fail.
var (
	// ErrNotSent: nothing of the request can have reached the node.
	ErrNotSent = errors.New("not sent")
	// ErrTooLarge: the answer is larger than the caller takes, and was not read on.
	ErrTooLarge = rpcconn.ErrLargeAnswer
	// ErrNonsense: the answer is not what JSON-RPC 2.0 allows, or answers something
	// that was not asked.
	ErrNonsense = rpcconn.ErrNonsense
	// ErrClosed: Run has ended.
	ErrClosed = errors.New("closed")

	errNoSubscriptions = errors.New("subscriptions need a WebSocket")
)

// Error is a node's refusal of one request.
type Error struct {
	Code    int
	Message string
	Data    json.RawMessage // nil: none
}

// Error returns the node's sentence with its code.
func (e *Error) Error() string { return fmt.Sprintf("%s (%d)", e.Message, e.Code) }

// StatusError is an HTTP status instead of an answer, also that of a refused upgrade.
type StatusError = rpcconn.StatusError

// BatchError says that a node answered a whole batch by one error: often, that it does
// not take batches, or none of this size.
type BatchError struct{ Refusal *Error }

// Error returns the node's sentence.
func (e *BatchError) Error() string { return "the batch was refused: " + e.Refusal.Error() }

// Unwrap returns the node's error.
func (e *BatchError) Unwrap() error { return e.Refusal }

func notSent(err error) error { return fmt.Errorf("%w: %w", ErrNotSent, err) }
