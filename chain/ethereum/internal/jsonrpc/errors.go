package jsonrpc

import (
	"encoding/json"
	"errors"
	"fmt"

	"noncegate/internal/rpcconn"
)

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
	// ErrNoSubscriptions: the node is reached over HTTP, which has no subscriptions.
	ErrNoSubscriptions = errors.New("subscriptions need a WebSocket")
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
