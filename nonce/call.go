package nonce

// Completion is told of the end of a request.
type Completion interface {
	// Done is called exactly once for a submitted request, with the Result that was submitted
	// with it, from a worker's goroutine (worker-queue) or the submitter's own (basic,
	// caller-runs). It must not block. The Waker it returns, which may be nil, is woken after the
	// Done calls of the whole batch, so that what one connection gets leaves together.
	Done(r *Result) Waker
	// Gone reports that the caller does not wait for the answer any more. Work of a gone caller
	// is skipped, with ErrGone, where nothing is committed yet.
	Gone() bool
}

// Waker is woken when a batch is complete.
type Waker interface{ Wake() }
