// Package nonce has the words that the rest of the gateway shares: ops and their results, errors
// and outcomes, events, what is stored of a signer, and the interfaces Store, of databases, and
// ShardLog, of the performance engine. It knows no socket and no SQL, and starts no goroutine.
//
// The state machine is package rules, what runs it package service, the stores are postgres,
// sqlite and, for tests, memstore. A write happened, did not happen, or is unknown; see
// StoreError.
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
