package guard

import (
	"context"
	"time"
)

// Locks is where locks are kept. Redis and Memory are.
type Locks interface {
	// Run does the steps, those of one key in their order, and fills in the answer
	// of each. It returns when ctx ends at the latest; a step without an answer
	// then has its Err. It is called from several goroutines, for different keys.
	Run(ctx context.Context, steps []Step)
}

// Step is one thing to do with one lock.
type Step struct {
	Key   string
	Value string
	// Release gives the lock back if it has Value; else the step takes it, for TTL,
	// if it is free.
	Release bool
	TTL     time.Duration // whole milliseconds

	// OK says that the lock was taken, or given back.
	OK bool
	// Left is how long another caller's lock lasts at most, for a take that is
	// not OK.
	Left time.Duration
	// Others says that another caller has the lock by now, for a release that is
	// not OK; else it is free.
	Others bool
	// Err says why it is unknown whether it was done. errFull: it was not.
	Err error
}
