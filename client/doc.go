// Package client is the Go client of a Noncegate gateway: it keeps one
// WebSocket connection open, sends any number of concurrent calls over it, comes
// back when the connection is lost, and repeats what may be repeated.
//
// # Outcomes
//
// The error of a call always says whether a write happened:
//
//	error of the call                 the write
//	nil                               happened
//	*UnknownOutcomeError              unknown: it may have happened, or happen yet
//	errors.Is(err, ErrConflict)       settled: the *wire.Error holds the state
//	errors.As(err, **wire.Error)      did not happen, the gateway refused it
//	*NotSentError, any other          did not happen, nothing left this process
//
// Look for *UnknownOutcomeError first. It never matches a refusal that was told
// to a later try: the first try may still land. Only an answer or a conflict to the same
// request id settles it, as Allocate with the RequestID of the error gets one, here or in
// another process.
//
// # What is repeated
//
// Refusals that pass (server_busy, fenced, not_owner, unavailable, draining, and
// hold_limit for a window, which moves on with the chain) and lost connections are
// tried again with the same request id, after a jittered backoff that is never shorter
// than retryAfterMs, until the context or Config.MaxElapsed ends. Any call without a request
// id but reads, marks, extensions and floors is repeated only while it is certain that
// nothing happened; Allocate makes a request id when it is given none.
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
// connection up, and one renews each subscription. Close ends them and waits.
package client
