// Package nonce defines what the rest of the gateway shares: requests and their results with the
// table of kinds, their binary form between nodes, errors and outcomes, events, the stored state of
// a signer, and the interfaces Store, of databases, and ShardLog, of the performance engine.
//
// It promises that a Request and a Result are plain values, which mean the same on every node, and
// that a write has three outcomes, which are never merged: it happened, it did not happen, or the
// outcome is unknown (StoreError). It does not say what a request does to a signer; that is package
// rules. Package service runs requests, and the stores are postgres, sqlite and, for tests, memstore.
//
// It has no goroutines, no sockets and no SQL. A Path is set by one atomic write; a TotalsWalk has a lock,
// held while the store is read.
//
// Files in reading order: request.go, result.go and kinds.go (what is asked and answered), call.go and
// slot.go (how it is submitted), route.go (how it is forwarded), codec.go (its binary form), errors.go
// and event.go; signer.go and row.go (a signer's row, and one nonce of it), store.go (what a service
// needs of a store, and the outcomes of its writes), database.go and list.go (what else a gateway needs
// of one); then log.go for the performance engine, and chain.go, watch.go and sent.go for blockchains.
package nonce

import (
	"time"

	"noncegate/lease"
)

// Mode says how requests are run.
type Mode string

// The two modes.
const (
	WorkerQueue Mode = "worker-queue" // owners plan on what they remember, and commit many ops in one statement
	Basic       Mode = "basic"        // a transaction for each request; it owns nothing and writes token 0
)

// Reject says what a full worker queue means.
type Reject string

// The two policies: refuse at once, or let the caller's goroutine take its turn
// at the worker.
const (
	FailFast   Reject = "fail-fast"
	CallerRuns Reject = "caller-runs"
)

// Figures receives what is measured. Its calls come from the hot path.
type Figures interface {
	WorkerQueue(d time.Duration)             // queued to taken by a worker
	Commit(d time.Duration, ops int)         // one round trip, and the ops it carried
	LeaseAcquire(result lease.AcquireResult) // one attempt to take a shard
	LeaseRenew(result RenewResult)           // one heartbeat that renewed the lease of the node
	FenceReject(op Kind)                     // one op told fenced
	WentBack()                               // a signer, or the node, stopped because the store went back
	Invariant()                              // a commit aborted by ErrInvariant: an alarm
	Swept(expired int)                       // holds whose client did not mark in time, each once
	SweepsPaused(paused bool)                // by a jump of the store's clock
}

// RenewResult is what became of a heartbeat that renewed the lease: a label of metrics.
type RenewResult string

// The results of a renewal.
const (
	RenewInTime RenewResult = "renewed"
	RenewLate   RenewResult = "late" // the lease had ended before
)
