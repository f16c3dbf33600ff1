// Package nonce holds the rules of handing out nonces, and the service that runs
// them: in mode worker-queue on shards of signers this node owns, in mode basic
// in a transaction per request. It knows no socket and no SQL.
//
// The rules (rules.go) are a state machine without I/O: a draft plans one commit
// against what is remembered of a signer. The service tries the plan in the
// store, on the condition of fencing token and version, and follows it in memory
// only when the store says that it happened. Whatever memory gets wrong costs a
// round trip, never a nonce.
//
// A write happened, did not happen, or is unknown; see StoreError and settle.go
// for how the third is turned into one of the others.
//
// Goroutines: New starts one per worker, one for sweeps and, where consumed
// allocations are not kept for ever, one that prunes them; Stop ends them and
// waits. In mode basic there are no workers.
package nonce

import (
	"time"
)

// Mode says how requests are run.
type Mode string

// The two modes.
const (
	WorkerQueue Mode = "worker-queue"
	Basic       Mode = "basic"
)

// Reject says what a full worker queue means.
type Reject string

// The two policies: refuse at once, or let the caller's goroutine take its turn
// at the shard.
const (
	FailFast   Reject = "fail-fast"
	CallerRuns Reject = "caller-runs"
)

// Figures receives what is measured. Its calls come from the hot path.
type Figures interface {
	WorkerQueue(d time.Duration)       // queued to taken by a worker
	Commit(d time.Duration, ops int)   // one round trip, and the ops it carried
	LeaseAcquire(result AcquireResult) // one signer
	LeaseRenew(result RenewResult)     // one signer, by writing to it
	FenceReject(op Kind)               // one op told fenced
	WentBack()                         // a signer, or the node, stopped because the store went back
	Invariant()                        // a commit aborted by ErrInvariant: an alarm
	Swept(expired int)                 // holds whose client did not mark in time, each once
	SweepsPaused(paused bool)          // by a jump of the store's clock
}

// AcquireResult is the label of a lease acquisition.
type AcquireResult string

// The results of an acquire.
const (
	AcquireNew      AcquireResult = "acquired"
	AcquireTakeover AcquireResult = "takeover" // of another node's expired lease
	AcquireHeld     AcquireResult = "held"     // by another node
	AcquireError    AcquireResult = "error"
)

// RenewResult is the label of a renewal.
type RenewResult string

// The results of a renewal. Late: the write renewed a lease this node could no
// longer trust, which nobody had taken meanwhile.
const (
	RenewInTime RenewResult = "renewed"
	RenewLate   RenewResult = "late"
)
