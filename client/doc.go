// Package client is the Go client of a Noncegate gateway: it keeps one
// WebSocket connection open, sends any number of concurrent calls over it, comes
// back when the connection is lost, and repeats what may be repeated.
//
// # Outcomes
//
// A write happened, did not happen, or nobody knows. The error of a call always
// says which of the three it was:
//
//	error of the call                 the write
//	nil                               happened
//	*UnknownOutcomeError              unknown: it may have happened, or happen yet
//	errors.Is(err, ErrConflict)       settled: the *wire.Error holds the state
//	errors.As(err, **wire.Error)      did not happen, the gateway refused it
//	*NotSentError, any other          did not happen, nothing left this process
//
// Look for *UnknownOutcomeError first. It never matches a refusal that was told
// to a later try, because such a refusal settles nothing: the first try may
// still land. Only an answer or a conflict to the same request id does, so that
// an allocation with an unknown outcome is settled by Allocate with the
// RequestID of the error, here or in another process.
//
// # What is repeated
//
// Refusals that pass (server_busy, fenced, not_owner, unavailable, draining, and
// hold_limit for a window, which moves on with the chain) and lost connections are
// tried again with the same request id, after a jittered backoff that is never shorter than retryAfterMs, until the context or
// Config.MaxElapsed ends. Allocate makes a request id when it is given none.
// Marks, extensions and floors are answered the same when they are repeated; reads change
// nothing. Any other call without a request id is repeated only while it is certain
// that nothing happened.
//
// # What it does not promise
//
// Concurrent calls have no order among each other: wait for one before starting
// the next where it matters. Events are not a log: a subscription says when
// events are missing (Event.Missed, Event.Gap) and does not fetch them.
//
// # Goroutines
//
// Each connection has one that reads and one that writes. One more keeps the
// connection up, one watches each owner's connection that a refusal led to, and
// one renews each subscription. All belong to the Client; Close ends them and waits.
package client
