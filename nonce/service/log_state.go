package service

import (
	"sync/atomic"
	"time"

	"noncegate/nonce"
)

// engine is what a Service knows of the performance engine.
type engine struct {
	goal      atomic.Pointer[nonce.EngineGoal] // nil: not read yet
	trouble   atomic.Pointer[trouble]          // why the engine is to be left; nil: nothing
	reach     reach
	rehearsal *rehearsal // nil: there is no log
}

// workerLogs is what a worker keeps for all logs of its shards. It belongs to worker.batchMu.
type workerLogs struct {
	shipper   *shipper
	storeAway bool // it does not answer, as far as logs have to do with it
	awaySince time.Time
	askAgain  time.Time // while it is away it is not asked before
	lastTried int       // the shard whose log was to be taken over last
	unshipped int       // changes that the rows do not have yet
	figures   atomic.Pointer[LogFigures]
	counted   time.Time   // when they were
	later     []untold    // answers that wait for a time
	lateTimer *time.Timer // wakes the worker for the first of them
	rehearsed []rehearsed
}

// logFailure is since when the log of a shard could not be used.
type logFailure struct {
	since time.Time // zero: it can
	why   error
	tried time.Time // when a take-over failed last that had its time
}
