package jsonrpc

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// What a caller may branch on. They are in the tree of Call.Fail.
var (
	// ErrNotSent: nothing of the request can have reached the node.
	ErrNotSent = errors.New("not sent")
	// ErrTooLarge: the answer is larger than the caller takes, and was not read on.
	ErrTooLarge = errors.New("the answer is larger than allowed")
	// ErrNonsense: the answer is not what JSON-RPC 2.0 allows, or answers something
	// that was not asked.
	ErrNonsense = errors.New("the answer makes no sense")
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
type StatusError struct {
	Code       int
	RetryAfter time.Duration // 0: the node did not say
	Text       string        // the first line of the body, shortened
}

// Error says which status it was.
func (e *StatusError) Error() string {
	s := fmt.Sprintf("HTTP status %d", e.Code)
	if e.Code >= 300 && e.Code < 400 {
		s += ", a redirect, which is not followed"
	}
	if e.Text != "" {
		s += ": " + e.Text
	}
	return s
}

// BatchError says that a node answered a whole batch by one error: often, that it does
// not take batches, or none of this size.
type BatchError struct{ Refusal *Error }

// Error returns the node's sentence.
func (e *BatchError) Error() string { return "the batch was refused: " + e.Refusal.Error() }

// Unwrap returns the node's error.
func (e *BatchError) Unwrap() error { return e.Refusal }

func nonsense(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrNonsense, fmt.Sprintf(format, args...))
}

func notSent(err error) error { return fmt.Errorf("%w: %w", ErrNotSent, err) }
