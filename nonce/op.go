package nonce

// Op is a Request on its way through a service, with its Result. The caller fills the Request and
// does not touch the Op between Submit and Done; the service fills the Result before Done.
type Op struct {
	Request
	Result

	// EventSlot says that a post-DB slot was reserved for this op. It is false
	// again once the slot was handed to the EventSink; when it is still true at
	// Done, the slot is the caller's to give back.
	EventSlot bool
	// Path is set on what came from another node and changes something; see Path.
	Path *Path
	// PathID is set by the service on what it gives to Router.Forward: the number of the
	// path that the op takes, unique in this process and the same for ops of one signer
	// that must not overtake one another.
	PathID uint64
	// Task is the service's own, from Submit to Done.
	Task any
	// Completion is told when the op has ended.
	Completion Completion
}

// Completion is told of the end of an op.
type Completion interface {
	// Done is called exactly once for a submitted op, from a worker's goroutine
	// (worker-queue) or the submitter's own (basic, caller-runs). It must not
	// block. The Waker it returns, which may be nil, is woken after the Done
	// calls of the whole batch, so that what one connection gets leaves together.
	Done(op *Op) Waker
	// Gone reports that nobody waits for the op any more. Work of a gone caller
	// is skipped, with ErrGone, where nothing is committed yet.
	Gone() bool
}

// Waker is woken when a batch is complete.
type Waker interface{ Wake() }
