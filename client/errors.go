package client

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/gorilla/websocket"

	"noncegate/internal/rpcconn"
	"noncegate/wire"
)

// Refusals of the gateway, by the stable word of data.reason. Match them with
// errors.Is; errors.As with a *wire.Error reaches code, message and data.
var (
	ErrParse           error = code(wire.CodeParseError)
	ErrInvalidRequest  error = code(wire.CodeInvalidRequest)
	ErrMethodNotFound  error = code(wire.CodeMethodNotFound)
	ErrInvalidParams   error = code(wire.CodeInvalidParams)
	ErrInternal        error = code(wire.CodeInternal)
	ErrServerBusy      error = code(wire.CodeServerBusy)
	ErrNotOwner        error = code(wire.CodeNotOwner)
	ErrFenced          error = code(wire.CodeFenced)
	ErrUnavailable     error = code(wire.CodeUnavailable)
	ErrConflict        error = code(wire.CodeConflict)
	ErrNotFound        error = code(wire.CodeNotFound)
	ErrHoldLimit       error = code(wire.CodeHoldLimit)
	ErrDuplicateSubmit error = code(wire.CodeDuplicateSubmit)
	ErrUnauthorized    error = code(wire.CodeUnauthorized)
	ErrForbidden       error = code(wire.CodeForbidden)
	ErrDraining        error = code(wire.CodeDraining)

	// ErrWindow is an ErrHoldLimit: a new nonce would be too far ahead of the chain. The
	// Data of the *wire.Error has the lowest nonce that the chain has not used, and how
	// far new ones may be.
	ErrWindow = errors.New("window")
)

// Conditions of the client itself.
var (
	// ErrClosed: Close was called.
	ErrClosed = errors.New("client closed")
	// ErrConnectionLost: the connection ended. A *CloseError matches it too.
	ErrConnectionLost = errors.New("connection lost")
	// ErrQueueFull: Config.MaxInflight calls are under way and
	// Config.QueueLimit wait for their slot.
	ErrQueueFull = rpcconn.ErrQueueFull
	// ErrTooLarge: the request exceeds Config.MaxMessageBytes.
	ErrTooLarge = rpcconn.ErrTooLarge
	// ErrHoldEnded is the cause of the context of WithNonce's function at the
	// hold's deadline.
	ErrHoldEnded = errors.New("the hold has ended")
	// ErrNotSent marks an error of WithNonce's function that knows that its transaction
	// was not given to any node, so that the nonce is given back:
	//
	//	return "", fmt.Errorf("%w: %w", client.ErrNotSent, err)
	//
	// It has nothing to do with NotSentError, which is about a call to the gateway.
	ErrNotSent = errors.New("transaction not sent")
)

// code is the sentinel of a code of the protocol.
type code int

func (c code) Error() string { return wire.Reason(int(c)) }

// UnknownOutcomeError says that a write was sent and that its outcome is
// unknown. It is not a refusal: the write may have happened or may happen yet.
type UnknownOutcomeError struct {
	Method string
	// RequestID settles the outcome: the same call with this id is answered as
	// the first was, or as a conflict. Empty when there was none; marks and
	// floors need none, repeating them is enough.
	RequestID string
	// Err is what made the outcome unknown: a lost connection, the end of the
	// context, or unavailable with outcome unknown.
	Err error
	// Last is what the last try was told, nil when there was no later one. It
	// settles nothing, and is therefore not unwrapped.
	Last error
}

// Error implements error.
func (e *UnknownOutcomeError) Error() string {
	s := e.Method + ": outcome unknown"
	if e.RequestID != "" {
		s += " (request id " + e.RequestID + ")"
	}
	s += ": " + e.Err.Error()
	if e.Last != nil {
		s += "; last try: " + e.Last.Error()
	}
	return s
}

// Unwrap returns what made the outcome unknown.
func (e *UnknownOutcomeError) Unwrap() error { return e.Err }

// NotSentError says that the call was never sent, so that nothing happened. Its Err
// says why: ErrQueueFull, ErrClosed, ErrTooLarge, a *CloseError, a *DialError,
// an error of the context.
type NotSentError = rpcconn.NotSentError

// CloseError says with which code and words the gateway closed the connection.
// It matches ErrConnectionLost.
type CloseError struct {
	Code   int
	Reason string
}

// Error implements error.
func (e *CloseError) Error() string {
	return fmt.Sprintf("closed by the gateway: %d %s", e.Code, e.Reason)
}

// Is reports whether target is ErrConnectionLost.
func (e *CloseError) Is(target error) bool { return target == ErrConnectionLost }

// Final reports whether the gateway forbids to come back. The client obeys: all
// calls of it fail from then on.
func (e *CloseError) Final() bool { return e.Code >= 4500 }

// lost is the error of a connection that ended by err.
func lost(err error) error {
	if ce, ok := errors.AsType[*websocket.CloseError](err); ok && ce.Code != websocket.CloseAbnormalClosure {
		return &CloseError{Code: ce.Code, Reason: ce.Text}
	}
	return fmt.Errorf("%w: %w", ErrConnectionLost, err)
}

// final reports whether a connection that ended by err must not be made again.
func final(err error) bool {
	ce, ok := errors.AsType[*CloseError](err)
	return ok && ce.Final()
}

// DialError says why a connection could not be opened.
type DialError struct {
	URL        string
	Status     int           // of HTTP, that came instead of an upgrade; 0: none
	Reason     string        // the sentence with it, such as why the credential was not taken
	RetryAfter time.Duration // how long the gateway asked to stay away; 0: it did not
	Err        error
}

// Error implements error.
func (e *DialError) Error() string { return fmt.Sprintf("dial %s: %v", e.URL, e.Err) }

// Unwrap returns the cause.
func (e *DialError) Unwrap() error { return e.Err }

func notDialled(url string, err error) error {
	e := &DialError{URL: url, Err: err}
	if status, ok := errors.AsType[*rpcconn.StatusError](err); ok {
		e.Status, e.Reason, e.RetryAfter = status.Code, status.Text, status.RetryAfter
	}
	return e
}

// refusal is an error of the gateway, with Data. It matches the sentinel of its code.
type refusal struct{ *wireError }

type wireError = wire.Error

func (r *refusal) Unwrap() error { return r.wireError }

func (r *refusal) Is(target error) bool {
	return target == code(r.Code) || target == ErrWindow && r.Data.Cause == wire.CauseWindow
}

// outcomeUnknown reports whether the gateway itself does not know. Unavailable
// means that nothing happened only where it says so.
func (r *refusal) outcomeUnknown() bool {
	return r.Code == wire.CodeUnavailable && r.Data.Outcome != wire.OutcomeNone
}

// reasonOf is the error of a try in a word or two: the gateway's reason of a refusal,
// whose outcome follows when it is unknown, "no answer", or "not sent".
func reasonOf(err error) string {
	if r, ok := errors.AsType[*refusal](err); ok {
		if r.outcomeUnknown() {
			return ErrUnavailable.Error() + " " + wire.OutcomeUnknown
		}
		return cmp.Or(wire.Reason(r.Code), "unknown code")
	}
	if _, ok := errors.AsType[*NotSentError](err); ok {
		return "not sent"
	}
	return "no answer"
}
